"""`slipstream emulate` as a process: one line when it is ready, faults over HTTP, a good end."""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from typer.testing import CliRunner

from emulated_client import CHAT
from live_service import COMMAND_ENVIRONMENT, command
from slipstream.cli import application

HELLO = {"model": "m", "messages": [{"role": "user", "content": "Hello!"}]}


@asynccontextmanager
async def started(*arguments: str) -> AsyncIterator[tuple[Process, str]]:
    """The process and its first line."""
    process = await asyncio.create_subprocess_exec(
        *command("emulate", "--port", "0", "--model", "m", *arguments),
        env=COMMAND_ENVIRONMENT,
        stdout=PIPE,
        stderr=PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            yield process, (await process.stdout.readline()).decode()
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
async def test_it_serves_until_it_is_told_to_stop(told: signal.Signals) -> None:
    async with started("--dialect", "llamacpp", "--speculator", "draft", "--json", "--ttft-ms", "1") as (process, line):
        url = json.loads(line)["url"]
        async with aiohttp.ClientSession() as session:
            async with session.post(url + CHAT, json=HELLO | {"max_tokens": 3}) as response:
                answer = await response.json()
            assert answer["usage"]["completion_tokens"] == 3
            await session.post(f"{url}/emulate/faults", json={"kind": "die", "after_events": 1, "reset": True})
            with pytest.raises((aiohttp.ClientConnectionError, aiohttp.ClientPayloadError)):
                async with session.post(url + CHAT, json=HELLO | {"stream": True}) as response:
                    await response.read()
        process.send_signal(told)
        assert await process.wait() == 0


async def test_it_says_where_it_is() -> None:
    async with started() as (process, line):
        assert line.startswith("vllm node with model m on http://127.0.0.1:")
        process.terminate()
        assert await process.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--dialect", "trtllm"], "there is no dialect 'trtllm'; known are vllm, llamacpp, sglang"),
        (["--dialect", "tgi"], "there is no dialect 'tgi'; known are vllm, llamacpp, sglang"),
        (["--speculator", "eagle"], "a speculator is none, ngram or draft, not 'eagle'"),
        (["--alpha", "high"], "--alpha: 'high' is no acceptance: write 0.6, or code=0.85,chat=0.4"),
        (["--queue-status", "500"], "a full queue answers 429 or 503, not 500"),
        (["--profile", "no.json"], "no.json can not be read: No such file or directory"),
        (["--profile", "a", "--target", "b"], "give --profile or --target, not both: each tells what steps take"),
        (["--hardware", "h100", "--tp", "2"], "--hardware, --tp only counts beside --target"),
        (["--kv-tokens", "9"], "--kv-tokens only counts beside --profile or --target"),
        (
            ["--profile", "article-1", "--step-ms", "1"],
            "--step-ms only counts without --profile and --target: they tell the pace",
        ),
        (["--profile", "article-1", "--speculator", "eagle"], "a speculator is none, ngram or draft, not 'eagle'"),
        (
            ["--target", "Llama-3.1-8B"],
            "the roofline needs --hardware; `slipstream crossover --list` shows what there is",
        ),
        (
            ["--target", "Llama-3.1-70B", "--hardware", "h100"],
            "Llama-3.1-70B needs 141 GB for its weights, and 1 × H100 has 72 GB to give",
        ),
        (
            ["--target", "Llama-3.1-8B", "--hardware", "h100", "--speculator", "ngram", "--replicated"],
            "--replicated only counts beside a draft model",
        ),
    ],
)
def test_what_can_not_be_is_one_sentence_and_status_2(arguments: list[str], sentence: str) -> None:
    result = CliRunner().invoke(application("emulate"), ["emulate", *arguments])
    assert (result.exit_code, result.output.strip()) == (2, sentence)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--profile", "article-1", "--speculator", "draft"],
        ["--target", "Llama-3.1-8B", "--hardware", "h100", "--speculator", "eagle3", "--kv-tokens", "4096"],
    ],
    ids=["constant", "profile", "target"],
)
def test_an_address_that_can_not_be_had_is_one_sentence_and_status_1(arguments: list[str]) -> None:
    """Which is found last: the node is there, whatever paces it."""
    result = CliRunner().invoke(application("emulate"), ["emulate", "--host", "203.0.113.1", *arguments])
    sentence = "can not listen on 203.0.113.1:8000: Cannot assign requested address"
    assert (result.exit_code, result.output.strip()) == (1, sentence)

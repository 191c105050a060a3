"""An emulated engine is on the wire what the recorded one is."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from emulated_client import CHAT, ask, draft, fetch, outline, payloads, shape
from recorded_engine import recorded
from slipstream.emulate import NodeSettings, emulated

RECORDED_DRAFT = {"vllm": "vllm-0.32.0-ngram", "llamacpp": "llamacpp-b11549-draft"}
RECORDED_NONE = {"vllm": "vllm-0.32.0-none", "llamacpp": "llamacpp-b11549-none"}
STATISTICS = {"vllm": "summary", "llamacpp": "none"}
USAGE = {"include_usage": True}
CONTINUOUS = {"include_usage": True, "continuous_usage_stats": True}


def head_and_body(response: bytes) -> tuple[str, bytes]:
    head, _, body = response.partition(b"\r\n\r\n")
    return head.decode(), body


def recorded_body(folder: str, name: str) -> bytes:
    return head_and_body(recorded(folder, name))[1]


def names(value: Any) -> set[str]:
    """All names at any depth."""
    if isinstance(value, dict):
        return {name for key, one in value.items() for name in ({key} | names(one))}
    return {name for one in value for name in names(one)} if isinstance(value, list) else set()


def families(page: bytes) -> dict[str, str]:
    """Metrics and their types."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", page.decode(), re.MULTILINE))


@pytest.mark.parametrize("dialect", ["vllm", "llamacpp"])
async def test_an_answer_has_the_names_of_the_recorded_one(dialect: str) -> None:
    async with emulated(dialect, draft(request_statistics=STATISTICS[dialect])) as node:
        answer = await ask(node, max_tokens=20)
    expected = recorded_body(RECORDED_DRAFT[dialect], "chat.http")
    assert shape(answer.json) == shape(json.loads(expected))


@pytest.mark.parametrize("dialect", ["vllm", "llamacpp"])
async def test_an_answer_without_speculation_has_the_names_of_the_recorded_one(dialect: str) -> None:
    async with emulated(dialect, NodeSettings(ttft_s=0.001, step_s=0.001)) as node:
        answer = await ask(node, max_tokens=20)
    assert shape(answer.json) == shape(json.loads(recorded_body(RECORDED_NONE[dialect], "chat.http")))


@pytest.mark.parametrize(
    ("dialect", "name", "options"),
    [
        ("vllm", "chat-stream.http", None),
        ("vllm", "chat-stream-usage.http", USAGE),
        ("vllm", "chat-stream-continuous-usage.http", CONTINUOUS),
        ("llamacpp", "chat-stream.http", None),
        ("llamacpp", "chat-stream-usage.http", USAGE),
    ],
)
async def test_a_stream_has_the_events_of_the_recorded_one(
    dialect: str, name: str, options: dict[str, bool] | None
) -> None:
    async with emulated(dialect, draft(request_statistics=STATISTICS[dialect])) as node:
        answer = await ask(node, stream=True, stream_options=options, max_tokens=20)
    events = outline(payloads(answer.body))
    assert events == outline(payloads(recorded_body(RECORDED_DRAFT[dialect], name)))


async def test_a_text_completion_of_vllm_has_the_events_of_the_recorded_one() -> None:
    async with emulated("vllm", draft()) as node:
        answer = await ask(node, "/v1/completions", stream=True, max_tokens=20)
    expected = recorded_body(RECORDED_DRAFT["vllm"], "completions-stream.http")
    assert outline(payloads(answer.body)) == outline(payloads(expected))


@pytest.mark.parametrize(
    ("dialect", "folder", "settings"),
    [
        ("vllm", "vllm-0.32.0-ngram", draft()),
        ("vllm", "vllm-0.32.0-none", NodeSettings()),
        ("llamacpp", "llamacpp-b11549-draft", draft()),
        ("llamacpp", "llamacpp-b11549-none", NodeSettings()),
    ],
)
async def test_metrics_are_those_of_the_recorded_engine(dialect: str, folder: str, settings: NodeSettings) -> None:
    real = families(recorded(folder, "metrics-after.txt"))
    async with emulated(dialect, settings) as node:
        await ask(node, max_tokens=20)
        told = families(await fetch(node, "/metrics"))
    assert told.items() <= real.items()
    assert {name for name in real if "spec_decode" in name and not name.endswith("_created")} <= told.keys()
    if dialect == "llamacpp":
        assert told == real


@pytest.mark.parametrize(
    ("dialect", "path", "name"),
    [
        ("vllm", "/v1/models", "models.json"),
        ("vllm", "/version", "version.json"),
        ("llamacpp", "/v1/models", "models.json"),
        ("llamacpp", "/props", "props.json"),
        ("llamacpp", "/slots", "slots-idle.json"),
    ],
)
async def test_pages_have_no_name_that_the_recorded_ones_lack(dialect: str, path: str, name: str) -> None:
    async with emulated(dialect, draft()) as node:
        told = json.loads(await fetch(node, path))
    assert names(told) <= names(json.loads(recorded(RECORDED_DRAFT[dialect], name)))


@pytest.mark.parametrize(
    ("dialect", "name", "body"),
    [
        ("vllm", "error-400.http", b'{"messages":'),
        (
            "vllm",
            "error-404.http",
            json.dumps({"model": "nope", "messages": [{"role": "user", "content": ""}]}).encode(),
        ),
        ("llamacpp", "error-400.http", b'{"messages":'),
    ],
)
async def test_errors_have_status_and_form_of_the_recorded_ones(dialect: str, name: str, body: bytes) -> None:
    head, expected = head_and_body(recorded(RECORDED_DRAFT[dialect], name))
    async with emulated(dialect, draft()) as node:
        told = await raw_post(node.url, body)
    told_head, told_body = head_and_body(told)
    assert told_head.splitlines()[0] == head.splitlines()[0]
    assert header_names(told_head) == header_names(head)
    error, real = json.loads(told_body)["error"], json.loads(expected)["error"]
    assert error.keys() == real.keys()
    assert {key: error[key] for key in ("code", "type")} == {key: real[key] for key in ("code", "type")}


@pytest.mark.parametrize(("dialect", "stream"), [(one, two) for one in ("vllm", "llamacpp") for two in (False, True)])
async def test_heads_have_the_headers_of_the_recorded_ones(dialect: str, stream: bool) -> None:
    head, _ = head_and_body(recorded(RECORDED_DRAFT[dialect], "chat-stream.http" if stream else "chat.http"))
    body = {"messages": [{"role": "user", "content": ""}], "max_tokens": 2, "stream": stream}
    async with emulated(dialect, draft()) as node:
        told, _ = head_and_body(await raw_post(node.url, json.dumps(body).encode()))
    assert header_names(told) == header_names(head)


def header_names(head: str) -> set[str]:
    return {line.partition(":")[0].lower() for line in head.splitlines()[1:]}


async def raw_post(url: str, body: bytes) -> bytes:
    """A chat over a connection of its own, as bytes. The client would keep the connection."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    try:
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer, re.IGNORECASE)
        return answer + (
            await reader.readexactly(int(length[1])) if length else await reader.readuntil(b"\r\n0\r\n\r\n")
        )
    finally:
        writer.close()

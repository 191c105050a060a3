"""What `slipstream node` refuses before it starts anything, and what is wrong with how it is told."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway_rig import eventually
from slipstream.agent.engine import EngineHook, OwnEngine
from slipstream.agent.run_file import held
from slipstream.cli import application
from slipstream.cli.agents import commanded_engine, embedded_engine, engine_of
from slipstream.cli.node import end_at_once_when_told_again
from slipstream.config.node_agent import node_agent_config
from slipstream.core.request import Pool


@pytest.fixture(autouse=True)
def _no_run_files_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def refused(*arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    told = CliRunner(env=environment or {}).invoke(application("node"), ["node", *arguments])
    return told.exit_code, told.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (("--slots", "4"), 2, "--slots only counts with --embedded"),
        (("--model", "m.gguf", "--speculator", "ngram"), 2, "--model, --speculator only counts with --embedded"),
        (("--embedded", "--", "vllm"), 2, "COMMAND does not go with --embedded"),
        (("--embedded", "--engine-ends-with-agent"), 1, "engine_outlives_agent: found a key without effect"),
        (("--embedded", "--run-file", "engine.json"), 1, "run_file: found a key without effect"),
        (("--embedded", "--engine", "vllm"), 2, "--engine does not go with --embedded"),
        (("--speculative-args", "'"), 2, "can not be read as words: No closing quotation"),
        (("--listen", "0.0.0.0:9100"), 1, "allowed: an address on loopback"),
        (("--role", "both"), 1, 'role: found "both"'),
        (("-c", "nowhere.yaml"), 1, "no such file"),
        (("--token-file", "nowhere"), 1, "token: found no usable key"),
        (("--embedded", "--model", "nowhere.gguf"), 1, "There is no model file"),
        (("--embedded", "--speculator", "magic"), 1, "There is no speculator 'magic'"),
        (("--listen", "127.0.0.1:0", "--", "/nowhere/serve"), 1, "/nowhere/serve can not be run: No such file"),
        (("--listen", "[::1]:0", "--", "sh", "-c", "echo no GPU; exit 3"), 1, "the engine ended with status 3; no GPU"),
    ],
)
def test_what_can_not_be_is_one_sentence_and_a_status(arguments: tuple[str, ...], status: int, sentence: str) -> None:
    found, errors = refused(*arguments)
    assert found == status
    assert sentence in errors
    assert "Traceback" not in errors


def test_a_token_may_stand_in_the_environment() -> None:
    found, errors = refused("--listen", "0.0.0.0:9100", environment={"SLIPSTREAM_AGENT_TOKEN": "no good token"})
    assert found == 1
    assert "token: found no usable key" in errors


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert refused("--listen", f"127.0.0.1:{port}", "--", "sleep", "9") == (
            1,
            f"can not listen on 127.0.0.1:{port} (agent): {os.strerror(98)}\n",
        )
        found, errors = refused("--embedded", "--engine-url", f"http://127.0.0.1:{port}")
        assert found == 1
        assert f"Port {port} of 127.0.0.1 can not be used" in errors


def test_an_engine_that_another_agent_has_in_hand_is_one_sentence(tmp_path: Path) -> None:
    run_file = tmp_path / "engine.json"
    with held(run_file):
        assert refused("--listen", "127.0.0.1:0", "--run-file", str(run_file), "--", "sleep", "9") == (
            1,
            f"another agent has the engine of the run file {run_file} in hand: end it, or name another run file\n",
        )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_after_the_first_ends_the_engine_and_then_the_agent_at_once(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    told, done = asyncio.Event(), list[object]()
    monkeypatch.setattr(EngineHook, "hang_up", lambda _engine: done.append("hung up"))
    monkeypatch.setattr(os, "kill", lambda pid, sent: done.extend([pid, sent, signal.getsignal(sent)]))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    waiting = asyncio.create_task(end_at_once_when_told_again(told, EngineHook()))
    told.set()
    await waiting
    try:
        signal.raise_signal(number)
        await eventually(lambda: done != [])
        assert done == ["hung up", os.getpid(), number, signal.SIG_DFL]
    finally:
        for one, handler in before.items():
            asyncio.get_running_loop().remove_signal_handler(one)
            signal.signal(one, handler)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"command": ("serve",)}, f"slipstream-node-{os.geteuid()}-8000.json"),
        ({"command": ("serve",), "engine_url": "https://h"}, f"slipstream-node-{os.geteuid()}-443.json"),
        ({"command": ("serve",), "run_file": "engine.json"}, "engine.json"),
        ({"command": ("serve",), "engine_outlives_agent": False}, None),
        ({"switch_url": "http://127.0.0.1:1/switch"}, None),
    ],
)
def test_an_engine_that_outlives_its_agent_has_a_run_file_which_one_agent_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], name: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    told = node_agent_config(None, options)
    with commanded_engine(told, lambda _output: None) as (same, made):
        assert same is told
        assert isinstance(made, EngineHook if "switch_url" in options else OwnEngine)
        assert os.listdir(tmp_path) == ([] if name is None else [f"{name}.lock"])


def engine(**options: object) -> OwnEngine | EngineHook:
    made = engine_of(node_agent_config(None, options), lambda _output: None)
    assert isinstance(made, OwnEngine | EngineHook)
    return made


def test_a_command_has_as_many_variants_as_it_has_arguments_for(tmp_path: Path) -> None:
    both = engine(command=("serve",), speculative_args=("--draft",))
    assert both.words(Pool.SPECULATIVE) == ("serve", "--draft")
    assert both.words(Pool.STANDARD) == ("serve",)
    assert both.switchable
    one = engine(command=("serve",), role="standard")
    assert (one.words(Pool.STANDARD), one.switchable) == (("serve",), False)
    assert engine(command=("serve",)).words(Pool.SPECULATIVE) == ("serve",)
    assert engine(switch_url="http://127.0.0.1:1/switch").switchable
    assert not engine().switchable


def test_an_embedded_engine_has_both_roles_on_a_port_that_stays_its_own() -> None:
    told = node_agent_config(None, {"name": "spec-0"})
    with embedded_engine(told, model=None, speculator="ngram", slots=2, port=None, on_output=lambda _output: None) as (
        complete,
        made,
    ):
        port = int(complete.engine_url.rpartition(":")[2])
        assert complete.engine == "llamacpp"
        assert "--speculator=ngram" in made.words(Pool.SPECULATIVE)
        assert "--speculator=none" in made.words(Pool.STANDARD)
        for role in Pool:
            assert {f"--port={port}", "--slots=2"} <= set(made.words(role))
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))

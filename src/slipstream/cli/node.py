"""``slipstream node``: the agent beside one engine."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
import uvloop

from slipstream.agent.engine import EngineInHand
from slipstream.cli.agents import commanded_engine, embedded_engine, serving_agent
from slipstream.cli.stopping import stop_signals
from slipstream.config.node_agent import NodeAgentConfig, node_agent_config
from slipstream.core.errors import SlipstreamError
from slipstream.telemetry.logs import configure_logs

__all__ = ["end_at_once_when_told_again", "node"]

TOKEN_VARIABLE = "SLIPSTREAM_AGENT_TOKEN"


def node(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="Behind `--`: the command that starts the engine; left out = it runs without the agent."),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="YAML file with these options.")] = None,
    name: Annotated[str | None, typer.Option(help="The node's name; `node` when left out.")] = None,
    listen: Annotated[
        str | None, typer.Option(help="Address of the agent, 127.0.0.1:9100 when left out; port 0 = any free one.")
    ] = None,
    engine_url: Annotated[
        str | None, typer.Option(help="Where the engine serves; http://127.0.0.1:8000 when left out.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="Its kind: vllm, sglang, llamacpp or trtllm; found out when left out.")
    ] = None,
    speculative_args: Annotated[
        str | None, typer.Option(help="Words behind the command for the role speculative.")
    ] = None,
    standard_args: Annotated[str | None, typer.Option(help="Words behind the command for the role standard.")] = None,
    switch_command: Annotated[
        str | None, typer.Option(help="In place of a command: one that switches the engine, run with on or off.")
    ] = None,
    switch_url: Annotated[
        str | None, typer.Option(help='In place of a command: address that gets {"active": true} or false.')
    ] = None,
    role: Annotated[
        str | None, typer.Option(help="Role to start in, speculative or standard; speculative when left out.")
    ] = None,
    ceiling: Annotated[int | None, typer.Option(min=1, help="Ceiling, for the speculative capacity it tells.")] = None,
    drain_timeout: Annotated[
        float | None, typer.Option(help="Seconds that running requests have to end; 120 when left out.")
    ] = None,
    start_timeout: Annotated[
        float | None, typer.Option(help="Seconds that the engine has to serve; 600 when left out.")
    ] = None,
    stop_grace: Annotated[float | None, typer.Option(help="Seconds between TERM and KILL; 10 when left out.")] = None,
    engine_outlives_agent: Annotated[
        bool | None,
        typer.Option(
            "--engine-outlives-agent/--engine-ends-with-agent",
            help="Whether the engine goes on when the agent is killed, for the next one to take over; it does.",
        ),
    ] = None,
    run_file: Annotated[
        Path | None, typer.Option(help="File that tells the next agent of the engine; by its port when left out.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help=f"File with the token that commands must bear; or put it in {TOKEN_VARIABLE}."),
    ] = None,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="The engine is llama.cpp, started in its own process.")
    ] = False,
    model: Annotated[Path | None, typer.Option(help="With --embedded: GGUF file; SmolLM2-135M when left out.")] = None,
    speculator: Annotated[
        str | None,
        typer.Option(help="With --embedded: what drafts, ngram or draft:PATH; ngram when left out."),
    ] = None,
    slots: Annotated[
        int | None, typer.Option(min=1, max=256, help="With --embedded: sequences at once; 8 when left out.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help='Print {"url": …} when it can be asked.')] = False,
) -> None:
    """Start an engine, watch it, and switch its speculation by a drained restart, until Ctrl-C or SIGTERM.

    Its state is at /state and /watch of the agent's own address; /drain, /resume and /speculation are told to it.
    """
    configure_logs("info", "console")
    options = {
        "command": tuple(command or ()),
        "name": name,
        "listen": listen,
        "engine_url": engine_url,
        "engine": engine,
        "speculative_args": _words(speculative_args),
        "standard_args": _words(standard_args),
        "switch_command": _words(switch_command),
        "switch_url": switch_url,
        "role": role,
        "ceiling": ceiling,
        "drain_timeout_s": drain_timeout,
        "start_timeout_s": start_timeout,
        "stop_grace_s": stop_grace,
        "engine_outlives_agent": engine_outlives_agent,
        "run_file": None if run_file is None else str(run_file),
        "token": _token(token_file),
    }
    ready: AbstractContextManager[tuple[NodeAgentConfig, EngineInHand]]
    try:
        told = node_agent_config(config, options)
        if not embedded:
            _refuse_idle(
                {"--model": model, "--speculator": speculator, "--slots": slots}, "only counts with --embedded"
            )
            ready = commanded_engine(told, _pass_on)
        else:
            hooks = {"COMMAND": told.command, "--switch-command": told.switch_command, "--switch-url": told.switch_url}
            _refuse_idle(hooks | {"--engine": told.engine}, "does not go with --embedded: that knows its engine")
            port = urlsplit(told.engine_url).port if "engine_url" in told.model_fields_set else None
            ready = embedded_engine(
                told, model=model, speculator=speculator or "ngram", slots=slots or 8, port=port, on_output=_pass_on
            )
        with ready as (complete, in_hand):
            uvloop.run(_serve(complete, in_hand, as_json=as_json))
    except SlipstreamError as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from None


async def _serve(config: NodeAgentConfig, engine: EngineInHand, *, as_json: bool) -> None:
    async with serving_agent(config, engine) as (agent, url):
        with stop_signals() as told:
            line = f"agent of {config.name} on {url}, its engine on {config.engine_url}"
            print(json.dumps({"url": url, "engine_url": config.engine_url}) if as_json else line, flush=True)
            hurrying = asyncio.create_task(end_at_once_when_told_again(told, engine))
            try:
                await agent.run(told)
            finally:
                hurrying.cancel()


async def end_at_once_when_told_again(told: asyncio.Event, engine: EngineInHand) -> None:
    """Once told to end, the agent drains; told again it ends at once, and the engine must not outlive that."""
    await told.wait()
    loop = asyncio.get_running_loop()

    def end(number: int) -> None:
        engine.hang_up()
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end, number)


def _words(text: str | None) -> tuple[str, ...]:
    """What a shell would make of a text of several words."""
    try:
        return tuple(shlex.split(text or ""))
    except ValueError as error:
        typer.echo(f"{text!r} can not be read as words: {error}", err=True)
        raise typer.Exit(2) from None


def _token(file: Path | None) -> dict[str, str] | None:
    if file is not None:
        return {"file": str(file)}
    return {"env": TOKEN_VARIABLE} if os.environ.get(TOKEN_VARIABLE) else None


def _refuse_idle(options: Mapping[str, object], sentence: str) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        typer.echo(f"{', '.join(given)} {sentence}", err=True)
        raise typer.Exit(2)


def _pass_on(output: bytes) -> None:
    """What the engine writes goes to standard error, as it is."""
    sys.stderr.flush()
    sys.stderr.buffer.write(output)
    sys.stderr.buffer.flush()

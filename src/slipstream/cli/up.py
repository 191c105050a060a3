"""``slipstream up``: a whole fleet on this machine, real engines included."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from slipstream.cli.descriptors import allow_many_connections
from slipstream.cli.local_fleet import ROLES, local_nodes
from slipstream.cli.stopping import stop_signals
from slipstream.config.calibration import calibration_from_file
from slipstream.core.errors import ConfigError, ConfigProblem, SlipstreamError
from slipstream.core.policy import PolicyKind
from slipstream.service import Service, loopback_config, running
from slipstream.telemetry.logs import configure_logs

__all__ = ["sections_of", "up"]

READY_TIMEOUT_S = 30.0


def up(
    speculative: Annotated[int, typer.Option(min=0, max=64, help="Nodes with a speculator.")] = 1,
    standard: Annotated[int, typer.Option(min=0, max=64, help="Nodes without.")] = 1,
    model: Annotated[Path | None, typer.Option(help="GGUF file to serve; SmolLM2-135M when left out.")] = None,
    speculator: Annotated[str, typer.Option(help="What drafts: ngram, or draft:PATH of a smaller GGUF.")] = "ngram",
    slots: Annotated[int, typer.Option(min=1, max=256, help="Sequences a node works on at once.")] = 8,
    dynamic: Annotated[
        bool, typer.Option("--dynamic", help="Nodes take their speculator up or lay it down as the load asks for it.")
    ] = False,
    policy: Annotated[PolicyKind, typer.Option(help="Who decides where requests go.")] = PolicyKind.THRESHOLD,
    profile: Annotated[
        Path | None, typer.Option(help="Profile of such nodes, from `slipstream calibrate --embedded --output`.")
    ] = None,
    goodput: Annotated[
        str | None,
        typer.Option(help="Targets of policy predictive, as in 'ttft:1000 tpot:50', in ms unless told otherwise."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the gateway; 0 = any free one.")] = 8080,
    admin_port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the admin API; 0 = any free one.")] = 8081,
) -> None:
    """Start a fleet of llama.cpp nodes on this machine and serve until Ctrl-C."""
    configure_logs("warning", "console")
    allow_many_connections()
    if speculative + standard == 0:
        typer.echo("a fleet needs at least one node: --speculative or --standard", err=True)
        raise typer.Exit(2)
    try:
        sections = sections_of(policy, profile, goodput)
    except ValueError as error:
        typer.echo(error, err=True)
        raise typer.Exit(2) from None
    if dynamic:
        sections["roles"] = dict(ROLES)
    nodes = local_nodes(
        speculative=speculative, standard=standard, model=model, speculator=speculator, slots=slots, say=_say
    )
    try:
        _check_profile(profile)
        uvloop.run(_up(nodes, port, admin_port, sections))
    except SlipstreamError as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from None


def sections_of(policy: PolicyKind, profile: Path | None, goodput: str | None) -> dict[str, object]:
    """Of the configuration, what is asked for. Raises ``ValueError``, with a sentence, where that can not be."""
    if policy is PolicyKind.PREDICTIVE and profile is None:
        raise ValueError("policy predictive foretells from a --profile, which `slipstream calibrate --embedded` writes")
    routing: dict[str, object] = {"policy": policy.value}
    if goodput is not None:
        if policy is not PolicyKind.PREDICTIVE:
            raise ValueError("only policy predictive has targets: --goodput goes with --policy predictive")
        from slipstream.cli.bench_question import target_of  # most fleets are started without

        target = target_of([goodput])
        seconds = {"ttft_ms": target.ttft_s, "tpot_ms": target.tpot_s, "e2e_ms": target.e2e_s}
        interactive = {name: 1e3 * limit for name, limit in seconds.items() if limit is not None}
        routing["targets"] = {"interactive": interactive}
    return {"routing": routing} if profile is None else {"routing": routing, "profile": str(profile)}


def _check_profile(profile: Path | None) -> None:
    """Before nodes are started for nothing. Raises ``ConfigError``."""
    if profile is None:
        return
    try:
        calibration_from_file(str(profile))
    except ValueError as error:
        raise ConfigError((ConfigProblem(str(profile), None, "", "no usable profile", str(error)),)) from error


async def _up(
    nodes: AbstractAsyncContextManager[list[dict[str, Any]]], port: int, admin_port: int, sections: dict[str, object]
) -> None:
    async with nodes as ready, running(loopback_config(ready, port, admin_port, **sections)) as service:
        await service.ready(READY_TIMEOUT_S)
        with stop_signals() as told:
            _announce(service)
            await told.wait()
        typer.echo("stopping", err=True)


def _say(sentence: str) -> None:
    typer.echo(sentence, err=True)


def _announce(service: Service) -> None:
    model = service.dispatcher.fleet.models()[0]
    base = f"{service.gateway_url}/v1"
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "Say hello."}}]}}'
    typer.echo(f"base URL  {base}")
    typer.echo(f"admin     {service.admin_url}  (slipstream status --url {service.admin_url})")
    typer.echo(f"roles     slipstream roles list --url {service.admin_url}")
    typer.echo()
    typer.echo(f"curl {base}/chat/completions -H 'content-type: application/json' -d '{body}'")
    typer.echo()
    typer.echo(
        f'python -c \'from openai import OpenAI; c = OpenAI(base_url="{base}", api_key="none"); '
        f'print(c.chat.completions.create(model="{model}", '
        'messages=[{"role": "user", "content": "Say hello."}]).choices[0].message.content)\''
    )
    typer.echo()
    typer.echo("Ctrl-C ends the gateway and its nodes.")

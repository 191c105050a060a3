"""``slipstream demo``: what routing by speculation does, shown on this machine with real engines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer
import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from slipstream.cli.admin_client import fetch
from slipstream.cli.demo_prompts import PROMPTS, planned
from slipstream.cli.demo_report import DemoRun, document, introduction, problem_of, report
from slipstream.cli.local_fleet import local_nodes
from slipstream.core.errors import SlipstreamError
from slipstream.load import Level, LoadResult, drive
from slipstream.service import Service, loopback_config, running
from slipstream.telemetry.logs import configure_logs

__all__ = ["demo", "rising_levels"]

SLOTS = 8
CEILING = 4
SHORT_OUTPUT_TOKENS = 8
HOLDBACK = 1 / 3
PROBE_SHARE = 0.25
LEVELS = ((1, 2), (2, 3), (4, 4), (8, 6))
"""Clients at once, and the level's share of all requests in fifteenths."""

READY_TIMEOUT_S = 30.0
REPORT_TIMEOUT_S = 5.0
PEAK_INTERVAL_S = 0.02
INTERRUPTED = 130


def demo(
    requests: Annotated[int, typer.Option(min=12, max=PROMPTS, help="How many prompts to send.")] = PROMPTS,
    model: Annotated[Path | None, typer.Option(help="GGUF file to serve; SmolLM2-135M when left out.")] = None,
    speculator: Annotated[str, typer.Option(help="What drafts: ngram, or draft:PATH of a smaller GGUF.")] = "ngram",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Start two llama.cpp nodes and the gateway, send prompts, and show where they went and what it brought.

    Exit status 0 only if both pools really served requests, acceptance was really measured and no request failed.
    """
    configure_logs("warning", "console")
    output = Console(highlight=False)

    def introduce() -> None:
        if not as_json:
            output.print(introduction(speculator, CEILING, SHORT_OUTPUT_TOKENS, HOLDBACK, PROBE_SHARE))

    try:
        run = uvloop.run(_run(requests, model, speculator, introduce))
    except SlipstreamError as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("interrupted; all that was started has ended", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print(json.dumps(document(run), indent=2))
    else:
        output.print(report(run))
    problem = problem_of(run)
    if problem is not None:
        typer.echo(f"the demo did not show what it should: {problem}", err=True)
        raise typer.Exit(1)


def rising_levels(requests: int) -> list[Level]:
    """The schedule of so many requests: more clients from level to level, and more requests for them."""
    total = sum(share for _, share in LEVELS)
    levels: list[Level] = []
    sent = shares = 0
    for concurrency, share in LEVELS:
        shares += share
        upto = round(requests * shares / total)
        levels.append(Level(concurrency, upto - sent))
        sent = upto
    return levels


async def _run(requests: int, model: Path | None, speculator: str, on_ready: Callable[[], None]) -> DemoRun:
    async with AsyncExitStack() as stack:
        with _progress() as progress:
            progress.add_task("starting two nodes", total=None)
            nodes = await stack.enter_async_context(local_nodes(model=model, speculator=speculator, slots=SLOTS))
            config = loopback_config(
                nodes,
                pools={"speculative": {"ceiling": CEILING, "short_output_tokens": SHORT_OUTPUT_TOKENS}},
                routing={"holdback": HOLDBACK, "probe_share": PROBE_SHARE},
            )
            service = await stack.enter_async_context(running(config))
            await service.ready(READY_TIMEOUT_S)
        on_ready()
        return await _measured(service, requests)


async def _measured(service: Service, requests: int) -> DemoRun:
    levels = rising_levels(requests)
    model = service.dispatcher.fleet.models()[0]
    started_at = monotonic()
    with _progress() as progress:
        sending = progress.add_task(_clients(levels[0].concurrency), total=requests)

        def show(result: LoadResult) -> None:
            progress.update(sending, advance=1, description=_clients(result.concurrency))

        async with _peak_occupancy(service) as peaks:
            results = await drive(f"{service.gateway_url}/v1", planned(model, requests), levels, on_result=show)
    wall_s = monotonic() - started_at
    await _reported(service, monotonic() + REPORT_TIMEOUT_S)
    view = await asyncio.to_thread(fetch, service.admin_url, "/fleet")
    advice = await asyncio.to_thread(fetch, service.admin_url, "/advice")
    return DemoRun(results, view, advice["advice"], peaks, wall_s)


@asynccontextmanager
async def _peak_occupancy(service: Service) -> AsyncIterator[dict[str, int]]:
    """The most sequences seen on each node while the context lasts. An answer takes far longer than the interval."""
    peaks = {node.name: node.occupancy for node in service.dispatcher.fleet.nodes()}

    async def watch() -> None:
        while True:
            for node in service.dispatcher.fleet.nodes():
                peaks[node.name] = max(peaks[node.name], node.occupancy)
            await asyncio.sleep(PEAK_INTERVAL_S)

    watching = asyncio.create_task(watch(), name="peak occupancy")
    try:
        yield peaks
    finally:
        watching.cancel()


async def _reported(service: Service, deadline: float) -> None:
    """Wait until every node has been asked once more: engines count a request's drafts when it has ended."""
    asked_after = monotonic()
    while monotonic() < deadline:
        if all((node.reported_at or 0.0) > asked_after + 0.1 for node in service.dispatcher.fleet.nodes()):
            return
        await asyncio.sleep(PEAK_INTERVAL_S)


def _clients(concurrency: int) -> str:
    return f"{concurrency} client{'s' * (concurrency != 1)} at once"


def _progress() -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,  # all that would be seen is the empty line that it leaves
    )

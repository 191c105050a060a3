"""``slipstream status``: nodes and categories of a running fleet, or what occupancy does to them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from slipstream.cli.admin_client import DEFAULT_URL, AdminUnreachable, TokenFile, fetch, reading
from slipstream.cli.override import sentence
from slipstream.cli.tables import category_table, learned_table, node_table, occupancy_table

__all__ = ["fleet_report", "learned_report", "occupancy_report", "status"]

WATCH_INTERVAL_S = 1.0


def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it anew every second until Ctrl-C.")] = False,
    occupancy: Annotated[
        bool, typer.Option("--occupancy", help="Acceptance and time per token by how busy nodes were, instead.")
    ] = False,
    learned: Annotated[
        bool, typer.Option("--learned", help="Time per token of each node's traffic beside its profile's, instead.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON; one line each time with --watch.")] = False,
    url: Annotated[str, typer.Option(help="Address of the admin API.")] = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Show nodes, acceptance by category and where requests went."""
    try:
        with reading(url):
            ask = _occupancy if occupancy else _fleet
            report = occupancy_report if occupancy else learned_report if learned else fleet_report
            if watch:
                _watch(lambda: ask(url, token_file), report, as_json)
            elif as_json:
                print(json.dumps(ask(url, token_file), indent=2))
            else:
                Console().print(report(ask(url, token_file)))
    except AdminUnreachable as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def fleet_report(fleet: dict[str, Any]) -> RenderableType:
    """The answer of the admin API's ``/fleet`` as tables."""
    parts: list[RenderableType] = []
    if fleet["blind"]:
        parts.append(
            Text("every node's telemetry is stale at once: look at this gateway, not at the nodes", "bold red")
        )
    last_reload = fleet.get("config", {}).get("last")
    if last_reload is not None and last_reload["result"] == "refused":
        parts.append(Text("the configuration could not be read again, so the one before goes on:", "bold red"))
        parts += [Text(f"  {problem}", "red") for problem in last_reload["sentences"]]
    parts.append(node_table(fleet["nodes"]))
    parts += [Text(f"{node['name']}: {node['error']}", "red") for node in fleet["nodes"] if node["error"]]
    waiting = {traffic_class: count for traffic_class, count in fleet.get("queue", {}).items() if count}
    if waiting:
        by_class = ", ".join(f"{count} {traffic_class}" for traffic_class, count in waiting.items())
        parts.append(Text(f"waiting for a node with room: {by_class}", "yellow"))
    changing = fleet.get("changing_role")
    if changing is not None:
        parts.append(
            Text(f"{changing['node']} becomes {changing['pool']}, for {changing['took_s']:.0f} s now", "yellow")
        )
    parts += [Text(f"override: {sentence(one)}", "yellow") for one in fleet.get("overrides", ())]
    for key in ("stale_calibrations", "not_foretold"):
        parts += [Text(one["sentence"], "yellow") for one in fleet.get(key, ())]
    categories = category_table(fleet["categories"])
    parts += [Text(""), categories] if categories.row_count else [Text("no requests yet", "dim")]
    return Group(*parts)


def learned_report(fleet: dict[str, Any]) -> RenderableType:
    """What the nodes of the admin API's ``/fleet`` have learned, as a table, and which calibrations no longer hold."""
    table = learned_table(fleet["nodes"])
    stale = [Text(one["sentence"], "yellow") for one in fleet.get("stale_calibrations", ())]
    return Group(table if table.row_count else Text("no streamed answer has told of its tokens yet", "dim"), *stale)


def occupancy_report(answer: dict[str, Any]) -> RenderableType:
    """The answer of the admin API's ``/occupancy`` as a table."""
    table = occupancy_table(answer["groups"])
    return table if table.row_count else Text("no answer has told of its acceptance or its time per token yet", "dim")


def _occupancy(url: str, token_file: Path | None) -> dict[str, Any]:
    answer = fetch(url, "/occupancy", token_file)
    if "groups" not in answer:
        raise KeyError("groups")
    return answer


def _fleet(url: str, token_file: Path | None) -> dict[str, Any]:
    """Raises ``KeyError`` when the answer is another server's, so that a script is not handed that as JSON."""
    fleet = fetch(url, "/fleet", token_file)
    if "nodes" not in fleet:
        raise KeyError("nodes")
    return fleet


def _watch(
    ask: Callable[[], dict[str, Any]], report: Callable[[dict[str, Any]], RenderableType], as_json: bool
) -> None:
    """Until interrupted. That there is a gateway is for the first answer to show; later, one may be restarting."""
    console = Console()
    if console.is_terminal and not as_json:
        with Live(report(ask()), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(WATCH_INTERVAL_S)
                found = _answer_or_silence(ask)
                live.update(Text(found, "bold red") if isinstance(found, str) else report(found), refresh=True)
    answer: dict[str, Any] | str = ask()
    said = False
    while True:
        if isinstance(answer, str):
            if not said:
                typer.echo(answer, err=True)
            said = True
        else:
            said = False
            if as_json:
                print(json.dumps(answer), flush=True)
            else:
                console.print(report(answer))
        time.sleep(WATCH_INTERVAL_S)
        answer = _answer_or_silence(ask)


def _answer_or_silence(ask: Callable[[], dict[str, Any]]) -> dict[str, Any] | str:
    """The answer, or a sentence where nothing answers for now."""
    try:
        return ask()
    except AdminUnreachable as error:
        if not error.silent:
            raise
        return f"{error} Watching on until it answers."

"""Tables of the fleet that fit 80 columns. Unknown is a dash."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

__all__ = ["candidate_table", "category_table", "node_table", "number", "share"]

_STATE_STYLES = {"ready": "green", "saturated": "yellow", "full": "yellow", "draining": "yellow"}
_POOLS = {"speculative": "spec", "standard": "std"}


def number(value: float | None, digits: int = 0) -> str:
    """A number, or a dash when it is unknown. Large counts are shortened: 12.3k."""
    if value is None:
        return "–"
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if suffix == 'k' else limit):.1f}{suffix}"
    return f"{value:.{digits}f}"


def share(value: float | None) -> str:
    """A share as per cent, or a dash when it is unknown."""
    return "–" if value is None else f"{value:.0%}"


class _Name:
    """A node's name on one line, shortened in the middle where it does not fit: fleets number their nodes at the end,
    and say at the start what they are.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        name, width = self._name, options.max_width
        if len(name) > width:
            tail = width // 2
            name = f"{name[: width - tail - 1]}…{name[len(name) - tail :]}"
        yield Text(name, no_wrap=True, overflow="crop")

    def __rich_measure__(self, _console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(3, len(self._name)), len(self._name)).with_maximum(options.max_width)


def node_table(nodes: Iterable[dict[str, Any]]) -> Table:
    """One row a node."""
    table = _table("Nodes")
    table.add_column("node")  # the only one that gives way
    for name in ("pool", "state"):
        table.add_column(name, no_wrap=True)
    for name in ("busy", "left", "alpha", "K", "tau", "draft", "accept", "sat."):
        table.add_column(name, justify="right", no_wrap=True)
    for node in nodes:
        ceiling = node["ceiling"] if node["ceiling"] is not None else node["limit"]
        table.add_row(
            _Name(node["name"]),
            _POOLS.get(node["pool"], node["pool"]),
            f"[{_STATE_STYLES.get(node['state'], 'red')}]{node['state']}[/]",
            f"{number(node['occupancy'])}/{number(ceiling)}",
            number(node["capacity_left"]),
            number(node["alpha"], 2),
            number(node["k"]) if node["k"] is None or node["k"] == int(node["k"]) else number(node["k"], 1),
            number(node["tau"], 2),
            number(node["drafted"]),
            number(node["accepted"]),
            share(node["saturated_share"]),
        )
    return table


def category_table(categories: Iterable[dict[str, Any]]) -> Table:
    """One row a category that has had requests or evidence."""
    table = _table("Categories")
    table.add_column("category", no_wrap=True)
    for name in ("alpha", "tau", "tok/step", "draft", "accept", "spec", "std"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    for category in categories:
        requests = category["requests"]
        if not requests["by_pool"] and not category["evidence_requests"]:
            continue
        table.add_row(
            escape(category["name"]),
            number(category["alpha"], 2),
            number(category["tau"], 2),
            number(category["tokens_per_step"], 2),
            number(category["drafted"]),
            number(category["accepted"]),
            number(requests["by_pool"].get("speculative", 0)),
            number(requests["by_pool"].get("standard", 0)),
            _reasons(requests["by_reason"]),
        )
    return table


def candidate_table(candidates: Iterable[dict[str, Any]], *, refused: bool = False) -> Table:
    """One row a node, as a decision saw it. ``refused``: there was no node for the request."""
    table = _table("Candidates")
    table.add_column("", no_wrap=True)
    table.add_column("node")
    table.add_column("pool", no_wrap=True)
    table.add_column("busy", justify="right", no_wrap=True)
    table.add_column("load", justify="right", no_wrap=True)
    table.add_column("why")
    open_to_it = "no room for it" if refused else "could have served too"
    for candidate in candidates:
        chosen = candidate["chosen"]
        why = candidate["reason"] or open_to_it
        table.add_row(
            "→" if chosen else "",
            _Name(candidate["node"]),
            _POOLS.get(candidate["pool"], candidate["pool"]),
            number(candidate["occupancy"]),
            share(candidate["load"]),
            why,
            style="bold" if chosen else None,
        )
    return table


def _reasons(by_reason: dict[str, int]) -> str:
    ranked = sorted(by_reason.items(), key=lambda item: (-item[1], item[0]))
    # Without a space, so that a narrow terminal never parts a reason from its count.
    return ", ".join(f"{reason}:{number(count)}" for reason, count in ranked)


def _table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", title_style="bold", box=None, header_style="dim", padding=(0, 1, 0, 0)
    )

"""Tables of the fleet that fit 80 columns, and leave columns out where there are fewer. Unknown is a dash."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

__all__ = [
    "Column",
    "FittingTable",
    "bucket_name",
    "candidate_table",
    "category_table",
    "learned_table",
    "node_table",
    "number",
    "occupancy_table",
    "share",
]

SHORTEST_NAME = 7
"""Characters of a node's name that are left of it in any case."""
SHORTEST_CATEGORY = 16
"""Of a category's: all of those that come configured."""
_STATE_STYLES = {
    "ready": "green",
    "saturated": "yellow",
    "full": "yellow",
    "draining": "yellow",
    "no_speculator": "yellow",
}
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
    """A node's or category's name on one line, shortened in the middle where it does not fit, to ``shortest`` at least:
    fleets number their nodes at the end, and say at the start what they are.
    """

    def __init__(self, name: str, shortest: int = SHORTEST_NAME) -> None:
        self._name = name
        self._shortest = shortest

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        name, width = self._name, options.max_width
        if len(name) > width:
            tail = width // 2
            name = f"{name[: width - tail - 1]}…{name[len(name) - tail :]}"
        yield Text(name, no_wrap=True, overflow="crop")

    def __rich_measure__(self, _console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(self._shortest, len(self._name)), len(self._name)).with_maximum(options.max_width)


class Column(NamedTuple):
    """``rank``: the higher, the sooner it is left out; 0 = never. ``gives``: whether it can be made narrower."""

    header: str
    rank: int
    right: bool = False
    gives: bool = False


_FORETOLD = (
    Column("TTFT", 7, right=True),
    Column("TPOT", 6, right=True),
    Column("worth", 0, right=True),
    Column("cost", 0, right=True),
)
"""What policy ``predictive`` judged a candidate by; times in ms."""


class FittingTable:
    """A table that leaves out its least important columns where the terminal is too narrow for all, and says so."""

    def __init__(self, title: str, *columns: Column) -> None:
        self._title = title
        self.columns = columns
        self.rows: list[tuple[tuple[RenderableType, ...], str | None]] = []

    def add_row(self, *cells: RenderableType, style: str | None = None) -> None:
        """One cell a column, in their order."""
        self.rows.append((cells, style))

    @property
    def row_count(self) -> int:
        """How many rows it has."""
        return len(self.rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.update(width=10_000)
        sizes = [self._size(console, wide, place) for place in range(len(self.columns))]
        shown = list(range(len(self.columns)))
        by_rank = sorted((place for place in shown if self.columns[place].rank), key=lambda at: self.columns[at].rank)
        while by_rank and sum(sizes[place].minimum + 1 for place in shown) > options.max_width:
            shown.remove(by_rank.pop())
        room = options.max_width - sum(sizes[place].minimum + 1 for place in shown)
        widths = {}
        for place in reversed(shown):  # names come first, and bear being shortened best
            more = max(0, min(room, sizes[place].maximum - sizes[place].minimum))
            widths[place] = sizes[place].minimum + more
            room -= more
        yield self._table(shown, widths)
        hidden = [column.header for place, column in enumerate(self.columns) if place not in shown and column.header]
        if hidden:
            yield Text(f"left out, for want of room: {', '.join(hidden)}", "dim")

    def _size(self, console: Console, wide: ConsoleOptions, place: int) -> Measurement:
        """The narrowest that a column can be (whole cells, or whole words where it gives) and the widest it need be."""
        column = self.columns[place]
        sizes = [Measurement.get(console, wide, cells[place]) for cells, _ in self.rows]
        widest = max((size.maximum for size in sizes), default=0)
        least = max((size.minimum for size in sizes), default=0) if column.gives else widest
        return Measurement(max(least, len(column.header)), max(widest, len(column.header)))

    def _table(self, shown: list[int], widths: dict[int, int]) -> Table:
        table = Table(
            title=self._title,
            title_justify="left",
            title_style="bold",
            box=None,
            header_style="dim",
            padding=(0, 1, 0, 0),
        )
        for place in shown:
            column = self.columns[place]
            table.add_column(
                column.header,
                justify="right" if column.right else "left",
                no_wrap=not column.gives,
                overflow="fold" if column.gives else "crop",
                width=widths[place],
            )
        for cells, style in self.rows:
            table.add_row(*(cells[place] for place in shown), style=style)
        return table


def node_table(nodes: Iterable[dict[str, Any]]) -> FittingTable:
    """One row a node."""
    table = FittingTable(
        "Nodes",
        Column("node", 0, gives=True),
        Column("pool", 4),
        Column("state", 1),
        Column("busy", 2, right=True),
        Column("left", 7, right=True),
        Column("alpha", 5, right=True),
        Column("K", 8, right=True),
        Column("tau", 6, right=True),
        Column("draft", 10, right=True),
        Column("accept", 9, right=True),
        Column("sat.", 3, right=True),
    )
    for node in nodes:
        table.add_row(
            _Name(node["name"]),
            _POOLS.get(node["pool"], node["pool"]),
            f"[{_STATE_STYLES.get(node['state'], 'red')}]{node['state']}[/]",
            f"{number(node['occupancy'])}/{number(_most_of(node))}",
            number(node["capacity_left"]),
            number(node["alpha"], 2),
            number(node["k"]) if node["k"] is None or node["k"] == int(node["k"]) else number(node["k"], 1),
            number(node["tau"], 2),
            number(node["drafted"]),
            number(node["accepted"]),
            share(node["saturated_share"]),
        )
    return table


def _most_of(node: dict[str, Any]) -> int:
    """Sequences from which a node takes no more: its ceiling, or where policy ``predictive`` found it in its place."""
    limit: int = node["limit"]
    if node.get("policy") == "predictive":
        return min(limit, node["learned_ceiling"] or limit)
    ceiling: int | None = node["ceiling"]
    return limit if ceiling is None else ceiling


def category_table(categories: Iterable[dict[str, Any]]) -> FittingTable:
    """One row a category that has had requests or evidence."""
    table = FittingTable(
        "Categories",
        Column("category", 0, gives=True),
        Column("alpha", 1, right=True),
        Column("tau", 5, right=True),
        Column("tok/step", 6, right=True),
        Column("draft", 8, right=True),
        Column("accept", 7, right=True),
        Column("spec", 2, right=True),
        Column("std", 3, right=True),
        Column("why", 4, gives=True),
    )
    for category in categories:
        requests = category["requests"]
        if not requests["by_pool"] and not category["evidence_requests"]:
            continue
        table.add_row(
            _Name(category["name"], SHORTEST_CATEGORY),
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


def candidate_table(candidates: Iterable[dict[str, Any]], *, refused: bool = False) -> FittingTable:
    """One row a node, as a decision saw it. ``refused``: there was no node for the request."""
    candidates = list(candidates)
    foretells = any(candidate.get("foretold") for candidate in candidates)
    table = FittingTable(
        "Candidates",
        Column("", 2),
        Column("node", 0, gives=True),
        Column("pool", 3),
        Column("busy", 5, right=True),
        Column("load", 4, right=True),
        *(_FORETOLD if foretells else ()),
        Column("why", 1, gives=True),
    )
    open_to_it = "no room for it" if refused else "could have served too"
    for candidate in candidates:
        chosen = candidate["chosen"]
        why = candidate["reason"] or open_to_it
        if candidate.get("fallen_back"):
            why += f", ceiling fell back to {candidate['ceiling']}"
        table.add_row(
            "→" if chosen else "",
            _Name(candidate["node"]),
            _POOLS.get(candidate["pool"], candidate["pool"]),
            number(candidate["occupancy"]),
            share(candidate["load"]),
            *(_foretold(candidate["foretold"]) if foretells else ()),
            why,
            style="bold" if chosen else None,
        )
    return table


def _foretold(figures: dict[str, Any] | None) -> tuple[str, str, str, str]:
    """The cells of ``_FORETOLD``."""
    if figures is None:
        return "–", "–", "–", "–"
    return (
        number(figures["ttft_ms"]),
        number(figures["tpot_ms"], 1),
        number(figures["worth"], 2),
        number(figures["cost"], 2),
    )


def occupancy_table(groups: Iterable[dict[str, Any]]) -> FittingTable:
    """One row a bucket of occupancy, for each pool and speculator."""
    table = FittingTable(
        "Acceptance and time per token by occupancy",
        Column("pool", 1),
        Column("speculator", 5),
        Column("busy", 0, right=True),
        Column("requests", 6, right=True),
        Column("tau", 3, right=True),
        Column("alpha", 4, right=True),
        Column("tok/step", 7, right=True),
        Column("timed", 8, right=True),
        Column("ms/tok", 2, right=True),
    )
    for group in groups:
        for bucket in group["buckets"]:
            table.add_row(
                _POOLS.get(group["pool"], group["pool"]),
                group["speculator"] or "–",
                bucket_name(bucket["least"], bucket["most"]),
                number(bucket["requests"]),
                number(bucket["tau"], 2),
                number(bucket["alpha"], 2),
                number(bucket["tokens_per_step"], 2),
                number(bucket["timed"]),
                number(bucket["tpot_ms"], 1),
            )
    return table


def learned_table(nodes: Iterable[dict[str, Any]]) -> FittingTable:
    """One row a node and range of occupancy."""
    table = FittingTable(
        "Time per token by occupancy, of nodes' own traffic",
        Column("node", 0, gives=True),
        Column("pool", 3),
        Column("busy", 0, right=True),
        Column("requests", 4, right=True),
        Column("ms/tok", 1, right=True),
        Column("95 %", 5, right=True),
        Column("profile", 2, right=True),
        Column("ratio", 1, right=True),
    )
    for node in nodes:
        for one in node.get("learned", ()):
            ends = one["interval_ms"]
            table.add_row(
                _Name(node["name"]),
                _POOLS.get(node["pool"], node["pool"]),
                bucket_name(one["least"], one["most"]),
                number(one["requests"]),
                number(one["tpot_ms"], 1),
                "–" if ends is None else f"{number(ends[0], 1)}–{number(ends[1], 1)}",
                number(one["profile_tpot_ms"], 1),
                number(one["ratio"], 2),
            )
    return table


def bucket_name(least: int, most: int | None) -> str:
    """1, 3-4 or 65+: the sequences of a bucket."""
    if most is None:
        return f"{least}+"
    return str(least) if least == most else f"{least}-{most}"


def _reasons(by_reason: dict[str, int]) -> str:
    ranked = sorted(by_reason.items(), key=lambda item: (-item[1], item[0]))
    # Without a space, so that a narrow terminal never parts a reason from its count.
    return ", ".join(f"{reason}:{number(count)}" for reason, count in ranked)

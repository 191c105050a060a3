"""The answer of ``slipstream crossover`` as tables of 80 columns and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from slipstream.cli.crossover_answer import curve_name
from slipstream.cli.tables import Column, FittingTable, number, share

__all__ = ["crossover_report"]

_LEGEND = "/u: tokens/s for each user; all: tokens/s of the batch; use: what the published rule recommends there"
_EXCLUDED = "Speedup by category, of all on one node, and without those to exclude"
_MIXED = "Requests that accept differently in one batch, verified raggedly or padded"
_SHORT = {"ENABLE_SPECULATIVE": "spec", "USE_STANDARD_BATCHING": "std"}


def crossover_report(answer: dict[str, Any]) -> RenderableType:
    """Every curve with its crossovers, then what holds for all of them."""
    parts: list[RenderableType] = []
    for curve in answer["curves"]:
        parts += [
            Text(curve_name(curve), "bold"),
            _curve_table(curve),
            Text(curve["sentence"], "bold"),
            Text(""),
        ]
    parts += _admitted(answer)
    if answer["best"]:
        parts += [Text("Which pays, where", "bold"), *map(Text, _best_sentences(answer)), Text("")]
    if answer["exclusions"]:
        parts += [Text(_EXCLUDED, "bold"), _exclusion_table(answer["exclusions"]), Text("")]
    if answer["mixed"]:
        parts += [Text(_MIXED, "bold"), _mixed_table(answer["mixed"]), Text("")]
    if answer["verdicts"]:
        parts += [*map(Text, answer["verdicts"]), Text("")]
    if answer["printed"]:
        parts += [Text("As the script prints it", "bold"), *map(Text, answer["printed"]), Text("")]
    return Group(*parts, Text(_LEGEND, "dim"), *map(Text, answer["notes"]))


def _curve_table(curve: dict[str, Any]) -> FittingTable:
    table = FittingTable(
        "",
        Column("batch", 0, right=True),
        Column("std ms", 5, right=True),
        Column("spec ms", 6, right=True),
        Column("tau", 9, right=True),
        Column("speedup", 0, right=True),
        Column("std/u", 4, right=True),
        Column("spec/u", 3, right=True),
        Column("std all", 8, right=True),
        Column("spec all", 7, right=True),
        Column("best K", 2, right=True),
        Column("use", 1),
    )
    for row in curve["rows"]:
        batch = row["batch_size"]
        table.add_row(
            f"{batch:g}",
            number(row["standard_step_ms"], 1),
            number(row["speculative_step_ms"], 1),
            number(row["tau"], 2),
            number(row["speedup"], 2),
            number(row["standard_aggregate_tps"] / batch, 1),
            number(row["speculative_aggregate_tps"] / batch, 1),
            number(row["standard_aggregate_tps"]),
            number(row["speculative_aggregate_tps"]),
            number(row["best_k"]),
            _SHORT[row["recommendation"]],
        )
    return table


def _admitted(answer: dict[str, Any]) -> list[RenderableType]:
    """What each arm gives when memory is full, and what the published rule says of that."""
    admitted, at = answer["admitted"], answer["at_admitted"]
    if admitted["standard"] is None:
        return []
    counts = f"{number(admitted['standard'])} without the speculator, {number(admitted['speculative'])} with it"
    if at is None:
        return [Text(f"Requests that fit: {counts}.", "bold"), Text("")]
    cost = at["standard_cost_per_million"] is not None
    table = FittingTable(
        "",
        Column("arm", 0),
        Column("requests", 0, right=True),
        Column("tokens/s", 0, right=True),
        Column("a GPU", 1, right=True),
        *([Column("a million tokens", 1, right=True)] if cost else []),
    )
    for arm in ("standard", "speculative"):
        table.add_row(
            arm,
            number(admitted[arm]),
            number(at[f"{arm}_aggregate_tps"]),
            number(at[f"{arm}_gpu_tps"]),
            *([number(at[f"{arm}_cost_per_million"], 2)] if cost else []),
        )
    title = Text(f"Requests that fit: {counts}. Both arms full:", "bold")
    return [title, table, Text(f"{at['recommendation']}: speedup {at['speedup']:.2f} for each user.", "bold"), Text("")]


def _best_sentences(answer: dict[str, Any]) -> Iterator[str]:
    """Runs of batch sizes at which the same curve gains most."""
    for category, rows in groupby(answer["best"], key=itemgetter("category")):
        who = "" if category is None else f"{category}, "
        for curve, run in groupby(rows, key=itemgetter("curve")):
            found = list(run)
            sizes = " to ".join(dict.fromkeys(f"{row['batch_size']:g}" for row in (found[0], found[-1])))
            what = "none" if curve is None else curve_name(answer["curves"][curve])
            yield f"{who}batch {sizes}: {what} ({found[0]['speedup']:.2f} to {found[-1]['speedup']:.2f})"


def _exclusion_table(rows: list[dict[str, Any]]) -> FittingTable:
    """Speedup by category, of all together, and of those that are left when the ones that do not pay are excluded."""
    categories = list(rows[0]["speedup"])
    table = FittingTable(
        "",
        Column("batch", 0, right=True),
        *(Column(escape(category), 2, right=True) for category in categories),
        Column("all", 0, right=True),
        Column("without", 0, right=True),
        Column("exclude", 1, gives=True),
    )
    for row in rows:
        table.add_row(
            f"{row['batch_size']:g}",
            *(number(row["speedup"][category], 2) for category in categories),
            number(row["mixed_speedup"], 2),
            number(row["remaining_speedup"], 2),
            escape(", ".join(row["excluded"])) or "–",
        )
    return table


def _mixed_table(rows: Iterable[dict[str, Any]]) -> FittingTable:
    """A batch of requests that accept differently, verified raggedly and padded to the worst of them."""
    table = FittingTable(
        "",
        Column("batch", 0, right=True),
        Column("ragged tau", 0, right=True),
        Column("speedup", 0, right=True),
        Column("wasted", 1, right=True),
        Column("padded tau", 0, right=True),
        Column("speedup", 0, right=True),
        Column("wasted", 1, right=True),
    )
    for row in rows:
        table.add_row(
            f"{row['batch_size']:g}",
            *(
                cell
                for how in ("ragged", "padded")
                for cell in (
                    number(row[f"{how}_tau"], 2),
                    number(row[f"{how}_speedup"], 2),
                    share(row[f"{how}_wasted"]),
                )
            ),
        )
    return table

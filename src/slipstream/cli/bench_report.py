"""The answer of ``slipstream bench`` as tables of 80 columns. In brackets: the 95 % interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from slipstream.cli.tables import Column, FittingTable, number

__all__ = ["bench_report"]

LATENCIES = (("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"), ("ITL", "itl_ms"), ("E2E", "e2e_ms"))
PERCENTILES = ("mean", "p50", "p95", "p99")

_PERCENTILES = tuple(Column(name, rank, right=True) for name, rank in zip(PERCENTILES, (2, 1, 0, 3), strict=True))


def bench_report(answer: Mapping[str, Any]) -> RenderableType:
    """All that the answer has: the load, each server's worth and latencies, and what was asked beyond that."""
    targets = answer.get("targets", [])
    parts: list[RenderableType] = [Text(answer["title"], "bold"), Text("")]
    if "find_max" in answer:
        parts += [_search_table(answer["find_max"]), Text(""), Text(_found(answer["find_max"])), Text("")]
    if targets:
        parts += [_worth_table(targets), Text(""), _latency_table(targets), Text("")]
    if "comparison" in answer:
        parts += [_comparison_table(answer["comparison"], targets), Text("")]
    for target in targets:
        parts += _of_target(target)
    run = answer["run"]
    parts.append(Text(f"{run['requests']:,} requests in {run['wall_s']:.1f} s. (…): 95 % interval", "dim"))
    return Group(*parts)


def _of_target(target: Mapping[str, Any]) -> Iterator[RenderableType]:
    if len(target["categories"]) > 1:
        yield from (_category_table(target), Text(""))
    if target["holdback"] is not None:
        yield from (_holdback_table(target["holdback"]), Text(_held_back(target["holdback"])), Text(""))
    for sentence, count in list(target["errors"].items())[:3]:
        yield Text(f"{count} failed: {sentence}")


def _worth_table(targets: Sequence[Mapping[str, Any]]) -> FittingTable:
    table = FittingTable(
        "Goodput: requests a second that met all their targets",
        *_names(targets),
        Column("goodput/s", 0, right=True),
        Column("met", 1, right=True),
        Column("tokens/s", 2, right=True),
        Column("failed", 3, right=True),
        Column("running p95", 4, right=True),
        Column("late p99", 5, right=True),
    )
    for target in targets:
        table.add_row(
            *([escape(target["name"])] if len(targets) > 1 else []),
            _figure(target["goodput"], target["goodput_interval"]),
            _share(target["attainment"], target["attainment_interval"]),
            _figure(target["tokens_tps"], target["tokens_tps_interval"]),
            number(target["failed"]),
            number(target["running_p95"]),
            f"{target['late_ms']['p99']:.1f} ms",
        )
    return table


def _latency_table(targets: Sequence[Mapping[str, Any]]) -> FittingTable:
    table = FittingTable("Latency of finished requests, ms", *_names(targets), Column("", 0), *_PERCENTILES)
    for target in targets:
        for place, (name, key) in enumerate(LATENCIES):
            named = ["" if place else escape(target["name"])] if len(targets) > 1 else []
            table.add_row(*named, name, *_cells(target[key]))
    return table


def _names(targets: Sequence[object]) -> list[Column]:
    """A column for the names of servers, where there are several."""
    return [Column("", 0, gives=True)] if len(targets) > 1 else []


def _comparison_table(comparison: Mapping[str, Any], targets: Sequence[Mapping[str, Any]]) -> FittingTable:
    first, second = (escape(target["name"]) for target in targets)
    table = FittingTable(
        f"{second} minus {first} over {comparison['parts']} parts; * = the interval is on one side of 0",
        Column("", 0),
        *_PERCENTILES,
    )
    worth = (("goodput/s", "goodput", _figure), ("met", "attainment", _share), ("tokens/s", "tokens_tps", _figure))
    for name, key, text in worth:
        value, ends = comparison[key], comparison[f"{key}_interval"]
        if value is not None:
            table.add_row(name, _starred(text(value, ends, signed=True), ends), "", "", "")
    for name, key in LATENCIES:
        table.add_row(f"{name} ms", *_cells(comparison[key], signed=True))
    return table


def _category_table(target: Mapping[str, Any]) -> FittingTable:
    table = FittingTable(
        f"By category, means in ms ({escape(target['name'])})",
        Column("", 0, gives=True),
        Column("requests", 2, right=True),
        Column("goodput/s", 0, right=True),
        Column("met", 1, right=True),
        Column("TTFT", 3, right=True),
        Column("TPOT", 4, right=True),
    )
    for name, of in target["categories"].items():
        table.add_row(
            escape(name),
            number(of["offered"]),
            _figure(of["goodput"], of["goodput_interval"]),
            _share(of["attainment"], of["attainment_interval"]),
            _of(of["ttft_ms"], "mean"),
            _of(of["tpot_ms"], "mean"),
        )
    return table


def _holdback_table(held: Mapping[str, Any]) -> FittingTable:
    table = FittingTable(
        "Eligible requests: speculative minus held back, ms; * = the interval is on one side of 0",
        Column("", 0),
        *_PERCENTILES,
    )
    for name, key in (("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"), ("E2E", "e2e_ms")):
        table.add_row(name, *_cells(held["difference"][key], signed=True))
    return table


def _held_back(held: Mapping[str, Any]) -> str:
    speculative, other = held["speculative"], held["held_back"]
    return (
        f"{speculative['requests']} speculated and {other['requests']} were held back, chosen at random: what differs "
        "is what speculation did."
    )


def _search_table(search: Mapping[str, Any]) -> FittingTable:
    table = FittingTable(
        "Rates, in the order in which they were measured",
        Column("rate/s", 0, right=True),
        Column("met", 0, right=True),
        Column("goodput/s", 1, right=True),
        Column("TTFT p95", 2, right=True),
        Column("TPOT p95", 3, right=True),
    )
    for point in search["points"]:
        table.add_row(
            f"{point['rate']:.4g}",
            _share(point["attainment"], point["attainment_interval"]),
            _figure(point["goodput"], point["goodput_interval"]),
            _of(point["ttft_ms"], "p95"),
            _of(point["tpot_ms"], "p95"),
        )
    return table


def _found(search: Mapping[str, Any]) -> str:
    if search["rate"] is None:
        return "No rate at which enough requests met their targets."
    low, high = ("?" if end is None else f"{end:.3g}" for end in search["rate_interval"])
    return (
        f"Up to {search['rate']:.3g} requests a second, {search['attainment']:.0%} of them meet their targets; beyond "
        f"doubt at {low}, and no more at {high}."
    )


def _cells(distribution: Mapping[str, Any], *, signed: bool = False) -> Iterator[str]:
    for name in PERCENTILES:
        cell = _of(distribution, name, signed=signed)
        yield _starred(cell, distribution["intervals"][name]) if signed else cell


def _of(distribution: Mapping[str, Any], name: str, *, signed: bool = False) -> str:
    return _figure(distribution[name], distribution["intervals"][name], signed=signed)


def _figure(value: float | None, ends: Sequence[float] | None, *, signed: bool = False) -> str:
    """A number with the ends of its interval, in as many digits as these have meaning."""
    if value is None:
        return "–"
    sign = "+" if signed else ""
    size = max(abs(end) for end in (value, *(ends or ())))
    digits = 2 if size < 10.0 else 1 if size < 100.0 else 0
    told = f"{value:{sign}.{digits}f}"
    return told if ends is None else f"{told} ({ends[0]:.{digits}f}…{ends[1]:.{digits}f})"


def _share(value: float | None, ends: Sequence[float] | None, *, signed: bool = False) -> str:
    if value is None:
        return "–"
    told = f"{value * 100.0:{'+' if signed else ''}.1f} %"
    return told if ends is None else f"{told} ({ends[0] * 100.0:.0f}…{ends[1] * 100.0:.0f})"


def _starred(cell: str, ends: Sequence[float] | None) -> str:
    return f"{cell}*" if ends is not None and not ends[0] <= 0.0 <= ends[1] else cell

"""Policies side by side: what each has more than a baseline, seed by seed, so that what a seed does to both cancels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.markup import escape

from slipstream.cli.simulate_figures import per_cent, plain
from slipstream.cli.tables import Column, FittingTable
from slipstream.sim.intervals import compare
from slipstream.sim.measures import Measures
from slipstream.sim.report import as_json
from slipstream.sim.sweep import PointResult

__all__ = ["comparison_of", "comparison_table"]

_PARTS = ("classes", "categories", "nodes")
"""Of the keys of a policy, those that differences do not have."""


class _Row(NamedTuple):
    """A figure by its key; of a latency, which. ``shared``: whether it is a share, 0..1."""

    name: str
    key: str
    percentile: str | None = None
    shared: bool = False


_ROWS = (
    _Row("goodput/s", "goodput"),
    _Row("met", "attainment", shared=True),
    _Row("TTFT p50", "ttft_ms", "p50"),
    _Row("TTFT p95", "ttft_ms", "p95"),
    _Row("TPOT mean", "tpot_ms", "mean"),
    _Row("E2E p50", "e2e_ms", "p50"),
    _Row("E2E p95", "e2e_ms", "p95"),
    _Row("tokens/s", "tokens_tps"),
    _Row("verified", "wasted_verification", shared=True),
    _Row("running", "running_mean"),
    _Row("saturated", "saturated_share", shared=True),
)


def comparison_of(result: PointResult, baseline: str) -> dict[str, Any]:
    """Every simulated policy but the baseline less that, over the seeds that both have."""
    measured = {
        name: {trial.seed: trial.measures for trial in trials if trial.measures is not None}
        for name, trials in result.runs.items()
    }
    its = measured.get(baseline, {})
    return {
        "baseline": baseline,
        "differences": [
            _difference(name, [(measures, its[seed]) for seed, measures in ours.items() if seed in its])
            for name, ours in measured.items()
            if name != baseline and ours.keys() & its.keys()
        ],
    }


def _difference(name: str, pairs: Sequence[tuple[Measures, Measures]]) -> dict[str, Any]:
    told = as_json(compare(name, [mine for mine, _ in pairs], [its for _, its in pairs]))
    return {key: value for key, value in told.items() if key not in _PARTS}


def comparison_table(policies: Sequence[Mapping[str, Any]], comparison: Mapping[str, Any]) -> FittingTable:
    """A block a figure, a row a policy; those that no policy has are left out."""
    table = FittingTable(
        "",
        Column("", 0),
        Column("policy", 0, gives=True),
        Column("is", 2, right=True),
        Column("baseline", 3, right=True),
        Column("difference", 0, right=True),
        Column("95 % interval", 1, right=True),
        Column("", 0),
    )
    of_name = {policy["name"]: policy for policy in policies}
    for row in _ROWS:
        for place, cells in enumerate(_cells(row, of_name, comparison)):
            table.add_row("" if place else row.name, *cells)
    return table


def _cells(
    row: _Row, policies: Mapping[str, Mapping[str, Any]], comparison: Mapping[str, Any]
) -> Iterator[tuple[str, ...]]:
    baseline, _ = _figure(row, policies[comparison["baseline"]])
    for difference in comparison["differences"]:
        mine, _ = _figure(row, policies[difference["name"]])
        more, interval = _figure(row, difference)
        if mine is None and baseline is None:
            continue
        yield (
            escape(difference["name"]),
            _told(row, mine),
            _told(row, baseline),
            f"{_more(row, more)} pp" if row.shared and more is not None else _more(row, more),
            "–" if interval is None else f"{_more(row, interval[0])} to {_more(row, interval[1])}",
            _verdict(more, interval),
        )


def _figure(row: _Row, policy: Mapping[str, Any]) -> tuple[float | None, Sequence[float] | None]:
    if row.percentile is None:
        return policy[row.key], policy[f"{row.key}_interval"]
    return policy[row.key][row.percentile], policy[row.key]["intervals"][row.percentile]


def _told(row: _Row, value: float | None) -> str:
    return per_cent(value, None) if row.shared else plain(value)


def _more(row: _Row, value: float | None) -> str:
    """With its sign; of shares in percentage points."""
    if value is None:
        return plain(None)
    told = f"{100.0 * value:.1f}" if row.shared else plain(value)
    return f"+{told}" if value > 0.0 else told


def _verdict(more: float | None, interval: Sequence[float] | None) -> str:
    """A word where the figures do not tell the two apart."""
    if more is None:
        return ""
    if interval is None:
        return "one seed"
    low, high = interval
    if low == high == 0.0:
        return "same"
    return "unclear" if low <= 0.0 <= high else ""

"""Simulated policies as a picture: goodput over offered load, and how latency is distributed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from slipstream.cli.picture import save_picture
from slipstream.cli.simulate_report import point_name
from slipstream.sim.bound import BoundResult
from slipstream.sim.intervals import Interval, PolicyResult
from slipstream.sim.sweep import PointResult, Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

_PANELS = (
    ("ttft_s", "time to first token, ms"),
    ("tpot_s", "time per output token, ms"),
    ("e2e_s", "end to end, ms"),
)
_LOAD_NAMES = ("rate", "load")
_STYLES = ("-", "--", ":", "-.")


class _Spot(NamedTuple):
    """A point of a line: ``interval`` is of ``goodput``."""

    at: float
    goodput: float
    interval: Interval | None


def draw(title: str, results: Sequence[PointResult], shown: PointResult, file: Path) -> None:
    """Write the picture: goodput of all ``results``, latency of the one ``shown``.

    Raises `ImpossibleInput` as `save_picture`.
    """
    # Takes half a second to load, so that only a plot loads it; a figure of its own needs no display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 7), layout="constrained")
    goodput, *latencies = figure.subplots(2, 2).ravel()
    policies = [policy.policy for policy in max(results, key=lambda result: len(result.policies)).policies]
    colours = {name: f"C{number % 10}" for number, name in enumerate(policies)}
    _draw_goodput(goodput, results, colours)
    for axes, (measure, label) in zip(latencies, _PANELS, strict=True):
        _draw_distribution(axes, measure, label, shown, colours)
    at = f" ({point_name(shown.point.values)})" if shown.point.values else ""
    latencies[0].set_title(f"latency of finished requests{at}", loc="left", fontsize=10)
    figure.suptitle(title, x=0.01, horizontalalignment="left", fontsize=11)
    figure.legend(*goodput.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    save_picture(figure, file)


def _draw_goodput(axes: Axes, results: Sequence[PointResult], colours: Mapping[str, str]) -> None:
    name = _swept(results)
    of_load = name is None or name in _LOAD_NAMES
    lines: dict[tuple[str, str], list[_Spot]] = {}
    bounds: set[str] = set()
    for result in results:
        at = _offered_per_s(result) if of_load else result.point.values[name or ""]
        others = point_name({other: value for other, value in result.point.values.items() if other != name})
        for policy in result.policies if at is not None else ():
            if isinstance(policy, BoundResult):
                bounds.add(policy.policy)
            lines.setdefault((policy.policy, others), []).append(_spot(at or 0.0, policy))
    styles = {others: _STYLES[number % 4] for number, others in enumerate(dict.fromkeys(key[1] for key in lines))}
    for (policy_name, others), spots in lines.items():
        spots.sort(key=itemgetter(0))
        (line,) = axes.plot(
            [spot.at for spot in spots],
            [spot.goodput for spot in spots],
            label=f"{policy_name}, {others}" if others else policy_name,
            color="0.4" if policy_name in bounds else colours[policy_name],
            linestyle=styles[others],
            linewidth=1.0 if policy_name in bounds else 1.6,
            marker="." if policy_name not in bounds else "",
        )
        for spot in spots:
            if spot.interval is not None:
                axes.vlines(spot.at, *spot.interval, color=line.get_color(), linewidth=1, alpha=0.6)
    if of_load:
        most = max(spot.at for spots in lines.values() for spot in spots)
        axes.plot([0.0, most], [0.0, most], color="0.8", linewidth=1, zorder=0)
    axes.set_xlabel("offered load, requests a second" if of_load else str(name))
    axes.set_ylabel("goodput, requests a second")
    axes.set_ylim(bottom=0.0)
    axes.set_title("requests that met all their targets", loc="left", fontsize=10)
    axes.grid(visible=True, alpha=0.25)


def _swept(results: Sequence[PointResult]) -> str | None:
    """Over what goodput is drawn: load if that was varied, else what was named first."""
    names = list(results[-1].point.values)
    return next((name for name in names if name in _LOAD_NAMES), names[0] if names else None)


def _offered_per_s(result: PointResult) -> float | None:
    """``None`` where no run of the point was finished."""
    offered: list[float] = []
    for trial in (trial for trials in result.runs.values() for trial in trials):
        if trial.measures is not None:
            offered.append(trial.measures.requests.offered)
        else:
            assert trial.bound is not None
            offered.append(float(trial.bound.offered))
    return sum(offered) / len(offered) / result.point.scenario.window_s if offered else None


def _spot(at: float, policy: PolicyResult | BoundResult) -> _Spot:
    if isinstance(policy, BoundResult):
        return _Spot(at, policy.goodput, policy.goodput_interval)
    low, high = policy.low.requests.goodput, policy.high.requests.goodput
    # An end is ``None`` where there is one seed, whatever its type says: the shape is that of the means.
    return _Spot(at, policy.mean.requests.goodput, None if policy.seeds < 2 else (low, high))


def _draw_distribution(axes: Axes, measure: str, label: str, result: PointResult, colours: Mapping[str, str]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    for name, trials in result.runs.items():
        quantiles = _quantiles(measure, trials)
        if quantiles:
            shares = [place / (len(quantiles) - 1) for place in range(len(quantiles))]
            axes.plot([1000.0 * value for value in quantiles], shares, color=colours[name], linewidth=1.6)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
    axes.xaxis.set_major_formatter(_plain_number)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(label)
    axes.set_ylabel("share of requests")
    axes.set_ylim(0.0, 1.0)
    axes.grid(visible=True, which="both", alpha=0.25)


def _quantiles(measure: str, trials: Sequence[Trial]) -> list[float]:
    """Mean over seeds of each quantile."""
    curves = [getattr(trial.curves, measure) for trial in trials if trial.curves is not None]
    known = [curve for curve in curves if curve]
    return [sum(values) / len(values) for values in zip(*known, strict=True)]


def _plain_number(value: float, _position: Any) -> str:
    return f"{value:g}"

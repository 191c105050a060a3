"""A load as a picture: how latency is distributed on each server, or attainment over the rates of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.bench.samples import Samples
from slipstream.cli.picture import save_picture

__all__ = ["draw_latencies", "draw_search"]

_PANELS = (
    ("ttft_s", "time to first token, ms"),
    ("tpot_s", "time per output token, ms"),
    ("gaps_s", "between chunks, ms"),
    ("e2e_s", "end to end, ms"),
)


def draw_latencies(title: str, columns: Mapping[str, Samples], file: Path) -> None:
    """Write the picture: of each measure, the share of finished requests that were at most so slow.

    Raises ImpossibleInput as `save_picture`.
    """
    # Takes half a second to load, so that only a plot loads it; a figure of its own needs no display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6.5), layout="constrained")
    for axes, (measure, label) in zip(figure.subplots(2, 2).ravel(), _PANELS, strict=True):
        for name, samples in columns.items():
            rows = samples.gap_row if measure == "gaps_s" else np.arange(len(samples))
            values = getattr(samples, measure)[samples.counted[rows]]
            known = np.sort(values[~np.isnan(values)]) * 1000.0
            axes.plot(known, np.arange(1, len(known) + 1) / max(len(known), 1), label=name)
        axes.set_xlabel(label)
        axes.set_ylim(0.0, 1.0)
        axes.grid(visible=True, alpha=0.25)
    figure.suptitle(title, x=0.01, horizontalalignment="left", fontsize=11)
    if len(columns) > 1:
        axes.legend(frameon=False, fontsize=9)
    save_picture(figure, file)


def draw_search(title: str, points: Sequence[Mapping[str, Any]], attainment: float, file: Path) -> None:
    """Write the picture: attainment with its interval at each rate, and where enough is.

    Raises ImpossibleInput as `save_picture`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.subplots()
    rising = sorted(points, key=lambda point: float(point["rate"]))
    rates = [point["rate"] for point in rising]
    met = np.array([point["attainment"] or 0.0 for point in rising])
    ends = np.array([point["attainment_interval"] or (share, share) for point, share in zip(rising, met, strict=True)])
    axes.errorbar(rates, met, yerr=np.abs(ends.T - met), marker="o", capsize=3)
    axes.axhline(attainment, color="0.5", linewidth=1)
    axes.set_xscale("log")
    axes.set_ylim(0.0, 1.02)
    axes.set_xlabel("requests a second")
    axes.set_ylabel("share that met its targets")
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(visible=True, alpha=0.25)
    save_picture(figure, file)

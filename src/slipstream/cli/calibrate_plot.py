"""Measured speedup over batch size as a picture, with its intervals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.cli.picture import save_picture

__all__ = ["draw"]


def draw(answer: Mapping[str, Any], file: Path) -> None:
    """Write the picture: one line a curve. Raises ImpossibleInput as `save_picture`."""
    # Takes half a second to load, so that only a plot loads it; a figure of its own needs no display.
    from matplotlib.figure import Figure
    from matplotlib.ticker import ScalarFormatter

    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.subplots()
    axes.axhline(1.0, color="0.5", linewidth=1)
    for curve in answer["curves"]:
        rows = curve["rows"]
        speedups = np.array([row["speedup"] for row in rows])
        ends = np.array([row["speedup_interval"] or (row["speedup"],) * 2 for row in rows]).reshape(len(rows), 2)
        axes.errorbar(
            [row["batch_size"] for row in rows],
            speedups,
            yerr=np.abs(ends.T - speedups),
            marker="o",
            capsize=3,
            label=f"{curve['speculator']}, {curve['context_tokens']} tokens",
        )
        for crossover in curve["crossovers"]:
            axes.annotate(f"{crossover:.1f}", (crossover, 1.0), (5, 6), textcoords="offset points", fontsize=9)
    if answer["ceiling"] is not None:
        axes.axvline(answer["ceiling"], color="0.5", linestyle=":", label=f"ceiling {answer['ceiling']}")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel("requests at once")
    axes.set_ylabel("speedup of speculation")
    axes.set_title(answer["title"], loc="left", fontsize=11)
    axes.grid(visible=True, alpha=0.25)
    axes.legend(frameon=False, fontsize=9)
    save_picture(figure, file)

"""Speedup over batch size as a picture, one line a curve and a mark at each crossover."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slipstream.cli.crossover_answer import curve_name
from slipstream.cli.picture import check_picture, save_picture
from slipstream.costmodel.rows import Curve

__all__ = ["draw"]


def draw(answer: dict[str, Any], curves: Sequence[Curve], file: Path) -> None:
    """Write the picture to ``file``, whose ending says the format.

    Raises `ImpossibleInput` for another ending than .png and .svg, for a file that can not be written, and where
    matplotlib is not installed.
    """
    check_picture(file)
    # Takes half a second to load, so that only a plot loads it; a figure of its own needs no display.
    from matplotlib.figure import Figure
    from matplotlib.ticker import ScalarFormatter

    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.subplots()
    axes.axhline(1.0, color="0.5", linewidth=1)
    for told, curve in zip(answer["curves"], curves, strict=True):
        (line,) = axes.plot(*curve.sampled, label=curve_name(told))
        batches, speedups = curve.sampled
        for crossover in curve.crossovers:
            rises = speedups[bisect_right(batches, crossover) - (crossover == batches[-1])] > 1.0
            axes.plot(crossover, 1.0, marker="o", color=line.get_color())
            axes.annotate(
                f"{crossover:.1f}",
                (crossover, 1.0),
                (-5 if rises else 5, 6),  # on the side where the line is not
                textcoords="offset points",
                horizontalalignment="right" if rises else "left",
                fontsize=9,
            )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel("batch size (sequences in a step)")
    axes.set_ylabel("speedup of speculation")
    axes.set_title(answer["title"], loc="left", fontsize=11)
    axes.grid(visible=True, alpha=0.25)
    axes.legend(frameon=False, fontsize=9)
    save_picture(figure, file)

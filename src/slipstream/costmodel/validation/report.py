"""The page about validation, and its plots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from slipstream.costmodel.validation.measurements import Measurements
from slipstream.costmodel.validation.scores import (
    Compared,
    Crossing,
    crossings,
    fitted_speedups,
    fitted_steps,
    summary,
    unfitted_speedups,
    unfitted_steps,
)

__all__ = ["Scores", "accuracy", "crossover_ratio", "page", "plots"]

_LOADS = "client concurrency stands for the batch, and others' prompts for evenly spread ones"
_SOFTWARE = "software for this GPU reaches less of it than the two efficiencies say"
_WEAK = "a weak draft on an engine that spends three standard steps on a verify step; other sources do not"
_FOUR_BITS = "four-bit experts on a GPU that has to unpack them"

REASONS = {
    "aiconfigurator silicon_sample.csv": _LOADS,
    "InferenceX issue 870": _LOADS,
    "splitwise-sim perf_model.csv": "eager mode: launching kernels takes longer than running them",
    "Vidur profiling mlp.csv": "tiles: a kernel takes the same time up to the next multiple of 64 or 128 tokens",
    "SGLang PR 31216": _SOFTWARE,
    "specbundle": "prompt and output lengths and the number of GPUs are not stated",
    "eagle3_paper_t3": "the engine of that time leaves its captured graphs somewhere between 8 and 24 sequences",
    "eagle3_paper_t5": "the engine of that time spends host time on every sequence of a verify step",
    "sdb_fig2": "the acceptance is not stated: it is what makes the smallest load agree",
    "lmsys_mtp_mi300x": "the standard step takes 17 ms there at batch 1, twice what the hardware needs",
    "angelslim_163": _WEAK,
    "specforge_339": _WEAK,
    "specdrift_gptoss120b": _FOUR_BITS,
    "specdrift_gptoss20b": _FOUR_BITS,
    "magicdec_blog_t2": "the draft's acceptance is not stated",
    "vllm_20780": "the first EAGLE-3 heads were slower on that engine than their weights explain",
}
"""Why a source lies where it does, as far as it is known."""


class Scores:
    """Everything compared, so that the page, the plots and the tests speak of the same figures. Takes some seconds."""

    def __init__(self, measurements: Measurements) -> None:
        self.measurements = measurements
        self.steps = unfitted_steps(measurements.steps)
        self.steps_ends = fitted_steps(measurements.steps, ends=True)
        self.steps_smallest = fitted_steps(measurements.steps, ends=False)
        self.speedups = unfitted_speedups(measurements.speedups)
        self.speedups_smallest = fitted_speedups(measurements.speedups)
        self.crossings = crossings(measurements.speedups)


def accuracy(crossings_found: Sequence[Crossing], of: str = "model") -> tuple[float, float]:
    """Share that is right, and recall: of the curves that fall below 1, the share that was called."""
    if not crossings_found:
        return float("nan"), float("nan")
    right = [crossing.measured == getattr(crossing, of) for crossing in crossings_found]
    falling = [getattr(crossing, of) for crossing in crossings_found if crossing.measured]
    return float(np.mean(right)), float(np.mean(falling)) if falling else float("nan")


def crossover_ratio(crossings_found: Sequence[Crossing], of: str = "model_at") -> float:
    """Median factor between measured and predicted crossover, where both cross."""
    pairs = [(crossing.measured_at, getattr(crossing, of)) for crossing in crossings_found]
    ratios = [max(true / said, said / true) for true, said in pairs if true is not None and said is not None]
    return float(np.median(ratios)) if ratios else float("nan")


_INTRODUCTION = """\
# How right the cost model is

Written by `make validate`: the model beside published measurements, and beside three baselines that know nothing of
hardware. *Persistence*: the last known figure holds. *Log-linear*: a straight line through the two known points in the
logarithms. *k·tau*: a constant share of the acceptance length, the best one over all rows; it says nothing of step
times. Figures are median / 90th percentile of the absolute relative error. Matched configurations of different sources
differ among themselves by 9.3 % / 19.5 %: a model that is nearer than that has learnt its sources.

{steps} step times and {speedups} speedups could be placed. A datasheet, a model card, two efficiencies a GPU and the
constants of an engine are all that the unfitted model knows. Efficiencies and constants were estimated from the
measurements below, so that the unfitted errors are those of a good fit with few parameters, not of a prediction; for
those see [sources never seen](#sources-never-seen). "Fitted" is a curve's own two points besides. Persistence and the
line can not begin without points: beside the unfitted model, which has none, they are told the two smallest loads of a
curve, and have a figure for the loads beyond. "Of 24" says for how many, where that is not all of them.
"""

_NEVER_SEEN = """\
## Sources never seen

Each source as if it had not been there: efficiencies and constants estimated anew from all other sources, and what no
other tells taken as for any GPU or engine (`GENERIC` in `held_out.py`). This is what to expect of a table that the
model has not met, on engines and GPUs that it knows. The baselines have no constants, and their figures are those of
the other tables.
"""

_TOLD_ONCE = """\
What falls far behind here is known from one source only, and fits it rather than an engine: `eager` (splitwise-sim),
`sglang-0.4` with the batch at which it leaves its captured graphs (eagle3_paper_t3), and the time that `vllm-0` spends
on every sequence (eagle3_paper_t5). Take these three for what they are: reproductions of a measurement. What was not
estimated anew matters little: no median moves by more than 0.7 points when the rates of narrow types are taken 15 %
lower or 20 % higher, or the noise of a measured point is doubled or halved. How alike neighbouring tokens route (0.5)
may be 0.5 to 1; at 0.25 the median of unfitted speedups is 8.5 %.
"""

_FALLING = """
## Does a curve fall below 1 within its range?

Fitted on the two smallest loads; curves whose minimum is within 5 % of 1 are left out. Always saying never is right
for {never:.0%} of these curves, and useless.
"""


def page(scores: Scores, unseen: Scores) -> str:
    """The whole page, in Markdown. ``unseen`` are the scores of `held_out` measurements."""
    found = scores.measurements
    return "\n".join(
        [
            _INTRODUCTION.format(steps=len(found.steps), speedups=len(found.speedups)),
            "## All sources",
            "",
            "| what | figures | model | persistence | log-linear | k·tau |",
            "|---|---:|---:|---:|---:|---:|",
            _row("step time, unfitted", scores.steps),
            _row("of these, loads beyond a curve's two smallest", _beyond(scores.steps)),
            _row("step time, fitted on the smallest and largest batch: those between", scores.steps_ends),
            _row("step time, fitted on the two smallest: the rest", scores.steps_smallest),
            _row("speedup, unfitted, acceptance known", scores.speedups),
            _row("of these, loads beyond a curve's two smallest", _beyond(scores.speedups)),
            _row("speedup, fitted on the two smallest loads: the rest", scores.speedups_smallest),
            "",
            "![Computed over measured step time](validation-steps.png)",
            _FALLING.format(never=1.0 - _share_falling(scores.crossings)),
            "| | right | recall |",
            "|---|---:|---:|",
            *(
                f"| {name} | {right:.0%} | {recall:.0%} |"
                for name, of in (
                    ("model", "model"),
                    ("persistence", "persistence"),
                    ("log-linear", "log_linear"),
                    ("k·tau", "k_tau"),
                )
                for right, recall in [accuracy(scores.crossings, of)]
            ),
            "",
            _crossed(scores.crossings),
            "",
            "![Measured and fitted speedups](validation-speedups.svg)",
            "",
            *_never_seen(scores, unseen),
            *_by_source("Step time by source, unfitted, the worst first", scores.steps),
            *_by_source("Speedup by source, unfitted, the worst first", scores.speedups),
            *_by_source(
                "Speedup by source, fitted on the two smallest loads, the worst first", scores.speedups_smallest
            ),
            *_worst("The worst step times, unfitted", scores.steps, " ms"),
            *_worst("The worst speedups, unfitted", scores.speedups, ""),
            "## What was left out",
            "",
            "| why | rows |",
            "|---|---:|",
            *(f"| {why} | {count} |" for why, count in found.left_out.most_common()),
            "",
            "## What is assumed",
            "",
            "- Prompt and output lengths by data set where a source states none (`LENGTHS` in `measurements.py`).",
            "- As many GPUs as leave half of their memory free of weights, where the number is not stated.",
            "- N-gram lookup proposes in a quarter of the steps, where the share is not stated.",
            "- Routing to experts is uniform. Real routing is not, and touches fewer experts in the middle.",
            "",
        ]
    )


def _never_seen(scores: Scores, unseen: Scores) -> list[str]:
    """Errors with the constants that ship, and with those that the other sources tell."""
    pairs: list[tuple[str, Sequence[Compared], Sequence[Compared]]] = [
        ("step time, unfitted", scores.steps, unseen.steps),
        ("step time, fitted on the smallest and largest batch", scores.steps_ends, unseen.steps_ends),
        ("step time, fitted on the two smallest", scores.steps_smallest, unseen.steps_smallest),
        ("speedup, unfitted, acceptance known", scores.speedups, unseen.speedups),
        ("speedup, fitted on the two smallest loads", scores.speedups_smallest, unseen.speedups_smallest),
    ]
    for what, of_shipped, of_unseen in (
        ("step time", scores.steps, unseen.steps),
        ("speedup", scores.speedups, unseen.speedups),
    ):
        grouped = _grouped(of_unseen, lambda row: row.source)
        pairs += [
            (f"{what}, {source}", group, grouped[source])
            for source, group in _grouped(of_shipped, lambda row: row.source).items()
        ]
    right, recall = accuracy(unseen.crossings)
    return [
        _NEVER_SEEN,
        "| what | figures | all sources known | this source unknown |",
        "|---|---:|---:|---:|",
        *(
            f"| {what} | {len(of_shipped)} | {_figure(summary(of_shipped))} | {_figure(summary(of_unseen))} |"
            for what, of_shipped, of_unseen in pairs
        ),
        "",
        f"Falling below 1, fitted, the source unknown: {right:.0%} right, recall {recall:.0%}; where both cross, the",
        f"crossovers differ by a factor of {crossover_ratio(unseen.crossings):.2f} (median).",
        "",
        _TOLD_ONCE,
    ]


def _crossed(found: Sequence[Crossing]) -> str:
    falling = sum(crossing.measured for crossing in found)
    both = sum(crossing.measured_at is not None and crossing.log_linear_at is not None for crossing in found)
    return (
        f"{len(found)} curves, of which {falling} fall below 1. Where both cross, the crossovers differ by a factor of "
        f"{crossover_ratio(found):.2f} (median);\nthe line's by {crossover_ratio(found, 'log_linear_at'):.2f}, where "
        f"it crosses at all ({both} curves). Persistence and k·tau are flat and cross nowhere."
    )


def _row(what: str, rows: Sequence[Compared]) -> str:
    return f"| {what} | {len(rows)} | {_cells(rows)} |"


def _beyond(rows: Sequence[Compared]) -> list[Compared]:
    return [row for row in rows if row.persistence is not None]


def _cells(rows: Sequence[Compared]) -> str:
    """The model and the baselines, and how many figures a baseline has where it does not have all."""
    found = [summary(rows, of) for of in ("model", "persistence", "log_linear", "k_tau")]
    return " | ".join(_figure(one) + (f" of {one[2]}" if 0 < one[2] < len(rows) else "") for one in found)


def _figure(found: tuple[float, float, int]) -> str:
    median, most, count = found
    return f"{median:.1%} / {most:.0%}" if count else "–"


def _share_falling(found: Sequence[Crossing]) -> float:
    return float(np.mean([crossing.measured for crossing in found])) if found else 0.0


def _grouped(rows: Iterable[Compared], key: Callable[[Compared], str]) -> dict[str, list[Compared]]:
    groups: dict[str, list[Compared]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def _by_source(title: str, rows: Sequence[Compared]) -> list[str]:
    groups = sorted(_grouped(rows, lambda row: row.source).items(), key=lambda item: -summary(item[1])[0])
    return [
        f"## {title}",
        "",
        "| source | figures | model | persistence | log-linear | k·tau | why |",
        "|---|---:|---:|---:|---:|---:|---|",
        *(f"| {source} | {len(group)} | {_cells(group)} | {REASONS.get(source, '')} |" for source, group in groups),
        "",
    ]


def _worst(title: str, rows: Sequence[Compared], unit: str, count: int = 12) -> list[str]:
    ordered = sorted(rows, key=lambda row: -abs(np.log(row.model / row.measured)))[:count]
    return [
        f"## {title}",
        "",
        "| curve | load | measured | model |",
        "|---|---:|---:|---:|",
        *(
            f"| {', '.join(part for part in row.curve if part)} | {row.load:g} | {row.measured:.4g}{unit} | "
            f"{row.model:.4g}{unit} |"
            for row in ordered
        ),
        "",
    ]


def plots(scores: Scores, folder: Path) -> None:
    """Write both plots into ``folder``. The same figures give the same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "slipstream"
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.subplots()
    for source, group in _grouped(scores.steps, lambda row: row.source).items():
        axes.plot([row.measured for row in group], [row.model / row.measured for row in group], ".", ms=3, label=source)
    axes.axhline(1.0, color="black", lw=0.8)
    axes.set(xscale="log", yscale="log", xlabel="measured step time (ms)", ylabel="computed / measured", ylim=(0.25, 4))
    axes.set_yticks([0.25, 0.5, 1, 2, 4], ["0.25", "0.5", "1", "2", "4"])
    axes.yaxis.set_minor_formatter("")
    axes.legend(fontsize=6)
    figure.savefig(folder / "validation-steps.png", dpi=110, metadata={"Software": None})

    figure = Figure(figsize=(7.0, 4.8), layout="constrained")
    axes = figure.subplots()
    for index, (source, rows) in enumerate(_grouped(scores.speedups_smallest, lambda row: row.source).items()):
        color = f"C{index}"
        axes.plot([row.load for row in rows], [row.measured for row in rows], "o", ms=3, color=color, label=source)
        for curve in _grouped(rows, lambda row: " ".join(row.curve)).values():
            axes.plot([row.load for row in curve], [row.model for row in curve], "-", lw=0.8, color=color)
    axes.axhline(1.0, color="black", lw=0.8)
    axes.set(xscale="log", xlabel="load", ylabel="speedup: measured (points), fitted (lines)")
    axes.legend(fontsize=6)
    figure.savefig(folder / "validation-speedups.svg", metadata={"Date": None})

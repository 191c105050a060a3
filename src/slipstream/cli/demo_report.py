"""What the demo measured, as tables, as sentences that claim no more than that, and as JSON."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from slipstream.cli.demo_comparison import PoolLatency, Ranked, by_category_and_pool, compare, latency_rows
from slipstream.cli.status import fleet_report
from slipstream.cli.tables import number
from slipstream.core.request import Pool
from slipstream.load import LoadResult

__all__ = ["DemoRun", "document", "introduction", "problem_of", "report"]

WIDTH = 79


@dataclass(frozen=True, slots=True)
class DemoRun:
    """``fleet`` and ``advice`` are what the admin API said in the end, ``peaks`` the most sequences seen on each node,
    ``wall_s`` the seconds from the first request to the last answer.
    """

    results: Sequence[LoadResult]
    fleet: Mapping[str, Any]
    advice: Sequence[Mapping[str, Any]]
    peaks: Mapping[str, int]
    wall_s: float


def introduction(
    speculator: str, ceiling: int, short_output_tokens: int, holdback: float, probe_share: float
) -> RenderableType:
    """What is about to run, and where its settings are not the defaults."""
    return Group(
        _sentence(
            f"Two llama.cpp servers on this machine, one thread each: one drafts ({speculator}), one does not. The "
            "gateway before them decides for each prompt which of the two gets it."
        ),
        _sentence(
            f"Set for this demo, not the defaults: {holdback:.0%} of the requests that could speculate are held back "
            f"on the standard node, to compare with; the speculative node takes {ceiling} at once, so that 8 clients "
            f"can fill it; {probe_share:.0%} of the requests below the floor probe it, so that their acceptance is "
            f"known too; answers count as short under {short_output_tokens} tokens, as this small model says little.",
            style="dim",
        ),
        Text(),
    )


def problem_of(run: DemoRun) -> str | None:
    """The first reason why this run shows nothing, as a sentence; ``None`` when it does show what it should."""
    failed = [result for result in run.results if result.error is not None]
    if failed:
        return f"{len(failed)} of {len(run.results)} requests failed, the first because: {failed[0].error}"
    for pool in Pool:
        if not any(result.pool == pool for result in run.results):
            return f"no request went to the {pool} pool"
    if not sum(category["drafted"] or 0 for category in run.fleet["categories"]):
        return "nothing was drafted, so no acceptance was measured"
    return None


def document(run: DemoRun) -> dict[str, Any]:
    """The run for JSON: ``nodes`` and ``categories`` as ``slipstream status`` has them, and what the demo adds."""
    ttft, tpot = compare(run.results)
    problem = problem_of(run)
    return {
        **run.fleet,
        "nodes": [{**node, "peak_occupancy": run.peaks.get(node["name"])} for node in run.fleet["nodes"]],
        "latency": latency_rows(run.results),
        "advice": list(run.advice),
        "verdict": {
            "ok": problem is None,
            "problem": problem,
            "requests": len(run.results),
            "failed": sum(result.error is not None for result in run.results),
            "wall_s": run.wall_s,
            "ttft": {**asdict(ttft), "speculative_was": ttft.verdict},
            "tpot": {**asdict(tpot), "speculative_was": tpot.verdict},
        },
    }


def report(run: DemoRun) -> RenderableType:
    """The run as tables, none wider than 80 columns, and sentences."""
    ttft, tpot = compare(run.results)
    peaks = ", ".join(f"{escape(name)} {peak}" for name, peak in run.peaks.items())
    return Group(
        Text(f"{len(run.results)} requests in {run.wall_s:.0f} s"),
        Text(),
        fleet_report(dict(run.fleet)),
        Text(),
        Text(f"Most sequences at once: {peaks}"),
        Text(),
        _latency_table(by_category_and_pool(run.results)),
        Text(),
        _sentence(_compared("time per output token", tpot)),
        _sentence(_compared("time to first token", ttft)),
        _sentence(_caution(), style="dim"),
        Text(),
        *_advice(run.advice),
    )


def _latency_table(latencies: Mapping[str, Mapping[str, PoolLatency]]) -> Table:
    table = Table(
        title="Latency, medians in ms: speculative against standard",
        title_justify="left",
        title_style="bold",
        box=None,
        header_style="dim",
        padding=(0, 1, 0, 0),
    )
    table.add_column("category", no_wrap=True)
    for name in ("spec n", "std n", "TTFT spec", "TTFT std", "TPOT spec", "TPOT std"):
        table.add_column(name, justify="right", no_wrap=True)
    nothing = PoolLatency(0, None, None)
    for category, pools in latencies.items():
        speculative, standard = pools.get(Pool.SPECULATIVE, nothing), pools.get(Pool.STANDARD, nothing)
        table.add_row(
            escape(category),
            number(speculative.requests),
            number(standard.requests),
            number(speculative.ttft_ms),
            number(standard.ttft_ms),
            number(speculative.tpot_ms, 1),
            number(standard.tpot_ms, 1),
        )
    return table


def _compared(measure: str, ranked: Ranked) -> str:
    if ranked.faster_share is None:
        return f"In {measure} there is nothing to compare: no category went to both pools at the same concurrency."
    return (
        f"In {measure}, speculative was {_was(ranked)} on this machine: ahead in {ranked.faster_share:.0%} of "
        f"{ranked.pairs} pairs of requests of the same category and concurrency."
    )


def _was(ranked: Ranked) -> str:
    return "neither clearly faster nor slower" if ranked.verdict == "no clear difference" else ranked.verdict


def _caution() -> str:
    cores = os.cpu_count()
    processors = "the processors" if cores is None else f"{cores} processor{'s' * (cores != 1)}"
    return (
        f"These times say little of other machines. With {processors} for two engines, the gateway and the clients "
        "there is hardly spare compute to buy latency with: checking a draft costs much of the time that it saves. "
        "Where an engine waits for memory, as on a GPU with small batches, checking is nearly free. The two nodes were "
        "not equally loaded, either."
    )


def _advice(advice: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    if not advice:
        return [_sentence("Advice: none. Nothing here calls for a change, or there is too little evidence to say so.")]
    return [Text("Advice", style="bold"), *(_sentence(f"• {one['sentence']}") for one in advice)]


def _sentence(text: str, style: str = "") -> Text:
    # Wrapped here: a line for people should not run across a wide terminal.
    return Text("\n".join(textwrap.wrap(text, WIDTH)), style=style)

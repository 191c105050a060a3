"""What a live engine has counted of its speculator since it started, asked of it once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from slipstream.core.acceptance.measures import (
    alpha_of,
    draft_acceptance_ratio_of,
    mean_acceptance_length_from_counts,
    mean_acceptance_length_from_ratio,
    survival_of,
)
from slipstream.core.errors import EngineError
from slipstream.core.node import NodeReport
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.engines.catalogue import ENGINES
from slipstream.engines.detect import PROBE_PATHS, detect
from slipstream.engines.engine import merged
from slipstream.engines.scrape import Scraper

__all__ = ["Counted", "counted_by", "counted_in"]

TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Counted:
    """``alpha`` at the node's ``k``, its mean where that varies.

    ``survival`` by draft position and ``proposing_share`` are ``None`` where not told.
    """

    alpha: float
    k: int
    survival: tuple[float, ...] | None
    proposing_share: float | None
    source: str


def counted_by(url: str) -> Counted:
    """The acceptance over the life of the engine at ``url``.

    Raises `ImpossibleInput` when it does not answer, has no speculator, or has counted too little to tell.
    """
    try:
        report = asyncio.run(_report(url))
    except EngineError as error:
        raise ImpossibleInput(str(error)) from None
    return counted_in(report, url)


def counted_in(report: NodeReport, url: str) -> Counted:
    """What the counters of ``report`` tell. Raises `ImpossibleInput` where they tell too little."""
    counters, who = report.counters, f"{url} ({report.engine})"
    if counters is None or report.speculating is False:
        raise ImpossibleInput(f"{who} counts no drafted tokens: it has no speculator, or does not tell")
    drafted, accepted, steps = counters.drafted, counters.accepted, counters.verify_steps
    if accepted is None or not (steps or drafted):
        raise ImpossibleInput(f"{who} has drafted nothing yet, or does not count it: its acceptance is not known")
    if report.k:
        length: float = report.k
    elif drafted and steps:
        length = drafted / steps  # n-gram lookup drafts as many tokens as it finds
    else:
        raise ImpossibleInput(f"{who} does not tell how many tokens it drafts a step: give --alpha and --k")
    tau = mean_acceptance_length_from_counts(accepted, steps) if steps else None
    if tau is None:
        tau = mean_acceptance_length_from_ratio(accepted / (drafted or 1), length)
    survival = survival_of(counters.accepted_per_position, steps) if counters.accepted_per_position and steps else None
    share = None
    if counters.generated_tokens is not None and steps:
        share = steps / max(counters.generated_tokens - accepted, steps)
    ratio = draft_acceptance_ratio_of(tau, length)
    told = f"counters of {url}: {ratio:.0%} of drafted tokens accepted"
    return Counted(alpha_of(tau, length), max(1, round(length)), survival, share, told)


async def _report(url: str) -> NodeReport:
    try:
        scraper = Scraper(url)
    except ValueError as error:
        raise ImpossibleInput(str(error)) from None
    try:
        pages: dict[str, bytes] = {}
        refused: EngineError | None = None
        for path in PROBE_PATHS:
            try:
                pages[path] = await scraper.fetch(path, TIMEOUT_S)
            except EngineError as error:
                refused = error
        if not pages and refused is not None:
            raise refused
        engine = detect(pages)
        if engine is None:
            raise ImpossibleInput(f"{url} answers, but as none of the engines that are known: {', '.join(ENGINES)}")
        report = NodeReport(engine=engine.name)
        for page in (*engine.load, *engine.counters, *engine.facts):
            try:
                report = merged(report, page.read(await scraper.fetch(page.path, TIMEOUT_S)))
            except EngineError:  # a page that this version has not: another has the figure, or it is not known
                continue
        return engine.completed(report)
    finally:
        scraper.close()

"""An engine as a table of data: where its figures are, how its pages read, and what is peculiar to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter

from slipstream.core.acceptance.sample import SpeculationSample
from slipstream.core.node import NodeReport, SpeculatorKind

__all__ = ["Engine", "Page", "ResponseStatistics", "merged"]


@dataclass(frozen=True, slots=True)
class ResponseStatistics:
    """What a finished response says of itself; ``None`` = it did not say.

    ``sample`` is the response's own speculative statistics.
    """

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    sample: SpeculationSample | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One address of an engine and how its body reads: a report that knows only what that page says.

    ``read`` raises `EngineGarbage` when the body is not what that page should be.
    """

    path: str
    read: Callable[[bytes], NodeReport]


@dataclass(frozen=True, slots=True)
class Engine:
    """What Slipstream knows of one kind of inference engine.

    ``marks``: path → a pattern that only this engine's page at that path contains; how it is told from the others.
    ``load``: pages that carry running and waiting, cheapest first; the first that the engine has is polled.
    ``facts``: pages of what changes slowly (models, version, capacity, speculator); any of them may be missing.
    ``read_statistics``: a response body, or the last data of its event stream, → its figures; never raises.
    ``gauge_lag_s``: how long a request may be in the engine before its gauges show it, and the reverse.
    ``abort_lag_s``: how long the engine may work on after its client hung up.
    ``scrape_cost_s``: what one poll costs the engine's serving process.
    ``rejects_when_speculating``: request fields that are an error while a speculator is active.
    ``counters_at_request_end``: token counters move only when a request ends, not while it runs.
    ``statistics_by_default``: responses carry their own speculative statistics without a flag at the engine's start.
    """

    name: str
    marks: Mapping[str, re.Pattern[bytes]]
    load: tuple[Page, ...]
    facts: tuple[Page, ...]
    read_statistics: Callable[[bytes], ResponseStatistics]
    gauge_lag_s: float
    abort_lag_s: float
    scrape_cost_s: float
    counters_at_request_end: bool
    statistics_by_default: bool
    rejects_when_speculating: frozenset[str] = frozenset()


_figures = attrgetter(*NodeReport.__dataclass_fields__)


def merged(report: NodeReport, other: NodeReport) -> NodeReport:
    """``report``, and where it does not know, ``other``.

    Lookup drafts as many tokens as it matched, so a known n-gram speculator has no fixed ``k`` whatever was counted.
    """
    known = NodeReport(*[b if a is None else a for a, b in zip(_figures(report), _figures(other), strict=True)])
    return replace(known, k=None) if known.speculator_kind is SpeculatorKind.NGRAM else known

"""An engine as a table of data: where its figures are, how its pages read, and what is peculiar to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter

from slipstream.core.node import Instrument, NodeReport, SpeculatorKind
from slipstream.core.outcome import ResponseStatistics
from slipstream.engines.added_field import AddedField

__all__ = ["Engine", "Page", "ResponseStatistics", "as_read", "merged"]


@dataclass(frozen=True, slots=True)
class Page:
    """One address of an engine and how its body reads: a report that knows only what that page says.

    ``read`` raises `EngineGarbage` when the body is not what that page should be. ``cost_s`` is the time of the
    engine's serving process that one look at the page takes.
    """

    path: str
    read: Callable[[bytes], NodeReport]
    cost_s: float = 0.0


def as_read(report: NodeReport) -> NodeReport:
    """``report`` as it is: what its pages say needs no putting together."""
    return report


@dataclass(frozen=True, slots=True)
class Engine:
    """What Slipstream knows of one kind of inference engine.

    ``marks``: path → a pattern that only this engine's page at that path contains; how it is told from the others.
    ``load``: pages that carry running and waiting, cheapest first; the first that the engine has is polled.
    ``counters``: pages that carry the counters where that of the load has none, cheapest first; looked at less often.
    ``facts``: pages of what changes slowly (models, version, capacity, speculator); any of them may be missing.
    ``read_statistics``: a response body, or the last data of its event stream, → its figures; never raises.
    ``gauge_lag_s``: how long a request may be in the engine before its gauges show it, and the reverse.
    ``abort_lag_s``: how long the engine may work on after its client hung up.
    ``completed``: puts together what several pages say only in part; a report of all pages → the same, more complete.
    ``instruments``: what can be asked of an answer beyond what it says anyway, by level; a level that is left out needs
    nothing asked.
    ``statistics_apart``: a stream tells its speculative statistics in another chunk than its token counts.
    ``rejects_when_speculating``: request fields that are an error while a speculator is active.
    """

    name: str
    marks: Mapping[str, re.Pattern[bytes]]
    load: tuple[Page, ...]
    facts: tuple[Page, ...]
    read_statistics: Callable[[bytes], ResponseStatistics]
    gauge_lag_s: float
    abort_lag_s: float
    counters: tuple[Page, ...] = ()
    completed: Callable[[NodeReport], NodeReport] = as_read
    instruments: Mapping[Instrument, tuple[AddedField, ...]] = field(default_factory=dict)
    statistics_apart: bool = False
    rejects_when_speculating: frozenset[str] = frozenset()


_figures = attrgetter(*NodeReport.__dataclass_fields__)


def merged(report: NodeReport, other: NodeReport) -> NodeReport:
    """``report``, and where it does not know, ``other``.

    Lookup drafts as many tokens as it matched, so a known n-gram speculator has no fixed ``k`` whatever was counted.
    """
    known = NodeReport(*[b if a is None else a for a, b in zip(_figures(report), _figures(other), strict=True)])
    return replace(known, k=None) if known.speculator_kind is SpeculatorKind.NGRAM else known

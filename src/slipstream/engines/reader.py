"""Reading one engine, again and again: what changes slowly now and then, its load each time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from slipstream.core.errors import EngineGarbage
from slipstream.core.node import NodeReport, NodeSpec
from slipstream.engines.beat import next_beat
from slipstream.engines.catalogue import ENGINES
from slipstream.engines.detect import PROBE_PATHS, detect
from slipstream.engines.engine import Engine, Page, merged

__all__ = ["COUNTERS_INTERVAL_S", "EngineReader", "Reading", "Source", "poll_interval_s"]

COST_SHARE = 0.02
"""The most of its time that an engine may spend on being asked."""
SLOWEST_INTERVAL_S = 1.0
"""Whatever a reading costs, an engine is asked this often."""
COUNTERS_INTERVAL_S = 1.0
"""Counters that stand on a page of their own are read this often; acceptance changes slower than load."""

log = structlog.get_logger(__name__)


class Source(Protocol):
    """Where an engine's pages come from. ``fetch`` gives a body within ``timeout_s``, or raises an `EngineError`."""

    async def fetch(self, path: str, timeout_s: float) -> bytes: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """What an engine said, and when it was asked for its load (seconds on the reader's clock)."""

    asked_at: float
    report: NodeReport


def poll_interval_s(configured_s: float, load_cost_s: float, counters_cost_s: float = 0.0) -> float:
    """``configured_s``, stretched so that asking takes at most 2 % of the engine's time.

    ``load_cost_s`` is what one reading costs the engine, and ``counters_cost_s`` what it costs beside that once a
    second. Stretched to one second at most; a longer interval is kept as configured.
    """
    left = COST_SHARE - counters_cost_s / COUNTERS_INTERVAL_S
    needed = load_cost_s / left if left > 0.0 else SLOWEST_INTERVAL_S
    return max(configured_s, min(needed, SLOWEST_INTERVAL_S))


class EngineReader:
    """Reads one node's engine, which is found out by asking where ``node.engine`` is ``None``.

    ``timeout_s`` is for each page, ``facts_s`` the time between looks at what changes slowly. ``phase`` as in
    `next_beat`. Raises ``ValueError`` for an engine that is not known.
    """

    def __init__(
        self,
        node: NodeSpec,
        source: Source,
        *,
        timeout_s: float,
        facts_s: float,
        phase: float = 0.0,
        clock: Callable[[], float],
    ) -> None:
        if node.engine is not None and node.engine not in ENGINES:
            raise ValueError(f"node {node.name}: engine {node.engine!r} is not one of {', '.join(ENGINES)}")
        self._node = node
        self._source = source
        self._timeout_s = timeout_s
        self._facts_s = facts_s
        self._phase = phase
        self._clock = clock
        self._engine = ENGINES[node.engine] if node.engine else None
        self._facts: NodeReport | None = None
        self._facts_due = 0.0
        self._load_pages: tuple[Page, ...] = ()
        self._load_page: Page | None = None
        self._counters_pages: tuple[Page, ...] = ()
        self._counted: NodeReport | None = None
        self._counters_due = 0.0
        self._without: set[str] = set()
        """Pages that should have had counters, of which that was said."""

    @property
    def engine(self) -> Engine | None:
        """The engine, ``None`` before it is known."""
        return self._engine

    def interval_s(self, configured_s: float) -> float:
        """Seconds between readings so that they cost the engine little; before it is known, as configured."""
        if self._engine is None:
            return configured_s
        load = self._load_page or self._engine.load[0]
        beside = self._counters_pages[0].cost_s if self._counted is not None and self._counters_pages else 0.0
        return poll_interval_s(configured_s, load.cost_s, beside)

    async def read(self) -> Reading:
        """Ask once. Raises an `EngineError` when that does not tell how the engine does."""
        engine = self._engine or await self._detect()
        facts = await self._known_facts(engine)
        asked_at = self._clock()
        load = await self._read_load()
        if load.counters is None:
            load = merged(load, await self._read_counters())
        return Reading(asked_at, engine.completed(merged(load, facts)))

    def forget(self) -> None:
        """Take nothing for granted any more: what answers next may be another engine."""
        self._facts = None
        if self._node.engine is None:
            self._engine = None

    def close(self) -> None:
        """Let go of the engine's connection; the next reading opens another."""
        self._source.close()

    async def _detect(self) -> Engine:
        pages: dict[str, bytes] = {}
        for path in PROBE_PATHS:
            try:
                pages[path] = await self._source.fetch(path, self._timeout_s)
            except EngineGarbage:
                continue
            if engine := detect(pages):
                self._engine = engine
                return engine
        known = ", ".join(ENGINES)
        raise EngineGarbage(f"{self._node.url} answers, but does not look like any of {known}: configure its `engine`")

    async def _known_facts(self, engine: Engine) -> NodeReport:
        """What changes slowly: as last read, or read anew when that is long ago or was before a failure."""
        if self._facts is None or self._clock() >= self._facts_due:
            facts = NodeReport()
            for page in engine.facts:
                try:
                    read = await self._read(page)
                except EngineGarbage:
                    continue
                facts = merged(facts, read)
            if self._facts is not None:
                # A busy llama.cpp tells what drafts, an idle one does not: what it was is still true.
                facts = merged(facts, NodeReport(speculator_kind=self._facts.speculator_kind))
            self._facts = facts
            self._facts_due = next_beat(self._clock(), self._facts_s, self._phase)
            self._load_pages = engine.load
            self._counters_pages = engine.counters
            self._counted = None
        return self._facts

    async def _read_load(self) -> NodeReport:
        """Running, waiting and counters, from the first page that can be read; until facts are due, from that one."""
        refused: list[str] = []
        for page in self._load_pages:
            try:
                report = await self._read(page)
            except EngineGarbage as error:
                refused.append(str(error))
                continue
            if refused and page is not self._load_page:
                log.warning("node.poorer_source", node=self._node.name, path=page.path, because="; ".join(refused))
            self._load_page = page
            self._load_pages = (page,)
            return report
        raise EngineGarbage("; ".join(refused))

    async def _read_counters(self) -> NodeReport:
        """The counters where the page of the load has none: as read within the last second, or read anew.

        Until facts are due again, from the first page that can be read; from none when there is none.
        """
        if self._counted is not None and self._clock() < self._counters_due:
            return self._counted
        pages, self._counters_pages, self._counted = self._counters_pages, (), None
        for page in pages:
            try:
                told = await self._read(page)
            except EngineGarbage as error:
                self._note_no_counters(page, error)
                continue
            self._counters_pages = (page,)
            self._counted = NodeReport(counters=told.counters)
            self._counters_due = next_beat(self._clock(), COUNTERS_INTERVAL_S, self._phase)
            return self._counted
        return NodeReport()

    async def _read(self, page: Page) -> NodeReport:
        body = await self._source.fetch(page.path, self._timeout_s)
        try:
            return page.read(body)
        except EngineGarbage as error:
            raise EngineGarbage(f"{self._node.url}{page.path}: {error}") from None

    def _note_no_counters(self, page: Page, error: EngineGarbage) -> None:
        if page.path not in self._without:
            self._without.add(page.path)
            log.warning("node.no_counters", node=self._node.name, path=page.path, because=str(error))

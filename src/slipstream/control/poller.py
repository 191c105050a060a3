"""Asking one node, again and again, how it does."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from slipstream.core.errors import EngineError, EngineGarbage
from slipstream.core.node import NodeReport, NodeSpec
from slipstream.engines.catalogue import ENGINES
from slipstream.engines.detect import PROBE_PATHS, detect
from slipstream.engines.engine import Engine, Page, merged

__all__ = ["FleetReports", "Poller", "Source", "Timing", "next_beat", "poll_interval_s"]

COST_SHARE = 0.02
"""The most of its time that an engine may spend on being asked."""
SLOWEST_INTERVAL_S = 1.0
"""Whatever a poll costs, a node is asked this often."""
COUNTERS_INTERVAL_S = 1.0
"""Counters that stand on a page of their own are read this often; acceptance changes slower than load."""

log = structlog.get_logger(__name__)


class FleetReports(Protocol):
    """What a poller tells the fleet. Times are seconds on the poller's clock."""

    def report(self, name: str, asked_at: float, received_at: float, report: NodeReport) -> None: ...

    def report_failed(self, name: str, now: float, error: EngineError) -> None: ...


class Source(Protocol):
    """Where a node's pages come from. ``fetch`` gives a body within ``timeout_s``, or raises an `EngineError`."""

    async def fetch(self, path: str, timeout_s: float) -> bytes: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Timing:
    """When a node is asked, in seconds.

    ``interval_s`` between polls, longer where a poll is dear; ``timeout_s`` for each page; ``facts_s`` between looks at
    what changes slowly.
    """

    interval_s: float = 0.1
    timeout_s: float = 1.0
    facts_s: float = 30.0


def poll_interval_s(configured_s: float, load_cost_s: float, counters_cost_s: float = 0.0) -> float:
    """``configured_s``, stretched so that asking takes at most 2 % of the engine's time.

    ``load_cost_s`` is what one poll costs the engine, and ``counters_cost_s`` what it costs beside that once a second.
    Stretched to one second at most; a longer interval is kept as configured.
    """
    left = COST_SHARE - counters_cost_s / COUNTERS_INTERVAL_S
    needed = load_cost_s / left if left > 0.0 else SLOWEST_INTERVAL_S
    return max(configured_s, min(needed, SLOWEST_INTERVAL_S))


def next_beat(after: float, interval_s: float, phase: float) -> float:
    """The first time later than ``after`` that is ``phase`` (0..1) of an interval past a whole number of intervals.

    Nodes with different phases are never asked at one instant, whatever their intervals, and no beat drifts.
    """
    beat = (math.floor(after / interval_s - phase) + 1 + phase) * interval_s
    return beat if beat > after else beat + interval_s


class Poller:
    """Polls one node and tells the fleet. Its node's troubles are reported, never raised.

    The engine is found out by asking when ``node.engine`` is ``None``, again after each failure, since another engine
    may have taken the address. ``phase`` as in `next_beat`. Raises ``ValueError`` for an engine that is not known.
    """

    def __init__(
        self,
        node: NodeSpec,
        fleet: FleetReports,
        source: Source,
        timing: Timing,
        *,
        phase: float = 0.0,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if node.engine is not None and node.engine not in ENGINES:
            raise ValueError(f"node {node.name}: engine {node.engine!r} is not one of {', '.join(ENGINES)}")
        self._node = node
        self._fleet = fleet
        self._source = source
        self._timing = timing
        self.phase = phase
        self._clock = clock
        self._sleep = sleep
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
        self._trouble: type[EngineError] | None = None
        self.polls = 0
        """Polls so far, failed ones included."""
        self.missed = 0
        """Polls left out because the one before, or this process, took too long."""

    @property
    def interval_s(self) -> float:
        """Seconds between polls now; before the engine is known, as configured."""
        if self._engine is None:
            return self._timing.interval_s
        load = self._load_page or self._engine.load[0]
        beside = self._counters_pages[0].cost_s if self._counted is not None and self._counters_pages else 0.0
        return poll_interval_s(self._timing.interval_s, load.cost_s, beside)

    def close(self) -> None:
        """Let go of the node's connection."""
        self._source.close()

    async def run(self) -> None:
        """Poll until cancelled, on a fixed beat: a poll that comes too late is left out, the next keeps its time."""
        due = next_beat(self._clock(), self.interval_s, self.phase)
        while True:
            await self._sleep(max(0.0, due - self._clock()))
            await self.poll()
            interval = self.interval_s
            # Half an interval on, since a timer may fire a little early: the same beat must not come twice.
            following = next_beat(max(self._clock(), due + interval / 2), interval, self.phase)
            self.missed += max(0, round((following - due) / interval) - 1)
            due = following

    async def poll(self) -> None:
        """Ask once, and tell the fleet what came of it."""
        name = self._node.name
        self.polls += 1
        try:
            engine = self._engine or await self._detect()
            facts = await self._known_facts(engine)
            asked_at = self._clock()
            load = await self._read_load()
            if load.counters is None:
                load = merged(load, await self._read_counters())
            report = engine.completed(merged(load, facts))
        except EngineError as error:
            self._forget()
            self._fleet.report_failed(name, self._clock(), error)
            self._note_trouble(error)
        else:
            self._fleet.report(name, asked_at, self._clock(), report)
            self._note_recovery(report)

    async def _detect(self) -> Engine:
        pages: dict[str, bytes] = {}
        for path in PROBE_PATHS:
            try:
                pages[path] = await self._source.fetch(path, self._timing.timeout_s)
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
            self._facts_due = next_beat(self._clock(), self._timing.facts_s, self.phase)
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
            self._counters_due = next_beat(self._clock(), COUNTERS_INTERVAL_S, self.phase)
            return self._counted
        return NodeReport()

    async def _read(self, page: Page) -> NodeReport:
        body = await self._source.fetch(page.path, self._timing.timeout_s)
        try:
            return page.read(body)
        except EngineGarbage as error:
            raise EngineGarbage(f"{self._node.url}{page.path}: {error}") from None

    def _forget(self) -> None:
        """After a failure nothing is taken for granted: what comes back may be another engine."""
        self._facts = None
        if self._node.engine is None:
            self._engine = None

    def _note_no_counters(self, page: Page, error: EngineGarbage) -> None:
        if page.path not in self._without:
            self._without.add(page.path)
            log.warning("node.no_counters", node=self._node.name, path=page.path, because=str(error))

    def _note_trouble(self, error: EngineError) -> None:
        if self._trouble is not type(error):
            self._trouble = type(error)
            log.warning("node.poll_failed", node=self._node.name, error=str(error))

    def _note_recovery(self, report: NodeReport) -> None:
        if self._trouble is not None:
            self._trouble = None
            log.info("node.poll_recovered", node=self._node.name, engine=report.engine, version=report.version)

"""Asking one node, again and again, how it does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from slipstream.core.errors import EngineError
from slipstream.core.node import NodeReport, NodeSpec
from slipstream.engines.beat import next_beat
from slipstream.engines.reader import EngineReader, Source

__all__ = ["FleetReports", "Poller", "Timing"]

log = structlog.get_logger(__name__)


class FleetReports(Protocol):
    """What a poller tells the fleet. Times are seconds on the poller's clock."""

    def report(self, name: str, asked_at: float, received_at: float, report: NodeReport) -> None: ...

    def report_failed(self, name: str, now: float, error: EngineError) -> None: ...


@dataclass(frozen=True, slots=True)
class Timing:
    """When a node is asked, in seconds.

    ``interval_s`` between polls, longer where a poll is dear; ``timeout_s`` for each page; ``facts_s`` between looks at
    what changes slowly.
    """

    interval_s: float = 0.1
    timeout_s: float = 1.0
    facts_s: float = 30.0


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
        self._node = node
        self._fleet = fleet
        self._timing = timing
        self.phase = phase
        self._clock = clock
        self._sleep = sleep
        self._reader = EngineReader(
            node, source, timeout_s=timing.timeout_s, facts_s=timing.facts_s, phase=phase, clock=clock
        )
        self._trouble: type[EngineError] | None = None
        self.polls = 0
        """Polls so far, failed ones included."""
        self.missed = 0
        """Polls left out because the one before, or this process, took too long."""

    @property
    def interval_s(self) -> float:
        """Seconds between polls now; before the engine is known, as configured."""
        return self._reader.interval_s(self._timing.interval_s)

    def close(self) -> None:
        """Let go of the node's connection."""
        self._reader.close()

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
            reading = await self._reader.read()
        except EngineError as error:
            self._reader.forget()
            self._fleet.report_failed(name, self._clock(), error)
            self._note_trouble(error)
        else:
            self._fleet.report(name, reading.asked_at, self._clock(), reading.report)
            self._note_recovery(reading.report)

    def _note_trouble(self, error: EngineError) -> None:
        if self._trouble is not type(error):
            self._trouble = type(error)
            log.warning("node.poll_failed", node=self._node.name, error=str(error))

    def _note_recovery(self, report: NodeReport) -> None:
        if self._trouble is not None:
            self._trouble = None
            log.info("node.poll_recovered", node=self._node.name, engine=report.engine, version=report.version)

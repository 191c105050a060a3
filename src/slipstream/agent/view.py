"""The engine as it was last read, and what its counters amount to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from slipstream.core.acceptance.node_record import NodeRecord
from slipstream.core.errors import EngineError
from slipstream.core.node import NodeReport
from slipstream.engines.reader import EngineReader, Reading

__all__ = ["EngineView"]

HALF_LIFE_S = 300.0
"""Acceptance forgets by this: it is that of the last ten minutes, roughly."""
SILENT_READINGS = 2
"""Readings in a row without an answer before the engine counts as down; one lost reading is not an outage."""
NOTHING = NodeReport()


class EngineView:
    """Reads the engine until cancelled, every ``interval_s`` or less often where that costs the engine too much.

    ``answers``: it serves. ``error`` says why not, ``None`` before it was first asked.
    """

    def __init__(
        self,
        reader: EngineReader,
        *,
        interval_s: float,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._reader = reader
        self._interval_s = interval_s
        self._clock = clock
        self._sleep = sleep
        self._open = False
        self._silent = 0
        self._acceptance = NodeRecord(HALF_LIFE_S)
        self.reading: Reading | None = None
        """The last one of the engine that runs now; ``None`` when it has not answered yet, or does not any more."""
        self.readings = 0
        """How often the engine was read, and those before it."""
        self.answers = False
        self.error: str | None = None

    @property
    def report(self) -> NodeReport:
        """What the engine said last; of an engine that does not answer, nothing."""
        return NOTHING if self.reading is None else self.reading.report

    @property
    def gauge_lag_s(self) -> float:
        """How far what it says may lag behind what it does, in seconds."""
        return 0.0 if self._reader.engine is None else self._reader.engine.gauge_lag_s

    def acceptance(self) -> tuple[float | None, float | None]:
        """Per-token acceptance and mean acceptance length of late; ``None`` where nothing was drafted or told."""
        estimate = self._acceptance.estimate()
        return estimate.alpha, estimate.tau

    def open(self) -> None:
        """Look from now on: an engine is being started, or runs anyway. What was known is of another."""
        self._reader.forget()
        self._acceptance = NodeRecord(HALF_LIFE_S)
        self._open = True
        self._silent = 0
        self._lose("it has not answered yet")

    def shut(self, why: str) -> None:
        """There is no engine to look at, because of ``why``: what still answers is not the one that is meant."""
        self._open = False
        self._lose(why)

    async def watch(self, looked: Callable[[], None]) -> None:
        """Look again and again; ``looked`` is called after each time."""
        while True:
            if self._open:
                await self.look()
                looked()
            await self._sleep(self._reader.interval_s(self._interval_s))

    async def look(self) -> None:
        """Read the engine once."""
        acceptance = self._acceptance
        try:
            reading = await self._reader.read()
        except EngineError as error:
            self._reader.forget()
            self._silent += 1
            if self._open and acceptance is self._acceptance and self._silent >= SILENT_READINGS:
                self._lose(str(error))
            return
        if not self._open or acceptance is not self._acceptance:
            return  # it was asked before another took its place
        if reading.report.counters is not None:
            acceptance.observe(reading.report.counters, self._clock())
        self._silent = 0
        self.readings += 1
        self.reading, self.answers, self.error = reading, True, None

    def close(self) -> None:
        """Let go of the engine's connection."""
        self._reader.close()

    def _lose(self, why: str) -> None:
        self.reading, self.answers, self.error = None, False, why

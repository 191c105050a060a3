"""Looking at the calibrations of a fleet, again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from slipstream.core.calibration_watch import CalibrationWatch
from slipstream.core.dispatch import Dispatcher
from slipstream.core.node_state import NodeState

__all__ = ["LOOK_EVERY_S", "Calibrations"]

LOOK_EVERY_S = 5.0
"""Between two rounds. A verdict needs fifty requests, and figures that people look at need not be younger."""


class Calibrations:
    """``falls_back`` says whether ceilings give way to the default while a calibration does not hold; ``changed`` is
    told of a node whose verdict is another.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        falls_back: Callable[[], bool],
        changed: Callable[[NodeState], None],
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._watch = CalibrationWatch(dispatcher)
        self._falls_back = falls_back
        self._changed = changed
        self._clock = clock
        self._sleep = sleep

    async def run(self) -> None:
        """Round after round, until cancelled."""
        while True:
            await self.round()
            await self._sleep(LOOK_EVERY_S)

    async def round(self) -> None:
        """Look at every node once, and let requests through in between: a look takes a tenth of a millisecond."""
        for node in self._watch.begin():
            if self._watch.look(node, self._clock(), falls_back=self._falls_back()):
                self._changed(node)
            await self._sleep(0.0)

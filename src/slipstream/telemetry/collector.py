"""Reads the fleet when it is asked, so that nothing has to be kept up to date in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from slipstream.core.dispatch import Dispatcher
from slipstream.core.summary import category_summaries, node_summaries
from slipstream.telemetry.instruments import Instruments
from slipstream.telemetry.metric import Reading
from slipstream.telemetry.snapshot import Snapshot

__all__ = ["FleetCollector"]


class FleetCollector:
    """Where snapshots come from.

    ``categories`` are those shown, all that are configured. ``clock`` is the fleet's, in seconds; ``loop_lag_s`` says
    how late the event loop runs, ``None`` while that is unknown. ``readings`` are what else there is to read.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        instruments: Instruments,
        categories: Sequence[str],
        clock: Callable[[], float],
        loop_lag_s: Callable[[], float | None],
        readings: Sequence[Reading] = (),
    ) -> None:
        self._dispatcher = dispatcher
        self._instruments = instruments
        self.categories = categories
        self._clock = clock
        self._loop_lag_s = loop_lag_s
        self._readings = readings

    def snapshot(self) -> Snapshot:
        """All there is to see, now. Called on the loop's thread; what it returns may be read on any."""
        dispatcher, instruments = self._dispatcher, self._instruments
        return Snapshot(
            nodes=node_summaries(dispatcher, self._clock()),
            categories=category_summaries(dispatcher, self.categories),
            endings=dispatcher.endings,
            rejections=dict(instruments.rejections),
            latencies=dict(instruments.by_pool_and_category),
            decisions=instruments.decisions,
            waits=instruments.waits,
            blind=dispatcher.fleet.blind,
            loop_lag_s=self._loop_lag_s(),
            readings=[(reading.metric, dict(reading.read())) for reading in self._readings],
        )

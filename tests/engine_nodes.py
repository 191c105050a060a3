"""Real llama.cpp nodes for tests. Mark whatever uses them with ``@pytest.mark.engine``."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from slipstream.core.request import Pool
from slipstream.embedded.fleet import EmbeddedFleet
from slipstream.embedded.model import find_model
from slipstream.embedded.node import EmbeddedNodeSpec
from slipstream.embedded.speculator import parse_speculator


def node_specs(
    speculative: int = 1, standard: int = 1, slots: int = 8, speculator: str = "ngram"
) -> list[EmbeddedNodeSpec]:
    """Nodes ``spec-0``, ``spec-1``, … and ``std-0``, ``std-1``, … that serve the installed model."""
    model = find_model()
    drafting = [
        EmbeddedNodeSpec(f"spec-{index}", Pool.SPECULATIVE, model, parse_speculator(speculator), slots=slots)
        for index in range(speculative)
    ]
    plain = [EmbeddedNodeSpec(f"std-{index}", Pool.STANDARD, model, slots=slots) for index in range(standard)]
    return drafting + plain


@asynccontextmanager
async def embedded_fleet(
    speculative: int = 1, standard: int = 1, slots: int = 8, speculator: str = "ngram"
) -> AsyncIterator[EmbeddedFleet]:
    """A fleet in the test's own event loop: for tests that kill or watch nodes."""
    async with EmbeddedFleet(node_specs(speculative, standard, slots, speculator)) as fleet:
        yield fleet


@contextmanager
def fleet_in_thread(
    speculative: int = 1, standard: int = 1, slots: int = 8, speculator: str = "ngram"
) -> Iterator[EmbeddedFleet]:
    """A fleet in an event loop and a thread of its own: to be shared by tests, each of which has its own event loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="embedded fleet")
    thread.start()
    try:
        fleet = EmbeddedFleet(node_specs(speculative, standard, slots, speculator))
        asyncio.run_coroutine_threadsafe(fleet.__aenter__(), loop).result()
        try:
            yield fleet
        finally:
            asyncio.run_coroutine_threadsafe(fleet.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

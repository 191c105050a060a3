"""Emulated nodes of known step times, and calibrations of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, TypeVar

from slipstream.calibrate.node import CalibratedNode, known_node
from slipstream.calibrate.plan import CalibrationPlan
from slipstream.calibrate.run import Observed, Terms, calibrate
from slipstream.core.node import SpeculatorKind
from slipstream.costmodel.profiles import LinearCosts, Provenance
from slipstream.costmodel.steps import step_rows
from slipstream.emulate import EmulatedNode, NodeSettings, Pace, emulated
from slipstream.emulate.alphas import Alphas

K = 4
COSTS = LinearCosts(
    Provenance("made", "1", "none", "m", "2026"),
    step_s=0.006,
    token_s=0.00015,
    draft_pass_s=0.00075,
    draft_token_s=0.00105,
    prefill_token_s=2e-5,
)
"""Every draft accepted, speculation is 2.2 times as fast alone, 1.15 times at four at once and slower at eight."""
PLAN = CalibrationPlan((1, 2, 4, 8), (64,), ("code", "chat"), 41, 1, 1)
"""Answers of one token from the prompt and eight steps of five."""


def node_settings(*, drafts: bool, alpha: float = 1.0, **more: Any) -> NodeSettings:
    """A node with `COSTS`, or ``pace`` of its own."""
    settings: dict[str, Any] = {"slots": 8, "pace": Pace(step_rows(COSTS)), "alphas": Alphas(alpha)}
    if drafts:
        settings |= {"speculator": SpeculatorKind.DRAFT, "k": K}
    return NodeSettings(**settings | more)


@asynccontextmanager
async def two_nodes(
    dialect: str = "llamacpp", *, alpha: float = 1.0, **more: Any
) -> AsyncIterator[tuple[EmulatedNode, EmulatedNode]]:
    """A standard and a speculative one."""
    async with (
        emulated(dialect, node_settings(drafts=False, **more)) as standard,
        emulated(dialect, node_settings(drafts=True, alpha=alpha, **more)) as speculative,
    ):
        yield standard, speculative


@asynccontextmanager
async def known(*urls: str, **given: Any) -> AsyncIterator[list[CalibratedNode]]:
    """What is known of the nodes at these addresses."""
    async with AsyncExitStack() as stack:
        nodes = []
        for url in urls:
            nodes.append(await known_node(url, **given))
            stack.callback(nodes[-1].close)
        yield nodes


async def calibrated(
    urls: Sequence[str],
    plan: CalibrationPlan = PLAN,
    *,
    budget_s: float = 30.0,
    shared: bool = False,
    stop: asyncio.Event | None = None,
    said: list[str] | None = None,
    **given: Any,
) -> Observed:
    """A calibration of the first against the others."""
    async with known(*urls, **given) as nodes:
        return await calibrate(nodes[0], nodes[1:], plan, terms(budget_s, shared=shared, stop=stop, said=said))


def terms(
    budget_s: float = 30.0, *, shared: bool = False, stop: asyncio.Event | None = None, said: list[str] | None = None
) -> Terms:
    """On which it is measured; ``said`` gets what is measured next."""
    return Terms(budget_s, shared, stop or asyncio.Event(), (list[str]() if said is None else said).append)


_Served = TypeVar("_Served")


@contextmanager
def beside(serving: AbstractAsyncContextManager[_Served]) -> Iterator[_Served]:
    """What serves, on a loop of its own: a command needs the main thread, for its signals."""
    ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, _Served]] = Future()

    async def serve() -> None:
        over = asyncio.Event()
        async with serving as served:
            ready.set_result((asyncio.get_running_loop(), over, served))
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    loop, over, served = ready.result(10.0)
    try:
        yield served
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()

"""So many requests at once on one node, and what became of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from slipstream.calibrate.errors import NodeBusy
from slipstream.calibrate.node import CalibratedNode
from slipstream.calibrate.plan import Point
from slipstream.calibrate.steady import Decoded, steady_part
from slipstream.core.acceptance.sample import SpeculationSample
from slipstream.core.node import SpeculativeCounters
from slipstream.load import Level, LoadResult, PlannedRequest, drive, made_prompt

__all__ = ["Asker", "Wave", "ask_at_once", "measured_wave"]

LOOKED_EVERY_S: Final = 0.1
REQUEST_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Wave:
    """``decoded`` is empty where not all ran at once for long enough. ``running``: sequences on the node as it said
    while the requests ran. ``counted``: what its counters rose by, ``None`` where they are not known. ``error`` is of
    the first request that failed.
    """

    point: Point
    categories: tuple[str, ...]
    decoded: tuple[Decoded, ...]
    running: tuple[int, ...]
    counted: SpeculationSample | None
    wall_s: float
    error: str | None


class Asker:
    """Makes requests, each with a beginning of its own, about as long as wanted by this model's tokens.

    ``informed``: whether ``characters_per_token`` is what a node's counts have told.
    """

    def __init__(self, output_tokens: int, seed: int, characters_per_token: float) -> None:
        self.output_tokens = output_tokens
        self.characters_per_token = characters_per_token
        self.informed = False
        self._seed = seed
        self._made = 0

    def requests(
        self, node: CalibratedNode, categories: Sequence[str], context_tokens: int, output_tokens: int | None = None
    ) -> list[PlannedRequest]:
        """One of each category given."""
        requests = []
        for category in categories:
            self._made += 1
            text = made_prompt(category, round(context_tokens * self.characters_per_token), self._made, self._seed)
            message = {"role": "user", "content": text}
            requests.append(
                PlannedRequest(
                    node.model, (message,), output_tokens or self.output_tokens, category, fields=node.fields
                )
            )
        return requests


async def ask_at_once(node: CalibratedNode, requests: Sequence[PlannedRequest]) -> list[LoadResult]:
    """Send them together and wait for all answers. Cancelled, it leaves none in flight."""
    return await drive(
        node.base_url,
        requests,
        [Level(len(requests), len(requests))],
        headers=node.headers,
        timeout_s=REQUEST_TIMEOUT_S,
    )


async def measured_wave(
    node: CalibratedNode, asker: Asker, point: Point, categories: tuple[str, ...], *, drafts: bool, shared: bool
) -> Wave:
    """Raises `NodeBusy` when others run there before, beside or after it, unless ``shared``."""
    before = await node.quiet(shared=shared)
    requests = asker.requests(node, categories, point.context_tokens)
    began_at = monotonic()
    running: list[int] = []
    watching = asyncio.create_task(_watch(node, running), name="running requests")
    try:
        results = await ask_at_once(node, requests)
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    wall_s = monotonic() - began_at
    if not shared and running and max(running) > len(requests):
        raise NodeBusy(
            f"{node.name} runs {max(running)} requests where {len(requests)} are ours: take it out of service "
            "first, or say --shared"
        )
    after = await node.quiet(shared=shared)
    tokens = sum(result.output_tokens or 0 for result in results)
    return Wave(
        point,
        categories,
        steady_part(results, node.engine_name, drafts=drafts, k=node.facts.k),
        tuple(running),
        _counted(before, after, tokens) if drafts and not shared else None,
        wall_s,
        next((result.error for result in results if result.error is not None), None),
    )


async def _watch(node: CalibratedNode, running: list[int]) -> None:
    while True:
        report = await node.reading()
        if report is not None and report.sequences is not None:
            running.append(report.running or 0)
        await asyncio.sleep(LOOKED_EVERY_S)


def _counted(
    before: SpeculativeCounters | None, after: SpeculativeCounters | None, output_tokens: int
) -> SpeculationSample | None:
    """What was drafted in between; ``None`` where it is not counted, and where counters went back."""
    if before is None or after is None or after.drafted is None or after.accepted is None:
        return None
    drafted, accepted = after.drafted - (before.drafted or 0), after.accepted - (before.accepted or 0)
    steps = None if after.verify_steps is None else after.verify_steps - (before.verify_steps or 0)
    if not 0 <= accepted <= drafted or (steps is not None and steps < 0):
        return None
    return SpeculationSample(drafted, accepted, steps, output_tokens)

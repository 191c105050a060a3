"""A calibration from its first request to its last, within its time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import median
from time import monotonic
from typing import Final, TypeVar

from slipstream.calibrate.errors import NodeBusy, NodeUnusable
from slipstream.calibrate.figures import Figures, figures_of
from slipstream.calibrate.node import CalibratedNode
from slipstream.calibrate.plan import CalibrationPlan, Point, visits
from slipstream.calibrate.waves import Asker, Wave, ask_at_once, measured_wave
from slipstream.engines.catalogue import read_statistics
from slipstream.engines.fingerprint import system_fingerprint
from slipstream.load import CHARACTERS_PER_TOKEN, LoadResult

__all__ = ["Arm", "Observed", "Terms", "calibrate", "calibrate_in_turn"]

PROBES: Final = 2
"""Requests of each length that tell what a prompt takes, after one that finds the node cold."""
SHORT_PROMPT: Final = 0.25
"""Of the context: the shorter of the two prompts."""
FEWEST_CHARACTERS, MOST_CHARACTERS = 1.0, 12.0
"""Per token: what a node's count may say of made text, and still be believed."""

_Found = TypeVar("_Found")


@dataclass(slots=True)
class Arm:
    """A node and what was measured of it. ``prefill`` is what a prompt takes: base and a token, in seconds, ``None`` =
    not known. ``says_per_request``: whether its answers tell what was drafted for them;
    ``system_fingerprint``: what they say that made them, ``None`` = nothing. ``errors`` counts the waves that a request
    failed in, by its sentence.
    """

    node: CalibratedNode
    drafts: bool
    waves: dict[Point, list[Wave]] = field(default_factory=dict)
    prefill: tuple[float, float] | None = None
    says_per_request: bool = False
    system_fingerprint: str | None = None
    errors: dict[str, int] = field(default_factory=dict)

    def figures(self, unrest: float = 0.0) -> dict[Point, Figures]:
        """By point, without those that tell nothing; ``unrest`` as of `figures_of`."""
        found = {point: figures_of(point, waves, unrest) for point, waves in self.waves.items()}
        return {point: figures for point, figures in found.items() if figures is not None}

    def does_not_admit(self, point: Point) -> bool:
        """Whether so many, or fewer, of the same context did not run at once."""
        return any(
            waves and not any(wave.decoded for wave in waves)
            for other, waves in self.waves.items()
            if other.context_tokens == point.context_tokens and other.batch_size <= point.batch_size
        )

    def running_p95(self) -> int | None:
        """Of what the node said that it ran while most were asked for at once; ``None`` = it did not say."""
        largest = max((point.batch_size for point, waves in self.waves.items() if waves), default=0)
        seen = sorted(
            running
            for point, waves in self.waves.items()
            if point.batch_size == largest
            for wave in waves
            for running in wave.running
            if running
        )
        return seen[min(len(seen) - 1, int(0.95 * len(seen)))] if seen else None


@dataclass(frozen=True, slots=True)
class Observed:
    """All that was measured. ``ended`` says why nothing more was, empty when the plan was carried out whole.
    ``interrupted``: it was told to stop. ``busy``: others came.
    """

    plan: CalibrationPlan
    standard: Arm
    speculative: tuple[Arm, ...]
    wall_s: float
    ended: str
    interrupted: bool
    busy: bool


@dataclass(frozen=True, slots=True)
class Terms:
    """On which nodes are measured: for ``budget_s`` seconds at most, or until ``stop``. ``shared``: beside the traffic
    of others too. ``on_progress`` is told what is measured next.
    """

    budget_s: float
    shared: bool
    stop: asyncio.Event
    on_progress: Callable[[str], None]

    @property
    def over(self) -> str:
        """Why it has ended before the plan was carried out."""
        return "interrupted" if self.stop.is_set() else f"the budget of {self.budget_s:g} s is used up"


class _Over(Exception):
    """The time is over, or somebody said stop."""


async def calibrate(
    standard: CalibratedNode, speculative: Sequence[CalibratedNode], plan: CalibrationPlan, terms: Terms
) -> Observed:
    """Measure as much of the plan as the terms allow, the most important first.

    When it returns or raises, nothing of it runs on the nodes any more but for what an engine needs to see that its
    client left. Raises `NodeUnusable` and, before anything was measured, `NodeBusy`.
    """
    began_at = monotonic()
    deadline = began_at + terms.budget_s
    arms = (Arm(standard, drafts=False), *(Arm(node, drafts=True) for node in speculative))
    ended, interrupted, busy = await _end_of(_measure(arms, plan, _asker(plan), terms, deadline), arms, terms)
    for arm in arms:
        await arm.node.look_again()
    return Observed(plan, arms[0], arms[1:], monotonic() - began_at, ended, interrupted, busy)


async def calibrate_in_turn(
    node: CalibratedNode,
    in_role: Callable[[bool], Awaitable[CalibratedNode]],
    plan: CalibrationPlan,
    terms: Terms,
) -> Observed:
    """The same of one node that can be had in both roles: first with its speculator, then without, each for half of the
    budget, in which its changes of role are not counted. What changes on the machine meanwhile falls on one side.

    ``node`` is as it was found. ``in_role`` changes its role where it has to, and gives it as it is then; the argument
    is whether it should draft.
    """
    began_at = monotonic()
    asker = _asker(plan)
    arms: list[Arm] = []

    async def measure_in(*, drafts: bool) -> None:
        terms.on_progress(f"the node {'with' if drafts else 'without'} its speculator")
        arm = Arm(await _within(in_role(drafts), terms.stop, inf), drafts)
        arms.append(arm)
        await _measure([arm], plan, asker, terms, monotonic() + terms.budget_s / 2)

    ended, interrupted, busy = "", False, False
    for drafts in (True, False):
        early, interrupted, busy = await _end_of(measure_in(drafts=drafts), arms, terms)
        ended = early or ended
        if arms:
            await arms[-1].node.look_again()
        if interrupted or busy:
            break
    speculative, standard = (arms[n] if n < len(arms) else Arm(node, drafts=n == 0) for n in range(2))
    return Observed(plan, standard, (speculative,), monotonic() - began_at, ended, interrupted, busy)


async def _end_of(measuring: Awaitable[None], arms: Sequence[Arm], terms: Terms) -> tuple[str, bool, bool]:
    """How it ended, as `Observed` says it: ``ended``, ``interrupted``, ``busy``. Raises `NodeBusy` where nothing was
    measured yet.
    """
    try:
        await measuring
    except _Over:
        return terms.over, terms.stop.is_set(), False
    except NodeBusy as error:
        if not any(arm.waves for arm in arms):
            raise
        return str(error), False, True
    return "", False, False


def _asker(plan: CalibrationPlan) -> Asker:
    return Asker(plan.output_tokens, plan.seed, CHARACTERS_PER_TOKEN)


async def _measure(arms: Sequence[Arm], plan: CalibrationPlan, asker: Asker, terms: Terms, deadline: float) -> None:
    for arm in arms:
        terms.on_progress(f"{arm.node.name}: alone")
        await _within(_look_alone(arm, asker, plan, shared=terms.shared), terms.stop, deadline)
    turn = 0
    for number, point in visits(plan):
        if any(arm.does_not_admit(point) for arm in arms):
            continue
        order = arms if number % 2 == 0 else arms[::-1]
        for repeat in range(point.repeats(number)):
            for categories in _categories(plan, point, turn + repeat, alone=_one_by_one(arms)):
                for arm in order:
                    if _expected_s(arm, point) > deadline - monotonic():
                        raise _Over
                    terms.on_progress(f"{arm.node.name}: {point.batch_size} at once, {point.context_tokens} tokens")
                    wave = await _within(
                        measured_wave(arm.node, asker, point, categories, drafts=arm.drafts, shared=terms.shared),
                        terms.stop,
                        deadline,
                    )
                    _take_in(arm, wave)
        turn += 1


def _one_by_one(arms: Sequence[Arm]) -> bool:
    """Whether acceptance by category can only be had from waves of one category."""
    return any(arm.drafts and not arm.says_per_request for arm in arms)


def _categories(plan: CalibrationPlan, point: Point, turn: int, *, alone: bool) -> list[tuple[str, ...]]:
    """The categories of each wave of a visit: mixed, or a wave for each where a batch of more than one can not be."""
    count = len(plan.categories)
    if alone and point.batch_size > 1:
        return [(category,) * point.batch_size for category in plan.categories]
    return [tuple(plan.categories[(turn + place) % count] for place in range(point.batch_size))]


def _take_in(arm: Arm, wave: Wave) -> None:
    if wave.error is not None:
        arm.errors[wave.error] = arm.errors.get(wave.error, 0) + 1
    arm.waves.setdefault(wave.point, []).append(wave)


def _expected_s(arm: Arm, point: Point) -> float:
    """How long a wave is likely to take: as the last one did, or one and a half times that of half as many."""
    for batch_size, factor in ((point.batch_size, 1.0), (point.batch_size // 2, 1.5)):
        waves = arm.waves.get(Point(point.context_tokens, batch_size))
        if waves:
            return waves[-1].wall_s * factor
    return 0.0


async def _look_alone(arm: Arm, asker: Asker, plan: CalibrationPlan, *, shared: bool) -> None:
    """What a node that nobody else uses says, and how long its prompts take. Raises `NodeUnusable`."""
    node, category, context = arm.node, plan.categories[0], plan.context_tokens[0]
    if shared is False:
        await node.quiet(shared=False)
    cold = _usable(node, await ask_at_once(node, asker.requests(node, [category], context)))
    counted = cold.prompt_tokens
    if counted and not asker.informed:
        characters = len(cold.request.messages[0]["content"]) / counted
        asker.characters_per_token = min(max(characters, FEWEST_CHARACTERS), MOST_CHARACTERS)
        asker.informed = True
    short: list[LoadResult] = []
    long: list[LoadResult] = []
    for _ in range(PROBES):
        for length, found in ((max(1, round(context * SHORT_PROMPT)), short), (context, long)):
            requests = asker.requests(node, [category], length, 2)
            found.append(_usable(node, await ask_at_once(node, requests)))
    arm.prefill = _prefill(short, long)
    await node.look_again()
    arm.system_fingerprint = system_fingerprint(cold.closing)
    arm.says_per_request = read_statistics(node.engine_name, tuple(cold.closing)).sample is not None
    speculating = node.facts.speculating
    if arm.drafts and speculating is False:
        raise NodeUnusable(f"{node.name} says that it has no speculator: there is nothing to calibrate")
    if not arm.drafts and speculating is True:
        raise NodeUnusable(f"{node.name} drafts, so it is no standard node to compare with")


def _usable(node: CalibratedNode, results: Sequence[LoadResult]) -> LoadResult:
    (result,) = results
    if result.error is not None:
        raise NodeUnusable(f"{node.name} does not answer a request as needed: {result.error}")
    if result.latency is None or result.latency.ttft_s is None:
        raise NodeUnusable(f"{node.name} ends its streams without any content, so nothing can be timed")
    if result.output_tokens is None:
        raise NodeUnusable(f"{node.name} sends no usage with its streams, so that its tokens are not known")
    return result


def _prefill(short: Sequence[LoadResult], long: Sequence[LoadResult]) -> tuple[float, float] | None:
    """Base and slope of the time to the first token over a prompt's length; ``None`` where that is not told. The
    fastest of each length counts: what holds a request up only ever adds.
    """
    ends = []
    for results in (short, long):
        tokens = [result.prompt_tokens for result in results if result.prompt_tokens]
        times = [
            result.latency.ttft_s
            for result in results
            if result.latency is not None and result.latency.ttft_s is not None
        ]
        if not tokens:
            return None
        ends.append((median(tokens), min(times)))
    (low, low_s), (high, high_s) = ends
    if high <= low:
        return None
    token_s = max(0.0, (high_s - low_s) / (high - low))
    return max(0.0, low_s - token_s * low), token_s


async def _within(work: Awaitable[_Found], stop: asyncio.Event, deadline: float) -> _Found:
    """What the work finds. Raises `_Over` when told to stop before, or its time is over: requests are hung up on."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.create_task(stop.wait(), name="stop of the calibration")
    try:
        await asyncio.wait((working, stopping), timeout=_left(deadline), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise _Over
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.wait((working, stopping))


def _left(deadline: float) -> float | None:
    """Seconds; ``None`` = no deadline."""
    return None if deadline == inf else max(0.0, deadline - monotonic())

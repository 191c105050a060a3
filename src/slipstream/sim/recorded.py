"""Traffic that a gateway recorded, as a plan to simulate and as the run that it was.

What a recording does not say is filled in as docs/explanation/simulator.md has it, and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from slipstream.core.acceptance import (
    NO_EVIDENCE,
    Evidence,
    Interval,
    SpeculationSample,
    Steps,
    measured_estimate,
    steps_of,
)
from slipstream.core.errors import SlipstreamError
from slipstream.core.node import Speculator, SpeculatorKind
from slipstream.core.outcome import Ending
from slipstream.core.request import Pool
from slipstream.enginemodel.acceptance import survival_of
from slipstream.sim.fate import REASONS, Fate
from slipstream.sim.run import Run
from slipstream.telemetry.recording import RecordedAttempt, RecordedRequest, read_recording
from slipstream.workload.plan import CLASSES, NO_LIMIT, Plan

__all__ = ["NothingToReplay", "RecordedAcceptance", "RecordedTraffic", "read_traffic"]

_STARTED_ANEW_S: Final = 1.0
"""Lines are in the order of the ends, to within this: one that ended longer before the last is of another start."""
_LONGEST_PAUSE_S: Final = 60.0
"""Between two starts of a gateway."""
_TOKENS_PER_CHARACTER: Final = 0.25
"""Where no answer told how long its prompt was."""
_ENOUGH_STEPS: Final = 4
_LONGEST_S: Final = 1e8
"""Three years: what lasts longer has a wrong time in it."""
_LARGEST: Final = 1 << 30


class NothingToReplay(SlipstreamError):
    """A recording has no request that could be simulated."""


@dataclass(frozen=True, slots=True)
class RecordedAcceptance:
    """Of a category, from the ``requests`` that told theirs. ``alpha`` and its 95 % ``interval`` at draft length ``k``;
    ``None`` when too few told. ``spread`` is the standard deviation of requests' alpha beyond what chance makes.
    """

    requests: int
    k: float | None
    alpha: float | None
    interval: Interval | None
    spread: float


@dataclass(frozen=True, slots=True)
class RecordedTraffic:
    """``plan`` and ``run`` have a row for each request that can be simulated; the run is what really became of it.
    ``pool``: where it went last, an index into ``(standard, speculative)``, -1 = to no node.

    ``passed_over`` requests concerned no node, could not be read or make no tokens. Figures that were filled in:
    ``prompts_guessed``, ``outputs_guessed``. ``several`` asked for more than one answer and are simulated as one.
    ``starts``: how often the gateway started.
    """

    plan: Plan
    run: Run
    pool: NDArray[np.int8]
    acceptance: Mapping[str, RecordedAcceptance]
    passed_over: int
    prompts_guessed: int
    outputs_guessed: int
    several: int
    starts: int


def read_traffic(paths: Sequence[Path], *, models: Sequence[str], draft_length: int) -> RecordedTraffic:
    """Recordings of one gateway, in any order; a cut last line of each is passed over.

    ``models`` are those that the simulated fleet serves: where it is one, it serves whatever was asked for.
    ``draft_length``: of answers that do not say in how many steps they were verified.

    Raises ``RecordingUnreadable``, and `NothingToReplay` for a recording without a request that could be simulated, for
    one of a model that is not served, and for times that can not be.
    """
    files = [file for file in (list(read_recording(path)) for path in paths) if file]
    lines = [line for file in sorted(files, key=lambda file: file[0].time) for line in file]
    arrivals, starts = _arrivals(lines)
    usable = [
        (at_s, line)
        for at_s, line in zip(arrivals, lines, strict=True)
        if line.shape is not None and line.shape.decodes
    ]
    if not usable:
        raise NothingToReplay(f"{', '.join(map(str, paths))}: no request in it could be simulated")
    usable.sort(key=lambda pair: pair[0])
    began = usable[0][0]
    lasts = usable[-1][0] - began
    if not lasts <= _LONGEST_S:
        raise NothingToReplay(f"{', '.join(map(str, paths))}: a time in it is wrong, or it lasts {lasts:g} s")
    requests = [_Request(at_s - began, line) for at_s, line in usable]
    acceptance, quantile = _acceptance(requests, draft_length)
    plan, prompts_guessed, outputs_guessed = _plan(requests, tuple(models), quantile)
    return RecordedTraffic(
        plan=plan,
        run=_run(requests, plan),
        pool=np.array([_pool(request.last) for request in requests], np.int8),
        acceptance=acceptance,
        passed_over=len(lines) - len(requests),
        prompts_guessed=prompts_guessed,
        outputs_guessed=outputs_guessed,
        several=sum(request.sequences > 1 for request in requests),
        starts=starts,
    )


class _Request:
    """A recorded request that can be simulated. Figures that the last attempt did not tell are ``None``."""

    __slots__ = ("arrival_s", "category", "last", "line", "output_tokens", "prompt_tokens", "sequences")

    def __init__(self, arrival_s: float, line: RecordedRequest) -> None:
        assert line.shape is not None
        self.arrival_s = arrival_s
        self.line = line
        self.category = line.shape.category
        self.sequences = line.shape.sequences
        self.last = line.attempts[-1] if line.attempts else None
        self.prompt_tokens = _tokens(self.last.prompt_tokens if self.last else None)
        self.output_tokens = _tokens(self.last.output_tokens if self.finished and self.last else None)

    @property
    def finished(self) -> bool:
        return self.last is not None and self.last.ending is Ending.COMPLETED and self.last.e2e_ms is not None


def _tokens(told: int | None) -> int | None:
    return told if told is not None and 1 <= told < _LARGEST else None


def _arrivals(lines: Iterable[RecordedRequest]) -> tuple[list[float], int]:
    """When each request arrived on one clock, over all starts of the gateway, and how many those were.

    A start shows by ends that go back, or by a time of day that is further on than all that the last start has told.
    """
    found: list[float] = []
    starts, shift = 0, 0.0
    began = last_end = -inf  # of the start: the time of day, and the last end on its own clock
    for line in lines:
        end = line.arrival_s + line.duration_s
        later = line.time - line.arrival_s - began
        if end < last_end - _STARTED_ANEW_S or later >= max(last_end - _STARTED_ANEW_S, _STARTED_ANEW_S):
            if starts:
                shift += last_end + min(max(0.0, later - last_end), _LONGEST_PAUSE_S)
            starts += 1
            began, last_end = line.time - line.arrival_s, 0.0
        last_end = max(last_end, end)
        found.append(line.arrival_s + shift)
    return found, starts


def _acceptance(
    requests: Sequence[_Request], draft_length: int
) -> tuple[dict[str, RecordedAcceptance], NDArray[np.float64]]:
    """By category, and every request's place among those of its own: by what it told, else evenly spread."""
    speculator = Speculator(SpeculatorKind.DRAFT, max(1, draft_length))
    quantile = (np.arange(len(requests), dtype=np.float64) * 0.6180339887498949) % 1.0
    told: dict[str, list[tuple[int, SpeculationSample, Steps]]] = {}
    for index, request in enumerate(requests):
        own = told.setdefault(request.category, [])
        sample = _sample(request.last)
        steps = None if sample is None else steps_of(sample, speculator)
        if sample is not None and steps is not None and steps.verify > 0.0:
            own.append((index, sample, steps))
    found: dict[str, RecordedAcceptance] = {}
    for category, own in told.items():
        found[category] = _category(own)
        telling = [(index, sample, steps) for index, sample, steps in own if steps.verify >= _ENOUGH_STEPS]
        telling.sort(key=lambda one: one[1].accepted / one[2].verify)
        for rank, (index, _, _) in enumerate(telling):
            quantile[index] = (rank + 0.5) / len(telling)
    return found, quantile


def _category(told: Sequence[tuple[int, SpeculationSample, Steps]]) -> RecordedAcceptance:
    evidence: Evidence = NO_EVIDENCE
    for _, sample, steps in told:
        evidence = evidence.credited(sample, steps, 0.0)
    estimate = measured_estimate(evidence)
    spread = 0.0
    if estimate.alpha is not None and estimate.k is not None:
        spread = _spread(told, estimate.alpha, max(1, round(estimate.k)))
    return RecordedAcceptance(len(told), estimate.k, estimate.alpha, estimate.alpha_interval, spread)


def _spread(told: Sequence[tuple[int, SpeculationSample, Steps]], alpha: float, k: int) -> float:
    """The standard deviation of requests' alpha: what they differ by beyond what chance makes of so few steps each."""
    means = [
        (sample.accepted / steps.verify, steps.verify) for _, sample, steps in told if steps.verify >= _ENOUGH_STEPS
    ]
    if len(means) < 2:
        return 0.0
    survival = survival_of(alpha, k)
    tau = sum(survival)
    by_chance = sum((2 * position - 1) * share for position, share in enumerate(survival, 1)) - tau * tau
    average = sum(mean for mean, _ in means) / len(means)
    seen = sum((mean - average) ** 2 for mean, _ in means) / (len(means) - 1)
    own = seen - by_chance * sum(1.0 / steps for _, steps in means) / len(means)
    slope = sum(position * alpha ** (position - 1) for position in range(1, k + 1))
    return sqrt(max(0.0, own)) / slope


def _sample(last: RecordedAttempt | None) -> SpeculationSample | None:
    if last is None or last.drafted is None or last.accepted is None:
        return None
    return SpeculationSample(last.drafted, last.accepted, last.verify_steps, last.output_tokens)


def _plan(
    requests: Sequence[_Request], served: tuple[str, ...], quantile: NDArray[np.float64]
) -> tuple[Plan, int, int]:
    """The plan, and how many prompts and outputs had to be guessed."""
    categories = tuple(dict.fromkeys(request.category for request in requests))
    outputs = _medians(requests, categories)
    per_character = _tokens_per_character(requests)
    prompts = [request.prompt_tokens for request in requests]
    known = [tokens for tokens in prompts if tokens is not None]
    usual = round(median(known)) if known else None
    prompt_tokens: list[int] = []
    output_tokens: list[int] = []
    output_limit: list[int] = []
    sessions: dict[int, int] = {}
    session: list[int] = []
    for request in requests:
        shape = request.line.shape
        assert shape is not None
        limit = _tokens(shape.output_limit)
        output = request.output_tokens
        if output is None:
            output = outputs[request.category] if limit is None else min(limit, outputs[request.category])
        prompt = request.prompt_tokens
        if prompt is None:
            characters = shape.prompt_characters
            prompt = usual or 1 if characters is None else max(1, min(_LARGEST, round(characters * per_character)))
        prompt_tokens.append(prompt)
        output_tokens.append(output)
        output_limit.append(NO_LIMIT if limit is None else limit)
        session.append(NO_LIMIT if shape.session is None else sessions.setdefault(shape.session, len(sessions)))
    plan = Plan(
        categories=categories,
        models=served,
        arrival_s=np.array([request.arrival_s for request in requests], np.float64),
        prompt_tokens=np.array(prompt_tokens, np.int64),
        output_tokens=np.array(output_tokens, np.int64),
        category=np.array([categories.index(request.category) for request in requests], np.int16),
        traffic_class=np.array([_class(request) for request in requests], np.int8),
        quantile=quantile,
        output_limit=np.array(output_limit, np.int64),
        model=np.array([_model(request, served) for request in requests], np.int16),
        session=np.array(session, np.int64),
    )
    return plan, sum(tokens is None for tokens in prompts), sum(one.output_tokens is None for one in requests)


def _class(request: _Request) -> int:
    assert request.line.shape is not None
    return CLASSES.index(request.line.shape.traffic_class)


def _medians(requests: Sequence[_Request], categories: Iterable[str]) -> dict[str, int]:
    """Of the output tokens told, by category; of all where a category told none."""
    told = [(request.category, tokens) for request in requests if (tokens := request.output_tokens) is not None]
    if not told:
        raise NothingToReplay(
            "no answer of the recording told how many tokens it had: nodes that are not asked (instrument: off) "
            "leave that out of streams"
        )
    usual = round(median(tokens for _, tokens in told))
    found: dict[str, int] = {}
    for category in categories:
        own = [tokens for name, tokens in told if name == category]
        found[category] = round(median(own)) if own else usual
    return found


def _tokens_per_character(requests: Iterable[_Request]) -> float:
    ratios = [
        request.prompt_tokens / shape.prompt_characters
        for request in requests
        if (shape := request.line.shape) is not None and request.prompt_tokens is not None and shape.prompt_characters
    ]
    return median(ratios) if ratios else _TOKENS_PER_CHARACTER


def _model(request: _Request, served: tuple[str, ...]) -> int:
    assert request.line.shape is not None
    name = request.line.shape.model
    if name in served:
        return served.index(name)
    if len(served) == 1:
        return 0
    raise NothingToReplay(f"the recording has requests for {name}, and the scenario's nodes serve {', '.join(served)}")


def _pool(last: RecordedAttempt | None) -> int:
    return -1 if last is None else int(last.pool is Pool.SPECULATIVE)


def _run(requests: Sequence[_Request], plan: Plan) -> Run:
    """What was measured, in the columns of a simulated run. How long a request was queued is not in a recording."""
    count = len(requests)
    first = np.full(count, np.nan)
    ended = np.full(count, np.nan)
    nodes: dict[str, int] = {}
    for request in requests:
        if request.last is not None:
            nodes.setdefault(request.last.node, len(nodes))
    for index, request in enumerate(requests):
        last = request.last
        if last is None or not request.finished:
            continue
        assert last.e2e_ms is not None
        ended[index] = request.arrival_s + last.e2e_ms / 1000.0
        if last.ttft_ms is not None:
            first[index] = request.arrival_s + last.ttft_ms / 1000.0
    numbers = [_numbers(request) for request in requests]
    return Run(
        policy="recorded",
        seed=0,
        plan=plan,
        nodes=(),
        node=np.array([-1 if one.last is None else nodes[one.last.node] for one in requests], np.int16),
        reason=np.array([-1 if one.last is None else REASONS.index(one.last.reason) for one in requests], np.int8),
        fate=np.array([_fate(request) for request in requests], np.int8),
        attempts=np.array([len(request.line.attempts) for request in requests], np.int16),
        queued_s=np.full(count, np.nan),
        engine_wait_s=np.full(count, np.nan),
        first_token_s=first,
        ended_s=ended,
        drafted=np.array([drafted for drafted, _, _ in numbers], np.int32),
        accepted=np.array([accepted for _, accepted, _ in numbers], np.int32),
        verify_steps=np.array([steps for _, _, steps in numbers], np.int32),
        steps=np.zeros(count, np.int32),
        ended_at_s=float(max(one.arrival_s + one.line.duration_s for one in requests)),
        wall_s=0.0,
    )


def _numbers(request: _Request) -> tuple[int, int, int]:
    sample = _sample(request.last)
    if sample is None or not 0 <= sample.accepted <= sample.drafted < _LARGEST:
        return 0, 0, 0
    return sample.drafted, sample.accepted, min(sample.drafted, sample.verify_steps or 0)


def _fate(request: _Request) -> int:
    if request.finished:
        return int(Fate.FINISHED)
    return int(Fate.REFUSED if request.last is None else Fate.UNFINISHED)

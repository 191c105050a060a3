"""The least node time that a request takes, whoever decides: what `sim.bound` charges.

docs/explanation/simulator.md derives every formula here; the names are its symbols. All times are seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray

from slipstream.costmodel.errors import ImpossibleInput
from slipstream.enginemodel.settings import Account, EngineSettings
from slipstream.enginemodel.step_times import KNOTS, StepRows, at
from slipstream.sim.scenario import Equipment

__all__ = ["Arm", "Charges", "Demand", "arm_of", "least_node_time"]

_Floats = NDArray[np.float64]

_MEMORY_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 0.9)
_PROMPT_WEIGHTS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
_SAMPLE = 500
_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Arm:
    """What the steps of one equipment take at least.

    ``step_s[k, b, c]``: a step of ``batch[b]`` sequences with ``context`` cached tokens each that draft ``drafts[k]``,
    and ``prompt[c]`` prompt tokens beside; inf where a step can not be so. ``context_s[k]``: what a cached token more
    adds at least. ``alone_s``: a step of prompt tokens only, by their number in `KNOTS`. ``prompt_s``: its least time a
    token. ``pair_s`` as in `StepRows`. ``fastest_s``: time a token on an empty node with every draft accepted.
    ``cache_tokens``: room of the cache, inf = no limit. ``step_tokens``: prompt tokens of a step at most.
    ``proposing_share``: of the sequences, in a step. ``steady``: whether acceptance is always the request's own.
    """

    drafts: tuple[int, ...]
    batch: _Floats
    prompt: _Floats
    step_s: _Floats
    context: float
    context_s: _Floats
    alone_s: tuple[float, ...]
    prompt_s: float
    pair_s: float
    fastest_s: float
    cache_tokens: float
    step_tokens: int
    proposing_share: float
    steady: bool


@dataclass(frozen=True, slots=True)
class Demand:
    """What requests ask for, in columns. ``decode_limit_s``: from the first token to the last at most, inf = no limit;
    ``first_token_limit_s`` likewise from arrival to the first. ``tau[n, k]``: request n's mean acceptance length at
    draft length k, for k from 0 on. ``luck``: the variance of what a verify step emits over its mean, at most.
    """

    prompt_tokens: _Floats
    output_tokens: _Floats
    first_token_limit_s: _Floats
    decode_limit_s: _Floats
    tau: _Floats
    luck: _Floats

    def where(self, which: NDArray[np.bool_] | slice) -> Demand:
        """Of some of the requests."""
        return Demand(
            self.prompt_tokens[which],
            self.output_tokens[which],
            self.first_token_limit_s[which],
            self.decode_limit_s[which],
            self.tau[which],
            self.luck[which],
        )


@dataclass(frozen=True, slots=True)
class Charges:
    """The node time for being good with probability x: at least ``low_s`` x, and from ``share`` on ``high_s`` for each
    further part. inf = can not be good on this equipment.
    """

    share: _Floats
    low_s: _Floats
    high_s: _Floats

    def total(self) -> float:
        """Over all requests, for all of them being good."""
        return float((self.share * self.low_s + (1.0 - self.share) * self.high_s).sum())


def arm_of(equipment: Equipment, drafts: Iterable[int], shortest: int, longest: int, requests: int) -> Arm:
    """Of ``requests`` with at least ``shortest`` cached tokens and at most ``longest``. ``drafts``: lengths that anyone
    may choose; of those the equipment can not run none is taken. A standard engine drafts nothing.
    """
    settings, rows, speculation = equipment.settings, equipment.rows, equipment.settings.speculation
    sizes = range(1, min(_largest_batch(settings, shortest), requests) + 1)
    chunks = [0, *(after for before, after in pairwise(KNOTS) if before < settings.step_tokens)]
    reach = [after for before, after in pairwise(KNOTS) if after > shortest and before < longest]
    steps: list[_Floats] = []
    slopes: list[float] = []
    found: list[int] = []
    for k in sorted({0, *drafts}) if speculation is not None else (0,):
        try:
            table = [_steps_of(rows, settings, size, k, shortest, chunks, reach) for size in sizes]
        except ImpossibleInput:
            if k == 0:
                raise
            continue
        found.append(k)
        steps.append(np.array([times for times, _ in table]))
        slopes.append(min(slope for _, slope in table))
    alone = _with_drafter(rows, rows.prefill_row(0), settings)
    step_s = np.array(steps)
    return Arm(
        drafts=tuple(found),
        batch=np.array(sizes, float),
        prompt=np.array(chunks, float),
        step_s=step_s,
        context=float(shortest),
        context_s=np.array(slopes),
        alone_s=alone,
        prompt_s=min(at(alone, chunk) / chunk for chunk in chunks if chunk),
        pair_s=rows.pair_s,
        fastest_s=min(float(table[:, 0].min()) / (k + 1) for k, table in zip(found, step_s, strict=True)),
        cache_tokens=inf if settings.kv_tokens is None else float(settings.kv_tokens),
        step_tokens=settings.step_tokens,
        proposing_share=1.0 if speculation is None else speculation.proposing_share,
        steady=speculation is None
        or (speculation.proposing_share == 1.0 and speculation.account is Account.INDEPENDENT),
    )


def least_node_time(arm: Arm, demand: Demand) -> Charges:
    """Of every request on this equipment. Any weights of memory and prompts give a bound: those that charge a sample of
    the requests most are taken.
    """
    hopeless = (
        (_first_token_s(arm, demand.prompt_tokens) > demand.first_token_limit_s * (1.0 + _SLACK))
        | ((demand.output_tokens - 1.0) * arm.fastest_s > demand.decode_limit_s * (1.0 + _SLACK))
        | (demand.prompt_tokens + demand.output_tokens - 1.0 > arm.cache_tokens)
    )
    able = demand.where(~hopeless)
    sample = able.where(slice(None, None, max(1, len(able.prompt_tokens) // _SAMPLE)))
    memory_weights = _MEMORY_WEIGHTS if arm.cache_tokens < inf else (0.0,)
    memory, prompt = max(
        ((memory, prompt) for memory in memory_weights for prompt in _PROMPT_WEIGHTS),
        key=lambda weights: _charges(arm, sample, *weights).total(),
    )
    charges = _charges(arm, demand, memory, prompt)
    return replace(
        charges, low_s=np.where(hopeless, inf, charges.low_s), high_s=np.where(hopeless, inf, charges.high_s)
    )


def _largest_batch(settings: EngineSettings, shortest: int) -> int:
    most = min(settings.slots, settings.step_tokens)
    if settings.kv_tokens is None:
        return most
    blocks = settings.kv_tokens // settings.block_tokens
    return max(1, min(most, blocks // -(-shortest // settings.block_tokens)))


def _steps_of(
    rows: StepRows,
    settings: EngineSettings,
    size: int,
    k: int,
    shortest: int,
    chunks: Sequence[int],
    reach: Sequence[int],
) -> tuple[list[float], float]:
    """Times of steps of ``size`` sequences by the prompt tokens beside, and what a cached token adds at least."""
    speculation = settings.speculation
    drafting, besides, tax = size, [size * (k + 1)], 1.0
    if speculation is not None and k == 0:
        tax += speculation.zero_draft_tax
    elif speculation is not None and (
        speculation.proposing_share < 1.0 or speculation.drop_below is not None or size * (k + 1) > settings.step_tokens
    ):
        drafting, besides = 0, [size, min(size * (k + 1), settings.step_tokens)]  # not all draft: charge none of it
    row = rows.decode_row(size, drafting if k else 0, k if drafting else 0)
    start = at(row, shortest)
    slope = min((at(row, knot) - start) / (knot - shortest) for knot in reach) / size * tax
    added = [_with_drafter(rows, rows.prefill_row(beside), settings) for beside in besides]
    room = settings.step_tokens - besides[0]
    times = [
        start * tax + min(at(prompts, chunk) for prompts in added) if not index or chunks[index - 1] < room else inf
        for index, chunk in enumerate(chunks)
    ]
    return times, max(0.0, slope)


def _with_drafter(rows: StepRows, row: tuple[float, ...], settings: EngineSettings) -> tuple[float, ...]:
    speculation = settings.speculation
    if speculation is None or speculation.longest == 0 or speculation.proposing_share == 0.0:
        return row
    return tuple(own + its for own, its in zip(row, rows.drafter_prefill_row(), strict=True))


def _charges(arm: Arm, demand: Demand, memory: float, prompt: float) -> Charges:
    """At weights ``memory`` (θ, 0 ≤ θ < 1) and ``prompt`` (r as a share of its largest)."""
    rest = 1.0 - memory
    prompt_s = prompt * arm.prompt_s
    prompts, more, limit = demand.prompt_tokens, demand.output_tokens - 1.0, demand.decode_limit_s
    held = memory * prompts / arm.cache_tokens
    longest = arm.drafts[-1]
    prices = np.array([0.0, *np.geomspace(0.05 / arm.batch[-1], 8.0, 32)])
    least = np.stack([_least_step_s(arm, prompt_s, price) for price in prices], axis=1)
    grown = prompts + np.maximum(0.0, demand.output_tokens - 2.0 - longest)
    growing = np.clip((more - 1.0 - longest) / np.maximum(more, 1.0), 0.0, 1.0) / 2.0

    recomputed = prompt_s * (prompts + 1.0) if arm.cache_tokens < inf else np.full_like(prompts, inf)

    def token_s(steps: _Floats, context: _Floats) -> _Floats:
        """rho: node time a token, at the draft length that is cheapest; recomputing a lost cache gives one too."""
        cheapest = recomputed
        for index, k in enumerate(arm.drafts):
            step_s = steps[index] + arm.context_s[index] * (context - arm.context)
            cheapest = np.minimum(cheapest, step_s / (1.0 + arm.proposing_share * (demand.tau[:, k] - 1.0)))
        return cheapest

    def answer_s(steps: _Floats) -> tuple[_Floats, _Floats]:
        """W before the price of its time, and the largest rho on the way."""
        low, high = token_s(steps, prompts), token_s(steps, grown)
        return rest * more * (low + growing * (high - low)), high + last

    last = arm.context_s.max() * (longest + 2.0)  # the context ends at most so much longer than `grown`
    free, _ = answer_s(np.stack([np.interp(held / rest, prices, row) for row in least]))
    best, luck = free.copy(), np.zeros_like(free)
    most_luck = longest + 2.0 - 2.0 * sqrt(longest + 1.0)  # whatever the acceptance
    spread = np.sqrt((np.minimum(demand.luck, most_luck) if arm.steady else most_luck) * (more + longest))
    timed = np.where(np.isfinite(limit), limit, 0.0)
    for column in range(1, len(prices)):
        price = rest * prices[column] - held
        answer, dearest = answer_s(least[:, column])
        answer -= np.maximum(price, 0.0) * timed
        sigma = rest * dearest * spread
        better = np.isfinite(limit) & (price > 0.0) & (answer - sigma / 6.0 > best - luck / 6.0)
        best, luck = np.where(better, answer, best), np.where(better, sigma, luck)
    high = np.maximum(best + luck * 4.0 / 3.0, free)
    above = high - free
    share = np.where(above > 0.0, np.minimum(1.0, 1.5 * luck / np.where(above > 0.0, above, 1.0)), 0.0)
    prefill = rest * (prompt_s * prompts + arm.pair_s * prompts * prompts / 2.0)
    return Charges(share, free + prefill, high + prefill)


def _least_step_s(arm: Arm, prompt_s: float, price: float) -> _Floats:
    """gamma: by draft length, a sequence's least part of a step and ``price`` a second of it, prompts paying theirs."""
    each = 1.0 / arm.batch[:, None]
    found: _Floats = (arm.step_s * (each + price) - prompt_s * arm.prompt * each).min(axis=(1, 2))
    return found


def _first_token_s(arm: Arm, prompts: _Floats) -> _Floats:
    """On an empty node, at least."""
    whole = np.minimum(prompts, arm.step_tokens)
    found: _Floats = np.interp(whole, KNOTS, arm.alone_s) + arm.pair_s * prompts * prompts / 2.0
    return found

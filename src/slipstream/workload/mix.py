"""Traffic as data: how requests arrive, of which categories, how long; and the plan that a seed makes of it."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from slipstream.core.request import TrafficClass
from slipstream.workload.arrivals import MOST_REQUESTS, Arrivals
from slipstream.workload.errors import ImpossibleWorkload
from slipstream.workload.lengths import Lengths
from slipstream.workload.plan import CLASSES, NO_LIMIT, Plan
from slipstream.workload.traces import Trace

__all__ = ["CategoryTraffic", "Limit", "Mix", "TraceArrivals", "make_plan"]


class Limit(StrEnum):
    """Which token limit clients send."""

    NONE = "none"
    EXACT = "exact"
    """What the answer will have: the length is known beforehand, and known to the gateway."""


@dataclass(frozen=True, slots=True)
class CategoryTraffic:
    """Requests of one category: ``share`` of all, in any unit.

    ``prompt`` and ``output`` are lengths, ``None`` = those of the trace. ``limit`` is what clients send as their token
    limit; a number also cuts answers that would be longer.
    """

    name: str
    share: float
    prompt: Lengths | None = None
    output: Lengths | None = None
    traffic_class: TrafficClass = TrafficClass.INTERACTIVE
    limit: Limit | int = Limit.NONE

    def __post_init__(self) -> None:
        if not 0.0 <= self.share < math.inf:
            raise ImpossibleWorkload(f"{self.name}: a share is a number from 0 on, not {self.share:g}")
        if isinstance(self.limit, int) and self.limit < 1:
            raise ImpossibleWorkload(f"{self.name}: a token limit is at least 1, not {self.limit}")


@dataclass(frozen=True, slots=True)
class TraceArrivals:
    """A trace played ``speed`` times as fast, once: what arrives ends with it, if not before.

    With ``repeat`` it begins anew when it is over, a mean gap later.
    """

    trace: Trace
    speed: float = 1.0
    repeat: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.speed < math.inf:
            raise ImpossibleWorkload(f"a trace is played at a speed above 0, not {self.speed:g}")


@dataclass(frozen=True, slots=True)
class Mix:
    """What arrives. It ends before ``duration_s`` or after ``requests``, whichever is first; ``None`` = not by that.

    One of the two is given, unless a trace is played once. ``models`` are names and shares, in any unit, drawn
    independently of the category. ``context_tokens`` is the longest context that is asked for, ``None`` = any: prompts
    are cut to leave room for a token, then answers to what is left.
    """

    arrivals: Arrivals | TraceArrivals
    categories: tuple[CategoryTraffic, ...]
    models: tuple[tuple[str, float], ...]
    duration_s: float | None = None
    requests: int | None = None
    context_tokens: int | None = None

    def __post_init__(self) -> None:
        _check_shares("category", [(category.name, category.share) for category in self.categories])
        _check_shares("model", list(self.models))
        endless = not isinstance(self.arrivals, TraceArrivals) or self.arrivals.repeat
        if endless and self.duration_s is None and self.requests is None:
            raise ImpossibleWorkload("traffic ends after a time or a number of requests: neither is given")
        if self.duration_s is not None and not 0.0 < self.duration_s < math.inf:
            raise ImpossibleWorkload(f"traffic lasts longer than 0 s, not {self.duration_s:g}")
        if self.requests is not None and not 1 <= self.requests <= MOST_REQUESTS:
            raise ImpossibleWorkload(f"a plan has 1 to {MOST_REQUESTS:,} requests, not {self.requests}")
        if self.context_tokens is not None and self.context_tokens < 2:
            raise ImpossibleWorkload(f"a context has at least 2 tokens, not {self.context_tokens}")
        if not isinstance(self.arrivals, TraceArrivals):
            for category in self.categories:
                if category.prompt is None or category.output is None:
                    raise ImpossibleWorkload(
                        f"{category.name}: without a trace, lengths of prompts and outputs are needed"
                    )


def make_plan(mix: Mix, seed: int) -> Plan:
    """What arrives under a seed (from 0 on): the same for the same seed.

    Every purpose has a stream of chance of its own, so a change to one thing leaves the others as they are: other
    lengths of a category change neither arrivals nor who is of which category nor the lengths of other categories; and
    a plan that lasts longer begins like a shorter one.

    Raises:
        ImpossibleWorkload: more than `MOST_REQUESTS`, or none, would arrive.
    """
    if seed < 0:
        raise ImpossibleWorkload(f"a seed is a whole number from 0 on, not {seed}")
    if isinstance(mix.arrivals, TraceArrivals):
        row, arrival_s, session = _played(mix.arrivals, mix.duration_s, mix.requests)
        prompt, output = mix.arrivals.trace.prompt_tokens[row], mix.arrivals.trace.output_tokens[row]
    else:
        duration_s = math.inf if mix.duration_s is None else mix.duration_s
        arrival_s = mix.arrivals.times(duration_s, mix.requests, _chance(seed, "arrivals"))
        session = np.full(len(arrival_s), NO_LIMIT, dtype=np.int64)
        prompt, output = np.empty((2, len(arrival_s)), dtype=np.int64)
    count = len(arrival_s)
    if not count:
        raise ImpossibleWorkload("no request would arrive: the traffic is too short for its rate")
    category = _drawn([category.share for category in mix.categories], count, _chance(seed, "categories"))
    traffic_class = np.empty(count, dtype=np.int8)
    limit = np.full(count, NO_LIMIT, dtype=np.int64)
    exact = np.zeros(count, dtype=np.bool_)
    for index, traffic in enumerate(mix.categories):
        rows = np.flatnonzero(category == index)
        if traffic.prompt is not None:
            prompt[rows] = traffic.prompt.draw(len(rows), _chance(seed, "prompts", traffic.name))
        if traffic.output is not None:
            output[rows] = traffic.output.draw(len(rows), _chance(seed, "outputs", traffic.name))
        traffic_class[rows] = CLASSES.index(traffic.traffic_class)
        if isinstance(traffic.limit, int):
            limit[rows] = traffic.limit
            output[rows] = np.minimum(output[rows], traffic.limit)
        else:
            exact[rows] = traffic.limit is Limit.EXACT
    if mix.context_tokens is not None:
        prompt = np.minimum(prompt, mix.context_tokens - 1)
        output = np.minimum(output, mix.context_tokens - prompt)
    return Plan(
        categories=tuple(traffic.name for traffic in mix.categories),
        models=tuple(name for name, _ in mix.models),
        arrival_s=arrival_s,
        prompt_tokens=prompt,
        output_tokens=output,
        category=category,
        traffic_class=traffic_class,
        quantile=_chance(seed, "quantiles").random(count),
        output_limit=np.where(exact, output, limit),
        model=_drawn([share for _, share in mix.models], count, _chance(seed, "models")),
        session=session,
    )


def _played(
    played: TraceArrivals, duration_s: float | None, requests: int | None
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Rows of the trace, when each arrives, and its conversation: that of a repetition is another one."""
    trace = played.trace
    at = trace.arrival_s / played.speed
    rows = np.arange(len(at), dtype=np.int64)
    repetition = np.zeros(len(at), dtype=np.int64)
    if played.repeat:
        period = float(at[-1]) * len(at) / max(len(at) - 1, 1)
        by_time = math.inf if duration_s is None or not period else math.ceil(duration_s / period)
        by_count = math.inf if requests is None else math.ceil(requests / len(at))
        times = min(by_time, by_count)
        if times * len(at) > MOST_REQUESTS + len(at):
            raise ImpossibleWorkload(
                f"a trace of {len(at):,} requests in {at[-1]:g} s, repeated, is more than {MOST_REQUESTS:,} requests"
            )
        repetition, rows = np.divmod(np.arange(len(at) * int(times), dtype=np.int64), len(at))
        at = at[rows] + repetition * period
    end = min(
        len(at) if duration_s is None else int(np.searchsorted(at, duration_s)),
        len(at) if requests is None else requests,
    )
    rows, at, repetition = rows[:end], at[:end], repetition[:end]
    session = trace.session[rows]
    conversations = int(trace.session.max()) + 1
    return rows, at, np.where(session == NO_LIMIT, NO_LIMIT, session + repetition * conversations)


def _drawn(shares: list[float], count: int, rng: np.random.Generator) -> NDArray[np.int16]:
    """Indexes by share, each from a draw of its own, so that shares that hardly change move few requests."""
    ends = np.cumsum(shares)
    return np.searchsorted(ends[:-1] / ends[-1], rng.random(count), side="right").astype(np.int16)


def _chance(seed: int, *purpose: str) -> np.random.Generator:
    """The stream for one purpose: independent of the others, whatever else there is."""
    digest = hashlib.sha256("\0".join(purpose).encode()).digest()
    key = tuple(int.from_bytes(digest[at : at + 4], "little") for at in range(0, 16, 4))
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def _check_shares(what: str, shares: list[tuple[str, float]]) -> None:
    names = [name for name, _ in shares]
    if len(set(names)) != len(names):
        raise ImpossibleWorkload(f"every {what} of a mix has a name of its own")
    if (
        not all(0.0 <= share < math.inf for _, share in shares)
        or not 0.0 < sum(share for _, share in shares) < math.inf
    ):
        raise ImpossibleWorkload(f"the shares of a {what} are numbers from 0 on, and one of them is above 0")

"""The search for the highest rate, on servers of which it is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from made_loads import load_of, result_of
from slipstream.bench.find_max import Ended, Search, find_max
from slipstream.bench.measures import Measures, measures_of
from slipstream.bench.resampling import Figure
from slipstream.bench.samples import samples_of
from slipstream.core.goodput import Target

BASE = measures_of(samples_of(load_of([result_of(0, 0.0)]), Target()))


def measured(attainment: float, width: float = 0.0, *, fell_behind: bool = False) -> Measures:
    figure = Figure(attainment, (max(0.0, attainment - width), min(1.0, attainment + width)))
    return replace(BASE, requests=replace(BASE.requests, attainment=figure), fell_behind=fell_behind)


async def search(capacity: float, start: float = 1.0, *, most_points: int = 60, width: float = 0.0) -> Search:
    """On a server that all requests bear up to a rate, and above it fewer and fewer."""

    async def measure_at(rate: float) -> Measures | None:
        return measured(1.0 if rate <= capacity else 0.9 * capacity / rate, width)

    return await find_max(measure_at, start=start, attainment=0.9, narrow=0.05, most_points=most_points, lowest=1e-3)


@settings(max_examples=50)
@given(st.floats(0.01, 1000.0), st.floats(0.01, 100.0))
async def test_the_rate_is_found_to_five_per_cent_from_wherever_it_starts(capacity: float, start: float) -> None:
    found = await search(capacity, start)
    assert found.ended is Ended.NARROW
    assert found.rate is not None
    assert capacity / 1.05 <= found.rate <= capacity
    assert found.interval[0] == found.rate
    assert found.interval[1] is not None
    assert capacity < found.interval[1] <= found.rate * 1.05
    rates = [point.rate for point in found.points]
    assert len(set(rates)) == len(rates)


async def test_the_interval_is_as_wide_as_what_is_beyond_doubt() -> None:
    found = await search(10.0, width=0.05)
    low, high = found.interval
    assert found.rate is not None
    assert low is not None
    assert high is not None
    assert low <= found.rate < high
    assert high > 10.5  # between 10 and this, attainment could be either


async def test_so_many_rates_and_no_more() -> None:
    found = await search(100.0, most_points=3)
    assert (found.ended, found.rate, found.interval) == (Ended.BUDGET, 4.0, (4.0, None))
    assert [point.rate for point in found.points] == [1.0, 2.0, 4.0]


async def test_a_server_that_never_attains() -> None:
    found = await search(1e-9, start=0.01)
    assert (found.ended, found.rate) == (Ended.NEVER, None)
    assert found.points[-1].rate == 1e-3
    assert found.interval[0] is None


async def test_a_generator_that_falls_behind_ends_it() -> None:
    async def measure_at(rate: float) -> Measures | None:
        return measured(1.0 if rate < 8.0 else 0.1, fell_behind=rate >= 4.0)

    found = await find_max(measure_at, start=1.0, attainment=0.9, narrow=0.05, most_points=9, lowest=0.1)
    assert (found.ended, found.rate) == (Ended.GENERATOR, 4.0)  # who is late and in time all the same is not harmed


async def test_a_rate_that_could_not_be_sent_attains_nothing_whoever_meets_targets_at_it() -> None:
    """A hundred requests in a tenth of a second, the last of them most of that late, were not a thousand a second."""

    async def measure_at(rate: float) -> Measures | None:
        late = 0.08 if rate >= 1000.0 else 0.02
        requests = replace(measured(1.0).requests, offered=100)
        return replace(measured(1.0), requests=requests, fell_behind=rate >= 250.0, late_p99_s=late)

    found = await find_max(measure_at, start=125.0, attainment=0.9, narrow=0.06, most_points=9, lowest=0.1)
    assert [point.rate for point in found.points] == [125.0, 250.0, 500.0]
    assert (found.ended, found.rate) == (Ended.GENERATOR, 250.0)


@pytest.mark.parametrize("at", [0, 2])
async def test_an_interrupted_search_tells_what_it_has(at: int) -> None:
    seen: list[float] = []

    async def measure_at(rate: float) -> Measures | None:
        seen.append(rate)
        return None if len(seen) > at else measured(1.0)

    found = await find_max(measure_at, start=1.0, attainment=0.9, narrow=0.05, most_points=9, lowest=0.1)
    assert found.ended is Ended.INTERRUPTED
    assert len(found.points) == at


async def test_a_load_without_requests_attains_nothing() -> None:
    async def measure_at(_rate: float) -> Measures | None:
        return replace(BASE, requests=replace(BASE.requests, attainment=Figure()))

    found = await find_max(measure_at, start=1.0, attainment=0.9, narrow=0.05, most_points=2, lowest=0.1)
    assert (found.rate, found.interval) == (None, (None, None))

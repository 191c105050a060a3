"""When live figures have left a profile, and when they are back."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.core.acceptance import AcceptanceBook, AcceptancePrior, LearnedTime, SpeculationSample
from slipstream.core.calibration import (
    Calibration,
    ExpectedTime,
    MeasuredAcceptance,
    MeasuredTime,
    MeasuredTraffic,
    expected_time,
)
from slipstream.core.node import Speculator, SpeculatorKind
from slipstream.core.recheck import (
    Learned,
    SampledFingerprint,
    acceptance_departures,
    has_left,
    time_departures,
    traffic_departures,
)
from slipstream.core.traffic import ONE_IN, Traffic, mix_distance

DRAFT = Speculator(SpeculatorKind.DRAFT, 4)
PROMISES = Calibration(
    "p.json",
    "2026-11-30",
    "vllm",
    "1",
    "m",
    (DRAFT.fingerprint,),
    times=(MeasuredTime(4, 1, 0.010, 0.009, 0.011), MeasuredTime(4, 8, 0.020, 0.018, 0.022)),
    acceptance=(MeasuredAcceptance(DRAFT.fingerprint, "code", 3.0, (2.8, 3.2)),),
    traffic=MeasuredTraffic((("chat", 0.5), ("code", 0.5)), 400.0, 600.0),
    prefill=(0.001, 1e-5),
)
LEAVES, RETURNS = 1.25, 1.1


# The law of the verdict


@settings(max_examples=200)
@given(
    base=st.floats(0.2, 5.0),
    moves=st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=30),
    width=st.floats(1.0, 1.5),
)
def test_what_stays_within_the_band_between_the_two_factors_changes_its_verdict_once_at_most(
    base: float, moves: list[float], width: float
) -> None:
    """However a figure moves, to change the verdict twice it must cross from one factor to the other."""
    band = sqrt(LEAVES / RETURNS) * (1 - 1e-9)
    left, verdicts = False, []
    for move in moves:
        value = base * band**move
        left = has_left(left, value, (value / width, value * width), (1.0, 1.0), LEAVES, RETURNS)
        verdicts.append(left)
    assert sum(one is not other for one, other in zip([False, *verdicts], verdicts, strict=False)) <= 1


@settings(max_examples=100)
@given(value=st.floats(0.1, 10.0), before=st.booleans())
def test_what_is_within_the_smaller_factor_holds_and_what_is_beyond_the_larger_has_left(
    value: float,
    before: bool,
) -> None:
    left = has_left(before, value, (value, value), (1.0, 2.0), LEAVES, RETURNS)
    if 1.0 / RETURNS <= value <= 2.0 * RETURNS:
        assert not left
    if not 1.0 / LEAVES <= value <= 2.0 * LEAVES:
        assert left


def test_an_interval_that_reaches_back_says_nothing_yet() -> None:
    assert not has_left(False, 5.0, (1.2, 9.0), (1.0, 1.0), LEAVES, RETURNS)
    assert has_left(True, 5.0, (1.2, 9.0), (1.0, 1.0), LEAVES, RETURNS)


# What a profile promises


def test_a_promise_lies_between_what_was_measured_and_nowhere_else() -> None:
    assert expected_time(PROMISES.times, 4, 1, 1) == pytest.approx(ExpectedTime(0.010, 0.009, 0.011))
    between = expected_time(PROMISES.times, 4, 2, 4)
    assert between is not None
    assert 0.009 < between.low_s < between.tpot_s < between.high_s < 0.022
    assert between.tpot_s == pytest.approx(0.010 * 2 ** ((1 / 3 + 2 / 3) / 2))
    assert expected_time(PROMISES.times, 4, 5, 12) == expected_time(PROMISES.times, 4, 5, 8)
    assert expected_time(PROMISES.times, 4, 9, 12) is None
    assert expected_time(PROMISES.times, 4, 65, None) is None
    assert expected_time(PROMISES.times, 0, 1, 1) is None


@settings(max_examples=50)
@given(
    sizes=st.lists(st.integers(1, 128), min_size=1, max_size=6, unique=True).map(sorted),
    least=st.integers(1, 128),
    spread=st.integers(0, 64),
)
def test_a_promise_over_a_range_holds_those_of_its_parts(sizes: list[int], least: int, spread: int) -> None:
    times = [MeasuredTime(0, size, 0.01 * (1 + size % 7), 0.009, 0.02 + size) for size in sizes]
    whole = expected_time(times, 0, least, least + spread)
    for occupancy in (least, least + spread // 2, least + spread):
        part = expected_time(times, 0, occupancy, occupancy)
        if part is not None:
            assert whole is not None
            assert whole.low_s <= part.low_s + 1e-12
            assert part.high_s <= whole.high_s + 1e-12


# Times


def learned(tpot_s: float, effective: float = 80.0, *, promised: bool = True) -> list[Learned]:
    time = LearnedTime(5, 8, 100, effective, tpot_s, (tpot_s * 0.98, tpot_s * 1.02))
    return [Learned(time, expected_time(PROMISES.times, 4, 5, 8) if promised else None)]


def test_slower_and_faster_than_promised_is_told_with_its_figures() -> None:
    (sentence,) = time_departures(learned(0.030), PROMISES, None, {}).values()
    assert sentence == ("time per token at 5 to 8 sequences is 30.0 ms (95 % interval 29.4 to 30.6), not 15.4 to 22.0")
    assert list(time_departures(learned(0.011), PROMISES, None, {})) == ["time per token at 5 to 8 sequences"]


@pytest.mark.parametrize(
    ("least", "most", "shown"), [(1, 1, "1 sequence"), (2, 2, "2 sequences"), (65, None, "65 sequences or more")]
)
def test_a_range_is_told_in_words(least: int, most: int | None, shown: str) -> None:
    time = LearnedTime(least, most, 100, 80.0, 0.1, (0.1, 0.1))
    found = time_departures([Learned(time, ExpectedTime(0.01, 0.01, 0.01))], PROMISES, None, {})
    assert list(found) == [f"time per token at {shown}"]


@pytest.mark.parametrize(
    "figures",
    [learned(0.020), learned(0.027), learned(0.030, effective=49.0), learned(0.030, promised=False)],
    ids=["as promised", "a little slower", "too few", "nothing promised"],
)
def test_what_is_near_or_not_sure_or_not_promised_is_no_departure(figures: list[Learned]) -> None:
    assert time_departures(figures, PROMISES, None, {}) == {}


def test_prompts_of_others_take_their_time() -> None:
    """Seven others, each with a prompt of 21 ms to every 100 tokens."""
    traffic = Traffic()
    for _ in range(ONE_IN):
        traffic.saw("code", 2000, 100, 0.0)
    assert time_departures(learned(0.0285), PROMISES, None, {}) != {}
    assert time_departures(learned(0.0285), PROMISES, traffic, {}) == {}


# Acceptance


def taught(accepted: int, requests: int = 60, category: str = "code") -> AcceptanceBook:
    book = AcceptanceBook(AcceptancePrior())
    for n in range(requests):
        sample = SpeculationSample(100, accepted + n % 3, 25, 26 + accepted + n % 3)
        assert book.credit("m", DRAFT, category, "s", sample, 0.0)
    return book


@pytest.mark.parametrize(
    ("book", "left"),
    [
        (taught(25), True),
        (taught(75), True),
        (taught(50), False),
        (taught(46), False),
        (taught(25, requests=40), False),
        (taught(25, category="chat"), False),
    ],
    ids=["worse", "better", "as measured", "a little worse", "too few", "not measured"],
)
def test_acceptance_that_left_is_told(book: AcceptanceBook, left: bool) -> None:
    found = acceptance_departures(PROMISES, DRAFT, "m", book, {})
    assert list(found) == (["acceptance of code"] if left else [])
    if left:
        assert "tokens per step (95 % interval" in found["acceptance of code"]
        assert found["acceptance of code"].endswith("not 2.80 to 3.20")


def test_acceptance_of_another_speculator_is_not_compared() -> None:
    other = Speculator(SpeculatorKind.DRAFT, 3)
    assert acceptance_departures(PROMISES, other, "m", taught(25), {}) == {}


# Traffic


def traffic_of(code: int, chat: int, prompt: int | None = 450, output: int | None = 100) -> Traffic:
    traffic = Traffic()
    for category, count in (("code", code), ("chat", chat)):
        for _ in range(ONE_IN * count):
            traffic.saw(category, prompt, output, 0.0)
    return traffic


def test_traffic_as_measured_is_no_departure() -> None:
    assert traffic_departures(PROMISES, traffic_of(60, 60), {}) == {}
    assert traffic_departures(replace(PROMISES, traffic=None), traffic_of(0, 200, 9_000), {}) == {}
    assert traffic_departures(PROMISES, traffic_of(0, 99, 9_000), {}) == {}, "too few answers"
    assert traffic_departures(PROMISES, traffic_of(60, 60, None, None), {}) == {}, "no counts"


def test_longer_requests_are_told_and_stay_so_until_they_are_clearly_shorter() -> None:
    (name, sentence), *_ = traffic_departures(PROMISES, traffic_of(60, 60, 1_200), {}).items()
    assert name == "length of requests"
    assert sentence.endswith("tokens, not 400 to 600")
    between = traffic_of(60, 60, 1_050)
    assert traffic_departures(PROMISES, between, {}) == {}
    assert list(traffic_departures(PROMISES, between, {name: sentence})) == [name]


def test_another_mix_is_told() -> None:
    measured = replace(PROMISES, traffic=MeasuredTraffic((("code", 1.0),), 400.0, 600.0))
    (sentence,) = traffic_departures(measured, traffic_of(48, 72), {}).values()
    assert sentence == "60% of the requests are of other categories than those measured: 60% are chat"
    assert traffic_departures(measured, traffic_of(66, 54), {}) == {}
    assert list(traffic_departures(measured, traffic_of(66, 54), {"mix of categories": ""})) == ["mix of categories"]


@settings(max_examples=50)
@given(
    one=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=1),
    other=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=1),
)
def test_a_distance_of_mixes_is_a_share_and_0_for_the_same(one: dict[str, int], other: dict[str, int]) -> None:
    shares, measured = (
        {name: count / sum(counts.values()) for name, count in counts.items()} for counts in (one, other)
    )
    distance = mix_distance(shares, MeasuredTraffic(tuple(measured.items()), 1.0, 1.0))
    assert 0.0 <= distance <= 1.0 + 1e-9
    assert distance == pytest.approx(mix_distance(measured, MeasuredTraffic(tuple(shares.items()), 1.0, 1.0)))
    assert mix_distance(shares, MeasuredTraffic(tuple(shares.items()), 1.0, 1.0)) == pytest.approx(0.0)


def test_traffic_forgets_and_outlives_its_clock() -> None:
    traffic = traffic_of(100, 0)
    year = 365 * 86_400.0
    for _ in range(ONE_IN * 3):
        traffic.saw("chat", 100, 50, year)
    assert traffic.shares["chat"] == pytest.approx(1.0)
    assert traffic.context_tokens == pytest.approx(125, rel=0.03)
    assert traffic.requests == 103
    assert Traffic().context_tokens is None


# What answers say made them


def test_a_fingerprint_is_believed_at_first_and_another_after_three_alike() -> None:
    sampled = SampledFingerprint()
    sampled.wanted = True
    sampled.saw(None)
    assert (sampled.value, sampled.wanted) == (None, False)
    told = ["a", "b", "a", "b", "b", "a", "b", "b", "b", "a"]
    believed = []
    for one in told:
        sampled.saw(one)
        believed.append(sampled.value)
    assert believed == ["a"] * 8 + ["b"] * 2

"""What a key may do at once, and how fast: laws of the limits."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.errors import InvalidField, TooManyInFlight, TooManyRequests
from slipstream.core.keys import Key, KeyPolicy, KeyUsage, Lease, digest_of, is_bearer

gaps = st.lists(st.floats(0, 90, allow_nan=False), min_size=1, max_size=80)


def key(max_in_flight: int | None = None, requests_per_minute: int | None = None) -> Key:
    policy = KeyPolicy("team-a", max_in_flight=max_in_flight, requests_per_minute=requests_per_minute)
    return Key(digest_of(b"secret"), policy, KeyUsage())


def test_a_digest_is_sha256() -> None:
    assert digest_of(b"abc").hex() == hashlib.sha256(b"abc").hexdigest()


@pytest.mark.parametrize("header", ["Bearer secret", "bearer  secret ", "BEARER secret"])
def test_a_header_bears_a_key_whatever_the_case_of_its_scheme(header: str) -> None:
    assert is_bearer(header, "secret")


@pytest.mark.parametrize(
    "header",
    ["", "secret", "Bearer", "Basic secret", "Bearer Secret", "Bearer secret\udcff", "Bearer s\u00e9cret", "\0"],
)
def test_anything_else_bears_none(header: str) -> None:
    assert not is_bearer(header, "secret")


@given(gaps, st.integers(1, 30))
def test_over_any_time_no_more_than_a_minutes_requests_and_what_that_time_adds(waits: list[float], limit: int) -> None:
    usage, now, taken = KeyUsage(), 0.0, []
    for gap in waits:
        now += gap
        if usage.take(limit, now) == 0.0:
            taken.append(now)
    for first, start in enumerate(taken):
        for last, end in enumerate(taken[first:], start=first):
            assert last - first + 1 <= limit * (1 + (end - start) / 60) + 1e-6


@given(gaps, st.integers(1, 30))
def test_who_waits_as_long_as_told_is_let_in_and_who_waits_less_is_not(waits: list[float], limit: int) -> None:
    usage, now = KeyUsage(), 5.0
    for gap in waits:
        now += gap
        wait = usage.take(limit, now)
        if wait > 0.0:
            assert usage.take(limit, now + wait * 0.99) > 0.0
            now += wait
            assert usage.take(limit, now) == 0.0


def test_a_minutes_requests_may_come_at_once_and_then_one_at_a_time() -> None:
    used = key(requests_per_minute=6)
    for _ in range(6):
        used.admit(100.0).end()
    with pytest.raises(TooManyRequests, match="'team-a' is limited to 6 requests per minute") as refused:
        used.admit(100.5)
    assert refused.value.retry_after_s == 10
    used.admit(110.0)
    assert (used.usage.admitted, used.usage.over_rate) == (7, 1)


def test_a_smaller_limit_takes_hold_of_a_bucket_that_is_full() -> None:
    usage = KeyUsage()
    assert usage.take(600, 0.0) == 0.0
    assert usage.take(1, 1.0) == 0.0
    assert usage.take(1, 1.0) == pytest.approx(60.0)


def test_a_clock_that_stands_still_or_steps_back_gives_no_tokens() -> None:
    usage = KeyUsage()
    assert usage.take(1, 50.0) == 0.0
    assert usage.take(1, 40.0) == pytest.approx(60.0)
    assert usage.take(1, 80.0) == pytest.approx(30.0)


def test_no_more_sequences_at_once_than_the_limit_and_a_refusal_takes_no_token() -> None:
    used = key(max_in_flight=2, requests_per_minute=3)
    first = used.admit(0.0)
    used.admit(0.0)
    for _ in range(5):
        with pytest.raises(TooManyInFlight, match="limited to 2 sequences in flight") as refused:
            used.admit(0.0)
    assert refused.value.retry_after_s == 1
    first.end()
    used.admit(0.0)
    assert (used.usage.in_flight, used.usage.over_in_flight, used.usage.over_rate) == (2, 5, 0)


def test_a_request_for_several_answers_counts_for_as_many() -> None:
    used = key(max_in_flight=4)
    wide = used.admit(0.0)
    wide.widen(3)
    other = used.admit(0.0)
    with pytest.raises(TooManyInFlight):
        other.widen(2)
    other.end()
    assert used.usage.in_flight == 3
    wide.end()
    with pytest.raises(InvalidField, match="asks for 5 answers, but its API key may have 4 in flight"):
        used.admit(0.0).widen(5)


def test_a_key_without_limits_is_only_counted() -> None:
    used = key()
    leases = [used.admit(0.0) for _ in range(1000)]
    leases[0].widen(1000)
    assert used.usage.in_flight == 1999
    for lease in leases:
        lease.end()
    assert (used.usage.in_flight, used.usage.admitted) == (0, 1000)


@given(st.lists(st.tuples(st.sampled_from(["admit", "widen", "end", "end twice"]), st.integers(0, 9)), max_size=100))
def test_in_flight_is_what_the_leases_hold_whatever_the_order(steps: list[tuple[str, int]]) -> None:
    used = key(max_in_flight=12)
    held: list[tuple[Lease, int]] = []
    for step, number in steps:
        if step == "admit":
            try:
                held.append((used.admit(0.0), 1))
            except TooManyInFlight:
                assert sum(count for _, count in held) == 12
        elif held:
            lease, count = held.pop(number % len(held))
            if step == "widen":
                try:
                    lease.widen(number + 1)
                    count = number + 1
                except TooManyInFlight:
                    pass
                held.append((lease, count))
            else:
                lease.end()
                if step == "end twice":
                    lease.end()
        assert used.usage.in_flight == sum(count for _, count in held) <= 12


def test_a_request_that_is_over_is_not_widened_by_a_reader_that_comes_too_late() -> None:
    used = key(max_in_flight=2)
    lease = used.admit(0.0)
    lease.end()
    lease.widen(2)
    lease.widen(9)
    assert used.usage.in_flight == 0

"""Text that is put together by hand is the text of the same value."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slipstream.telemetry.json_text import (
    POINT_THREE,
    REMEMBERED,
    THREE,
    Fragments,
    Latest,
    encoded,
    four_digits,
    micros,
    milliseconds,
    whole,
)


@given(st.text())
@example('say "what"\n')
def test_a_string_reads_as_it_was(value: str) -> None:
    assert json.loads(encoded(value)) == value


def test_half_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(UnicodeEncodeError):
        encoded("\ud800")


def test_what_is_unknown_is_null() -> None:
    assert {whole(None), milliseconds(None), four_digits(None)} == {b"null"}


def test_fragments_are_remembered_but_not_all_that_ever_were() -> None:
    fragments = Fragments()
    for number in range(3 * REMEMBERED):
        source: tuple[object, ...] = ("key", number)
        assert fragments.get(source) is None
        assert fragments.learn(source, b"%d" % number) == b"%d" % number
        assert fragments.get(source) == b"%d" % number
        assert len(fragments._known) <= REMEMBERED


@given(st.lists(st.integers(0, 2**60)))
def test_a_number_like_the_last_one_and_one_unlike_it_are_told_alike(numbers: list[int]) -> None:
    latest = Latest()
    assert [json.loads(latest.text(number)) for number in numbers] == numbers


@given(st.integers(-(2**70), 2**70))
@example(999)
@example(1000)
def test_an_integer_reads_as_it_was(number: int) -> None:
    assert json.loads(whole(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(5e-324)
def test_a_number_is_encoded_with_as_many_digits_as_it_takes(number: float) -> None:
    assert json.loads(encoded(number)) == number


@given(st.floats(0.0, 4e9))
@example(1.9999996)
def test_times_are_rounded_to_the_microsecond(seconds: float) -> None:
    number = int(seconds * 1e6 + 0.5)
    assert micros(seconds) == number
    assert json.loads(milliseconds(seconds)) == number / 1e3
    assert json.loads(whole(number // 1_000_000) + POINT_THREE[number // 1000 % 1000] + THREE[number % 1000]) == (
        number / 1e6
    )


def test_no_time_takes_less_than_nothing() -> None:
    assert (micros(-1.5), milliseconds(-1.5)) == (0, b"0.000")


@given(st.floats(0.0, 1e9))
@example(1.66665)
@example(0.99996)
def test_a_ratio_is_rounded_to_four_digits(ratio: float) -> None:
    assert json.loads(four_digits(ratio)) == int(ratio * 1e4 + 0.5) / 1e4

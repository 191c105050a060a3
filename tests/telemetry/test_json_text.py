"""Text that is put together by hand is the text of the same value."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slipstream.telemetry.json_text import (
    REMEMBERED,
    Strings,
    exact,
    four_digits,
    microseconds,
    milliseconds,
    once,
    six_digits,
    truth,
    whole,
)


@given(st.text())
@example("0123456789abcdef")
@example('say "what"\n')
def test_a_string_reads_as_it_was_whether_it_is_new_or_known(value: str) -> None:
    strings = Strings()
    assert json.loads(once(value)) == value
    assert [json.loads(strings.text(value)) for _ in range(2)] == [value, value]


def test_half_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(UnicodeEncodeError):
        once("\ud800")


def test_what_is_unknown_is_null() -> None:
    assert {once(None), Strings().text(None), whole(None), milliseconds(None), four_digits(None)} == {"null"}
    assert (truth(True), truth(False)) == ("true", "false")


def test_strings_that_never_come_again_are_not_kept_for_ever() -> None:
    strings = Strings()
    for number in range(3 * REMEMBERED):
        assert strings.text(f"/{number}") == f'"/{number}"'
        assert len(strings._known) <= REMEMBERED


@given(st.integers(-(2**70), 2**70))
@example(999)
@example(1000)
def test_an_integer_reads_as_it_was(number: int) -> None:
    assert json.loads(whole(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(5e-324)
def test_an_exact_number_reads_as_it_was(number: float) -> None:
    assert json.loads(exact(number)) == number


@given(st.floats(-1e9, 4e9))
@example(-0.0015)
@example(1.9999996)
def test_times_are_rounded_to_the_microsecond(seconds: float) -> None:
    number = int(seconds * 1e6 + 0.5)
    assert json.loads(microseconds(seconds)) == number / 1e6
    assert json.loads(milliseconds(seconds)) == number / 1e3


@given(st.floats(0.0, 1e9))
@example(1.66665)
@example(0.99996)
def test_a_ratio_is_rounded_to_four_digits(ratio: float) -> None:
    assert json.loads(four_digits(ratio)) == int(ratio * 1e4 + 0.5) / 1e4


@given(st.integers(0, 999_999))
def test_six_digits_are_always_six(number: int) -> None:
    assert (int(six_digits(number)), len(six_digits(number))) == (number, 6)

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.ledger import Ledger

CHANGES = st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(-5, 5)), max_size=60)


def replay(changes: list[tuple[float, int]]) -> tuple[Ledger, list[tuple[float, int]]]:
    """A ledger after random changes, and the plain history (moment, value from then on) beside it."""
    ledger, now, history = Ledger(), 0.0, [(0.0, 0)]
    for pause, by in changes:
        now += pause
        if by > 0:
            ledger.admit(by, "code", now)
        elif by < 0 and ledger.sequences + by >= 0:
            ledger.release(-by, "code", now)
        history.append((now, ledger.sequences))
    return ledger, history


@given(CHANGES, st.floats(0.0, 60.0))
def test_peak_since_a_moment_is_the_highest_value_in_force_from_then_on(
    changes: list[tuple[float, int]], moment: float
) -> None:
    ledger, history = replay(changes)
    ends = [start for start, _ in history[1:]] + [float("inf")]
    expected = max(value for (_, value), end in zip(history, ends, strict=True) if end > moment)
    assert ledger.peak_since(moment) == expected


@given(CHANGES)
def test_the_ledger_is_exact_and_its_memory_is_bounded_by_the_highest_value(changes: list[tuple[float, int]]) -> None:
    ledger, history = replay(changes)
    assert ledger.sequences == history[-1][1]
    assert len(ledger._past) <= max(value for _, value in history) + 1


def test_category_seconds_are_sequences_times_time_and_are_taken_once() -> None:
    ledger = Ledger()
    ledger.admit(2, "code", 0.0)
    ledger.admit(1, "chat", 1.0)
    ledger.release(2, "code", 3.0)
    assert ledger.take_category_seconds(4.0) == pytest.approx({"code": 6.0, "chat": 3.0})
    assert ledger.take_category_seconds(5.0) == pytest.approx({"chat": 1.0})


def test_releasing_more_than_was_admitted_is_our_bug() -> None:
    ledger = Ledger()
    ledger.admit(1, "code", 0.0)
    with pytest.raises(RuntimeError, match="more than were in flight"):
        ledger.release(1, "chat", 1.0)

"""Looking step times up: between two entries of a row, beyond the last, and asked for once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginemodel.made_steps import MadeSteps
from slipstream.enginemodel.step_times import KNOTS, StepTimes, at


@given(st.floats(0.0, 2.0**23), st.floats(0.0, 1.0), st.floats(0.0, 1e-3))
def test_a_straight_line_is_read_back_anywhere(tokens: float, flat: float, slope: float) -> None:
    row = tuple(flat + slope * knot for knot in KNOTS)
    assert at(row, tokens) == pytest.approx(flat + slope * tokens, rel=1e-9, abs=1e-12)


@given(st.integers(0, len(KNOTS) - 1), st.integers(0, 100))
def test_at_an_entry_it_is_the_entry(entry: int, seed: int) -> None:
    row = tuple(float((seed * 7919 + position * 104729) % 1000) for position in range(len(KNOTS)))
    assert at(row, KNOTS[entry]) == pytest.approx(row[entry])


class Counting:
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        self.rows = MadeSteps(0.01, 0.001, 0.0002, 1e-6, 1e-4, 2e-5, 1e-8)
        self.pair_s = self.rows.pair_s
        self.asked: list[object] = []

    def decode_row(self, decoding: int, drafting: int, k: int) -> tuple[float, ...]:
        self.asked.append((decoding, drafting, k))
        return self.rows.decode_row(decoding, drafting, k)

    def prefill_row(self, tokens_beside: int) -> tuple[float, ...]:
        self.asked.append(tokens_beside)
        return self.rows.prefill_row(tokens_beside)

    def drafter_prefill_row(self) -> tuple[float, ...]:
        self.asked.append("drafter")
        return self.rows.drafter_prefill_row()


def test_a_row_is_asked_for_once() -> None:
    rows = Counting()
    times = StepTimes(rows)
    for tokens in (0.0, 100.5, 200.0, 1e8):
        line = times.decode_line(5, 3, 4, tokens)
        assert line.low <= tokens < line.high
        assert line.seconds(tokens) == pytest.approx(0.01 + 0.005 + 0.0024 + 5e-6 * tokens)
        assert times.prefill_s(100, 5000.0, 17, drafter=True) == pytest.approx(0.01 + 0.002 + 5e-5)
        assert times.prefill_s(100, 0.0, 17, drafter=False) == pytest.approx(0.01)
    assert rows.asked == [(5, 3, 4), 17, "drafter"]

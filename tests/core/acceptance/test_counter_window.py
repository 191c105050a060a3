from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.acceptance import CounterWindow
from slipstream.core.node import SpeculativeCounters

counts = st.one_of(st.none(), st.integers(0, 10_000))
positions = st.lists(st.integers(0, 999), max_size=4).map(tuple)
readings = st.builds(SpeculativeCounters, counts, counts, counts, positions, counts)


def test_one_reading_makes_no_window_and_two_make_one() -> None:
    window = CounterWindow()
    first = window.advance(SpeculativeCounters(100, 60, 25, (25, 20, 10, 5), 90), 10.0)
    assert first is None
    delta = window.advance(SpeculativeCounters(140, 90, 35, (35, 29, 16, 10), 135), 12.5)
    assert delta is not None
    assert (delta.seconds, delta.restarted) == (2.5, False)
    assert (delta.drafted, delta.accepted, delta.verify_steps, delta.generated_tokens) == (40, 30, 10, 45)
    assert delta.decode_steps == 15
    assert delta.accepted_per_position == (10, 9, 6, 5)


def test_counters_that_stand_still_say_nothing() -> None:
    window = CounterWindow()
    window.advance(SpeculativeCounters(100, 60, 25), 0.0)
    assert window.advance(SpeculativeCounters(100, 60, 25), 1.0) is None


def test_counters_told_again_without_being_read_anew_do_not_shorten_the_window() -> None:
    window = CounterWindow()
    once = SpeculativeCounters(100, 60, 25)
    assert [window.advance(once, 0.0), window.advance(once, 0.9)] == [None, None]
    delta = window.advance(SpeculativeCounters(140, 90, 35), 1.0)
    assert delta is not None
    assert delta.seconds == 1.0


def test_tokens_without_a_draft_are_news() -> None:
    window = CounterWindow()
    window.advance(SpeculativeCounters(100, 60, 25, (), 90), 0.0)
    delta = window.advance(SpeculativeCounters(100, 60, 25, (), 130), 1.0)
    assert delta is not None
    assert (delta.drafted, delta.decode_steps) == (0, 40)


def test_after_a_restart_everything_counts_from_nothing() -> None:
    window = CounterWindow()
    window.advance(SpeculativeCounters(1000, 600, 250, (250, 200), 900), 0.0)
    delta = window.advance(SpeculativeCounters(40, 30, 10, (10,), 950), 1.0)
    assert delta is not None
    assert delta.restarted
    assert (delta.drafted, delta.accepted, delta.verify_steps, delta.generated_tokens) == (40, 30, 10, 950)
    assert delta.accepted_per_position == (10,)


def test_a_missing_counter_is_unknown_and_its_next_difference_spans_the_gap() -> None:
    window = CounterWindow()
    window.advance(SpeculativeCounters(100, 60, 25), 0.0)
    gap = window.advance(SpeculativeCounters(drafted=120), 1.0)
    assert gap is not None
    assert (gap.drafted, gap.accepted, gap.verify_steps, gap.accepted_per_position) == (20, None, None, None)
    assert gap.decode_steps is None
    after = window.advance(SpeculativeCounters(140, 90, 35), 2.0)
    assert after is not None
    assert (after.drafted, after.accepted, after.verify_steps) == (20, 30, 10)


def test_positions_that_just_appeared_are_unknown_for_one_window() -> None:
    window = CounterWindow()
    window.advance(SpeculativeCounters(0, 0, 0), 0.0)
    first = window.advance(SpeculativeCounters(40, 30, 10, (10, 9, 6, 5)), 1.0)
    assert first is not None
    assert first.accepted_per_position is None


@pytest.mark.no_cover
@given(st.lists(readings, max_size=20))
def test_no_reading_ever_gives_a_negative_or_impossibly_large_difference(history: list[SpeculativeCounters]) -> None:
    window = CounterWindow()
    for i, reading in enumerate(history):
        delta = window.advance(reading, float(i))
        if delta is None:
            continue
        assert delta.seconds > 0
        for moved, value in (
            (delta.drafted, reading.drafted),
            (delta.accepted, reading.accepted),
            (delta.verify_steps, reading.verify_steps),
            (delta.generated_tokens, reading.generated_tokens),
            *zip(delta.accepted_per_position or (), reading.accepted_per_position, strict=False),
        ):
            assert moved is None or (value is not None and 0 <= moved <= value)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20))
def test_without_a_restart_differences_add_up(steps: list[int]) -> None:
    window = CounterWindow()
    window.advance(SpeculativeCounters(drafted=7), 0.0)
    total, seen = 7, 0.0
    for i, step in enumerate(steps, start=1):
        total += step
        delta = window.advance(SpeculativeCounters(drafted=total), float(i))
        seen += (delta.drafted or 0.0) if delta is not None else 0.0
    assert seen == total - 7


def test_values_that_no_counter_can_have_are_missing() -> None:
    window = CounterWindow()
    window.advance(SpeculativeCounters(100, 60, 25), 0.0)
    delta = window.advance(SpeculativeCounters(-1, 70, 30), 1.0)
    assert delta is not None
    assert (delta.drafted, delta.accepted, delta.restarted) == (None, 10, False)

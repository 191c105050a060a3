"""A line through what was predicted and what came true: it finds the truth, forgets, and lets nobody lead it astray."""

from __future__ import annotations

from math import exp

import pytest

from slipstream.core.track_record import TrackRecord

PREDICTED = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2)


def taught(level: float, slope: float, rounds: int = 150, record: TrackRecord | None = None) -> TrackRecord:
    found = record or TrackRecord(0.0, 0.15)
    for _ in range(rounds):
        for predicted in PREDICTED:
            found.add(predicted, exp(level) * predicted**slope)
    return found


@pytest.mark.parametrize(("level", "slope"), [(-0.2, 1.0), (0.2, 1.0), (0.0, 0.5), (-0.1, 0.8)])
def test_the_line_is_found(level: float, slope: float) -> None:
    found = taught(level, slope)
    assert found.level == pytest.approx(level, abs=0.04)
    assert found.slope == pytest.approx(slope, abs=0.1)
    assert found.spread < 0.1
    assert found.met(exp(-level / slope)) == pytest.approx(0.5, abs=0.3)


def test_before_anything_came_true_half_of_what_is_just_in_time_is() -> None:
    fresh = TrackRecord(0.0, 0.2)
    assert fresh.met(1.0) == 0.5
    assert fresh.met(1.0, 1.2) == pytest.approx(fresh.met(1.2))
    assert fresh.met(1e9) == 0.0
    assert fresh.met(1e-9) == pytest.approx(1.0)


def test_what_is_long_ago_is_forgotten() -> None:
    found = taught(-0.2, 1.0, record=taught(0.3, 1.0))
    assert found.level == pytest.approx(-0.2, abs=0.06)


def test_one_that_is_far_off_counts_as_one_that_is_off() -> None:
    found = taught(0.0, 1.0)
    before = found.level
    found.add(1.0, 1e6)
    assert found.level - before < 0.01


def test_what_is_far_from_its_target_hardly_counts() -> None:
    found = taught(0.0, 1.0)
    for _ in range(30):
        found.add(0.2, 0.2 * exp(0.3))
    assert abs(found.level) < 0.05


def test_lines_that_make_no_sense_are_kept_within_sense() -> None:
    assert taught(0.0, -2.0).slope == 0.3
    assert taught(0.0, 4.0).slope == 1.2

"""Figures of a simulation's tables: digits that tell something, half of an interval, time that is left."""

from __future__ import annotations

import pytest

from slipstream.cli.simulate_figures import figure, per_cent, plain
from slipstream.cli.simulate_report import run_sentence
from slipstream.cli.simulate_runs import time_left


@pytest.mark.parametrize(
    ("mean", "interval", "told"),
    [
        (None, None, "–"),
        (1.234, None, "1.23"),
        (12.34, (11.0, 13.68), "12.3 ±1.3"),
        (123.4, (121.0, 125.8), "123 ±2"),
        (9_990.0, (8_990.0, 10_990.0), "9990 ±1000"),
        (12_345.0, (12_100.0, 12_590.0), "12.3k ±0.2k"),
        (500.0, (-20_000.0, 21_000.0), "0.5k ±20.5k"),
        (0.3, (0.3, 0.30000000000000004), "0.30 ±0.00"),
    ],
)
def test_a_figure_has_the_digits_of_its_size_and_half_its_interval(
    mean: float | None, interval: tuple[float, float] | None, told: str
) -> None:
    assert figure(mean, interval) == told


def test_what_rounds_to_nothing_has_no_sign() -> None:
    assert plain(-0.001) == "0.00"
    assert plain(-0.01) == "-0.01"


@pytest.mark.parametrize(
    ("mean", "interval", "told"),
    [(None, None, "–"), (0.5, None, "50.0%"), (0.5, (0.25, 0.75), "50.0% ±25.0")],
)
def test_a_share_is_told_as_per_cent(mean: float | None, interval: tuple[float, float] | None, told: str) -> None:
    assert per_cent(mean, interval) == told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(None, ""), (3.4, "3 s left"), (59.6, "1 min 0 s left"), (61.0, "1 min 1 s left"), (7_260.0, "2 h 1 min left")],
)
def test_time_left_is_told_in_words(seconds: float | None, told: str) -> None:
    assert time_left(seconds) == told


def test_what_a_run_took_is_a_sentence() -> None:
    run = {"requests": 1200, "wall_s": 2.0, "requests_per_s": 600.0, "times_real_time": 30.0, "jobs": 2}
    told = "1,200 requests simulated in 2.0 s: 600 a second, 30 times real time, on 2 processes."
    assert run_sentence(run) == told
    at_once = {"requests": 0, "wall_s": 0.0, "requests_per_s": None, "times_real_time": None, "jobs": 1}
    assert run_sentence(at_once) == "0 requests simulated in 0.0 s."

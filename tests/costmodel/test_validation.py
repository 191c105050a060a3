"""How right the model is, on the measurements that ship: the page says no more than what these hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.costmodel.validation.__main__ import main
from slipstream.costmodel.validation.measurements import read_measurements
from slipstream.costmodel.validation.report import Scores, accuracy, crossover_ratio, page
from slipstream.costmodel.validation.scores import summary

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scores() -> Scores:
    return Scores(read_measurements())


def test_most_rows_could_be_placed_and_the_others_say_why(scores: Scores) -> None:
    found = scores.measurements
    assert len(found.steps) > 1600
    assert len(found.speedups) > 380
    assert sum(found.left_out.values()) + len(found.steps) + len(found.speedups) == 1723 + 889


def test_step_times_unfitted(scores: Scores) -> None:
    median, most, _ = summary(scores.steps)
    assert median <= 0.12
    assert most <= 0.35


def test_step_times_between_the_smallest_and_the_largest_batch(scores: Scores) -> None:
    median, most, _ = summary(scores.steps_ends)
    assert median <= 0.035
    assert most <= 0.12


def test_step_times_beyond_the_two_smallest(scores: Scores) -> None:
    median, most, _ = summary(scores.steps_smallest)
    assert median <= 0.06
    assert most <= 0.22


def test_speedups_unfitted_are_better_than_a_share_of_tau(scores: Scores) -> None:
    median, _, _ = summary(scores.speedups)
    assert median <= 0.14
    assert median < summary(scores.speedups, "k_tau")[0]


@pytest.mark.parametrize("baseline", ["persistence", "log_linear", "k_tau"])
def test_speedups_beyond_the_two_smallest_loads_are_better_than(scores: Scores, baseline: str) -> None:
    assert summary(scores.speedups_smallest)[0] < summary(scores.speedups_smallest, baseline)[0]


def test_falling_below_1_is_called(scores: Scores) -> None:
    right, recall = accuracy(scores.crossings)
    assert right >= 0.92
    assert recall >= 0.75
    assert crossover_ratio(scores.crossings) <= 1.3


def test_the_page_is_up_to_date(scores: Scores) -> None:
    assert page(scores) == (ROOT / "docs" / "explanation" / "validation.md").read_text(encoding="utf-8")


def test_the_page_and_its_plots_are_written(tmp_path: Path) -> None:
    main([str(tmp_path / "validation.md")])
    assert (tmp_path / "validation.md").read_text(encoding="utf-8").startswith("# How right")
    assert (tmp_path / "validation-steps.png").stat().st_size > 1000
    assert "<svg" in (tmp_path / "validation-speedups.svg").read_text(encoding="utf-8")


def test_tables_that_are_not_there_are_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="can not be read"):
        main([str(tmp_path / "validation.md"), str(tmp_path / "nowhere")])

"""How right the model is, on the measurements that ship: the page says no more than what these hold."""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstream.costmodel.validation.__main__ import main
from slipstream.costmodel.validation.held_out import GENERIC, constants, estimated, held_out
from slipstream.costmodel.validation.measurements import SHIPPED, read_measurements
from slipstream.costmodel.validation.report import Scores, accuracy, crossover_ratio, page
from slipstream.costmodel.validation.scores import summary, unfitted_speedups, unfitted_steps

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scores() -> Scores:
    return Scores(read_measurements())


@cache
def unseen_scores() -> Scores:
    """Not a fixture: it takes seconds, three times as many where coverage is measured."""
    return Scores(held_out(read_measurements()))


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


def test_unfitted_figures_are_better_than_baselines_that_are_told_two_points(scores: Scores) -> None:
    for rows, figures, baselines in (
        (scores.steps, 1105, ("persistence", "log_linear")),
        (scores.speedups, 31, ("persistence", "log_linear", "k_tau")),
    ):
        beyond = [row for row in rows if row.persistence is not None]
        assert len(beyond) == figures
        for baseline in baselines:
            assert summary(beyond)[0] < summary(beyond, baseline)[0]


@pytest.mark.parametrize("baseline", ["persistence", "log_linear", "k_tau"])
def test_speedups_beyond_the_two_smallest_loads_are_better_than(scores: Scores, baseline: str) -> None:
    assert summary(scores.speedups_smallest)[0] < summary(scores.speedups_smallest, baseline)[0]


def test_falling_below_1_is_called(scores: Scores) -> None:
    right, recall = accuracy(scores.crossings)
    assert right >= 0.92
    assert recall >= 0.75
    assert crossover_ratio(scores.crossings) <= 1.3
    for baseline in ("persistence", "log_linear", "k_tau"):
        assert accuracy(scores.crossings, baseline) < (right, recall)


@pytest.mark.no_cover
def test_sources_never_seen_are_computed_within_the_same_limits() -> None:
    unseen = unseen_scores()
    for rows, median, most in (
        (unseen.steps, 0.12, 0.35),
        (unseen.steps_ends, 0.035, 0.12),
        (unseen.steps_smallest, 0.06, 0.22),
        (unseen.speedups, 0.14, 1.0),
    ):
        found = summary(rows)
        assert found[0] <= median
        assert found[1] <= most
    for baseline in ("persistence", "log_linear", "k_tau"):
        assert summary(unseen.speedups_smallest)[0] < summary(unseen.speedups_smallest, baseline)[0]
    right, recall = accuracy(unseen.crossings)
    assert right >= 0.92
    assert recall >= 0.75
    assert crossover_ratio(unseen.crossings) <= 1.3


def test_what_a_source_alone_tells_is_not_known_without_it(scores: Scores) -> None:
    unseen = unseen_scores()
    known, hidden = (
        summary([row for row in rows if row.source.startswith("splitwise")])[0] for rows in (scores.steps, unseen.steps)
    )
    assert hidden > 2 * known  # the only one in eager mode
    alone = [row for row in scores.measurements.steps if row.source.startswith("InferenceX issue")]
    replaced = held_out(replace(scores.measurements, steps=tuple(alone), speedups=()))
    gpu = replaced.steps[0].deployment.hardware
    assert gpu.memory_efficiency == pytest.approx(GENERIC["memory_efficiency"][0])
    assert unfitted_steps(replaced.steps)[0].model != unfitted_steps(alone)[0].model


def test_constants_follow_what_the_other_sources_say() -> None:
    """One constant twice as large as shipped, by the source that is kept; the one left out says the opposite."""
    one = next(constant for constant in constants() if constant.field == "layer_s")
    errors = np.array([-np.log(2.0)] * 400 + [np.log(8.0)] * 400)
    sources = np.array(["kept"] * 400 + ["left out"] * 400)
    (value,) = estimated(errors, np.ones((800, 1)), sources, [one], without="left out")
    assert value == pytest.approx(2.0 * one.shipped, rel=0.02)


def test_the_page_is_up_to_date(scores: Scores) -> None:
    assert page(scores, unseen_scores()) == (ROOT / "docs" / "explanation" / "validation.md").read_text(
        encoding="utf-8"
    )


@pytest.mark.no_cover
def test_the_page_and_its_plots_are_written(tmp_path: Path) -> None:
    for table in SHIPPED.glob("*.csv"):
        lines = table.read_text(encoding="utf-8").splitlines(keepends=True)
        (tmp_path / table.name).write_text("".join(lines[:150]), encoding="utf-8")
    main([str(tmp_path / "validation.md"), str(tmp_path)])
    assert (tmp_path / "validation.md").read_text(encoding="utf-8").startswith("# How right")
    assert (tmp_path / "validation-steps.png").stat().st_size > 1000
    assert "<svg" in (tmp_path / "validation-speedups.svg").read_text(encoding="utf-8")


@given(st.data())
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_that_make_no_sense_are_left_out_and_counted(tmp_path: Path, data: st.DataObject) -> None:
    """Cells of the tables that ship, some of them replaced."""
    cells = st.sampled_from(["", "x", "0", "-1", "1e400", "nan", "1-2", "8192+", "+", "3.5"])
    rows = 0
    for table in SHIPPED.glob("*.csv"):
        head, *body = csv.reader(table.read_text(encoding="utf-8").splitlines())
        kept = [list(body[data.draw(st.integers(0, len(body) - 1))]) for _ in range(8)]
        for row in kept:
            row[data.draw(st.integers(0, len(head) - 1))] = data.draw(cells)
        with (tmp_path / table.name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([head, *kept])
        rows += len(kept) if table.name in {"decode_step_latency.csv", "spec_vs_batch.csv"} else 0
    found = read_measurements(tmp_path)
    assert len(found.steps) + len(found.speedups) + sum(found.left_out.values()) == rows
    for compared in (*unfitted_steps(found.steps), *unfitted_speedups(found.speedups)):
        assert np.isfinite(compared.model)


def test_a_table_without_a_column_is_told(tmp_path: Path) -> None:
    (tmp_path / "decode_step_latency.csv").write_text("source,ms\na,1\n")
    with pytest.raises(ValueError, match="lacks the column 'quantity'"):
        read_measurements(tmp_path)
    (tmp_path / "decode_step_latency.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="is not UTF-8 text"):
        read_measurements(tmp_path)


@pytest.mark.parametrize("arguments", [["--help"], ["page.md", "tables", "more"]])
def test_arguments_that_are_none_are_told(arguments: list[str]) -> None:
    with pytest.raises(ValueError, match="usage: "):
        main(arguments)


def test_a_page_is_written_only_where_there_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no folder to write a page in"):
        main([str(tmp_path / "nowhere" / "page.md")])


def test_tables_that_are_not_there_are_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="can not be read"):
        main([str(tmp_path / "validation.md"), str(tmp_path / "nowhere")])

"""Acceptance and time per token by how busy the node was."""

from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.acceptance import BUCKETS, AcceptanceBook, AcceptancePrior, OccupancyFigures, SpeculationSample
from slipstream.core.acceptance.by_occupancy import bucket_of
from slipstream.core.node import Speculator, SpeculatorKind

DRAFT = Speculator(SpeculatorKind.DRAFT, 4)


def book_of(half_life: float = 600.0) -> AcceptanceBook:
    return AcceptanceBook(AcceptancePrior(), half_life=half_life)


def credit(book: AcceptanceBook, occupancy: int | None, accepted: int, now: float = 0.0, node: str = "n") -> None:
    sample = SpeculationSample(100, accepted, 25, 26 + accepted)
    assert book.credit("m", DRAFT, "code", node, sample, now, occupancy)


def only(figures: list[OccupancyFigures]) -> OccupancyFigures:
    (one,) = figures
    return one


@given(st.integers(1, 100_000))
def test_every_occupancy_has_one_bucket(occupancy: int) -> None:
    least, most = BUCKETS[bucket_of(occupancy)]
    assert least <= occupancy
    assert most is None or occupancy <= most


def test_acceptance_is_kept_apart_by_occupancy() -> None:
    book = book_of()
    for _ in range(10):
        credit(book, 1, 80)
        credit(book, 10, 40)
    idle, busy = book.occupancy_figures(["n"], 0.0)
    assert (idle.least, idle.most, idle.requests, idle.tau, idle.k) == (1, 1, 10, 1 + 80 / 25, 4.0)
    assert (busy.least, busy.most, busy.tau) == (9, 12, 1 + 40 / 25)
    assert idle.alpha is not None
    assert busy.alpha is not None
    assert idle.alpha > busy.alpha
    assert idle.tokens_per_step == pytest.approx(idle.tau)
    assert (idle.timed, idle.tpot_s) == (0, None)


def test_a_request_whose_occupancy_is_unknown_is_in_no_bucket() -> None:
    book = book_of()
    credit(book, None, 80)
    assert book.occupancy_figures(["n", "never heard of"], 0.0) == []


@given(st.lists(st.floats(1e-4, 10.0), min_size=1, max_size=60))
def test_the_median_time_is_right_to_a_bin(times: list[float]) -> None:
    book = book_of()
    for time in times:
        book.timed("n", 3, time, 0.0)
    figures = only(book.occupancy_figures(["n"], 0.0))
    assert figures.timed == len(times)
    assert figures.tpot_s is not None
    ordered = sorted(times)
    low, high = ordered[(len(times) - 1) // 2], ordered[len(times) // 2]
    assert low / 1.051 <= figures.tpot_s <= high * 1.051


def test_one_odd_request_does_not_move_the_median() -> None:
    book = book_of()
    times = [0.020 + 0.0001 * n for n in range(50)]
    for time in (*times, 1e6, 0.0):
        book.timed("n", 3, time, 0.0)
    assert only(book.occupancy_figures(["n"], 0.0)).tpot_s == pytest.approx(median(times), rel=0.05)


def test_what_is_old_counts_less() -> None:
    book = book_of(half_life=10.0)
    credit(book, 5, 80, now=0.0)
    credit(book, 5, 40, now=10.0)
    assert only(book.occupancy_figures(["n"], 10.0)).tau == pytest.approx(1 + (80 / 2 + 40) / (25 / 2 + 25))


def test_forgetting_goes_on_for_ever_without_overflow() -> None:
    book = book_of(half_life=0.01)
    for now in range(0, 100_000, 1_000):
        credit(book, 5, 40 if now else 80, now=float(now))
        book.timed("n", 5, 0.02 if now else 0.5, float(now))
    figures = only(book.occupancy_figures(["n"], 99_000.0))
    assert figures.tau == pytest.approx(1 + 40 / 25)
    assert figures.tpot_s == pytest.approx(0.02, rel=0.05)
    assert (figures.requests, figures.timed) == (100, 100)
    later = only(book.occupancy_figures(["n"], 1e6))
    assert (later.requests, later.tau, later.tpot_s) == (100, None, None)


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 100), st.floats(0.0, 5_000.0)), min_size=1),
)
def test_nodes_together_are_what_one_node_would_be(results: list[tuple[str, int, float]]) -> None:
    """Whatever the moments at which each of their clocks was rebased."""
    apart, together = book_of(half_life=20.0), book_of(half_life=20.0)
    for node, accepted, now in sorted(results, key=lambda result: result[2]):
        credit(apart, 5, accepted, now, node)
        credit(together, 5, accepted, now, "n")
    one, other = only(apart.occupancy_figures(["a", "b"], 5_000.0)), only(together.occupancy_figures(["n"], 5_000.0))
    assert one.requests == other.requests
    assert one.tau == pytest.approx(other.tau)


def test_another_half_life_holds_from_when_it_is_configured() -> None:
    book = book_of(half_life=10.0)
    credit(book, 5, 80, now=0.0)
    credit(book, 5, 40, now=10.0)
    book.configure(AcceptancePrior(), 5.0)
    credit(book, 5, 0, now=10.0)
    credit(book, 5, 20, now=20.0)
    expected = (80 / 2 / 4 + 40 / 4 + 0 / 4 + 20) / (25 / 2 / 4 + 25 / 4 + 25 / 4 + 25)
    assert only(book.occupancy_figures(["n"], 20.0)).tau == pytest.approx(1 + expected)


def test_a_node_that_left_is_forgotten() -> None:
    book = book_of()
    credit(book, 1, 80)
    book.forget_node("n")
    assert book.occupancy_figures(["n"], 0.0) == []

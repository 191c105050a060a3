"""Acceptance before and after a change of what runs on a node."""

from __future__ import annotations

from random import Random

import pytest

from slipstream.core.acceptance import AcceptanceBook, AcceptancePrior, Identity, SpeculationSample
from slipstream.core.acceptance.tenure import change_between
from slipstream.core.node import SpeculativeCounters, Speculator, SpeculatorKind

DRAFT = Speculator(SpeculatorKind.DRAFT, 4)
OLD, NEW = Identity("vllm", "0.11.0", "draft-k4"), Identity("vllm", "0.12.0", "draft-k4")


def book_of() -> AcceptanceBook:
    return AcceptanceBook(AcceptancePrior())


def serve(book: AcceptanceBook, accepted: int, requests: int, start: float, category: str = "code") -> None:
    """Requests around so many accepted tokens of 100, which differ as requests do."""
    chance = Random(round(start) + accepted)
    for n in range(requests):
        kept = min(100, max(0, accepted + chance.randint(-15, 15)))
        book.credit("m", DRAFT, category, "n", SpeculationSample(100, kept, 25, 26 + kept), start + n)


def test_acceptance_that_fell_after_a_new_version_is_said_with_figures_of_both_sides() -> None:
    book = book_of()
    book.identify("n", OLD, 0.0)
    serve(book, 70, 80, 0.0)
    book.identify("n", NEW, 100.0)
    serve(book, 50, 60, 100.0)
    fall = book.acceptance_fall("n")
    assert fall is not None
    assert (fall.change, fall.at) == ("version 0.11.0 became 0.12.0", 100.0)
    assert (fall.requests_before, fall.requests) == (80, 60)
    assert fall.expected_tau == pytest.approx(1 + 70 / 25, abs=0.1)
    assert fall.tau == pytest.approx(1 + 50 / 25, abs=0.1)


def test_it_is_no_longer_said_once_a_further_change_put_it_right() -> None:
    book = book_of()
    book.identify("n", OLD, 0.0)
    serve(book, 70, 80, 0.0)
    book.identify("n", NEW, 100.0)
    serve(book, 50, 60, 100.0)
    book.identify("n", OLD, 200.0)
    assert book.acceptance_fall("n") is None
    serve(book, 70, 60, 200.0)
    assert book.acceptance_fall("n") is None


def test_too_few_requests_on_either_side_are_no_ground() -> None:
    for before, after in ((80, 49), (49, 80)):
        book = book_of()
        book.identify("n", OLD, 0.0)
        serve(book, 70, before, 0.0)
        book.identify("n", NEW, 100.0)
        serve(book, 40, after, 100.0)
        assert book.acceptance_fall("n") is None


def test_a_change_of_traffic_is_not_taken_for_a_fall() -> None:
    """Nothing but the share of the harder category went up."""
    book = book_of()
    book.identify("n", OLD, 0.0)
    serve(book, 80, 80, 0.0, "code")
    serve(book, 30, 20, 80.0, "chat")
    book.identify("n", NEW, 100.0)
    serve(book, 80, 20, 100.0, "code")
    serve(book, 30, 80, 120.0, "chat")
    assert book.acceptance_fall("n") is None


def test_categories_that_were_never_seen_before_say_nothing_of_a_fall() -> None:
    book = book_of()
    book.identify("n", OLD, 0.0)
    serve(book, 80, 80, 0.0, "code")
    book.identify("n", NEW, 100.0)
    serve(book, 30, 80, 100.0, "chat")
    assert book.acceptance_fall("n") is None


def test_a_restart_is_a_change_and_the_version_that_shows_after_it_is_the_same_one() -> None:
    book = book_of()
    book.identify("n", OLD, 0.0)
    serve(book, 70, 80, 0.0)
    for now, drafted in ((99.0, 4_000), (100.0, 40)):
        book.observe("n", SpeculativeCounters(drafted, drafted // 2, drafted // 4), now)
    book.identify("n", NEW, 110.0)
    serve(book, 50, 60, 110.0)
    fall = book.acceptance_fall("n")
    assert fall is not None
    assert fall.change == "it was restarted, and version 0.11.0 became 0.12.0"


def test_after_a_change_the_nodes_own_figures_start_anew() -> None:
    book = book_of()
    book.identify("n", OLD, 0.0)
    serve(book, 70, 80, 0.0)
    book.identify("n", NEW, 100.0)
    estimate = book.node_estimate("n")
    assert estimate is not None
    assert (estimate.requests, estimate.tau) == (0, None)


def test_what_a_node_does_not_say_is_no_change() -> None:
    book = book_of()
    book.identify("n", OLD, 0.0)
    serve(book, 70, 80, 0.0)
    book.identify("n", Identity("vllm", None, None), 50.0)
    book.identify("n", OLD, 60.0)
    estimate = book.node_estimate("n")
    assert estimate is not None
    assert estimate.requests == 80


def test_a_nodes_own_words_are_cut_and_cleaned() -> None:
    told = change_between(Identity("a", "1\n\x1b[31m" + "9" * 5_000), Identity("b", "2"))
    assert told.startswith("engine a became b and version 1??[31m999")
    assert len(told) < 120


def test_a_node_never_heard_of_has_not_fallen() -> None:
    assert book_of().acceptance_fall("n") is None

from __future__ import annotations

import numpy as np
import pytest

from core.acceptance.drafting_model import Beta, K, node_windows, requests
from slipstream.core.acceptance import AcceptanceBook, AcceptanceEstimate, AcceptancePrior, SpeculationSample
from slipstream.core.node import SpeculativeCounters, Speculator, SpeculatorKind

DRAFT = Speculator(SpeculatorKind.DRAFT, K)
NGRAM = Speculator(SpeculatorKind.NGRAM, K)
SAMPLE = SpeculationSample(80, 40, 20, 61)


def book_of(**fields: int) -> AcceptanceBook:
    return AcceptanceBook(AcceptancePrior(), **fields)


def credit(book: AcceptanceBook, count: int, category: str = "code", *, node: str = "n", model: str = "m") -> None:
    for i in range(count):
        assert book.credit(model, DRAFT, category, node, SAMPLE, float(i))


def test_an_unknown_category_stands_on_its_prior() -> None:
    book = book_of()
    estimate = book.estimate("m", DRAFT, "code")
    assert (estimate.source, estimate.alpha, estimate.k) == ("prior", 0.75, 4.0)
    assert book.estimate("m", DRAFT, "code") is estimate
    assert book.version == 0


def test_the_verdict_changes_only_with_new_evidence() -> None:
    book = book_of()
    credit(book, 30)
    estimate, version = book.estimate("m", DRAFT, "code"), book.version
    # Nothing in between has a clock to look at: a look-up a second or a month later is the same object.
    credit(book, 5, "chat")
    assert book.estimate("m", DRAFT, "code") is estimate
    assert book.version == version + 5
    # The next request, ten half-lives on, finds the old evidence all but forgotten and the prior strong again.
    book.credit("m", DRAFT, "code", "n", SAMPLE, 6000.0)
    late = book.estimate("m", DRAFT, "code")
    assert late.source == "blended"
    assert late.alpha is not None
    assert estimate.alpha is not None
    assert abs(late.alpha - 0.75) < abs(estimate.alpha - 0.75)
    assert late.requests == 31
    assert late.evidence.weight < 1.1


def test_models_speculators_and_categories_are_kept_apart() -> None:
    book = book_of()
    credit(book, 12)
    assert book.estimate("m", DRAFT, "code").source == "blended"
    assert book.estimate("other", DRAFT, "code").source == "prior"
    assert book.estimate("m", Speculator(SpeculatorKind.DRAFT, 2), "code").source == "prior"
    assert book.estimate("m", DRAFT, "chat").source == "prior"


def test_an_impossible_sample_changes_nothing() -> None:
    book = book_of()
    credit(book, 3)
    before = dict(book.estimates())
    assert not book.credit("m", DRAFT, "code", "n", SpeculationSample(4, 9, 1), 5.0)
    assert dict(book.estimates()) == before
    assert book.version == 3


def test_a_clock_that_steps_back_loses_nothing() -> None:
    book = book_of()
    book.credit("m", DRAFT, "code", "n", SAMPLE, 100.0)
    book.credit("m", DRAFT, "code", "n", SAMPLE, 40.0)
    evidence = book.estimate("m", DRAFT, "code").evidence
    assert (evidence.weight, evidence.at) == (2.0, 100.0)


def test_memory_is_bounded_and_the_key_longest_without_evidence_goes() -> None:
    book = book_of(max_keys=3)
    for category in ("a", "b", "c"):
        credit(book, 12, category, node=category)
    credit(book, 1, "a", node="a")
    credit(book, 1, "d", node="d")
    assert [category for (_, _, category), _ in book.estimates()] == ["c", "a", "d"]
    for i in range(10):
        book.estimate("m", DRAFT, f"unheard of {i}")
    assert len(list(book.estimates())) == 3
    assert book.node_estimate("a") is None
    assert book.node_estimate("d") is not None


def test_a_category_is_summed_over_models_at_a_common_time() -> None:
    book = book_of()
    credit(book, 12, model="m")
    credit(book, 8, model="other")
    credit(book, 5, "chat")
    total = book.category_estimate("code")
    assert (total.source, total.requests) == ("measured", 20)
    assert total.tau == pytest.approx(3.0)
    assert total.evidence.total_drafted == 1600
    assert total.evidence.at == 11.0
    nothing = book.category_estimate("math")
    assert (nothing.tau, nothing.alpha, nothing.tokens_per_step, nothing.requests) == (None, None, None, 0)


def test_a_node_is_judged_without_a_prior() -> None:
    book = book_of()
    assert book.node_estimate("n") is None
    credit(book, 3)
    estimate = book.node_estimate("n")
    assert estimate is not None
    assert (estimate.source, estimate.requests) == ("measured", 3)
    assert estimate.tau == pytest.approx(3.0)
    book.forget_node("n")
    assert book.node_estimate("n") is None
    assert book.estimate("m", DRAFT, "code").requests == 3


def test_a_node_whose_requests_say_nothing_is_judged_by_its_counters() -> None:
    book = book_of()
    assert book.observe("n", SpeculativeCounters(400, 200, 100, (), 300), 0.0) is None
    unknown = book.node_estimate("n")
    assert unknown is not None
    assert unknown.tau is None
    delta = book.observe("n", SpeculativeCounters(480, 260, 120, (), 380), 1.0)
    assert delta is not None
    estimate = book.node_estimate("n")
    assert estimate is not None
    assert (estimate.source, estimate.tau, estimate.proposing_share) == ("counters", 4.0, 1.0)
    assert estimate.tau_interval is None
    assert book.observe("n", SpeculativeCounters(480, 260, 120, (), 380), 2.0) is None
    assert book.version == 1
    partial = book.observe("n", SpeculativeCounters(drafted=500), 3.0)
    assert partial is not None
    assert book.node_estimate("n") == estimate


def test_missing_verify_steps_are_filled_in_from_the_nodes_counters() -> None:
    book = book_of()
    without_steps = SpeculationSample(60, 30, None, 51)
    varying = Speculator(SpeculatorKind.NGRAM)
    assert not book.credit("m", varying, "code", "n", without_steps, 0.0)
    book.observe("n", SpeculativeCounters(300, 100, 100), 1.0)
    assert book.credit("m", varying, "code", "n", without_steps, 2.0)
    assert book.estimate("m", varying, "code").evidence.verify == pytest.approx(20.0)
    # What was counted since outweighs what the engine had counted before anyone looked.
    book.observe("n", SpeculativeCounters(360, 130, 110), 3.0)
    assert book.credit("m", varying, "edit", "n", without_steps, 4.0)
    assert book.estimate("m", varying, "edit").evidence.verify == pytest.approx(10.0)


def attributed_book(speculator: Speculator, *, generated: bool = True) -> AcceptanceBook:
    book = book_of()
    acceptance = {"code": Beta(0.85, 20.0), "chat": Beta(0.40, 20.0)}
    drafted = accepted = steps = 0
    book.observe("n", SpeculativeCounters(0, 0, 0, (), 0 if generated else None), 0.0)
    for i, window in enumerate(node_windows(np.random.default_rng(21), acceptance, windows=900), start=1):
        drafted += window.drafted
        accepted += window.accepted
        steps += window.steps
        counters = SpeculativeCounters(drafted, accepted, steps, (), steps + accepted if generated else None)
        delta = book.observe("n", counters, float(i))
        assert delta is not None
        book.attribute("m", speculator, "n", delta, window.sequence_seconds, float(i))
    return book


def alpha(estimate: AcceptanceEstimate) -> float:
    assert estimate.alpha is not None
    return estimate.alpha


def test_counters_are_split_over_categories_where_requests_say_nothing() -> None:
    book = attributed_book(DRAFT)
    code, chat = book.estimate("m", DRAFT, "code"), book.estimate("m", DRAFT, "chat")
    assert code.source == chat.source == "attributed"
    assert alpha(code) == pytest.approx(0.85, abs=0.05)
    assert alpha(chat) == pytest.approx(0.40, abs=0.05)
    assert code.alpha_interval is not None
    assert code.alpha_interval[0] < alpha(code) < code.alpha_interval[1]
    assert chat.tokens_per_step_interval is not None
    assert code.requests == 0


def test_the_split_of_a_speculator_that_does_not_always_propose_is_per_decode_step() -> None:
    book = attributed_book(NGRAM)
    code = book.estimate("m", NGRAM, "code")
    assert (code.source, code.tau, code.alpha, code.proposing_share) == ("attributed", None, None, None)
    assert (code.tau_interval, code.alpha_interval) == (None, None)
    assert code.tokens_per_step is not None
    assert code.tokens_per_step > 3.0


def test_without_a_token_count_such_a_speculator_keeps_its_prior() -> None:
    book = attributed_book(NGRAM, generated=False)
    assert book.estimate("m", NGRAM, "code").source == "prior"


def test_per_request_evidence_outranks_a_split_of_counters() -> None:
    book = attributed_book(DRAFT)
    split = book.estimate("m", DRAFT, "chat")
    for i, sample in enumerate(requests(np.random.default_rng(22), Beta(0.6, 1e6), 30)):
        book.credit("m", DRAFT, "chat", "n", sample, 900.0 + i)
        held = book.estimate("m", DRAFT, "chat")
        assert held.source == ("attributed" if i < 9 else "blended")
        if i < 9:
            assert (held.alpha, held.requests) == (split.alpha, i + 1)
    before = book.estimate("m", DRAFT, "chat")
    delta = book.observe("n", SpeculativeCounters(10**7, 10**6, 10**6), 2000.0)
    assert delta is not None
    book.attribute("m", DRAFT, "n", delta, {"chat": 100.0, "code": 3.0}, 2000.0)
    assert book.estimate("m", DRAFT, "chat") is before
    book.forget_node("n")

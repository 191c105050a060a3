"""New beliefs, old evidence: what a reload of priors and half-life does to estimates, and to the past."""

from __future__ import annotations

import numpy as np

from core.acceptance.drafting_model import Beta, K, node_windows
from slipstream.core.acceptance import AcceptanceBook, AcceptancePrior, SpeculationSample
from slipstream.core.evidence import CategoryEvidence
from slipstream.core.node import SpeculativeCounters, Speculator, SpeculatorKind

DRAFT = Speculator(SpeculatorKind.DRAFT, K)
SAMPLE = SpeculationSample(80, 40, 20, 61)
HALF_LIFE = 600.0


def sceptical(alpha: float = 0.2) -> AcceptancePrior:
    return AcceptancePrior({"code": alpha, "chat": 0.5})


def test_thin_evidence_gives_way_to_the_new_belief_and_much_of_it_does_not() -> None:
    book = AcceptanceBook(AcceptancePrior())
    for i in range(200):
        book.credit("m", DRAFT, "chat", "n", SAMPLE, float(i))
        if i < 3:
            book.credit("m", DRAFT, "code", "n", SAMPLE, float(i))
    chat, code = (book.estimate("m", DRAFT, category) for category in ("chat", "code"))
    version = book.version
    assert book.configure(sceptical(), HALF_LIFE) == [(("m", DRAFT.fingerprint, "code"), code)]
    assert book.version == version + 1
    assert book.estimate("m", DRAFT, "chat") is chat
    assert book.estimate("m", DRAFT, "code").alpha == 0.2
    assert book.estimate("m", DRAFT, "code").requests == 3
    assert book.estimate("m", DRAFT, "math").alpha == 0.6


def test_the_same_beliefs_change_nothing() -> None:
    book = AcceptanceBook(AcceptancePrior())
    book.credit("m", DRAFT, "code", "n", SAMPLE, 0.0)
    book.estimate("m", DRAFT, "chat")
    version = book.version
    assert book.configure(AcceptancePrior(), HALF_LIFE) == []
    assert book.version == version


def test_a_split_of_counters_stands_until_the_next_window() -> None:
    book = AcceptanceBook(AcceptancePrior())
    drafted = accepted = steps = 0
    windows = node_windows(np.random.default_rng(21), {"code": Beta(0.85, 20.0), "chat": Beta(0.4, 20.0)}, windows=900)
    book.observe("n", SpeculativeCounters(0, 0, 0, (), 0), 0.0)
    for i, window in enumerate(windows, start=1):
        drafted, accepted, steps = drafted + window.drafted, accepted + window.accepted, steps + window.steps
        delta = book.observe("n", SpeculativeCounters(drafted, accepted, steps, (), steps + accepted), float(i))
        assert delta is not None
        book.attribute("m", DRAFT, "n", delta, window.sequence_seconds, float(i))
    split = book.estimate("m", DRAFT, "code")
    assert split.source == "attributed"
    assert book.configure(sceptical(), 60.0) == []
    assert book.estimate("m", DRAFT, "code") is split


def test_evidence_fades_by_the_new_half_life() -> None:
    books = [AcceptanceBook(AcceptancePrior()), AcceptanceBook(AcceptancePrior(), half_life=60.0)]
    for book in books:
        for i in range(20):
            book.credit("m", DRAFT, "code", "n", SAMPLE, float(i) / 1e6)
    books[0].configure(AcceptancePrior(), 60.0)
    for book in books:
        book.credit("m", DRAFT, "code", "n", SAMPLE, 120.0)
    long, short = (book.estimate("m", DRAFT, "code").evidence.weight for book in books)
    assert abs(long - short) < 1e-3


def test_a_past_decision_is_explained_by_what_was_believed_then() -> None:
    evidence = CategoryEvidence(AcceptanceBook(AcceptancePrior()))
    assert evidence.estimate("m", DRAFT, "code").alpha == 0.75
    evidence.configure(sceptical(), HALF_LIFE, version=8)
    assert evidence.estimate("m", DRAFT, "code").alpha == 0.2
    assert evidence.at(7).estimate("m", DRAFT, "code").alpha == 0.75
    assert evidence.at(8).estimate("m", DRAFT, "code").alpha == 0.2

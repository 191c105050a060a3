"""One model drafts for another only with a reason for each condition."""

from __future__ import annotations

import pytest

from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.qualify import (
    Finding,
    Verdict,
    alpha_finding,
    qualification_of,
    speed_finding,
    tokenizer_finding,
)
from slipstream.costmodel.tokenizers import Tokenizer

YES = Finding("speed", passed=True, reason="")
OPEN = Finding("alpha", passed=None, reason="")
NO = Finding("tokenizer", passed=False, reason="")


def tokenizer(merges: tuple[str, ...] | None, *tokens: str) -> Tokenizer:
    numbered = {token: number for number, token in enumerate(tokens)}
    return Tokenizer("here", numbered, merges, frozenset(), {})


def test_a_condition_that_fails_decides_and_one_that_is_not_known_leaves_it_open() -> None:
    assert qualification_of(YES, YES).verdict is Verdict.QUALIFIED
    assert qualification_of(YES, OPEN).verdict is Verdict.UNDECIDED
    assert qualification_of(YES, OPEN, NO).verdict is Verdict.NOT_QUALIFIED
    assert qualification_of(YES, NO).findings == (YES, NO)


def test_the_same_tokenizer_passes_and_says_what_was_not_compared() -> None:
    both = tokenizer(("a b",), "a", "b")
    found = tokenizer_finding(both, both)
    assert (found.passed, found.reason) == (True, "both have the same 2 tokens, 0 special ones among them")
    assert tokenizer_finding(both, tokenizer(None, "a", "b")).reason.endswith(
        "; merges are told by one of the two only"
    )


def test_another_tokenizer_fails_with_the_first_difference() -> None:
    found = tokenizer_finding(tokenizer(None, "a", "b"), tokenizer(None, "a", "c"))
    assert found.passed is False
    assert found.reason == "vocabulary: token 1 is 'b' in the target and 'c' in the draft (of 2 and 2 tokens)"


@pytest.mark.parametrize(("alpha", "passed"), [(0.65, True), (0.9, True), (0.649, False), (0.0, False)])
def test_alpha_is_held_against_the_floor(alpha: float, passed: bool) -> None:
    found = alpha_finding(alpha, 4, "given")
    assert found.passed is passed
    assert "(given)" in found.reason


def test_alpha_comes_with_the_tokens_a_step_it_means() -> None:
    assert alpha_finding(0.75, 4, "given").reason == (
        "per-token acceptance 0.75 (given) is at least 0.65; at K = 4 tau is 3.05"
    )


@pytest.mark.parametrize(("draft_s", "passed"), [(0.005, True), (0.0051, False)])
def test_a_draft_is_at_least_four_times_faster(draft_s: float, passed: bool) -> None:
    found = speed_finding(0.020, draft_s, "roofline")
    assert found.passed is passed
    assert "20.00 ms (roofline)" in found.reason


def test_what_is_not_known_is_neither_passed_nor_failed() -> None:
    assert alpha_finding(None, 4, "give --alpha").passed is None
    assert speed_finding(None, 0.005, "no config.json").passed is None
    assert speed_finding(0.02, None, "no config.json").reason == "how fast the two are is not known: no config.json"


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_an_alpha_that_is_no_share_is_refused(alpha: float) -> None:
    with pytest.raises(ImpossibleInput, match="alpha is a share"):
        alpha_finding(alpha, 4, "given")


def test_a_draft_of_no_tokens_and_a_pass_of_no_time_are_refused() -> None:
    with pytest.raises(ImpossibleInput, match="at least 1 token, not 0"):
        alpha_finding(0.5, 0, "given")
    with pytest.raises(ImpossibleInput, match="longer than nothing"):
        speed_finding(0.02, 0.0, "a profile")

"""Made prompts are as long as wanted, begin like no other, and are taken by the gateway for what they are."""

from __future__ import annotations

from itertools import pairwise, takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.core.category import Categorizer, PromptFeatures, window
from slipstream.core.category_rules import DEFAULT_CATEGORIES, DEFAULT_CATEGORY, DEFAULT_RULES
from slipstream.load import made_prompt

CATEGORIZER = Categorizer(DEFAULT_RULES, DEFAULT_CATEGORY)
LONGEST_INSTRUCTION = 160


def category_of(prompt: str) -> str:
    return CATEGORIZER.categorize(
        PromptFeatures(
            path="/v1/chat/completions",
            model="m",
            has_tools=False,
            response_format=None,
            user=window(prompt),
            user_characters=len(prompt),
            system=window(""),
        )
    )


@pytest.mark.parametrize("category", DEFAULT_CATEGORIES)
@pytest.mark.parametrize("characters", [320, 700, 4000])
def test_the_default_rules_see_what_a_prompt_is(category: str, characters: int) -> None:
    assert {category_of(made_prompt(category, characters, number, 1)) for number in range(40)} == {category}


@settings(max_examples=80)
@given(
    st.sampled_from([*DEFAULT_CATEGORIES, "own"]),
    st.integers(LONGEST_INSTRUCTION, 500_000),
    st.integers(0, 10**9),
    st.integers(-2, 99),
)
def test_a_prompt_has_the_length_that_is_wanted_and_is_the_same_each_time(
    category: str, characters: int, number: int, seed: int
) -> None:
    prompt = made_prompt(category, characters, number, seed)
    assert len(prompt) == characters
    assert prompt == made_prompt(category, characters, number, seed)


def test_no_prompt_is_shorter_than_its_instruction() -> None:
    assert made_prompt("translation", 1, 0, 1) == made_prompt("translation", 0, 0, 1)
    assert "Translate" in made_prompt("translation", 1, 0, 1)


def test_prompts_differ_from_their_beginning_on() -> None:
    """A cache keeps whole blocks of 16 tokens or more: more than the longest beginning that two have in common."""
    prompts = sorted(made_prompt("chat", 300, number, seed) for seed in (1, 2) for number in range(2000))
    shared = [
        sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
        for one, other in pairwise(prompts)
    ]
    assert max(shared) < 10

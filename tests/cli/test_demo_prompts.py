"""What the demo asks shows what it is meant to show."""

from __future__ import annotations

from collections import Counter

import pytest

from slipstream.cli.demo import rising_levels
from slipstream.cli.demo_prompts import MAX_TOKENS, PROMPTS, demo_prompts, planned
from slipstream.core.category import Categorizer, PromptFeatures, window
from slipstream.core.category_rules import DEFAULT_CATEGORY, DEFAULT_RULES


def test_sixty_short_prompts_of_which_none_comes_twice() -> None:
    prompts = [prompt for _, prompt in demo_prompts()]
    assert len(prompts) == len(set(prompts)) == PROMPTS == 60
    assert max(map(len, prompts)) < 480, "about four characters a token: at most 120 tokens"
    assert MAX_TOKENS <= 64


def test_the_gateway_finds_at_least_five_categories_in_them() -> None:
    categorize = Categorizer(DEFAULT_RULES, DEFAULT_CATEGORY).categorize
    found: Counter[str] = Counter()
    as_written = 0
    for kind, prompt in demo_prompts():
        features = PromptFeatures("/v1/chat/completions", "m", False, None, window(prompt), len(prompt), "")
        category = categorize(features)
        found[category] += 1
        as_written += category == kind
    assert sum(count >= 6 for count in found.values()) >= 5
    assert as_written >= 54


def test_the_kinds_are_mixed_so_that_every_level_has_all_of_them() -> None:
    kinds = [kind for kind, _ in demo_prompts()]
    for level_start, level_end in ((0, 8), (8, 20), (20, 36), (36, 60)):
        assert len(set(kinds[level_start:level_end])) >= 5


def test_requests_are_greedy_streams_that_ask_for_their_usage() -> None:
    bodies = [request.body() for request in planned("smol", 12)]
    assert len(bodies) == 12
    for body in bodies:
        assert body["model"] == "smol"
        assert body["stream"] is True
        assert body["stream_options"] == {"include_usage": True}
        assert body["temperature"] == 0
        assert body["max_tokens"] == MAX_TOKENS


@pytest.mark.parametrize("requests", range(12, 61))
def test_concurrency_rises_and_levels_add_up(requests: int) -> None:
    levels = rising_levels(requests)
    assert sum(level.requests for level in levels) == requests
    assert [level.concurrency for level in levels] == [1, 2, 4, 8]
    assert all(level.requests >= 1 for level in levels)

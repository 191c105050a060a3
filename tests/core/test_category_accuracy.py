"""The default rules on prompts whose category is known. The figures stand in docs/reference/categories.md."""

import json
from collections import Counter
from pathlib import Path

from slipstream.core.category import Categorizer, PromptFeatures, window
from slipstream.core.category_rules import DEFAULT_CATEGORIES, DEFAULT_CATEGORY, DEFAULT_RULES

DATA = Path(__file__).parent / "data"

CATEGORY_OF_LABEL = {
    "code_completion": "code",
    "coding": "code",
    "extraction": "structured",
    "humanities": "chat",
    "math": "math",
    "math_reasoning": "math",
    "qa": "chat",
    "rag": "retrieval",
    "reasoning": "chat",
    "roleplay": "chat",
    "stem": "chat",
    "summarization": "summarization",
    "translation": "translation",
    "writing": "chat",
}

CATEGORIZER = Categorizer(DEFAULT_RULES, DEFAULT_CATEGORY)


def prompts(name: str) -> list[tuple[str, str]]:
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [(row["category"], row["prompt"]) for row in map(json.loads, lines)]


def confusion(labelled: list[tuple[str, str]]) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for wanted, prompt in labelled:
        seen = PromptFeatures("/v1/chat/completions", "m", False, None, window(prompt), len(prompt), "")
        counts[wanted, CATEGORIZER.categorize(seen)] += 1
    return counts


def table(counts: Counter[tuple[str, str]]) -> str:
    rows = [["wanted \\ got", *DEFAULT_CATEGORIES]]
    rows += [[wanted, *(str(counts[wanted, got]) for got in DEFAULT_CATEGORIES)] for wanted in DEFAULT_CATEGORIES]
    return "\n".join("".join(f"{cell:>14}" for cell in row) for row in rows)


def accuracy(counts: Counter[tuple[str, str]], category: str | None = None) -> float:
    rows = {pair: count for pair, count in counts.items() if category in (None, pair[0])}
    return sum(count for (wanted, got), count in rows.items() if wanted == got) / sum(rows.values())


def test_labelled_prompts_get_the_category_of_their_label() -> None:
    counts = confusion([(CATEGORY_OF_LABEL[label], prompt) for label, prompt in prompts("labelled_prompts.jsonl")])
    assert accuracy(counts) >= 0.95, table(counts)
    for category in ("code", "math", "translation", "summarization", "retrieval", "chat"):
        assert accuracy(counts, category) >= 0.85, f"{category}\n{table(counts)}"


def test_prompts_in_plain_words_get_their_category() -> None:
    counts = confusion(prompts("own_prompts.jsonl"))
    assert len(prompts("own_prompts.jsonl")) == 60
    assert all(sum(counts[wanted, got] for got in DEFAULT_CATEGORIES) >= 5 for wanted in DEFAULT_CATEGORIES)
    assert accuracy(counts) >= 0.85, table(counts)


def test_prompts_the_rules_were_developed_on_stay_right() -> None:
    counts = confusion(prompts("development_prompts.jsonl"))
    assert accuracy(counts) >= 0.95, table(counts)

from re import _constants as constants  # type: ignore[attr-defined]  # the parser has no public name
from re import _parser as parser  # type: ignore[attr-defined]  # likewise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.category import (
    EDGE_CHARACTERS,
    WINDOW_CHARACTERS,
    Categorizer,
    CategoryRule,
    PromptFeatures,
    window,
)
from slipstream.core.category_rules import DEFAULT_CATEGORIES, DEFAULT_CATEGORY, DEFAULT_RULES


def features(user: str = "hello", system: str = "", **changes: Any) -> PromptFeatures:
    seen = PromptFeatures("/v1/chat/completions", "m", False, None, window(user), len(user), window(system))
    for name, value in changes.items():
        setattr(seen, name, value)
    return seen


def holds(rule: CategoryRule, seen: PromptFeatures) -> bool:
    return Categorizer([rule], "none").categorize(seen) == rule.category


def test_default_when_no_rule_holds() -> None:
    assert Categorizer((), "chat").categorize(features()) == "chat"


def test_first_rule_that_holds_wins() -> None:
    rules = [
        CategoryRule("never", words=("zebra",)),
        CategoryRule("a", pattern="hello"),
        CategoryRule("b", words=("hello",)),
    ]
    assert Categorizer(rules, "none").categorize(features()) == "a"
    assert Categorizer(rules[::-1], "none").categorize(features()) == "b"


def test_one_word_may_belong_to_several_rules() -> None:
    rules = [CategoryRule("long", words=("hello",), min_characters=50), CategoryRule("short", words=("hello",))]
    assert Categorizer(rules, "none").categorize(features()) == "short"
    assert Categorizer(rules, "none").categorize(features("hello " + "x" * 50)) == "long"


@pytest.mark.parametrize(
    ("rule", "yes", "no"),
    [
        (CategoryRule("x", path="/v1/chat/*"), features(), features(path="/v1/completions")),
        (CategoryRule("x", path="/v1/x"), features(path="/v1/x"), features(path="/v1/x/2")),
        (CategoryRule("x", model="qwen*coder*"), features(model="qwen2.5-coder-7b"), features(model="qwen2.5-7b")),
        (CategoryRule("x", model="a.b"), features(model="a.b"), features(model="aXb")),
        (CategoryRule("x", has_tools=True), features(has_tools=True), features(has_tools=False)),
        (CategoryRule("x", has_tools=False), features(has_tools=False), features(has_tools=True)),
        (CategoryRule("x", response_format="*"), features(response_format="grammar"), features(response_format=None)),
        (CategoryRule("x", response_format="j*"), features(response_format="json"), features(response_format="gbnf")),
        (CategoryRule("x", min_characters=5), features("12345"), features("1234")),
        (CategoryRule("x", min_numbers=2), features("3 cats and 14 dogs"), features("314 cats")),
        (CategoryRule("x", words=("c++", "rust")), features("Is C++ dead?"), features("Is C dead?")),
        (CategoryRule("x", words=("übersetze",)), features("bitte übersetze das"), features("bitte übersetzen")),
        (CategoryRule("x", words=("für",)), features("gut\u3000für\xa0uns"), features("gut\u3000fürs\xa0Haus")),
        (CategoryRule("x", pattern=r"a\.b|\(c"), features("see (C)"), features("see a-b")),
        (CategoryRule("x", pattern="two words|other"), features("The OTHER one"), features("two  words")),
        (CategoryRule("x", pattern=r"^\nhel+o\b"), features("Hello"), features("oh hello")),
        (CategoryRule("x", pattern=r"HEL+O\S"), features("hello!"), features("hello")),
        (CategoryRule("x", pattern="bot", where="system"), features(system="A Bot."), features("A Bot.")),
        (CategoryRule("x", pattern="```", where="user"), features("a ``` b"), features("a b", system="```")),
    ],
)  # fmt: skip
def test_each_sign_holds_and_fails(rule: CategoryRule, yes: PromptFeatures, no: PromptFeatures) -> None:
    assert holds(rule, yes)
    assert not holds(rule, no)


def test_all_signs_of_a_rule_must_hold() -> None:
    rule = CategoryRule("x", words=("sum",), min_numbers=2, pattern="of", has_tools=False)
    assert holds(rule, features("sum of 1 and 2"))
    assert not holds(rule, features("sum of 1"))
    assert not holds(rule, features("sum 1 and 2"))
    assert not holds(rule, features("sum of 1 and 2", has_tools=True))
    assert not holds(rule, features("all of 1 and 2"))


@pytest.mark.parametrize(
    ("where", "in_opening", "in_middle", "in_ending"),
    [("opening", True, False, False), ("edges", True, False, True), ("user", True, True, True)],
)
def test_where_bounds_the_text_a_pattern_sees(where: str, in_opening: bool, in_middle: bool, in_ending: bool) -> None:
    rule = CategoryRule("x", pattern="sign", where=where)
    filler = "y" * 2 * EDGE_CHARACTERS
    assert holds(rule, features("sign" + filler + filler)) is in_opening
    assert holds(rule, features(filler + "sign" + filler)) is in_middle
    assert holds(rule, features(filler + filler + "sign")) is in_ending


def test_words_are_sought_at_the_edges_only() -> None:
    rule = CategoryRule("x", words=("sign",))
    filler = " y" * EDGE_CHARACTERS
    assert holds(rule, features("sign" + filler))
    assert holds(rule, features(filler + " sign"))
    assert not holds(rule, features(filler + " sign " + filler))


@given(st.text(max_size=3 * WINDOW_CHARACTERS))
def test_window_keeps_both_ends_and_is_bounded(text: str) -> None:
    seen = window(text)
    assert len(seen) <= 2 * WINDOW_CHARACTERS + 1
    assert seen[:WINDOW_CHARACTERS] == text[:WINDOW_CHARACTERS]
    assert seen[-WINDOW_CHARACTERS:] == text[-WINDOW_CHARACTERS:]


def test_window_drops_the_middle_of_a_long_text() -> None:
    assert "middle" not in window("a" * WINDOW_CHARACTERS + "middle" + "b" * WINDOW_CHARACTERS)


@given(st.text(), st.text())
def test_any_text_gets_a_default_category(user: str, system: str) -> None:
    assert Categorizer(DEFAULT_RULES, DEFAULT_CATEGORY).categorize(features(user, system)) in DEFAULT_CATEGORIES


@pytest.mark.parametrize(
    ("signs", "sentence"),
    [
        ({}, "sets no sign"),
        ({"pattern": "(unclosed"}, "'\\(unclosed' is not a regular expression"),
        ({"pattern": "a{99999999999999999999}"}, "is not a regular expression"),
        ({"words": ("two words",)}, "'two words', which is not one word"),
        ({"words": ("Upper",)}, "not one word in lower case"),
        ({"words": ("",)}, "not one word"),
        ({"pattern": "a", "where": "footer"}, "'footer', but rules look in one of: edges, opening, user, system"),
        ({"min_characters": 0}, "min_characters is 0"),
        ({"min_numbers": -1}, "min_numbers is -1"),
        ({"category": "", "pattern": "a"}, "needs the name of a category"),
    ],
)
def test_unusable_rule_is_refused_with_a_sentence(signs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        CategoryRule(**{"category": "x", **signs})


@pytest.mark.parametrize(
    ("seen", "category"),
    [
        (features(response_format="json_schema"), "structured"),
        (features(has_tools=True), "structured"),
        (features("Le chat dort.", system="Translate what the user writes into English."), "translation"),
        (features("Quarterly numbers are in.", system="You summarise messages."), "summarization"),
        (features("and the tests?", system="You are a coding assistant."), "code"),
        (features("continue", model="qwen2.5-coder-7b"), "code"),
        (features("<|fim_prefix|>def add(a, b):\n    return <|fim_suffix|>\n"), "code"),
        (features("把下面的句子翻译成英文：今天天气很好"), "translation"),
    ],
)
def test_default_rules_use_what_surrounds_the_message(seen: PromptFeatures, category: str) -> None:
    assert Categorizer(DEFAULT_RULES, DEFAULT_CATEGORY).categorize(seen) == category


def test_every_default_rule_names_a_default_category() -> None:
    assert {rule.category for rule in DEFAULT_RULES} | {DEFAULT_CATEGORY} == set(DEFAULT_CATEGORIES)


def longest_match(pattern: str) -> int:
    return int(parser.parse(pattern).getwidth()[1])


def nested_repeats(items: Any, inside: bool = False) -> int:
    """How many repetitions of more than one item stand inside another such: the shape that backtracks exponentially."""
    found = 0
    for operation, argument in items:
        repeat = operation in (constants.MAX_REPEAT, constants.MIN_REPEAT) and argument[1] > 8
        found += repeat and inside
        for part in argument if isinstance(argument, tuple) else ():
            for branch in part if isinstance(part, list) else [part]:
                if isinstance(branch, parser.SubPattern):
                    found += nested_repeats(branch, inside or repeat)
    return found


@pytest.mark.parametrize("pattern", [rule.pattern for rule in DEFAULT_RULES if rule.pattern is not None])
def test_default_patterns_can_not_backtrack_without_bound(pattern: str) -> None:
    assert longest_match(pattern) < 1000, "a repetition without an upper bound"
    assert nested_repeats(parser.parse(pattern)) == 0


def test_the_backtracking_check_sees_what_it_should() -> None:
    assert longest_match(r"a{0,10}b*") > 1000
    assert nested_repeats(parser.parse(r"(?:a{1,20}b?){1,20}")) == 1
    assert nested_repeats(parser.parse(r"x|(?:a{1,20}|(b{1,20})){1,20}")) == 2
    assert nested_repeats(parser.parse(r"a{1,20}b{1,20}")) == 0

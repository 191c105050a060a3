"""Embeddings: inputs are sequences, and nothing is decoded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slipstream.core.category import Categorizer, CategoryRule
from slipstream.core.errors import InvalidField
from slipstream.core.request import PinSource, Pool, RequestShape
from slipstream.gateway.embeddings import MAX_INPUTS
from slipstream.gateway.headers import RequestHead
from slipstream.gateway.reading import RequestReader

PATH = "/v1/embeddings"
READER = RequestReader(
    Categorizer([CategoryRule("code", pattern="def "), CategoryRule("search", path=PATH, model="e-*")], "chat"),
    frozenset({"code", "chat", "search"}),
    {"chat": Pool.SPECULATIVE},
    trusting=True,
)


def read(named: str | None = None, **fields: Any) -> RequestShape:
    head = RequestHead([] if named is None else [(b"x-slipstream-category", named.encode())])
    return READER.read(PATH, json.dumps({"model": "m", **fields}).encode(), head)


@pytest.mark.parametrize(
    ("given", "sequences", "characters"),
    [
        ("abc", 1, 3),
        (["abc", "d"], 2, 4),
        ([1, 2, 3], 1, None),
        ([[1, 2], [3], [4]], 3, None),
        (["a"] * MAX_INPUTS, MAX_INPUTS, MAX_INPUTS),
        ([1] * (MAX_INPUTS + 1), 1, None),
    ],
)
def test_each_input_is_a_sequence(given: Any, sequences: int, characters: int | None) -> None:
    shape = read(input=given, encoding_format="base64", dimensions=8)
    assert (shape.sequences, shape.prompt_characters) == (sequences, characters)


def test_a_conversation_is_one_input() -> None:
    shape = read(messages=[{"role": "user", "content": "hi"}])
    assert (shape.sequences, shape.prompt_characters) == (1, 2)


def test_its_text_names_no_category_but_rules_on_path_and_model_and_a_trusted_client_do() -> None:
    assert read(input="def f(): pass").category == "chat"
    assert read(input="x", model="e-large").category == "search"
    assert read("code", input="x").category == "code"


def test_pins_are_for_what_is_decoded() -> None:
    assert read(input="x").pinned_pool is None
    chat = READER.read(
        "/v1/chat/completions", b'{"model":"m","messages":[{"role":"user","content":"x"}]}', RequestHead([])
    )
    assert (chat.pinned_pool, chat.pinned_by) == (Pool.SPECULATIVE, PinSource.CONFIGURATION)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": ["a", 1]}, "input"),
        ({"input": ["a"] * (MAX_INPUTS + 1)}, "input"),
        ({"input": "a", "model": ""}, "model"),
    ],
)
def test_an_impossible_field_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidField, match=f"'{param}") as caught:
        read(**fields)
    assert caught.value.param == param

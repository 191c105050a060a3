"""What two requests have in common for a node's cache."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.category import Categorizer
from slipstream.core.request import RequestShape
from slipstream.gateway.cache_keys import BLOCK_BYTES, MAX_BLOCKS, cache_keys, session_number
from slipstream.gateway.headers import RequestHead
from slipstream.gateway.reading import RequestReader

Turn = tuple[str, str]


def keys(*turns: str, model: str = "m", session: str | None = None, before: str = "", **named: str | None) -> list[int]:
    body = {"model": model, "temperature": before, "messages": [{"role": "user", "content": turn} for turn in turns]}
    number = None if session is None else session_number(session.encode())
    found = cache_keys(
        model, number, named.get("cache_key"), named.get("user"), b'"messages"', json.dumps(body).encode()
    )
    return list(found)


LONG = "x" * 2500


def test_a_short_prompt_without_a_name_for_its_conversation_has_no_keys() -> None:
    assert keys("hello") == []


def test_the_conversation_comes_first_and_the_user_last() -> None:
    first, cached, *blocks, last = keys(LONG, session="s", cache_key="c", user="u")
    assert [first] == keys("hello", session="s")
    assert [cached] == keys("hello", cache_key="c")
    assert [last] == keys("hello", user="u")
    assert blocks == keys(LONG)
    assert len(blocks) == 2


def test_the_next_turn_of_a_conversation_begins_with_the_keys_of_the_last() -> None:
    first = keys(LONG, "and then")
    second = keys(LONG, "and then", "y" * 3000)
    assert second[-len(first) :] == first
    assert len(second) > len(first)


def test_the_longest_beginning_in_common_comes_first() -> None:
    one, other = keys(LONG + "1" * 3000), keys(LONG + "2" * 3000)
    common = [key for key in one if key in other]
    assert common == one[-2:] == other[-2:]


def test_fields_before_the_prompt_do_not_matter() -> None:
    assert keys(LONG, before="short") == keys(LONG, before="l" * 700)


def test_keys_hold_for_one_model() -> None:
    assert not set(keys(LONG, session="s", user="u", cache_key="c")) & set(
        keys(LONG, session="s", user="u", cache_key="c", model="other")
    )


def test_names_of_different_kinds_are_different_keys() -> None:
    assert len({*keys("x", session="a"), *keys("x", cache_key="a"), *keys("x", user="a")}) == 3


def test_a_body_without_the_prompt_has_no_blocks() -> None:
    assert cache_keys("m", None, None, None, b'"prompt"', b" " * 10_000) == ()


@given(st.text(max_size=12_000))
def test_keys_are_bounded_and_one_a_block(text: str) -> None:
    body = json.dumps({"messages": text}).encode()
    found = cache_keys("m", None, None, None, b'"messages"', body)
    assert len(found) == min(MAX_BLOCKS, (len(body) - body.index(b'"messages"')) // BLOCK_BYTES)


def test_sessions_are_spread_evenly_and_alike_in_every_process() -> None:
    assert session_number(b"a") == 0x40F8_9E39_5B66_422F
    shares = [session_number(b"user-%d" % n) / 2**64 for n in range(20_000)]
    assert abs(sum(share < 0.05 for share in shares) / 20_000 - 0.05) < 0.005
    assert all(0 <= share < 1 for share in shares)


PROMPTS: dict[str, dict[str, object]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": LONG}]},
    "/v1/completions": {"prompt": LONG},
    "/v1/messages": {"messages": [{"role": "user", "content": LONG}], "max_tokens": 9},
    "/v1/responses": {"input": LONG},
}


def shape_of(path: str, body: dict[str, object], *, affinity: bool = True, session: str | None = None) -> RequestShape:
    reader = RequestReader(Categorizer([], "chat"), frozenset({"chat"}), {}, trusting=False, affinity=affinity)
    head = RequestHead([] if session is None else [(b"X-Session-Id", session.encode())])
    return reader.read(path, json.dumps({"model": "m"} | body).encode(), head)


@pytest.mark.parametrize("path", PROMPTS)
def test_every_dialects_prompt_and_conversation_are_read(path: str) -> None:
    shape = shape_of(path, PROMPTS[path], session="s")
    assert shape.session == session_number(b"s")
    assert shape.cache_keys[:1] == tuple(keys("hello", session="s"))
    assert len(shape.cache_keys) == 3
    assert shape_of(path, PROMPTS[path]).session is None
    assert shape_of(path, PROMPTS[path]).cache_keys == shape.cache_keys[1:]


def test_without_affinity_only_the_conversation_is_read() -> None:
    shape = shape_of("/v1/completions", PROMPTS["/v1/completions"], affinity=False, session="s")
    assert (shape.session, shape.cache_keys) == (session_number(b"s"), ())


def test_the_clients_own_names_are_read_from_the_body() -> None:
    named: dict[str, object] = {"messages": [{"role": "user", "content": "hi"}], "user": "u", "prompt_cache_key": "c"}
    assert list(shape_of("/v1/chat/completions", named).cache_keys) == [
        *keys("hi", cache_key="c"),
        *keys("hi", user="u"),
    ]


def test_embeddings_are_cached_nowhere() -> None:
    assert shape_of("/v1/embeddings", {"input": LONG}).cache_keys == ()

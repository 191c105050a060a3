"""Anthropic's dialect: requests read as OpenAI's do, and events say what they are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slipstream.core.errors import InvalidField
from slipstream.core.request import TrafficClass
from slipstream.gateway.body import features_of, shape_of
from slipstream.gateway.fields import Message
from slipstream.gateway.messages import count_tokens, has_content, read_messages
from slipstream.gateway.view import RequestView

PATH = "/v1/messages"
HI = [{"role": "user", "content": "hi"}]


def read(**fields: Any) -> RequestView:
    return read_messages(json.dumps({"model": "m", "max_tokens": 9, "messages": HI, **fields}).encode())


def said(view: RequestView) -> list[tuple[str, Any]]:
    assert view.messages is not None
    return [(message.role, message.content) for message in view.messages]


def event(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_what_routing_needs_is_read() -> None:
    tools = [{"name": "f", "input_schema": {}}]
    view = read(stream=True, system="Be brief.", metadata={"user_id": "u-1"}, tools=tools, top_k=3)
    assert (view.model, view.stream, view.user) == ("m", True, "u-1")
    shape = shape_of(view, "chat", TrafficClass.INTERACTIVE)
    assert (shape.output_limit, shape.streamed, shape.sequences, shape.prompt_characters) == (9, True, 1, 11)
    features = features_of(PATH, view)
    assert (features.has_tools, features.system, features.user) == (True, "Be brief.", "hi")


def test_blocks_are_read_for_their_text_and_a_tools_result_is_no_users_word() -> None:
    image = {"type": "image", "source": {"type": "base64", "data": "AAAA"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "42"}, image]}
    view = read(
        system=[{"type": "text", "text": "One.", "cache_control": {}}, {"type": "text", "text": "Two."}],
        messages=[
            {"role": "user", "content": [image, {"type": "text", "text": "What is it?"}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": [1]}}]},
            {"role": "user", "content": [result, {"type": "tool_result", "content": "plain"}]},
        ],
    )  # fmt: skip
    features = features_of(PATH, view)
    assert (features.system, features.user) == ("One.\nTwo.", "What is it?")
    assert [role for role, _ in said(view)] == ["system", "user", "tool", "tool"]
    shape = shape_of(view, "chat", TrafficClass.INTERACTIVE)
    assert shape.prompt_characters == len("One.\nTwo.What is it?42plain")


def test_odd_tool_results_are_left_to_the_engine() -> None:
    view = read(messages=[{"role": "user", "content": [{"type": "tool_result", "content": {"odd": 1}}]}])
    assert said(view) == [("tool", None)]


@pytest.mark.parametrize(
    ("config", "kind"), [({"format": {"type": "json_schema", "schema": {}}}, "json_schema"), ({}, None), (None, None)]
)
def test_a_fixed_format_is_seen(config: Any, kind: str | None) -> None:
    assert features_of(PATH, read(output_config=config)).response_format == kind


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"content": "hi"}]}, "messages"),
        ({"system": 3}, "system"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"metadata": "u"}, "metadata"),
    ],
)
def test_an_impossible_field_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidField, match=f"'{param}") as caught:
        read(**fields)
    assert caught.value.param == param


def test_messages_keep_their_order_and_roles() -> None:
    view = read(messages=[*HI, {"role": "assistant", "content": "ho"}, {"role": "user", "content": [{"text": "and?"}]}])
    assert said(view) == [("user", "hi"), ("assistant", "ho"), ("user", ["and?"])]
    assert all(isinstance(message, Message) for message in view.messages or ())


def delta(**fields: Any) -> bytes:
    return event(type="content_block_delta", index=0, delta=fields)


@pytest.mark.parametrize(
    ("payload", "content"),
    [
        (delta(type="text_delta", text="a"), True),
        (delta(type="thinking_delta", thinking="hm"), True),
        (delta(type="input_json_delta", partial_json='{"a'), True),
        (event(type="content_block_start", index=0, content_block={"type": "tool_use", "name": "f"}), True),
        (delta(type="text_delta", text=""), False),
        (delta(type="signature_delta", signature="s"), False),
        (event(type="content_block_delta"), False),
        (event(type="content_block_start", index=0, content_block={"type": "text", "text": ""}), False),
        (event(type="content_block_start"), False),
        (event(type="message_start", message={"content": []}), False),
        (event(type="ping"), False),
        (event(type="message_delta", delta={"stop_reason": "end_turn"}), False),
        (event(type="message_stop"), False),
        (event(type=3), False),
        (b"[1]", False),
        (b"\xff", False),
        (b"[" * 100_000, False),
    ],
)
def test_text_thinking_and_tools_are_content(payload: bytes, content: bool) -> None:
    assert has_content(payload) is content


START = event(type="message_start", message={"usage": {"input_tokens": 5, "cache_read_input_tokens": 2}})
DELTA = event(type="message_delta", delta={}, usage={"output_tokens": 7})


@pytest.mark.parametrize(
    ("payloads", "tokens"),
    [
        ([event(usage={"input_tokens": 3, "output_tokens": 4})], (3, 4)),
        ([event(usage={"input_tokens": 3, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 1})], (6, None)),
        ([START, DELTA, event(type="message_stop")], (7, 7)),
        ([START, START, DELTA], (7, 7)),
        ([event(type="message_start", message={"usage": {"input_tokens": 0, "output_tokens": 0}}), DELTA], (None, 7)),
        ([START, event(usage={"input_tokens": 9, "output_tokens": 7})], (9, 7)),
        ([DELTA], (None, 7)),
        ([event(type="message_start", message={}), event(usage=None)], (None, None)),
        ([event(usage={"input_tokens": -1, "output_tokens": 2**60}), b"\xff"], (None, None)),
        ([], (None, None)),
    ],
)
def test_tokens_are_counted_from_all_that_says_them(
    payloads: list[bytes], tokens: tuple[int | None, int | None]
) -> None:
    assert count_tokens(tuple(payloads)) == tokens

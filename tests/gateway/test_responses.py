"""OpenAI's Responses dialect: requests read as completions do, and events say what they are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slipstream.core.errors import InvalidField
from slipstream.core.request import TrafficClass
from slipstream.gateway.body import features_of, shape_of, traffic_class_of
from slipstream.gateway.responses import count_tokens, has_content, read_responses, response_id, response_of_path
from slipstream.gateway.view import RequestView

PATH = "/v1/responses"


def read(**fields: Any) -> RequestView:
    return read_responses(json.dumps({"model": "m", "input": "hi", **fields}).encode())


def event(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_what_routing_needs_is_read() -> None:
    view = read(
        stream=True, instructions="Be brief.", max_output_tokens=9, tools=[{"type": "function"}], service_tier="flex",
        user="u", prompt_cache_key="c", previous_response_id="resp_1", reasoning={"effort": "low"},
    )  # fmt: skip
    assert (view.user, view.prompt_cache_key, view.previous_response_id) == ("u", "c", "resp_1")
    assert traffic_class_of(view) is TrafficClass.BULK
    shape = shape_of(view, "chat", TrafficClass.BULK)
    assert (shape.output_limit, shape.streamed, shape.sequences, shape.prompt_characters) == (9, True, 1, 11)
    features = features_of(PATH, view)
    assert (features.has_tools, features.system, features.user) == (True, "Be brief.", "hi")


def test_items_are_read_for_their_text_and_a_tools_output_is_no_users_word() -> None:
    view = read(
        input=[
            {"role": "developer", "content": "System."},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What?"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "x"}], "odd": [{}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Which one?"}]},
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "42"},
            {"type": "function_call_output", "call_id": "c", "output": {"odd": 1}},
            {"type": "item_reference", "id": "i"},
        ]
    )
    features = features_of(PATH, view)
    assert (features.system, features.user) == ("System.", "Which one?")
    assert [message.role for message in view.messages or ()] == ["developer", "user", "user", "user", "tool", "tool"]
    assert shape_of(view, "chat", TrafficClass.INTERACTIVE).prompt_characters == len("System.What?Which one?42")


def test_items_without_any_text_are_no_mistake() -> None:
    features = features_of(PATH, read(input=[{"type": "item_reference", "id": "i"}]))
    assert (features.system, features.user) == ("", "")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ({"format": {"type": "json_schema", "name": "n", "schema": {}}}, "json_schema"),
        ({"format": {"type": "text"}}, None),
        ({"verbosity": "low"}, None),
        (None, None),
    ],
)
def test_a_fixed_format_is_seen(text: Any, kind: str | None) -> None:
    assert features_of(PATH, read(text=text)).response_format == kind


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ""}, "model"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": ["hi"]}, "input"),
        ({"instructions": 3}, "instructions"),
        ({"previous_response_id": 3}, "previous_response_id"),
        ({"max_output_tokens": "9"}, "max_output_tokens"),
    ],
)
def test_an_impossible_field_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidField, match=f"'{param}") as caught:
        read(**fields)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("payload", "content"),
    [
        (event(type="response.output_text.delta", delta="a"), True),
        (event(type="response.reasoning_text.delta", delta="a"), True),
        (event(type="response.reasoning_summary_text.delta", delta="a"), True),
        (event(type="response.refusal.delta", delta="a"), True),
        (event(type="response.function_call_arguments.delta", delta="{"), True),
        (event(type="response.output_item.added", item={"type": "function_call", "name": "f"}), True),
        (event(type="response.output_text.delta", delta=""), False),
        (event(type="response.output_text.delta"), False),
        (event(type="response.output_item.added", item={"type": "message", "content": []}), False),
        (event(type="response.output_item.added"), False),
        (event(type="response.created", response={"id": "r"}), False),
        (event(type="response.output_text.done", text="a"), False),
        (event(type="response.completed", response={}), False),
        (event(delta="a"), False),
        (event(type=3), False),
        (b"[1]", False),
        (b"\xff", False),
        (b"[" * 100_000, False),
    ],
)
def test_deltas_and_calls_are_content(payload: bytes, content: bool) -> None:
    assert has_content(payload) is content


USAGE = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "input_tokens_details": {"cached_tokens": 2}}


@pytest.mark.parametrize(
    ("payloads", "tokens"),
    [
        ([event(id="r", object="response", usage=USAGE)], (3, 4)),
        (
            [event(type="response.output_item.done"), event(type="response.completed", response={"usage": USAGE})],
            (3, 4),
        ),
        ([event(type="response.completed", response={"usage": USAGE}), event(type="x", response={"id": "r"})], (3, 4)),
        ([event(type="response.failed", response={"usage": None})], (None, None)),
        ([event(usage={"input_tokens": -3})], (None, None)),
        ([b"\xff"], (None, None)),
        ([], (None, None)),
    ],
)
def test_tokens_are_counted_from_the_last_that_says_them(
    payloads: list[bytes], tokens: tuple[int | None, int | None]
) -> None:
    assert count_tokens(tuple(payloads)) == tokens


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        (event(id="resp_1", object="response"), "resp_1"),
        (event(type="response.created", response={"id": "resp_1"}), "resp_1"),
        (event(type="response.output_text.delta", delta="a", item_id="msg_1"), None),
        (event(id=""), None),
        (event(id="r" * 257), None),
        (event(id=3), None),
        (b"\xff", None),
    ],
)
def test_an_answers_id_is_found_in_a_whole_answer_and_in_an_event_that_holds_one(payload: bytes, found: str) -> None:
    assert response_id(payload) == found


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/v1/responses/resp_1", "resp_1"),
        ("/v1/responses/resp_1/cancel", "resp_1"),
        ("/v1/responses/resp_1/input_items", "resp_1"),
        ("/v1/responses", None),
        ("/v1/responses/", None),
        ("/v1/responses/resp_1/tool_outputs", "resp_1"),
        ("/v1/responses/input_tokens", None),
        ("/v1/responses/compact", None),
        ("/v1/responses/compacted", "compacted"),
        (f"/v1/responses/{'r' * 257}", None),
        ("/v1/responsesx/resp_1", None),
    ],
)
def test_paths_of_one_response_are_known(path: str, found: str | None) -> None:
    assert response_of_path(path) == found

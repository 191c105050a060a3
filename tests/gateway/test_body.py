import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstream.core.category import WINDOW_CHARACTERS
from slipstream.core.errors import InvalidBody, InvalidField, RequestError
from slipstream.core.request import Pool, TrafficClass
from slipstream.gateway.body import MAX_CHOICES, features_of, shape_of, traffic_class_of
from slipstream.gateway.dialect import DIALECTS
from slipstream.gateway.fields import RequestFields, decode_fields
from slipstream.gateway.view import RequestView

CHAT = "/v1/chat/completions"
PLAIN = "/v1/completions"


def read_body(path: str, body: bytes) -> RequestView:
    return DIALECTS[path].read(body)


def encode(**fields: Any) -> bytes:
    return json.dumps({"model": "m", **fields}).encode()


def chat(**fields: Any) -> RequestView:
    return read_body(CHAT, encode(**{"messages": [{"role": "user", "content": "hi"}], **fields}))


def plain(prompt: Any, **fields: Any) -> RequestView:
    return read_body(PLAIN, encode(prompt=prompt, **fields))


def shape(view: RequestView) -> Any:
    return shape_of(view, "chat", TrafficClass.INTERACTIVE)


def test_reads_what_routing_needs_and_skips_the_rest() -> None:
    view = chat(stream=True, stream_options={"include_usage": True}, temperature=0.7, metadata={"deep": [[{}]]}, seed=1)
    assert (view.model, view.stream) == ("m", True)
    assert view.stream_options is not None
    assert view.stream_options.include_usage is True
    assert view.messages is not None
    assert view.messages[0].content == "hi"


def test_a_view_has_each_field_under_its_own_name() -> None:
    numbers = [name for name in RequestFields.__struct_fields__ if name.startswith(("max_", "n", "best_"))]
    raws = ["logit_bias", "json_schema", "grammar", "structured_outputs"]
    raws += [name for name in RequestFields.__struct_fields__ if name.startswith("guided_")]
    texts = ["model", "prompt", "service_tier", "user", "prompt_cache_key", "previous_response_id"]
    body: dict[str, Any] = {name: place for place, name in enumerate([*numbers, *raws], 1)} | {
        name: name for name in texts
    }
    body |= {"messages": [{"role": "user"}], "stream": True, "stream_options": {}, "tools": [{}], "min_p": 0.5}
    fields = decode_fields(json.dumps(body | {"response_format": {"type": "text"}}).encode())
    view = RequestView(fields)
    for name in RequestFields.__struct_fields__:
        assert getattr(fields, name) is not None, name
        assert getattr(view, name) is getattr(fields, name), name


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"{", b"\x00", b"not json", b"[]", b'"text"', b"null", b"12", b'{"model":"m"} x', b"\xef\xbb\xbf{}",
        b'{"model":"\xff"}', b'{"model":"m","unknown":"\xff"}', b'{"model":"m","\xff":1}', b'{"model":"a\x00b"}',
        rb'{"model":"\ud800"}', rb'{"model":"m","unknown":"\ud800"}', b'{"model":"m","logit_bias":NaN}',
        b"[" * 1_000_000, b'{"unknown":' + b"[" * 1_000_000, b'{"logit_bias":' + b"[" * 1_000_000, b'{"a":' * 200_000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", sorted(DIALECTS))
def test_bytes_that_are_no_json_object_are_an_invalid_body(path: str, body: bytes) -> None:
    with pytest.raises(InvalidBody) as caught:
        read_body(path, body)
    assert caught.value.param is None
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": {"role": "user"}}, "messages"),
        ({"messages": ["hi"]}, "messages"),
        ({"messages": [{"content": "hi"}]}, "messages"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}, "messages"),
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"model": 3}, "model"),
        ({"stream": "true"}, "stream"),
        ({"n": 0}, "n"),
        ({"n": -1}, "n"),
        ({"n": MAX_CHOICES + 1}, "n"),
        ({"n": 10**30}, "n"),
        ({"n": "2"}, "n"),
        ({"n": True}, "n"),
        ({"best_of": 0}, "best_of"),
        ({"best_of": 10**6}, "best_of"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"max_completion_tokens": 1.5}, "max_completion_tokens"),
        ({"service_tier": 1}, "service_tier"),
        ({"tools": {"type": "function"}}, "tools"),
        ({"tools": ["function"]}, "tools"),
        ({"response_format": "json"}, "response_format"),
        ({"min_p": "0.1"}, "min_p"),
    ],
)
def test_impossible_field_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidField, match=f"'{param}") as caught:
        chat(**fields)
    assert caught.value.param == param
    assert "`" not in str(caught.value)


@pytest.mark.parametrize("choices", [{}, {"n": 2}, {"n": 1, "best_of": 512}])
def test_prompts_times_choices_are_limited(choices: dict[str, int]) -> None:
    most = MAX_CHOICES // max(choices.values(), default=1)
    plain(["a"] * most, **choices)
    with pytest.raises(InvalidField, match="'prompt'") as caught:
        plain(["a"] * (most + 1), **choices)
    assert caught.value.param == "prompt"


def test_a_prompt_of_many_tokens_is_one_prompt() -> None:
    plain([1] * (MAX_CHOICES + 1))


@pytest.mark.parametrize("prompt", [None, [], 5, {"text": "hi"}, ["a", 1], [[1], "a"], [1, [2]], [["a"]]])
def test_impossible_prompt_is_named(prompt: Any) -> None:
    with pytest.raises(InvalidField, match="'prompt") as caught:
        plain(prompt)
    assert caught.value.param == "prompt"


def test_missing_model_and_messages_say_what_to_send() -> None:
    with pytest.raises(InvalidField, match="'model' is missing: name the model to use"):
        read_body(CHAT, b'{"messages":[{"role":"user","content":"hi"}]}')
    with pytest.raises(InvalidField, match="'messages' must be a list with at least one message"):
        read_body(CHAT, b'{"model":"m"}')


def test_wrong_type_is_told_in_the_words_of_json() -> None:
    with pytest.raises(InvalidField, match=r"^The field 'n' is wrong: expected an integer, got a string\.$"):
        chat(n="2")
    with pytest.raises(InvalidField, match=r"'messages\[0\].content' is wrong: expected a string or a list, got"):
        chat(messages=[{"role": "user", "content": 5}])


def test_a_path_ignores_the_other_ones_input() -> None:
    messages = [{"role": "user", "content": "hi"}]
    assert chat(prompt=["a", "b"]).prompt is None
    assert chat(prompt=[]).prompt is None
    assert plain("a", messages=messages).messages is None


def test_last_of_a_duplicate_key_counts() -> None:
    assert read_body(PLAIN, b'{"model":"a","model":"b","prompt":"hi"}').model == "b"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=8,
)


def only_request_errors(path: str, body: bytes) -> None:
    try:
        view = read_body(path, body)
    except RequestError:
        return
    features_of(path, view)
    assert shape(view).sequences >= 1


FIELDS = [*RequestFields.__struct_fields__, "input", "instructions", "text", "system", "metadata", "output_config"]


@given(st.sampled_from(sorted(DIALECTS)), st.binary())
def test_random_bytes_raise_only_request_errors(path: str, body: bytes) -> None:
    only_request_errors(path, body)


@pytest.mark.no_cover
# How fast a busy machine makes the input is not what this is about.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(sorted(DIALECTS)),
    st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=6),
)
def test_random_fields_raise_only_request_errors(path: str, fields: dict[str, Any]) -> None:
    only_request_errors(
        path, json.dumps({"model": "m", "messages": [{"role": "user"}], "input": "a", **fields}).encode()
    )


@given(st.data())
def test_a_damaged_body_raises_only_request_errors(data: st.DataObject) -> None:
    body = bytearray(
        encode(messages=[{"role": "user", "content": [{"type": "text", "text": "häy"}]}], n=2, stream=True)
    )
    at = data.draw(st.integers(0, len(body) - 1))
    body[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    only_request_errors(CHAT, bytes(body))


@pytest.mark.parametrize(
    ("view", "sequences"),
    [
        (chat(), 1),
        (chat(n=3), 3),
        (chat(n=2, best_of=5), 5),
        (plain("a"), 1),
        (plain(["a", "b", "c"]), 3),
        (plain(["a", "b"], n=4), 8),
        (plain([1, 2, 3]), 1),
        (plain([[1, 2], [3]]), 2),
    ],
)
def test_sequences_are_choices_times_prompts(view: RequestView, sequences: int) -> None:
    assert shape(view).sequences == sequences


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({}, None),
        ({"max_tokens": 9}, 9),
        ({"max_tokens": 9, "max_completion_tokens": 7, "max_output_tokens": 8}, 7),
        ({"max_output_tokens": 0}, 0),
        ({"max_tokens": -1}, None),
        ({"max_tokens": -1, "max_completion_tokens": 5}, 5),
    ],
)
def test_output_limit_is_the_least_one_set(fields: dict[str, int], limit: int | None) -> None:
    assert shape(chat(**fields)).output_limit == limit


@pytest.mark.parametrize(
    ("view", "characters"),
    [
        (chat(), 2),
        (chat(messages=[{"role": "system", "content": "abc"}, {"role": "user", "content": [{"text": "de"}, {}]}]), 5),
        (chat(messages=[{"role": "assistant", "content": None}]), 0),
        (plain("abcd"), 4),
        (plain(["ab", "c"]), 3),
        (plain([1, 2]), None),
        (plain([[1], [2]]), None),
    ],
)
def test_prompt_characters_count_text_and_are_unknown_for_tokens(view: RequestView, characters: int | None) -> None:
    assert shape(view).prompt_characters == characters


@pytest.mark.parametrize(
    ("fields", "features"),
    [
        ({}, set()),
        ({"min_p": 0.1}, {"min_p"}),
        ({"logit_bias": {"50256": -100}}, {"logit_bias"}),
        ({"min_p": 0.1, "logit_bias": [[15043, 1.0]]}, {"min_p", "logit_bias"}),
        ({"min_p": 0, "logit_bias": {}}, set()),
        ({"min_p": None, "logit_bias": None}, set()),
    ],
)
def test_features_are_those_that_change_sampling(fields: dict[str, Any], features: set[str]) -> None:
    assert shape(chat(**fields)).features == features


def test_shape_carries_what_it_is_given() -> None:
    made = shape_of(chat(stream=True), "code", TrafficClass.BULK, Pool.STANDARD)
    assert (made.model, made.category, made.traffic_class, made.pinned_pool, made.streamed) == (
        "m",
        "code",
        TrafficClass.BULK,
        Pool.STANDARD,
        True,
    )
    assert shape(chat()).pinned_pool is None
    assert shape(chat(stream=False)).streamed is False


@pytest.mark.parametrize(
    ("tier", "expected"),
    [("flex", TrafficClass.BULK), ("auto", TrafficClass.INTERACTIVE), (None, TrafficClass.INTERACTIVE)],
)
def test_flex_service_tier_is_bulk(tier: str | None, expected: TrafficClass) -> None:
    assert traffic_class_of(chat(service_tier=tier)) is expected


def test_features_see_the_last_user_message_and_the_first_system_prompt() -> None:
    view = chat(
        messages=[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": "first"},
            {"role": "assistant", "content": "yes"},
            {
                "role": "user",
                "content": ["last", {"type": "text", "text": "one"}, {"type": "image_url", "image_url": {}}],
            },
            {"role": "tool", "content": "42"},
            {"role": "system", "content": "late"},
        ],
        tools=[{"type": "function", "function": {"name": "f"}}],
    )
    seen = features_of(CHAT, view)
    assert seen.user == "last\none"
    assert seen.system == "be brief"
    assert (seen.path, seen.model, seen.has_tools, seen.user_characters) == (CHAT, "m", True, 8)


def test_features_of_a_conversation_without_user_are_empty() -> None:
    seen = features_of(CHAT, chat(messages=[{"role": "assistant", "content": "hi"}], tools=[]))
    assert (seen.user, seen.system, seen.user_characters, seen.has_tools) == ("", "", 0, False)


@pytest.mark.parametrize(
    ("prompt", "user"), [("text", "text"), (["first", "second"], "first"), ([1, 2], ""), ([[1]], "")]
)
def test_features_of_a_plain_prompt(prompt: Any, user: str) -> None:
    assert features_of(PLAIN, plain(prompt)).user == user


def test_features_hold_only_the_ends_of_a_long_message() -> None:
    text = "a" * WINDOW_CHARACTERS + "lost" + "b" * WINDOW_CHARACTERS
    seen = features_of(CHAT, chat(messages=[{"role": "user", "content": text}]))
    assert "lost" not in seen.user
    assert seen.user_characters == len(text)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, "json_object"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "json_schema"),
        ({"guided_json": {"type": "object"}}, "json_schema"),
        ({"json_schema": {}}, "json_schema"),
        ({"guided_regex": "a+"}, "grammar"),
        ({"guided_choice": ["a", "b"]}, "grammar"),
        ({"guided_grammar": "root ::= a"}, "grammar"),
        ({"grammar": "root ::= a"}, "grammar"),
        ({"structured_outputs": {"regex": "a+"}}, "grammar"),
    ],
)
def test_kind_of_output_is_read_from_every_engines_field(fields: dict[str, Any], kind: str | None) -> None:
    assert features_of(CHAT, chat(**fields)).response_format == kind

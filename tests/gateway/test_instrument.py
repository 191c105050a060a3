"""What is added to a request comes out of its answer again, and nothing else does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.node import Instrument
from slipstream.engines.added_field import INCLUDE_USAGE, AddedField
from slipstream.engines.catalogue import ENGINES, added_fields
from slipstream.gateway.instrument import MOST_MEMBERS, AddedEvents, with_fields, without_members
from slipstream.gateway.sse import EventStream

DETAILS = added_fields("sglang", Instrument.ENGINE)[1]
BOTH = (INCLUDE_USAGE, DETAILS)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["model", "stream", "messages", "stream_options", "return_hidden_states", "sglext", "choices"])
OBJECTS = st.dictionaries(NAMES | st.text(max_size=6), VALUES, min_size=1, max_size=5)
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n ", " :\t")])
PADDING = st.text("\n\r\t ", max_size=3).map(str.encode)


def dumped(value: Any, separators: tuple[str, str], ascii_only: bool) -> bytes:
    return json.dumps(value, separators=separators, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


BODIES = st.builds(dumped, OBJECTS, SEPARATORS, st.booleans())


def data(event: dict[str, Any], end: bytes = b"\n\n") -> bytes:
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + end


# Splicing


@pytest.mark.no_cover
@given(OBJECTS, SEPARATORS, PADDING, st.booleans())
def test_fields_are_spliced_into_any_object_and_its_bytes_stay(
    members: dict[str, Any], separators: tuple[str, str], padding: bytes, streamed: bool
) -> None:
    body = dumped(members, separators, ascii_only=True) + padding
    spliced, added = with_fields(body, BOTH, streamed=streamed)
    names = [field.name for field in added]
    assert ("stream_options" in names) == (streamed and "stream_options" not in members)
    assert ("return_spec_tokens_details" in names) == (not any(name.startswith("return_") for name in members))
    assert json.loads(spliced) == members | {field.name: json.loads(field.value) for field in added}
    head = body.rstrip()[:-1]
    assert spliced.startswith(head)
    assert spliced.endswith(b"}" + padding)
    if not added:
        assert spliced is body


@pytest.mark.parametrize(
    "given_options",
    [b"null", b"{}", b'{"include_usage":false}', b'{"include_usage":true}', b'{"continuous_usage_stats":true}'],
)
def test_stream_options_of_the_client_are_left_alone(given_options: bytes) -> None:
    body = b'{"model":"m","stream":true,"stream_options":%b}' % given_options
    assert with_fields(body, (INCLUDE_USAGE,), streamed=True) == (body, ())


def test_a_field_is_the_clients_however_its_name_is_spelled() -> None:
    body = rb'{"model":"m","stream\u005foptions":{}}'
    assert with_fields(body, (INCLUDE_USAGE,), streamed=True) == (body, ())


def test_a_name_deeper_in_the_body_is_no_field_of_it() -> None:
    body = b'{"messages":[{"stream_options":1,"content":"\\"stream_options\\""}]}'
    assert with_fields(body, (INCLUDE_USAGE,), streamed=True)[1] == (INCLUDE_USAGE,)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"null", b'{"a":', b'{"a":1}x', b'{"x":' * 100_000])
def test_what_is_no_object_with_members_stays_as_it_is(body: bytes) -> None:
    assert with_fields(body, BOTH, streamed=True) == (body, ())


@pytest.mark.parametrize("text", ['"stream_options"', "\\u0041", '"return_'])
def test_a_long_body_that_would_have_to_be_read_stays_as_it_is(text: str) -> None:
    spelled = text if text.startswith("\\") else json.dumps([text])
    inside = b'{"x":[%b,"%b"]}' % (json.dumps({text.strip('"'): 1}).encode(), b"a" * 300_000)
    body = inside if text.startswith('"') else b'{"x":"%b%b"}' % (spelled.encode(), b"a" * 300_000)
    assert with_fields(body, BOTH, streamed=True) == (body, ())
    plain = b'{"x":"%b"}' % (b"a" * 300_000)
    assert with_fields(plain, BOTH, streamed=True)[1] == BOTH


# Streams

USAGE: dict[str, Any] = {"id": "1", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
EXTENSION: dict[str, Any] = {
    "id": "1",
    "choices": [],
    "usage": None,
    "sglext": {"spec_tokens_details": {"spec_verify_ct": 1}},
}
DONE = b"data: [DONE]\n\n"

CONTENT = st.sampled_from(
    [
        {"choices": [{"delta": {"content": 'a "choices":[] b'}}], "usage": None},
        {"choices": [{"delta": {"content": "é"}}]},
        {"choices": [], "usage": None},
        {"choices": []},
        {"choices": [{"delta": {}}], "usage": {"completion_tokens": 4}},
        {"error": {"message": "no"}, "usage": {"completion_tokens": 4}},
    ]
)
EVENTS = st.builds(data, CONTENT, st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"])) | st.sampled_from(
    [b": ping\n\n", b"event: x\ndata: 1\n\n", b'data: {"choices":[]\ndata: }\n\n', b"data: {\n\n"]
)


@given(st.lists(EVENTS), st.integers(0, 2), st.data())
def test_a_client_sees_the_stream_that_it_would_have_seen_without(
    events: list[bytes], added: int, choose: st.DataObject
) -> None:
    plain = b"".join(events) + DONE
    extra = b"".join((b"", data(USAGE), data(EXTENSION) + data(USAGE))[: added + 1][-1:])
    stream = b"".join(events) + extra + DONE
    cuts = sorted(choose.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    framing, cutting = EventStream(None), AddedEvents((BOTH[:0], BOTH[:1], BOTH)[added])
    seen = b"".join(cutting.feed(framing.feed(piece, 0.0)) for piece in pieces if piece)
    assert seen + cutting.held + framing.held == plain
    assert framing.terminated


def test_a_block_without_an_added_event_is_returned_itself() -> None:
    block = data({"choices": [{"delta": {"content": "a"}}], "usage": None})
    assert AddedEvents(BOTH).feed(block) is block
    empty = data({"choices": [], "usage": None})
    assert AddedEvents(BOTH).feed(empty) is empty


def test_usage_that_the_client_asked_for_stays() -> None:
    both = data(EXTENSION | USAGE)
    assert AddedEvents((DETAILS,)).feed(data(USAGE)) == data(USAGE)
    assert AddedEvents((DETAILS,)).feed(data(EXTENSION)) == b""
    assert AddedEvents((DETAILS,)).feed(both) == both


VLLM_USAGE = added_fields("vllm", Instrument.USAGE)
FINGERPRINT = {"system_fingerprint": "vllm-1"}


def last(index: int, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": {}, "finish_reason": "stop"}], **more}


@given(st.lists(EVENTS), st.integers(1, 3), st.data())
def test_what_the_engine_puts_on_the_last_chunk_is_on_the_last_that_the_client_sees(
    events: list[bytes], choices: int, choose: st.DataObject
) -> None:
    ends = [data(last(index)) for index in range(choices)]
    plain = b"".join((*events, *ends[:-1], data(last(choices - 1, **FINGERPRINT)), DONE))
    stream = b"".join((*events, *ends, data(USAGE | FINGERPRINT), DONE))
    cuts = sorted(choose.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    framing, cutting = EventStream(None), AddedEvents(VLLM_USAGE)
    assert b"".join(cutting.feed(framing.feed(piece, 0.0)) for piece in pieces if piece) == plain
    assert cutting.held == b""


def test_an_event_that_may_be_the_last_waits_for_the_next() -> None:
    cutting = AddedEvents(VLLM_USAGE)
    end = data(last(0))
    assert cutting.feed(end) == b""
    assert cutting.held == end
    assert cutting.feed(data({"error": {}})) == end + data({"error": {}})
    assert cutting.feed(end) == b""
    assert cutting.feed(data(USAGE)) == b""  # nothing to move
    assert cutting.held == end
    assert cutting.feed(DONE) == end + DONE


@pytest.mark.parametrize("end", [b'data: {"finish_reason":"stop"\n\n', b'data: {"finish_reason": "stop"}\ndata:\n\n'])
def test_an_event_that_is_no_object_gets_nothing(end: bytes) -> None:
    cutting = AddedEvents(VLLM_USAGE)
    assert cutting.feed(end + data(USAGE | FINGERPRINT) + DONE) == end + DONE


# Answers that are not streamed


@pytest.mark.no_cover
@given(OBJECTS, st.integers(0, 5), SEPARATORS, VALUES)
def test_a_client_sees_the_body_that_it_would_have_seen_without(
    members: dict[str, Any], place: int, separators: tuple[str, str], value: Any
) -> None:
    members.pop("sglext", None)
    names = list(members)
    names.insert(place, "sglext")
    whole = {name: {"deep": {"sglext": value}, "x": value} if name == "sglext" else members[name] for name in names}
    body = dumped(whole, separators, ascii_only=False)
    left = without_members(body, BOTH)
    assert json.loads(left) == members
    if names[-1] == "sglext" and len(names) > 1:
        assert left == dumped(members, separators, ascii_only=False)


@pytest.mark.no_cover
@given(BODIES)
def test_a_body_without_such_a_member_is_returned_itself(body: bytes) -> None:
    if "sglext" not in json.loads(body):
        assert without_members(body, BOTH) is body


def test_only_the_member_of_the_top_level_is_cut() -> None:
    same = b'"sglext":{"a":1}'
    body = b'{"choices":[{%b}],%b,"usage":{%b}}' % (same, same, same)
    assert without_members(body, (DETAILS,)) == b'{"choices":[{%b}],"usage":{%b}}' % (same, same)
    assert without_members(b"{" + same + b"}", (DETAILS,)) == b"{}"


def test_a_name_that_stands_deeper_ever_so_often_costs_no_more_than_reading_the_answer() -> None:
    deeper = b'"choices":[%b{}]' % (b'{"sglext":1},' * 200_000)
    assert without_members(b'{"sglext":1,%b}' % deeper, (DETAILS,)) == b"{%b}" % deeper
    assert without_members(b'{ %b , "sglext" : 1 }' % deeper, (DETAILS,)) == b"{ %b }" % deeper


@pytest.mark.parametrize(
    "body",
    [
        b'{"sglext":1,"a":2,"sglext":3}',
        b'{"sglext":1,"sglext":1}',
        b'{"a":1,"a":2,"sglext":3}',
        b'{%b"sglext":3}' % b"".join(b'"a%d":1,' % number for number in range(MOST_MEMBERS)),
    ],
)
def test_an_answer_that_no_engine_would_give_stays_as_it_is(body: bytes) -> None:
    assert without_members(body, (DETAILS,)) is body


def test_a_member_that_only_streams_would_have_stays() -> None:
    body = b'{"choices":[],"usage":{"completion_tokens":1}}'
    assert without_members(body, (INCLUDE_USAGE,)) is body


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"sglext":', b"[1]"])
def test_a_body_that_is_no_object_is_returned_itself(body: bytes) -> None:
    assert without_members(body, BOTH) is body


def test_a_member_whose_name_is_spelled_with_escapes_stays() -> None:
    body = rb'{"a":1,"sgl\u0065xt":{}}'
    assert without_members(body, BOTH) is body


# Which fields


@pytest.mark.parametrize(
    ("engine", "usage", "own"),
    [
        ("vllm", VLLM_USAGE, VLLM_USAGE),
        ("sglang", (INCLUDE_USAGE,), BOTH),
        ("trtllm", (INCLUDE_USAGE,), (INCLUDE_USAGE,)),
        ("llamacpp", (), ()),
        ("other", (), ()),
        (None, (), ()),
    ],
)
def test_each_engine_is_asked_in_its_own_way(
    engine: str | None, usage: tuple[AddedField, ...], own: tuple[AddedField, ...]
) -> None:
    assert added_fields(engine, Instrument.OFF) == ()
    assert added_fields(engine, Instrument.USAGE) == usage
    assert added_fields(engine, Instrument.ENGINE) == own


def test_no_engine_is_asked_anything_when_off() -> None:
    assert [engine.name for engine in ENGINES.values() if Instrument.OFF in engine.instruments] == []

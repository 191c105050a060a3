"""However the bytes of an answer are cut on arrival, a client reads the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.load import StreamedAnswer, WholeAnswer, error_sentence

ROLE = {"choices": [{"delta": {"role": "assistant", "content": None}}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}}
DONE = b"data: [DONE]"


def token(text: str) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


def events(*payloads: object, line_end: bytes = b"\n", done: bool = True) -> bytes:
    lines = [b"data: " + json.dumps(payload, ensure_ascii=False).encode() for payload in payloads]
    return b"".join(line + 2 * line_end for line in [*lines, *[DONE] * done])


def read(*pieces: bytes) -> StreamedAnswer:
    """Pieces arrive at 1, 2, 3 … seconds."""
    answer = StreamedAnswer()
    for number, piece in enumerate(pieces, start=1):
        answer.feed(piece, float(number))
    answer.end(float(len(pieces) + 1))
    return answer


def seen(answer: StreamedAnswer) -> tuple[int | None, int | None, str | None, bool]:
    return answer.prompt_tokens, answer.output_tokens, answer.error, answer.first_token_at is None


STREAMS: dict[str, Callable[[bytes], bytes]] = {
    "whole": lambda end: events(ROLE, token("Grüße"), token("!"), USAGE, line_end=end),
    "no usage": lambda end: events(ROLE, token("a"), line_end=end),
    "cut short": lambda end: events(ROLE, token("a"), line_end=end, done=False),
    "broken off inside an event": lambda end: events(ROLE, token("a"), line_end=end, done=False) + b'data: {"choi',
    "an error event": lambda end: events(token("a"), {"error": {"message": "the node was lost"}}, line_end=end),
    "comments and ids": lambda end: b": ping" + end + b"id: 7" + end + events(token("a"), USAGE, line_end=end),
    "an event of two lines": lambda end: b'data: {"choices":' + end + b"data: []}" + end * 2 + events(line_end=end),
    "garbage": lambda end: b"data: <html>" + end * 2 + events(token("a"), line_end=end),
    "nothing": lambda _end: b"",
}


@given(
    name=st.sampled_from(sorted(STREAMS)),
    line_end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    cuts=st.lists(st.integers(min_value=0, max_value=600)),
)
def test_any_cutting_of_a_stream_reads_the_same(name: str, line_end: bytes, cuts: list[int]) -> None:
    stream = STREAMS[name](line_end)
    places = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    pieces = [stream[start:end] for start, end in pairwise(places)]
    assert seen(read(*pieces)) == seen(read(stream))
    assert seen(read(*(stream[index : index + 1] for index in range(len(stream))))) == seen(read(stream))


def test_the_first_token_is_timed_when_its_event_is_complete_and_roles_are_no_tokens() -> None:
    first = events(token("a"), done=False)
    answer = read(events(ROLE, token(""), done=False), first[:-1], first[-1:], events(token("b"), USAGE))
    assert answer.first_token_at == 3.0
    assert seen(answer) == (11, 3, None, False)


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"tool_calls": [{"index": 0}]},
        {"function_call": {"name": "f"}},
        {"refusal": "no"},
    ],
)
def test_reasoning_tool_calls_and_refusals_are_output_too(delta: dict[str, object]) -> None:
    answer = read(events(ROLE), events({"choices": [{"delta": delta}]}))
    assert answer.first_token_at is None, "what comes behind the terminator does not count"
    answer = read(events(ROLE, done=False), events({"choices": [{"delta": delta}]}))
    assert answer.first_token_at == 2.0


def test_a_stream_without_usage_has_no_token_count() -> None:
    assert seen(read(STREAMS["no usage"](b"\n"))) == (None, None, None, False)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("cut short", "the stream ended before the answer was complete"),
        ("broken off inside an event", "the stream holds an event that is no JSON object of a completion"),
        ("an error event", "the node was lost"),
        ("garbage", "the stream holds an event that is no JSON object of a completion"),
        ("nothing", "the stream ended before the answer was complete"),
    ],
)
def test_an_answer_that_is_not_whole_is_an_error(name: str, error: str) -> None:
    assert read(STREAMS[name](b"\n")).error == error


def test_a_terminator_without_its_blank_line_is_one() -> None:
    assert read(events(token("a"), done=False) + DONE).error is None
    assert read(events(token("a"), done=False) + DONE + b"\r").error is None


def test_a_whole_answer_gives_its_tokens() -> None:
    answer = WholeAnswer(200, json.dumps({"choices": [{"message": {"content": "a"}}], **USAGE}).encode())
    assert (answer.error, answer.prompt_tokens, answer.output_tokens) == (None, 11, 3)
    answer = WholeAnswer(200, b'{"choices": []}')
    assert (answer.error, answer.prompt_tokens, answer.output_tokens) == (None, None, None)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (429, b'{"error": {"message": "all are full"}}', "status 429: all are full"),
        (503, b"{}", "status 503"),
        (502, b"<html>", "status 502 with a body that is no JSON object of a completion"),
        (200, b'{"error": "odd"}', "odd"),
        (200, b"\xff", "status 200 with a body that is no JSON object of a completion"),
    ],
)
def test_a_failed_answer_is_a_sentence(status: int, body: bytes, error: str) -> None:
    answer = WholeAnswer(status, body)
    assert answer.error == error
    assert answer.output_tokens is None


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        ({"message": "full"}, "full"),
        ("full", "full"),
        ({}, "an error without a message"),
        ("", "an error without a message"),
    ],
)
def test_error_objects_come_in_several_shapes(error: object, sentence: str) -> None:
    assert error_sentence(error) == sentence


def test_an_answer_nested_too_deep_to_read_is_an_error_and_no_crash() -> None:
    nested = b'{"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    assert "no JSON object of a completion" in (WholeAnswer(200, nested).error or "")
    stream = StreamedAnswer()
    stream.feed(b"data: " + nested + b"\n\n", 1.0)
    stream.end(2.0)
    assert "no JSON object of a completion" in (stream.error or "")


def test_the_last_two_events_are_kept_as_they_came() -> None:
    last = {"choices": [], "timings": {"draft_n": 4}}
    answer = read(events(ROLE, token("a"), USAGE, last))
    assert [json.loads(event) for event in answer.closing] == [USAGE, last]
    assert read(events(done=True)).closing == ()

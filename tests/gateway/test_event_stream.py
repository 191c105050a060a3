"""Server-sent events: any chunking of a stream parses the same."""

from __future__ import annotations

import re
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.gateway.content import has_content
from slipstream.gateway.dialect import DIALECTS, Dialect
from slipstream.gateway.framing import framed
from slipstream.gateway.sse import MAX_HELD_BYTES, EventStream, data_payloads, last_boundary

DATA = Path(__file__).parent / "data"
STREAMS = sorted(path.name for path in DATA.glob("*stream*.http"))


CHAT = DIALECTS["/v1/chat/completions"]
SIGNS = {"/v1/messages": rb'"text":"[^"]', "/v1/responses": rb'"delta":"[^"]'}
"""What only events with content have in the recordings, by path; completions have that of ``CONTENT_SIGN``."""
CONTENT_SIGN = rb'"(content|text)":"[^"]'


def path_of(name: str) -> str:
    """The path whose answer a recording is."""
    kind = name.split("-")[1]
    return f"/v1/{kind}" if f"/v1/{kind}" in DIALECTS else "/v1/chat/completions"


def recorded_body(name: str) -> bytes:
    return (DATA / name).read_bytes().replace(b"\r\n", b"\n").partition(b"\n\n")[2]


BODIES = {name: recorded_body(name) for name in STREAMS}


def cut(body: bytes, sizes: list[int]) -> list[bytes]:
    ends = [0, *(end for end in accumulate(sizes) if end < len(body)), len(body)]
    return [body[start:end] for start, end in pairwise(ends) if start < end]


def forwarded(pieces: list[bytes], dialect: Dialect = CHAT) -> tuple[list[bytes], EventStream, int | None]:
    """The blocks that came out, and the index of the piece that brought the first content.

    Each piece comes as one chunk, whose framing nobody takes off once that is not needed.
    """
    stream = EventStream(dialect)
    blocks: list[bytes] = []
    for index, piece in enumerate(pieces):
        if not stream.seeking and len(piece) > 1 and stream.note(framed(piece), framed(piece).index(b"\n") + 1):
            blocks.append(piece)
        else:
            blocks.append(stream.feed(piece, float(index)))
    first = None if stream.first_content_at is None else int(stream.first_content_at)
    return [block for block in blocks if block], stream, first


def payloads_read_plainly(events: bytes) -> list[bytes]:
    payloads: list[bytes] = []
    event: list[bytes] = []
    for line in re.split(rb"\r\n|\n|\r", events):
        if line[:5] == b"data:":
            event.append(re.sub(rb"^ ", b"", line[5:]))
        elif not line and event:
            payloads.append(b"\n".join(event))
            event.clear()
    return payloads


def first_content_end(name: str) -> int:
    """Where the first event with content ends, found the plain way."""
    sign = re.compile(SIGNS.get(path_of(name), CONTENT_SIGN))
    end = 0
    for event in BODIES[name].split(b"\n\n"):
        end += len(event) + 2
        if sign.search(event):
            return end
    raise AssertionError("the recording has no content")


@pytest.mark.no_cover
@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@given(sizes=st.lists(st.integers(1, 400), max_size=200))
def test_any_chunking_of_a_recorded_stream_gives_the_same_bytes_events_and_first_content(
    name: str, newline: bytes, sizes: list[int]
) -> None:
    dialect = DIALECTS[path_of(name)]
    body = BODIES[name].replace(b"\n", newline)
    pieces = cut(body, sizes)
    blocks, stream, first = forwarded(pieces, dialect)
    whole = EventStream(dialect)
    whole.feed(body, 0.0)
    sent = [payload for payload in data_payloads([body]) if payload != b"[DONE]"]

    assert b"".join(blocks) + stream.held == body
    assert stream.held in (b"", b"\n")  # a CR may or may not be the first half of a line's end
    assert all(block.rstrip(b"\r\n") != block for block in blocks)
    assert data_payloads(blocks) == data_payloads([body])
    assert stream.terminated
    assert stream.payloads()[-3:] == sent[-len(stream.payloads()[-3:]) :]
    if dialect.count_tokens is not None:
        assert stream.counting_payloads()[0] == sent[0]
        tokens = dialect.count_tokens(stream.counting_payloads())
        assert tokens == dialect.count_tokens(tuple(sent))
        assert None not in tokens
    assert (stream.answer_id is not None) == (dialect.identify is not None) == ('"resp_' in BODIES[name].decode())
    arrived = list(accumulate(map(len, pieces)))
    needed = first_content_end(name)
    needed_here = len(BODIES[name][:needed].replace(b"\n", newline))
    assert first is not None
    assert arrived[first] >= needed_here - len(newline) + 1
    assert first == 0 or arrived[first - 1] < needed_here


@pytest.mark.parametrize("name", STREAMS)
def test_single_bytes_give_whole_events_one_by_one(name: str) -> None:
    body = BODIES[name]
    blocks, _, _ = forwarded([body[index : index + 1] for index in range(len(body))], DIALECTS[path_of(name)])
    assert blocks == [event + b"\n\n" for event in body.split(b"\n\n")[:-1]]


LINES = st.sampled_from([b"data: 1", b"data:2", b"data", b"id: 3", b": note", b"", b"c6", b"data: x\x0by"])


@given(st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=8))
def test_the_framing_of_a_chunk_changes_nothing_of_what_its_events_say(lines: list[tuple[bytes, bytes]]) -> None:
    events = b"".join(line + end for line, end in lines) + b"\n\n"
    plainly = payloads_read_plainly(events)
    for block in (events, framed(events), events + b"\r\n"):
        assert data_payloads([block]) == plainly


def test_an_incomplete_event_is_held_back_and_what_came_before_it_is_not() -> None:
    stream = EventStream(CHAT)
    assert stream.feed(b"data: 1\n\ndata: 2", 0.0) == b"data: 1\n\n"
    assert stream.held == b"data: 2"
    assert stream.feed(b"\n", 0.0) == b""
    assert stream.feed(b"\ndata: 3\n", 0.0) == b"data: 2\n\n"
    assert not stream.terminated


def test_an_event_over_the_limit_is_let_through_in_parts_and_none_of_it_is_lost() -> None:
    stream = EventStream(CHAT)
    start = b"data: " + b"x" * (MAX_HELD_BYTES - 6)
    assert stream.feed(start, 0.0) == b""
    assert [stream.split] == [False]
    assert stream.feed(b"y", 0.0) == start + b"y"
    assert [stream.split] == [True]
    assert stream.feed(b"z\n\n", 0.0) == b"z\n\n"


@pytest.mark.parametrize(
    "end", [b"data: [DONE]\n\n", b"data:[DONE]\n\n", b"data: [DONE]\r\n\r\n", b"data: [DONE]\n", b"data: [DONE]"]
)
def test_the_terminator_is_known_in_every_spelling_and_even_without_its_blank_line(end: bytes) -> None:
    stream = EventStream(CHAT)
    stream.feed(b'data: {"choices":[]}\n\n' + end, 0.0)
    assert stream.terminated
    assert stream.payloads() == [b'{"choices":[]}']


@pytest.mark.parametrize(
    "text", [b"data: [DONE] \n\n", b"data: x[DONE]\n\n", b": [DONE]\n\n", b'data: {"a":"[DONE]"}\n\n', b""]
)
def test_what_only_looks_like_the_terminator_is_none(text: bytes) -> None:
    stream = EventStream(CHAT)
    stream.feed(text, 0.0)
    assert not stream.terminated


@pytest.mark.parametrize(
    ("path", "last"),
    [
        ("/v1/chat/completions", b'data: {"error":{"message":"x","code":500}}\n\n'),
        ("/v1/completions", b'data: {"error":"out of memory"}\n\n'),
        ("/v1/messages", b'event: message_stop\ndata: {"type":"message_stop"}\n\n'),
        ("/v1/messages", b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"x"}}\n\n'),
        ("/v1/messages", b'event: message_stop\ndata: {"type":"message_stop"}\n\ndata: [DONE]\n\n'),
        ("/v1/messages", b'event: message_stop\ndata: {"type":"message_stop"}'),
        ("/v1/responses", b'event: response.completed\ndata: {"type":"response.completed","response":{}}\n\n'),
        ("/v1/responses", b'event: response.incomplete\ndata: {"type":"response.incomplete","response":{}}\n\n'),
        ("/v1/responses", b'event: response.failed\ndata: {"type":"response.failed","response":{}}\n\n'),
        ("/v1/responses", b'event: error\ndata: {"type":"error","message":"x"}\n\n'),
    ],
)
def test_each_dialect_has_its_own_terminators(path: str, last: bytes) -> None:
    stream = EventStream(DIALECTS[path])
    stream.feed(b'data: {"type":"ping"}\n\n' + last, 0.0)
    assert stream.terminated
    chat = EventStream(CHAT)
    chat.feed(last, 0.0)
    assert chat.terminated == (b"[DONE]" in last or b"error" in last)


@pytest.mark.parametrize(
    ("path", "last"),
    [
        ("/v1/chat/completions", b'data: {"choices":[{"finish_reason":"stop"}],"error":null}\n\n'),
        ("/v1/chat/completions", b'data: {"choices":[{"delta":{"content":"error"}}]}\n\n'),
        ("/v1/chat/completions", b'data: {"error":{"message":"x"}'),
        ("/v1/messages", b'data: {"type":"message_delta","usage":{"output_tokens":3}}\n\n'),
        ("/v1/messages", b'event: message_stop\ndata: {"type":"mess'),
        ("/v1/messages", b"event: message_stop\n\n"),
        ("/v1/responses", b'data: {"type":"response.output_item.done","item":{"type":"response.completed"}}\n\n'),
        ("/v1/responses", b'data: {"type":"response.output_text.delta","delta":"response.completed"}\n\n'),
        ("/v1/responses", b'data: ["response.completed"]\n\n'),
    ],
)
def test_a_stream_without_its_terminator_is_not_complete(path: str, last: bytes) -> None:
    stream = EventStream(DIALECTS[path])
    stream.feed(last, 0.0)
    assert not stream.terminated


@pytest.mark.parametrize("comment", [b": ping\n\n", b":\r\n\r\n", b":\n\n:\n\n"])
def test_comments_do_not_make_forget_what_events_said(comment: bytes) -> None:
    stream = EventStream(CHAT)
    usage = b'{"choices":[],"usage":{"completion_tokens":2}}'
    for block in (b"data: " + usage + b"\n\n", *[comment] * 9, comment + b"data: [DONE]\n\n", *[comment] * 9):
        assert stream.feed(block, 0.0) == block
    assert stream.payloads() == [usage]
    assert stream.terminated


def test_an_unread_stream_is_forwarded_without_a_look() -> None:
    stream = EventStream(None)
    assert not stream.seeking
    assert stream.feed(b'data: {"choices":[{"text":"a"}]}\n\n', 0.0)
    assert (stream.terminated, stream.answer_id, stream.counting_payloads()) == (
        False,
        None,
        (b'{"choices":[{"text":"a"}]}',),
    )


def test_data_of_several_lines_is_one_payload_and_comments_are_none() -> None:
    assert data_payloads([b": ping\n\nevent: a\ndata: 1\ndata:2\nid: 3\n\n", b"data\n\n"]) == [b"1\n2"]


def test_boundaries_are_found_at_or_after_the_start_only() -> None:
    assert last_boundary(b"a\n\nb\n\nc") == 6
    assert last_boundary(b"a\n\nb", 2) == 0
    assert last_boundary(b"") == 0
    assert last_boundary(b"\n\n") == 2
    assert last_boundary(b"a\r\n\r\nb") == 5


CONTENT = [
    b'{"choices":[{"delta":{"content":"a"}}]}',
    b'{"choices":[{"delta":{"reasoning_content":"a"}}]}',
    b'{"choices":[{"delta":{"reasoning":"a"}}]}',
    b'{"choices":[{"delta":{"refusal":"a"}}]}',
    b'{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}',
    b'{"choices":[{"delta":{"function_call":{"name":"f"}}}]}',
    b'{"choices":[{"delta":{}},{"delta":{"content":"b"}}]}',
    b'{"choices":[{"text":" a"}]}',
]
NO_CONTENT = [
    b'{"choices":[{"delta":{"role":"assistant","content":""}}]}',
    b'{"choices":[{"delta":{"role":"assistant","content":null}}]}',
    b'{"choices":[{"delta":null}]}',
    b'{"choices":[{"text":""}]}',
    b'{"choices":[]}',
    b'{"choices":null}',
    b'{"usage":{}}',
    b'{"choices":3}',
    b"[1]",
    b"[" * 100_000,
    b"\xff\xfe",
    b"",
    b"[DONE]",
]


@pytest.mark.parametrize("payload", CONTENT)
def test_output_of_any_kind_is_content(payload: bytes) -> None:
    assert has_content(payload)


@pytest.mark.parametrize("payload", NO_CONTENT, ids=range(len(NO_CONTENT)))
def test_roles_usage_and_garbage_are_no_content(payload: bytes) -> None:
    assert not has_content(payload)


@given(st.binary(), st.sampled_from(sorted(DIALECTS)))
def test_no_bytes_make_an_event_stream_fail(data: bytes, path: str) -> None:
    stream = EventStream(DIALECTS[path])
    out = stream.feed(data, 0.0) + stream.feed(data, 1.0)
    assert out + stream.held == data * 2
    assert isinstance(stream.terminated, bool)


def test_a_long_event_in_small_pieces_is_held_whole_and_let_through_at_the_limit() -> None:
    stream = EventStream(CHAT)
    pieces = [b"data: " + b"x" * 250] + [b"x" * 256] * (MAX_HELD_BYTES // 256)
    out = [block for piece in pieces if (block := stream.feed(piece, 0.0))]
    assert out == [b"".join(pieces)]
    assert (stream.split, stream.held) == (True, b"")
    assert stream.feed(b"x\n", 0.0) == b""
    assert stream.feed(b"\ndata: [DONE]\n\n", 0.0) == b"x\n\ndata: [DONE]\n\n"
    assert stream.terminated

"""A node's answer is the same however its bytes arrive: the shortcut for whole chunks changes nothing."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.node import NodeSpec
from slipstream.core.request import Pool
from slipstream.gateway.headers import Answer
from slipstream.gateway.passage import Passage
from slipstream.gateway.sse import EventStream
from slipstream.gateway.tls import Authorities
from slipstream.gateway.upstream import NodeConnection, NodePool


class Wire:
    """A transport that only keeps books."""

    def __init__(self) -> None:
        self.aborted = self.closed = False

    def write(self, data: bytes) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.aborted or self.closed

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.closed = True


class Reader:
    """A receiver that notes what it is told."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.body = b""
        self.end: str | None = None
        self.passed: list[bytes] = []

    def answer_head(self, answer: Answer) -> None:
        assert self.status is None
        self.status = answer.status

    def answer_body(self, data: bytes) -> None:
        assert self.status is not None
        assert self.end is None
        assert data
        self.body += data

    def answer_ended(self) -> None:
        assert self.end is None
        self.end = "ended"

    def answer_lost(self) -> None:
        assert self.end is None
        self.end = "lost"


def asked() -> tuple[NodeConnection, Reader, Wire]:
    """A connection that a request was sent on."""
    pool = NodePool(NodeSpec("node", "http://127.0.0.1:1", Pool.STANDARD), 4.0, lambda: 0.0, Authorities())
    connection, reader, wire = NodeConnection(pool), Reader(), Wire()
    transport: Any = wire
    connection.connection_made(transport)
    connection.send(reader, b"", b"", head_only=False)
    return connection, reader, wire


def received(pieces: list[bytes], events: EventStream | None = None) -> tuple[Reader, Wire]:
    """What a receiver is told of these reads, when whole chunks of ``events`` have a passage that goes around it."""
    connection, reader, wire = asked()
    connection.passage = None if events is None else Passage(events, reader.passed.append)
    for piece in pieces:
        if reader.end is None and not wire.aborted:
            connection.data_received(piece)
    return reader, wire


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    ends = [0, *(end for end in accumulate(sizes) if end < len(data)), len(data)]
    return [data[start:end] for start, end in pairwise(ends) if start < end]


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
chunk_sizes = st.sampled_from([b"%x", b"%X", b"0%x", b"%x;name=value", b'%x;a="b"'])
chunk = st.tuples(st.binary(min_size=1, max_size=40) | st.just(b"5\r\nhello\r\n") | st.just(b"\r\n" * 3), chunk_sizes)
trailer = st.sampled_from([b"\r\n", b"A: b\r\n\r\n"])


@given(st.lists(chunk, max_size=8), trailer, st.lists(st.integers(1, 30), max_size=60))
def test_any_chunking_gives_the_same_body(chunks: list[tuple[bytes, bytes]], last: bytes, sizes: list[int]) -> None:
    data = HEAD + b"".join(size % len(body) + b"\r\n" + body + b"\r\n" for body, size in chunks) + b"0\r\n" + last
    reader, wire = received(cut(data, sizes))
    assert (reader.status, reader.body, reader.end) == (200, b"".join(body for body, _ in chunks), "ended")
    assert not wire.is_closing()


def chunk_of(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


@given(st.lists(st.binary(min_size=1, max_size=9000), min_size=1, max_size=5))
def test_reads_of_one_chunk_each_are_the_same_body(bodies: list[bytes]) -> None:
    reader, _ = received([HEAD, *map(chunk_of, bodies), b"0\r\n\r\n"])
    assert (reader.body, reader.end) == (b"".join(bodies), "ended")


def test_whole_chunks_of_whole_events_go_through_the_passage_as_they_are() -> None:
    sizes = [1, 2, 3, 10, 11, 12, 240, 241, 4080, 4081, 8170, 8171, 9000]
    chunks = [chunk_of(b"data: " + b"x" * size + b"\n\n") for size in sizes]
    chunks += map(chunk_of, [b"\n\n", b": a comment\n\n", b"data: [DONE]\n\n"])
    events = EventStream(None)
    reader, _ = received([HEAD, *chunks, b"0\r\n\r\n"], events)
    assert reader.passed == [chunk for chunk in chunks if len(chunk) < 8192]
    assert (reader.body, reader.end) == (b"data: " + b"x" * 9000 + b"\n\n", "ended")
    assert events.terminated


@pytest.mark.parametrize(
    "read",
    [
        b"2\r\n\n\n\r\n2\r\n\n\n\r\n",  # two chunks
        b"1\r\n\n\r\n",  # the blank line may end what came before
        chunk_of(b"data: 1\n"),  # not a whole event
        chunk_of(b"data: 1\r\n\r\n"),
        b"A\r\ndata: 12\n\n\r\n",  # another spelling of its size
    ],
)
def test_what_is_not_one_chunk_of_whole_events_is_for_the_receiver(read: bytes) -> None:
    reader, _ = received([HEAD, read], EventStream(None))
    assert not reader.passed
    assert reader.body


def test_a_whole_chunk_behind_the_beginning_of_an_event_is_for_the_receiver() -> None:
    events = EventStream(None)
    events.feed(b"data: 1\nda", 0.0)
    reader, _ = received([HEAD, chunk_of(b"ta: 2\n\n")], events)
    assert (reader.passed, reader.body) == ([], b"ta: 2\n\n")


def test_an_answer_that_has_ended_has_no_passage_to_the_next() -> None:
    connection, reader, _ = asked()
    connection.passage = Passage(EventStream(None), reader.passed.append)
    connection.data_received(HEAD + b"0\r\n\r\n")
    assert reader.end == "ended"
    assert connection.passage is None


ALMOST_CHUNKS = [
    b"3\r\nabc\r\n",
    b"3\r\nabcd\r\n",
    b"3\r\nab\r\n",
    b"+3\r\nabc\r\n",
    b"1_0\r\n" + b"x" * 16 + b"\r\n",
    b"\r\n",
    b"0\r\n",
    b"g\r\n\r\n",
    b" 3\r\nabc\r\n",
]


@given(st.lists(st.sampled_from(ALMOST_CHUNKS), max_size=5), st.lists(st.integers(1, 12), max_size=20))
def test_the_shortcut_accepts_nothing_that_the_parser_would_not(pieces: list[bytes], sizes: list[int]) -> None:
    data = b"".join(pieces)
    by_pieces, _ = received([HEAD, *pieces])
    by_parser, _ = received([HEAD + data[:1], *cut(data[1:], sizes)] if data else [HEAD])
    whole, _ = received([HEAD + data])
    assert by_pieces.body == by_parser.body == whole.body
    assert by_pieces.end == by_parser.end == whole.end

"""A short run of the fuzzer, the streams it has kept, and its judge."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz_wire import CORPUS, Fuzzer, corpus, mutated
from strict_http import Ambiguous, StrictRequest, read_answers, read_requests

BODY = b'{"model":"m"}'
HEAD = b"POST /v1/x HTTP/1.1\r\nHost: x\r\n"
SIZED = HEAD + b"Content-Length: 13\r\n\r\n" + BODY
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


async def test_streams_that_are_nearly_http_neither_crash_the_gateway_nor_hang_nor_reach_a_node_changed() -> None:
    fuzzer = Fuzzer(1, corpus(), learning=False)
    await fuzzer.run(400, workers=64)
    assert fuzzer.executions > 300


async def test_the_streams_kept_behave() -> None:
    fuzzer = Fuzzer(2, corpus(), learning=False)
    await fuzzer.replay(corpus(), workers=64)
    assert fuzzer.executions == len(corpus())


def test_the_corpus_is_small_enough_to_keep() -> None:
    sizes = [path.stat().st_size for path in CORPUS.iterdir()]
    assert len(sizes) > 300
    assert max(sizes) <= 2000
    assert sum(sizes) < 1_000_000


def test_what_is_mutated_depends_on_the_seed_alone() -> None:
    one, same, other = (mutated(random.Random(seed), corpus()) for seed in (1, 1, 2))
    assert one == same != other


@given(
    st.lists(st.sampled_from([SIZED, CHUNKED + b"6;a=b\r\n" + BODY[:6] + b"\r\n7\r\n" + BODY[6:] + b"\r\n0\r\n\r\n"]))
)
def test_the_judge_reads_whole_requests_one_after_the_other(requests: list[bytes]) -> None:
    assert read_requests(b"".join(requests)) == [StrictRequest("POST", "/v1/x", BODY)] * len(requests)
    assert read_requests(b"".join([*requests, SIZED[:-1]])) == [StrictRequest("POST", "/v1/x", BODY)] * len(requests)


@pytest.mark.parametrize(
    "data",
    [
        SIZED.replace(b"\r\n", b"\n"),
        SIZED.replace(b"Host: x\r\n", b""),
        SIZED.replace(b"Host: x", b"Host : x"),
        SIZED.replace(b"Host: x", b"Host: x\r\n y"),
        SIZED.replace(b"Host: x", b"Host: x\r\nHost: x"),
        SIZED.replace(b"13", b"+13"),
        SIZED.replace(b"13", b"13, 13"),
        SIZED.replace(b"1.1", b"1.2"),
        SIZED.replace(b"/v1/x", b"/v1/x#y"),
        SIZED.replace(b"Host: x", b"Host: x\r\nTransfer-Encoding: chunked"),
        CHUNKED.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n",
        CHUNKED.replace(b"1.1", b"1.0") + b"0\r\n\r\n",
        CHUNKED + b" 0\r\n\r\n",
        CHUNKED + b"1\r\nxx\r\n0\r\n\r\n",
        CHUNKED + b"0\r\nContent-Length: 1\r\n\r\n",
    ],
)
def test_the_judge_takes_nothing_doubtful(data: bytes) -> None:
    assert read_requests(data) == []


def test_the_judge_stops_where_the_connection_ends() -> None:
    closing = SIZED.replace(b"Host: x", b"Host: x\r\nConnection: keep-alive, Close")
    assert len(read_requests(closing + SIZED)) == 1
    assert len(read_requests(SIZED.replace(b"1.1", b"1.0") + SIZED)) == 1


def test_the_judge_reads_answers_by_the_requests_they_are_for() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
    answers, rest = read_answers(b"HTTP/1.1 100 Continue\r\n\r\n" + head + head + b"{}HTTP/1.1 204 No", ["HEAD", "GET"])
    assert [(one.status, one.body) for one in answers] == [(200, b""), (200, b"{}")]
    assert rest == b"HTTP/1.1 204 No"
    with pytest.raises(Ambiguous):
        read_answers(head + b"{}x\r\n", ["GET"])
    with pytest.raises(Ambiguous):
        read_answers(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", ["GET"])

"""Requests go out at their times, whatever the server does, and their latency counts from then."""

from __future__ import annotations

import asyncio
import json
from time import sleep

import pytest

from scripted_node import Call, close, scripted_node, stall, stream
from slipstream.load import LoadResult, PlannedRequest, StreamedAnswer, drive_at_times


def event(payload: object) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


TOKEN = event({"choices": [{"delta": {"content": "a"}}]})
USAGE = event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}})
DONE = b"data: [DONE]\n\n"
WHOLE = stream([TOKEN, TOKEN, USAGE, DONE])
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def request(position: int) -> PlannedRequest:
    return PlannedRequest("m", ({"role": "user", "content": str(position)},), 16)


async def test_no_request_waits_for_an_answer_to_another() -> None:
    arrived = asyncio.Semaphore(0)
    everyone = asyncio.Event()

    async def wait_for_all(call: Call) -> None:
        arrived.release()
        await everyone.wait()
        await WHOLE(call)

    results: list[LoadResult] = []
    async with scripted_node(wait_for_all) as node:
        driving = asyncio.create_task(
            drive_at_times(f"{node.url}/v1", [0.0, 0.0, 0.01, 0.02], request, on_result=results.append)
        )
        async with asyncio.timeout(20):
            for _ in range(4):
                await arrived.acquire()
        everyone.set()
        await driving
    assert sorted(result.position for result in results) == [0, 1, 2, 3]
    assert [result.error for result in results] == [None] * 4


async def test_a_generator_that_is_late_counts_its_lateness_as_latency() -> None:
    def slow(position: int) -> PlannedRequest:
        if position == 0:
            sleep(0.06)  # the whole loop stands still
        return request(position)

    results: list[LoadResult] = []
    async with scripted_node(WHOLE) as node:
        await drive_at_times(f"{node.url}/v1", [0.0, 0.02], slow, on_result=results.append)
    late = max(results, key=lambda result: result.position)
    assert late.sent_at - late.intended_at >= 0.03
    assert late.latency is not None
    assert late.latency.e2e_s == late.ended_at - late.intended_at
    assert late.latency.e2e_s > late.ended_at - late.sent_at


async def test_no_request_goes_out_before_its_time() -> None:
    results: list[LoadResult] = []
    at_s = [0.0, 0.0013, 0.0026, 0.0501]
    async with scripted_node(WHOLE) as node:
        await drive_at_times(f"{node.url}/v1", at_s, request, on_result=results.append)
    results.sort(key=lambda result: result.position)
    assert all(result.sent_at >= result.intended_at for result in results)
    start = results[0].intended_at
    assert [result.intended_at - start for result in results] == pytest.approx(at_s)


async def test_headers_go_along_and_failures_are_results() -> None:
    results: list[LoadResult] = []
    async with scripted_node(close()) as node:
        headers = {"authorization": "Bearer k"}
        await drive_at_times(f"{node.url}/v1", [0.0], request, on_result=results.append, headers=headers)
    assert node.calls[0].headers["authorization"] == "Bearer k"
    assert results[0].error is not None
    assert results[0].error.startswith("the connection failed: ")
    assert results[0].ended_at >= results[0].sent_at > 0.0
    async with scripted_node(stall(HEAD)) as node:
        await drive_at_times(f"{node.url}/v1", [0.0], request, on_result=results.append, timeout_s=0.05)
    assert results[1].error == "no whole answer within 0.05 s"


async def test_a_driver_that_is_cancelled_hangs_up() -> None:
    async with scripted_node(stall(HEAD)) as node:
        driving = asyncio.create_task(drive_at_times(f"{node.url}/v1", [0.0, 0.0, 1e6], request, on_result=print))
        async with asyncio.timeout(20):
            while len(node.calls) < 2:
                await asyncio.sleep(0.001)
            driving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await driving
            for call in node.calls:
                await call.gone.wait()


def test_gaps_are_between_chunks_with_content() -> None:
    answer = StreamedAnswer()
    role = event({"choices": [{"delta": {"role": "assistant"}}]})
    for at, piece in (
        (1.0, role),
        (2.0, TOKEN),
        (2.5, TOKEN[:9]),
        (3.0, TOKEN[9:]),
        (7.0, TOKEN + TOKEN),
        (8.0, USAGE),
    ):
        answer.feed(piece, at)
    answer.feed(DONE, 9.0)
    answer.end(9.0)
    assert answer.error is None
    assert answer.first_token_at == 2.0
    assert list(answer.chunk_gaps) == [1.0, 4.0, 0.0]

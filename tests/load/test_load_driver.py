"""The driver over real sockets: what each client saw, and never an exception for a request that failed."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import ssl

import pytest
from aiohttp import ClientConnectorError
from aiohttp.client_reqrep import ConnectionKey

from scripted_node import Behaviour, Call, answer, close, die_after, scripted_node, stall, stream
from slipstream.load import Level, LoadResult, PlannedRequest, drive, failure_words

SAID = "x-slipstream-node: n0\r\nx-slipstream-pool: standard\r\nx-slipstream-category: chat\r\n"
HEAD = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n{SAID}\r\n".encode()


def event(payload: object) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


TOKEN = event({"choices": [{"delta": {"content": "a"}}]})
USAGE = event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 9}})
WHOLE = stream([TOKEN, TOKEN, USAGE, b"data: [DONE]\n\n"])


def plan(count: int, *, streamed: bool = True) -> list[PlannedRequest]:
    return [
        PlannedRequest("m", ({"role": "user", "content": str(number)},), 16, f"kind {number}", stream=streamed)
        for number in range(count)
    ]


async def one(behaviour: Behaviour, *, streamed: bool = True, timeout_s: float = 30.0) -> LoadResult:
    async with scripted_node(behaviour) as node:
        [result] = await drive(f"{node.url}/v1", plan(1, streamed=streamed), [Level(1, 1)], timeout_s=timeout_s)
        return result


class Ticks:
    """A clock that moves on by one second each time it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


async def test_a_streamed_answer_is_timed_and_counted() -> None:
    async with scripted_node(WHOLE) as node:
        [result] = await drive(f"{node.url}/v1/", plan(1), [Level(1, 1)], clock=Ticks())
    assert (result.status, result.error) == (200, None)
    assert (result.prompt_tokens, result.output_tokens) == (5, 9)
    assert result.latency is not None
    assert result.latency.ttft_s is not None
    assert result.latency.tpot_s == (result.latency.e2e_s - result.latency.ttft_s) / 8
    assert result.latency.e2e_s > result.latency.ttft_s >= 1.0
    sent = json.loads(node.calls[0].body)
    assert node.calls[0].target == "/v1/chat/completions"
    assert sent == {
        "model": "m",
        "messages": [{"role": "user", "content": "0"}],
        "max_tokens": 16,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_an_unstreamed_answer_has_no_first_token() -> None:
    body = json.dumps({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 9}}).encode()
    async with scripted_node(answer(200, body, SAID)) as node:
        [result] = await drive(f"{node.url}/v1", plan(1, streamed=False), [Level(1, 1)])
    assert result.error is None
    assert (result.node, result.pool, result.category, result.output_tokens) == ("n0", "standard", "chat", 9)
    assert result.latency is not None
    assert result.latency.ttft_s is None
    assert "stream_options" not in json.loads(node.calls[0].body)


@pytest.mark.parametrize(
    ("behaviour", "status", "sentence"),
    [
        (answer(429, b'{"error": {"message": "all full"}}'), 429, "status 429: all full"),
        (answer(200, b"{}"), 200, "the answer is not a stream, though one was asked for"),
        (stream([TOKEN]), 200, "the stream ended before the answer was complete"),
        (stream([TOKEN, event({"error": {"message": "lost"}})]), 200, "lost"),
        (close(), None, "the connection failed"),
        (die_after(HEAD, b"5\r\ndata:\r\n"), 200, "the connection failed"),
        (die_after(b"no HTTP at all\r\n\r\n"), None, "the connection failed"),
    ],
)
async def test_a_failed_request_is_a_result(behaviour: Behaviour, status: int | None, sentence: str) -> None:
    result = await one(behaviour)
    assert result.status == status
    assert result.error is not None
    assert result.error.startswith(sentence)
    assert result.latency is None


async def test_a_request_that_breaks_off_still_says_which_node_had_it() -> None:
    result = await one(die_after(HEAD, b"5\r\ndata:\r\n"))
    assert (result.node, result.pool, result.category) == ("n0", "standard", "chat")


async def test_an_answer_that_takes_too_long_is_a_result() -> None:
    result = await one(stall(HEAD), timeout_s=0.05)
    assert result.error == "no whole answer within 0.05 s"


async def test_nobody_listening_is_a_result() -> None:
    async with scripted_node(close()) as node:
        url = node.url
    [result] = await drive(f"{url}/v1", plan(1), [Level(1, 1)])
    assert result.status is None
    assert result.error == "the connection failed: Connection refused"


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (ssl.SSLError(1, "wrong version number"), "wrong version number"),
        (OSError("all of several addresses failed"), "all of several addresses failed"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('::1', 1)"), "Connection refused"),
    ],
)
def test_why_nobody_was_reached_is_told_without_what_a_library_adds(cause: OSError, words: str) -> None:
    key = ConnectionKey("h", 1, False, True, None, None, None)
    assert failure_words(ClientConnectorError(key, cause)) == words


async def test_levels_follow_one_another_with_so_many_clients_each_keeping_its_connection() -> None:
    running = most = 0

    async def counted(call: Call) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        await WHOLE(call)
        running -= 1

    finished: list[LoadResult] = []
    async with scripted_node(counted) as node:
        levels = [Level(1, 3), Level(4, 9), Level(2, 0)]
        results = await drive(f"{node.url}/v1", plan(12), levels, on_result=finished.append)
    assert finished == results
    assert [result.error for result in results] == [None] * 12
    assert [result.concurrency for result in results] == [1] * 3 + [4] * 9
    assert sorted(int(result.request.label.split()[1]) for result in results) == list(range(12))
    assert [result.request.label for result in results[:3]] == ["kind 0", "kind 1", "kind 2"]
    assert 2 <= most <= 4
    assert node.connections <= 4


async def test_all_clients_of_a_level_work_at_once() -> None:
    arrived = asyncio.Semaphore(0)
    everyone = asyncio.Event()

    async def wait_for_all(call: Call) -> None:
        arrived.release()
        await everyone.wait()
        await WHOLE(call)

    async with scripted_node(wait_for_all) as node:
        driving = asyncio.create_task(drive(f"{node.url}/v1", plan(5), [Level(5, 5)]))
        for _ in range(5):
            await arrived.acquire()
        everyone.set()
        assert [result.error for result in await driving] == [None] * 5


async def test_a_driver_that_is_cancelled_leaves_no_connection() -> None:
    async with scripted_node(stall(HEAD)) as node:
        driving = asyncio.create_task(drive(f"{node.url}/v1", plan(2), [Level(2, 2)]))
        async with asyncio.timeout(10):
            while len(node.calls) < 2:
                await asyncio.sleep(0.001)
            driving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await driving
            for call in node.calls:
                await call.gone.wait()


@pytest.mark.parametrize("levels", [[], [Level(1, 1)], [Level(1, 3)]])
async def test_levels_must_add_up_to_the_requests(levels: list[Level]) -> None:
    with pytest.raises(ValueError, match="add up to another number than the 2 requests"):
        await drive("http://127.0.0.1:1/v1", plan(2), levels)


@pytest.mark.parametrize(("concurrency", "requests"), [(0, 1), (1, -1)])
def test_a_level_without_clients_is_refused(concurrency: int, requests: int) -> None:
    with pytest.raises(ValueError, match="a level needs at least one client"):
        Level(concurrency, requests)


async def test_no_requests_are_no_work() -> None:
    assert await drive("http://127.0.0.1:1/v1", [], []) == []

"""Whoever wants to know is told of every request exactly once, with the answer that its client got."""

from __future__ import annotations

import dataclasses

import pytest

from gateway_rig import Client, Rig, eventually, rig
from scripted_node import STREAM_HEAD, Behaviour, answer, chunked, close, die_after, scripted_node, stall, stream
from slipstream.core.errors import AllFull
from slipstream.core.history import History
from slipstream.core.outcome import Ending
from slipstream.gateway.limits import Limits

TOKEN = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


async def only_history(served: Rig) -> History:
    await eventually(lambda: bool(served.books.histories))
    (history,) = served.books.histories
    return history


async def test_a_whole_answer_is_told_with_shape_and_attempt() -> None:
    async with scripted_node(answer()) as node, rig(node.url) as served, Client.to(served) as client:
        client.post(headers="x-request-id: mine\r\n", path="/v1/chat/completions?x=1")
        assert (await client.response()).status == 200
        history = await only_history(served)
    assert (history.request_id, history.method, history.path) == ("mine", "POST", "/v1/chat/completions")
    assert (history.status, history.error, history.key_id) == (200, None, None)
    assert history.shape is not None
    assert history.shape.model == "m"
    (attempt,) = history.attempts
    assert attempt.placement.node.name == "node-0"
    assert attempt.placement.outcome is not None
    assert attempt.placement.outcome.ending is Ending.COMPLETED
    assert 0 < history.received_at < history.ended_at


@pytest.mark.parametrize(
    ("behaviours", "status", "error", "endings"),
    [
        ([close(), answer()], 200, None, [Ending.UPSTREAM_LOST, Ending.COMPLETED]),
        ([answer(503)], 429, "all_full", [Ending.FULL, Ending.FULL]),
        ([close()], 502, "upstream_failed", [Ending.UPSTREAM_LOST, Ending.UPSTREAM_LOST]),
        ([answer(500)], 500, None, [Ending.REFUSED]),
        ([stream([TOKEN, DONE])], 200, None, [Ending.COMPLETED]),
        ([die_after(STREAM_HEAD + chunked(TOKEN))], 200, "upstream_failed", [Ending.UPSTREAM_LOST]),
        (
            [die_after(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\nabc")],
            200,
            "upstream_failed",
            [Ending.UPSTREAM_LOST],
        ),
    ],
)
async def test_what_the_client_got_is_told_and_every_attempt(
    behaviours: list[Behaviour], status: int, error: str | None, endings: list[Ending]
) -> None:
    limits = Limits(retries=1)
    async with (
        scripted_node(*behaviours) as node,
        rig(node.url, node.url, limits=limits) as served,
        Client.to(served) as client,
    ):
        client.post(stream=True)
        await client.response()
        history = await only_history(served)
    assert (history.status, history.error) == (status, error)
    assert [one.placement.outcome.ending for one in history.attempts if one.placement.outcome] == endings


@pytest.mark.parametrize(("sent", "status"), [(b"", None), (STREAM_HEAD + chunked(TOKEN), 200)])
async def test_a_client_that_leaves_has_the_status_that_it_was_sent(sent: bytes, status: int | None) -> None:
    async with scripted_node(stall(sent)) as node, rig(node.url) as served:
        async with Client.to(served) as client:
            client.post(stream=True)
            await eventually(lambda: bool(node.calls))
            if sent:
                await client.response(head_only=True)
        history = await only_history(served)
    assert (history.status, history.error) == (status, None)
    (attempt,) = history.attempts
    assert attempt.placement.outcome is not None
    assert attempt.placement.outcome.ending is Ending.CLIENT_GONE


async def test_what_the_gateway_answers_itself_is_told_as_well() -> None:
    async with rig() as served, Client.to(served) as client:
        for method, path, body, status, error in (
            ("GET", "/health", "", 200, None),
            ("GET", "/ready", "", 503, "nothing_usable"),
            ("GET", "/v1/models", "", 200, None),
            ("OPTIONS", "/v1/models", "", 204, None),
            ("GET", "/nowhere", "", 404, "unknown_path"),
            ("POST", "/v1/chat/completions", '{"model": "m"}', 503, "nothing_usable"),
            ("POST", "/v1/chat/completions", "x", 400, "invalid_body"),
        ):
            served.books.histories.clear()
            client.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            assert (await client.response()).status == status
            history = await only_history(served)
            assert (history.status, history.error) == (status, error)
            assert history.attempts == ()


async def test_a_request_that_no_node_is_found_for_is_told_with_its_shape() -> None:
    async with rig("http://127.0.0.1:1") as served, Client.to(served) as client:
        served.books.error = AllFull("Every node is full.")
        client.post()
        assert (await client.response()).status == 429
        history = await only_history(served)
    assert (history.status, history.error, history.attempts) == (429, "all_full", ())
    assert history.shape is not None


async def test_bytes_that_are_no_request_are_told() -> None:
    async with rig() as served, Client.to(served) as client:
        client.send(b"nonsense\r\n\r\n")
        assert (await client.response()).status == 400
        history = await only_history(served)
    assert (history.method, history.path, history.status, history.error) == ("", "", 400, "malformed_request")


async def test_requests_of_one_connection_are_told_one_by_one() -> None:
    async with scripted_node(answer()) as node, rig(node.url) as served, Client.to(served) as client:
        for number in range(3):
            client.post(headers=f"x-request-id: r{number}\r\n")
        for _ in range(3):
            await client.response()
        await eventually(lambda: len(served.books.histories) == 3)
        assert [history.request_id for history in served.books.histories] == ["r0", "r1", "r2"]


class Traced:
    """A trace that keeps what it is told, and the tracer that began it."""

    def __init__(self) -> None:
        self.began: list[tuple[bytes, float]] = []
        self.ended: list[History] = []

    def begin(self, lines: bytes, waited_s: float) -> Traced | None:
        self.began.append((lines, waited_s))
        return self if b"traceparent" in lines else None

    @property
    def lines(self) -> bytes:
        return b"traceparent: ours\r\n"

    def end(self, history: History) -> None:
        self.ended.append(history)


async def test_a_traced_request_goes_on_under_our_own_span_and_others_as_they_came() -> None:
    traced = Traced()
    async with scripted_node(answer()) as node, rig(node.url) as served, Client.to(served) as client:
        served.gateway.configure(dataclasses.replace(served.ports, tracer=traced), Limits())
        client.post(headers="traceparent: theirs\r\naccept: a/b\r\n")
        await client.response()
        client.post(headers="accept: a/b\r\n")
        await client.response()
        assert node.calls[0].headers["traceparent"] == "ours"
        assert "accept" not in node.calls[0].headers
        assert "traceparent" not in node.calls[1].headers
        assert node.calls[1].headers["accept"] == "a/b"
        assert [history.status for history in traced.ended] == [200]
        assert traced.began[0][0] == b"traceparent: theirs\r\naccept: a/b\r\n"
        assert all(0 <= waited < 10 for _, waited in traced.began)
        assert len(served.books.histories) == 2

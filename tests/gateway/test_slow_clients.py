"""Clients that send or read slowly, hold much, or are many: each costs little and harms no other."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from typing import Any

import pytest

from gateway_rig import Client, Rig, eventually, rig
from scripted_node import Call, answer, scripted_node, stall
from slipstream.gateway.limits import Limits
from slipstream.gateway.wire import ClientConnection

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"


async def trickle(client: Client, byte: bytes = b"x") -> None:
    """Send a byte now and then, until the test is over."""
    while True:
        client.send(byte)
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("start", "byte", "limits"),
    [
        (b"GET /hea", b"x", Limits(client_head_s=0.1)),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nX: ", b"x", Limits(client_head_s=0.1)),
        (b"GET /health HTTP/1.1\r\n", b"", Limits(client_head_s=0.1)),
        (HEAD + b"Content-Length: 9\r\n\r\n{", b"", Limits(idle_s=0.1)),
        (HEAD + b"Content-Length: 9000\r\n\r\n{", b"x", Limits(idle_s=0.2)),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", Limits(idle_s=0.2)),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x", Limits(idle_s=0.2)),
    ],
    ids=["line", "headers", "no more headers", "no more body", "slow body", "slow chunks", "slow chunk extension"],
)
async def test_a_request_that_does_not_come_whole_in_time_is_a_408_and_closes(
    start: bytes, byte: bytes, limits: Limits
) -> None:
    async with rig(limits=limits) as gateway, Client.to(gateway) as client:
        client.send(start)
        trickling = asyncio.create_task(trickle(client, byte))
        response = await client.response()
        trickling.cancel()
        assert (response.status, response.error["code"]) == (408, "request_timeout")
        assert response.headers["connection"] == "close"
        assert await client.closed()
        assert gateway.books.rejections[0][1] == ("/v1/completions" if start.startswith(HEAD) else "")


async def test_a_body_that_comes_steadily_may_take_longer_than_a_pause_may() -> None:
    body = b'{"model":"m","x":"%b"}' % (b"x" * 20_000)
    limits = Limits(idle_s=0.2)
    async with scripted_node(answer()) as node, rig(node.url, limits=limits) as gateway, Client.to(gateway) as client:
        client.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(body))
        for start in range(0, len(body), 500):
            client.send(body[start : start + 500])
            await asyncio.sleep(0.015)
        assert (await client.response()).status == 200


async def test_the_time_of_an_answer_does_not_count_against_the_next_request() -> None:
    async def late(call: Call) -> None:
        await asyncio.sleep(0.8)
        await answer()(call)

    limits = Limits(client_keep_alive_s=0.6, client_head_s=0.6)
    async with scripted_node(late) as node, rig(node.url, limits=limits) as gateway, Client.to(gateway) as client:
        client.post()
        client.send(b"GET /health HT")
        assert (await client.response()).status == 200
        await asyncio.sleep(0.3)  # longer than the gateway takes to look for late clients
        client.send(b"TP/1.1\r\nHost: x\r\n\r\n")
        assert (await client.response()).status == 200


async def test_a_reader_that_is_slow_but_steady_gets_all() -> None:
    body = b"x" * 12_000_000
    loop = asyncio.get_running_loop()
    async with scripted_node(answer(body=body)) as node, rig(node.url, limits=Limits(write_s=0.2)) as gateway:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
            client.setblocking(False)
            await loop.sock_connect(client, (gateway.host, gateway.port))
            await loop.sock_sendall(client, HEAD + b'Content-Length: 13\r\n\r\n{"model":"m"}')
            received = 0
            for _ in range(40):  # so slowly that the kernel has no room for more in all this time
                received += len(await loop.sock_recv(client, 8192))
                await asyncio.sleep(0.02)
            while data := await loop.sock_recv(client, 1_000_000):
                received += len(data)
                if received > len(body):
                    break
            assert received > len(body)


async def test_a_client_that_leaves_while_it_is_not_read_from_is_noticed() -> None:
    async with scripted_node(stall()) as node, rig(node.url) as gateway:
        async with Client.to(gateway) as client:
            for _ in range(50):
                client.post()
            await eventually(lambda: len(node.calls) == 1)
        await asyncio.wait_for(node.calls[0].gone.wait(), 10)


async def test_large_requests_pipelined_behind_a_slow_one_are_left_in_the_kernel_and_answered_later() -> None:
    released = asyncio.Event()

    async def when_released(call: Call) -> None:
        await released.wait()
        await answer()(call)

    padding = "x" * 5_000_000
    async with scripted_node(when_released) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        for _ in range(12):
            client.post(padding=padding)
        await eventually(lambda: len(node.calls) == 1)
        transport: Any = client.writer.transport
        left, seen = 0, -1
        while left != seen:  # until it takes no more
            seen = left
            await asyncio.sleep(0.2)
            left = transport.get_write_buffer_size()
        assert left > 38_000_000
        released.set()
        assert [(await client.response()).status for _ in range(12)] == [200] * 12


async def test_a_client_that_was_refused_and_stays_is_dropped() -> None:
    async with rig() as gateway, Client.to(gateway) as client:
        client.send(b"nonsense\r\n\r\n")
        assert (await client.response()).status == 400
        await eventually(lambda: gateway.gateway.open_connections == 0)


class Sink:
    """A transport that keeps nothing."""

    def write(self, data: bytes) -> None: ...

    def is_closing(self) -> bool:
        return False


@pytest.mark.no_cover
async def test_a_body_in_tiny_chunks_takes_little_more_memory_than_it_has_bytes() -> None:
    async with rig() as gateway:
        connection = ClientConnection(gateway.gateway, Limits())
        connection.connection_made(Sink())
        connection.data_received(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        data = b"2\r\nab\r\n" * 1000
        tracemalloc.start()
        try:
            for _ in range(200):
                connection.data_received(data)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        gateway.gateway.disconnected(connection)
        assert 400_000 < held < 600_000


async def hello(gateway: Rig) -> Client:
    """A client that has been served."""
    client = Client(*await asyncio.open_connection(gateway.host, gateway.port))
    client.get("/health")
    assert (await client.response()).status == 200
    return client


async def test_a_client_too_many_is_told_so_and_let_in_when_another_has_gone() -> None:
    async with rig(limits=Limits(max_connections=2)) as gateway:
        first, second = await hello(gateway), await hello(gateway)
        async with Client.to(gateway) as third:
            third.get("/health")
            response = await third.response()
            assert (response.status, response.error["code"]) == (503, "too_many_connections")
            assert response.headers["connection"] == "close"
            assert int(response.headers["retry-after"]) > 0
            assert await third.closed()
        assert [type(error).__name__ for error, _ in gateway.books.rejections] == ["TooManyConnections"]
        first.writer.close()
        await eventually(lambda: gateway.gateway.open_connections == 1)
        third = await hello(gateway)
        second.get("/health")
        assert (await second.response()).status == 200
        second.writer.close()
        third.writer.close()


async def test_a_flood_of_connections_is_dropped_and_counted_while_those_inside_are_served() -> None:
    async with rig(limits=Limits(max_connections=1)) as gateway:
        inside = await hello(gateway)
        flood = [await asyncio.open_connection(gateway.host, gateway.port) for _ in range(100)]
        await eventually(lambda: len(gateway.books.rejections) == 100)
        assert gateway.gateway.open_connections <= 65
        inside.get("/health")
        assert (await inside.response()).status == 200
        for _, writer in flood:
            writer.close()
        inside.writer.close()

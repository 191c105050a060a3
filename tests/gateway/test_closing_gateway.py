"""A gateway that is told to stop, or to go on by other limits, while clients are in the middle of something."""

from __future__ import annotations

import asyncio
import json

from gateway_rig import Client, Rig, eventually, rig
from scripted_node import answer, scripted_node, stall
from slipstream.core.outcome import Ending
from slipstream.gateway.limits import Limits

BODY = json.dumps({"model": "m"}).encode()
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(BODY)


async def received(gateway: Rig, client: Client, data: bytes) -> None:
    """Send the beginning of a request and wait until the gateway has it, as the answer to an earlier one shows."""
    client.get("/health")
    client.send(data)
    assert (await client.response()).status == 200
    async with Client.to(gateway) as other:  # its request comes in behind those bytes
        other.get("/health")
        assert (await other.response()).status == 200


async def test_a_request_that_is_coming_in_is_still_served_and_then_the_connection_closed() -> None:
    async with scripted_node(answer(body=b'"whole"')) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        await received(gateway, client, HEAD + BODY[:4])
        closing = asyncio.create_task(gateway.gateway.close(1000.0))
        await asyncio.sleep(0)
        client.send(BODY[4:])
        response = await client.response()
        assert (response.body, response.headers["connection"]) == (b'"whole"', "close")
        assert await client.closed()
        await closing


async def test_who_asks_while_it_stops_hears_that_it_is_not_ready() -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.get("/ready")
        assert (await client.response()).status == 200
        await received(gateway, client, b"GET /ready HTTP/1.1\r\nHo")
        closing = asyncio.create_task(gateway.gateway.close(1000.0))
        await asyncio.sleep(0)
        client.send(b"st: x\r\n\r\n")
        response = await client.response()
        assert (response.status, response.error["message"]) == (503, "Not ready: this gateway is being stopped.")
        assert await client.closed()
        await closing


async def test_a_request_that_never_comes_in_is_given_up_with_the_grace() -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        await received(gateway, client, HEAD)
        await gateway.gateway.close(0.05)
        assert await client.closed()
        assert gateway.gateway.open_connections == 0


async def test_new_limits_hold_for_connections_that_are_open_and_for_new_ones() -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as old:
        old.post()
        assert (await old.response()).status == 200
        gateway.gateway.configure(gateway.ports, Limits(max_body_bytes=5))
        async with Client.to(gateway) as new:
            for client in (old, new):
                client.post()
                assert (await client.response()).status == 413


async def test_a_running_request_keeps_the_settings_it_began_with() -> None:
    async with (
        scripted_node(stall(), answer(body=b'"late"')) as node,
        rig(node.url) as gateway,
        Client.to(gateway) as client,
    ):
        client.post()
        await eventually(lambda: len(node.calls) == 1)
        gateway.gateway.configure(gateway.ports, Limits(first_byte_unstreamed_s=0.01))
        async with Client.to(gateway) as other:
            other.get("/health")
            assert (await other.response()).status == 200
        assert not gateway.books.settled
        node.calls[0].writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n"late"')
        assert (await client.response()).body == b'"late"'


async def test_what_is_open_to_a_node_that_has_left_is_closed() -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post()
        await client.response()
        assert node.open_connections == 1
        gateway.gateway.forget("node-0")
        gateway.gateway.forget("never-there")
        await eventually(lambda: node.open_connections == 0)
        client.post()
        assert (await client.response()).status == 200


async def test_at_the_end_of_the_grace_who_has_no_answer_gets_503_and_the_engine_is_not_let_run() -> None:
    async with scripted_node(stall()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.post()
        await eventually(lambda: len(node.calls) == 1)
        closing = asyncio.create_task(gateway.gateway.close(0.05))
        response = await client.response()
        assert (response.status, response.error["code"]) == (503, "nothing_usable")
        assert "closing" in response.error["message"]
        assert await client.closed()
        assert await closing == 1
        assert [outcome.ending for outcome in gateway.books.outcomes] == [Ending.STOPPED]
        await eventually(lambda: node.open_connections == 0)


async def test_at_the_end_of_the_grace_a_stream_is_told_before_it_is_cut() -> None:
    beginning = b'data: {"choices": [{"delta": {"content": "Ye"}}]}\n\n'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with (
        scripted_node(stall(head + b"%x\r\n%b\r\n" % (len(beginning), beginning))) as node,
        rig(node.url) as gateway,
        Client.to(gateway) as client,
    ):
        client.post(stream=True)
        await eventually(lambda: len(node.calls) == 1)
        closing = asyncio.create_task(gateway.gateway.close(0.2))
        body = (await client.response()).body
        assert body.startswith(beginning)
        event = json.loads(body[len(beginning) :].removeprefix(b"data: "))
        assert "closing" in event["error"]["message"]
        assert b"[DONE]" not in body
        assert await client.closed()
        assert await closing == 1
        assert [outcome.ending for outcome in gateway.books.outcomes] == [Ending.STOPPED]
        (history,) = gateway.books.histories
        assert (history.status, history.error) == (200, "nothing_usable")


async def test_a_client_that_reads_nothing_does_not_hold_up_the_end() -> None:
    line = b'data: {"choices": [{"delta": {"content": "%b"}}]}\n\n' % (b"x" * 60_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    many = b"".join([b"%x\r\n%b\r\n" % (len(line), line)] * 300)
    async with scripted_node(stall(head + many)) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.stop_reading()
        client.post(stream=True)
        await eventually(lambda: len(node.calls) == 1)
        assert await gateway.gateway.close(0.2) == 1
        assert gateway.gateway.open_connections == 0

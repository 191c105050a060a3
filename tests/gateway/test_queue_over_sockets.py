"""The exchange's side of waiting: what becomes of a request that no node has room for."""

from __future__ import annotations

from dataclasses import replace

from gateway_rig import Client, eventually, rig
from scripted_node import answer, scripted_node
from slipstream.core.errors import AllFull, NothingUsable
from slipstream.core.request import TrafficClass
from slipstream.gateway.limits import Limits

INTERACTIVE = TrafficClass.INTERACTIVE
FULL = AllFull("Every node is full.")
OK = b'{"choices": []}'


async def test_a_request_waits_until_there_is_room() -> None:
    async with scripted_node(answer(body=OK)) as node, rig(node.url, queue_size=4) as gateway:
        gateway.books.error = FULL
        async with Client.to(gateway) as client:
            client.post()
            await eventually(lambda: gateway.gateway.queue_lengths[INTERACTIVE] == 1)
            assert gateway.books.placed == []
            gateway.books.error = None
            assert (await client.response()).status == 200
        assert gateway.books.waits == [(INTERACTIVE, True)]


async def test_with_the_queue_full_the_next_gets_429() -> None:
    async with scripted_node(answer(body=OK)) as node, rig(node.url, queue_size=1) as gateway:
        gateway.books.error = FULL
        async with Client.to(gateway) as first, Client.to(gateway) as second:
            first.post()
            await eventually(lambda: gateway.gateway.queue_lengths[INTERACTIVE] == 1)
            second.post()
            refused = await second.response()
            assert (refused.status, refused.error["code"]) == (429, "all_full")
            gateway.books.error = None
            assert (await first.response()).status == 200


async def test_what_can_no_longer_be_served_at_all_does_not_wait_on() -> None:
    async with scripted_node(answer(body=OK)) as node, rig(node.url, queue_size=4) as gateway:
        gateway.books.error = FULL
        async with Client.to(gateway) as client:
            client.post()
            await eventually(lambda: gateway.gateway.queue_lengths[INTERACTIVE] == 1)
            gateway.books.error = NothingUsable("No node is up.")
            assert (await client.response()).status == 503
        assert gateway.books.waits == []


async def test_a_refusal_is_passed_on_in_the_nodes_own_words_when_the_time_is_up() -> None:
    limits = Limits(retries=0, queue_timeout_s=0.4)
    body = b'{"error": {"message": "my queue is full"}}'
    refusal = answer(429, body, "Retry-After: 7\r\n")
    async with scripted_node(refusal) as node, rig(node.url, limits=limits, queue_size=4) as gateway:
        async with Client.to(gateway) as client:
            client.post()
            refused = await client.response()
        assert (refused.status, refused.headers["retry-after"]) == (429, "7")
        assert "my queue is full" in refused.error["message"]
        assert len(node.calls) >= 2


async def test_a_node_that_can_not_be_reached_is_no_reason_to_wait() -> None:
    async with scripted_node(answer(body=OK)) as node:
        url = node.url
    async with rig(url, queue_size=4) as gateway, Client.to(gateway) as client:
        client.post()
        assert (await client.response()).status == 502
        assert gateway.books.waits == []


async def test_a_reload_changes_how_many_may_wait() -> None:
    async with scripted_node(answer(body=OK)) as node, rig(node.url, queue_size=0) as gateway:
        gateway.books.error = FULL
        async with Client.to(gateway) as client:
            client.post()
            assert (await client.response()).status == 429
            gateway.gateway.configure(gateway.ports, replace(Limits(), queue_size=1))
            client.post()
            await eventually(lambda: gateway.gateway.queue_lengths[INTERACTIVE] == 1)
            gateway.books.error = None
            assert (await client.response()).status == 200


async def test_a_waiting_request_that_fails_is_not_tried_again_by_its_clients_next_one() -> None:
    """The next pipelined request is handled within the answer to the first, when that one hardly has left the queue."""
    async with scripted_node(answer(body=OK)) as node, rig(node.url, queue_size=4) as gateway:
        books = gateway.books
        books.error = FULL
        async with Client.to(gateway) as client:
            client.post()
            client.post()
            await eventually(lambda: gateway.gateway.queue_lengths[INTERACTIVE] == 1)
            books.error, books.after = NothingUsable("No node is up."), [None]
            assert [(await client.response()).status for _ in range(2)] == [503, 200]
        assert (len(books.placed), len(node.calls)) == (1, 1)


async def test_a_request_that_was_tried_in_vain_has_waited_once() -> None:
    refusal, limits = answer(429, b"{}"), Limits(retries=0)
    async with (
        scripted_node(refusal, refusal, answer(body=OK)) as node,
        rig(node.url, limits=limits, queue_size=4) as gateway,
    ):
        books = gateway.books
        books.error = FULL
        async with Client.to(gateway) as first, Client.to(gateway) as second:
            first.post()
            second.post()
            await eventually(lambda: gateway.gateway.queue_lengths[INTERACTIVE] == 2)
            books.error = None
            assert (await first.response()).status == 200
            assert (await second.response()).status == 200
        assert books.waits == [(INTERACTIVE, True), (INTERACTIVE, True)]
        assert len(books.placed) == 4
        assert None not in [history.queued_s for history in books.histories]
        assert None not in [placement.queued_s for placement in books.placed]


async def test_who_is_served_at_once_has_no_wait() -> None:
    async with scripted_node(answer(body=OK)) as node, rig(node.url, queue_size=4) as gateway:
        async with Client.to(gateway) as client:
            client.post()
            assert (await client.response()).status == 200
        assert gateway.books.waits == []
        assert [history.queued_s for history in gateway.books.histories] == [None]

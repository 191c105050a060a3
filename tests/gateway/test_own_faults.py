"""A fault of the gateway's own costs the one request that it concerns: told, ended, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from gateway_rig import Client, eventually, read, rig
from scripted_node import answer, close, scripted_node, stall
from slipstream.core.errors import AllFull
from slipstream.core.keys import KeyPolicy
from slipstream.core.request import RequestShape, TrafficClass
from slipstream.gateway.headers import RequestHead
from slipstream.gateway.limits import Limits

LARGE = "x" * 300_000
"""So much is read beside the loop."""


def faulty(path: str, body: bytes, head: RequestHead, policy: KeyPolicy | None) -> RequestShape:
    """A reader with a fault that some requests bring out."""
    if b"evil" in body:
        raise RuntimeError("a fault of the reader")
    return read(path, body, head, policy)


@contextmanager
def faults_told() -> Iterator[list[str]]:
    """What the event loop is told of faults that nobody caught."""
    told: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(str(context["exception"])))
    try:
        yield told
    finally:
        loop.set_exception_handler(None)


def once_faulty(owner: object, name: str, *, works: bool = True) -> None:
    """A method that fails the next time it is called, behind its work if it ``works``."""
    sound = getattr(owner, name)

    def fail(*given: Any, **named: Any) -> None:
        setattr(owner, name, sound)
        if works:
            sound(*given, **named)
        raise RuntimeError(f"a fault of {name}")

    setattr(owner, name, fail)


@pytest.mark.parametrize("padding", ["", LARGE])
async def test_a_request_that_brings_out_a_fault_is_dropped_and_others_are_served(padding: str) -> None:
    with faults_told() as told:
        async with scripted_node(answer(), answer()) as node, rig(node.url, reader=faulty) as gateway:
            async with Client.to(gateway) as client, Client.to(gateway) as other:
                client.post(word="evil", padding=padding)
                assert await asyncio.wait_for(client.reader.read(), 10) == b""
                other.post(padding=padding)
                assert (await other.response()).status == 200
            await eventually(lambda: gateway.gateway.open_connections == 0)
    assert told == ["a fault of the reader"]


async def test_a_fault_met_when_time_is_up_costs_its_client_and_times_out_others_as_before() -> None:
    limits = Limits(first_byte_unstreamed_s=0.05)
    with faults_told() as told:
        async with (
            scripted_node(stall()) as node,
            rig(node.url, limits=limits) as gateway,
            Client.to(gateway) as client,
            Client.to(gateway) as other,
        ):
            once_faulty(gateway.books, "finished")
            client.post()
            assert await asyncio.wait_for(client.reader.read(), 10) == b""
            other.post()
            assert (await other.response()).status == 504
    assert told == ["a fault of finished"]


@pytest.mark.parametrize("port_is_open", [True, False])
async def test_a_fault_met_where_a_node_is_lost_leaves_no_client_waiting(port_is_open: bool) -> None:
    with faults_told() as told:
        async with (
            scripted_node(close()) as node,
            rig(node.url if port_is_open else "http://127.0.0.1:1") as gateway,
            Client.to(gateway) as client,
        ):
            once_faulty(gateway.books, "finished")
            client.post()
            assert await asyncio.wait_for(client.reader.read(), 10) == b""
    assert told == ["a fault of finished"]


async def test_a_fault_of_who_is_told_of_a_request_does_not_hold_up_the_next() -> None:
    with faults_told() as told:
        async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
            once_faulty(gateway.books, "answered")
            ports = replace(gateway.ports, answered=lambda history: gateway.books.answered(history))
            gateway.gateway.configure(ports, Limits())
            for _ in range(2):
                client.post()
                assert (await client.response()).status == 200
    assert told == ["a fault of answered"]


async def test_a_fault_met_when_it_is_a_waiting_requests_turn_leaves_who_waits_behind_it_their_own() -> None:
    with faults_told() as told:
        async with (
            scripted_node(answer()) as node,
            rig(node.url, queue_size=2) as gateway,
            Client.to(gateway) as client,
            Client.to(gateway) as other,
        ):
            gateway.books.error = AllFull("Every node is full.")
            client.post()
            await eventually(lambda: gateway.gateway.queue_lengths[TrafficClass.INTERACTIVE] == 1)
            other.post()
            await eventually(lambda: gateway.gateway.queue_lengths[TrafficClass.INTERACTIVE] == 2)
            once_faulty(gateway.books, "place", works=False)
            gateway.books.error = None
            assert await asyncio.wait_for(client.reader.read(), 10) == b""
            assert (await other.response()).status == 200
    assert told == ["a fault of place"]

"""Nodes by name and nodes by address: what a host's addresses make of a template, as they come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from gateway_rig import eventually
from slipstream.control.addresses import addresses_of
from slipstream.control.discovery import Discovery, node_at
from slipstream.core.node import NodeSpec
from slipstream.core.request import Pool

NAMED = NodeSpec("named", "http://10.0.0.1:8000", Pool.STANDARD)
SPEC = NodeSpec("spec", "http://spec.svc:8000", Pool.SPECULATIVE, engine="vllm", ceiling=12, api_key="k")


class Hosts:
    """A hosts file that a test writes. A host without addresses can not be looked up."""

    def __init__(self, **addresses: str) -> None:
        self.addresses = addresses
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> tuple[str, ...]:
        self.asked.append((host, port))
        await asyncio.sleep(0)
        if not self.addresses[host]:
            raise OSError("Name or service not known")
        return tuple(self.addresses[host].split())


class Followed:
    """What a discovery says, as names and urls."""

    def __init__(self) -> None:
        self.nodes: list[tuple[NodeSpec, ...]] = []
        self.more_to_come: list[bool] = []

    def __call__(self, nodes: Sequence[NodeSpec], *, more_to_come: bool) -> None:
        self.nodes.append(tuple(nodes))
        self.more_to_come.append(more_to_come)

    def names(self) -> list[str]:
        return [node.name for node in self.nodes[-1]]


async def soon(_seconds: float) -> None:
    await asyncio.sleep(0.002)


@asynccontextmanager
async def discovering(hosts: Hosts) -> AsyncIterator[tuple[Discovery, Followed]]:
    followed = Followed()
    discovery = Discovery(followed, hosts, sleep=soon)
    before = asyncio.all_tasks()
    try:
        yield discovery, followed
    finally:
        await discovery.stop()
    assert asyncio.all_tasks() == before


def test_a_node_at_an_address_is_the_template_with_a_stable_name_and_an_address_for_a_host() -> None:
    node = node_at(SPEC, "10.0.0.7")
    assert node == NodeSpec(
        "spec-10.0.0.7", "http://10.0.0.7:8000", Pool.SPECULATIVE, engine="vllm", ceiling=12, api_key="k"
    )
    assert node_at(SPEC, "fd00::7").name == "spec-fd00--7"
    assert node_at(SPEC, "fd00::7").url == "http://[fd00::7]:8000"


async def test_nodes_that_are_named_are_there_at_once_and_addresses_follow() -> None:
    async with discovering(Hosts(**{"spec.svc": "10.0.0.7 10.0.0.8"})) as (discovery, followed):
        discovery.configure([NAMED], [SPEC], 5.0)
        assert followed.names() == ["named"]
        await eventually(lambda: followed.names() == ["named", "spec-10.0.0.7", "spec-10.0.0.8"])
        assert followed.more_to_come == [True, False]


async def test_addresses_come_and_go_and_nothing_is_said_while_they_stay() -> None:
    hosts = Hosts(**{"spec.svc": "10.0.0.7"})
    async with discovering(hosts) as (discovery, followed):
        discovery.configure([], [SPEC], 5.0)
        await eventually(lambda: len(hosts.asked) > 5)
        assert len(followed.nodes) == 2
        hosts.addresses["spec.svc"] = "10.0.0.8 10.0.0.7"
        await eventually(lambda: followed.names() == ["spec-10.0.0.8", "spec-10.0.0.7"])
        hosts.addresses["spec.svc"] = "10.0.0.8"
        await eventually(lambda: followed.names() == ["spec-10.0.0.8"])
    assert set(hosts.asked) == {("spec.svc", 8000)}


async def test_a_failed_look_up_keeps_what_was_known_and_is_said_once() -> None:
    hosts = Hosts(**{"spec.svc": "10.0.0.7"})
    async with discovering(hosts) as (discovery, followed):
        discovery.configure([], [SPEC], 5.0)
        await eventually(lambda: followed.names() == ["spec-10.0.0.7"])
        with capture_logs() as logs:
            hosts.addresses["spec.svc"] = ""
            asked = len(hosts.asked)
            await eventually(lambda: len(hosts.asked) > asked + 5)
            assert followed.names() == ["spec-10.0.0.7"]
            hosts.addresses["spec.svc"] = "10.0.0.7"
            await eventually(lambda: len(logs) == 2)
    failed, recovered = logs
    assert (failed["event"], failed["host"], failed["addresses_kept"]) == ("discovery.failed", "spec.svc", 1)
    assert failed["error"] == "Name or service not known"
    assert recovered["event"] == "discovery.recovered"


async def test_a_new_configuration_keeps_what_is_known_of_hosts_that_stay() -> None:
    hosts = Hosts(**{"spec.svc": "10.0.0.7", "std.svc": "10.0.0.9"})
    std = NodeSpec("std", "http://std.svc:80", Pool.STANDARD)
    async with discovering(hosts) as (discovery, followed):
        discovery.configure([], [SPEC, std], 5.0)
        await eventually(lambda: followed.names() == ["spec-10.0.0.7", "std-10.0.0.9"])
        hosts.addresses["spec.svc"] = ""
        discovery.configure([NAMED], [SPEC], 2.0)
        assert followed.names() == ["named", "spec-10.0.0.7"]
        asked = len(hosts.asked)
        await eventually(lambda: len(hosts.asked) > asked + 3)
        assert {host for host, _ in hosts.asked[asked:]} == {"spec.svc"}
        assert followed.names() == ["named", "spec-10.0.0.7"]


async def test_the_addresses_of_another_host_replace_those_of_the_first() -> None:
    hosts = Hosts(**{"spec.svc": "10.0.0.7", "other.svc": "10.0.0.9"})
    async with discovering(hosts) as (discovery, followed):
        discovery.configure([], [SPEC], 5.0)
        await eventually(lambda: followed.names() == ["spec-10.0.0.7"])
        discovery.configure([], [NodeSpec("spec", "http://other.svc:8000", Pool.SPECULATIVE)], 5.0)
        assert followed.names() == []
        await eventually(lambda: followed.names() == ["spec-10.0.0.9"])


async def test_an_engine_that_is_named_already_is_not_added_again_for_its_address() -> None:
    async with discovering(Hosts(**{"spec.svc": "10.0.0.1 10.0.0.2"})) as (discovery, followed):
        discovery.configure([NAMED, NodeSpec("spec-10.0.0.2", "http://10.0.0.3:1", Pool.STANDARD)], [SPEC], 5.0)
        await eventually(lambda: len(followed.nodes) > 1)
        assert followed.names() == ["named", "spec-10.0.0.2"]


async def test_a_host_of_this_machine_has_its_loopback_addresses() -> None:
    found = await addresses_of("localhost", 80)
    assert found
    assert set(found) <= {"127.0.0.1", "::1"}
    assert await addresses_of("127.0.0.1", 80) == ("127.0.0.1",)


@pytest.mark.parametrize("host", ["fe80::1%nowhere", "a" * 70])
async def test_a_host_that_can_not_be_looked_up_is_an_error_of_the_system(host: str) -> None:
    with pytest.raises(OSError, match=r"."):
        await addresses_of(host, 80)


async def test_a_look_up_that_nobody_waits_for_any_more_disturbs_nobody() -> None:
    asking = asyncio.create_task(addresses_of("localhost", 80))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await addresses_of("localhost", 80)

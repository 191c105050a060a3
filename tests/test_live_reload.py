"""A configuration that changes under a running service: what takes hold, what stays, what is refused."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml
from rich.console import Console

from live_service import Live, eventually, live
from slipstream.cli.status import fleet_report
from slipstream.config import load
from slipstream.core.errors import ConfigError
from slipstream.service import running
from slipstream.settings import read_settings
from tls_files import chain_and_key
from vllm_like_node import MODEL, Drafts, VllmLike, vllm_like

CODE = "Write a Python function that reverses a string and returns it."
CHAT = "Hello! How are you today?"


class File:
    """A configuration file before two nodes, which a test rewrites."""

    def __init__(self, path: Path, spec: VllmLike, std: VllmLike) -> None:
        self.path = path
        self.data: dict[str, Any] = {
            "gateway": {"listen": "127.0.0.1:0"},
            "admin": {"listen": "127.0.0.1:0"},
            "nodes": [
                {"name": "spec-0", "url": spec.url, "pool": "speculative", "engine": "vllm"},
                {"name": "std-0", "url": std.url, "pool": "standard", "engine": "vllm"},
            ],
        }
        self.write()

    def write(self, **sections: Any) -> None:
        self.data |= sections
        self.path.write_text(yaml.safe_dump(self.data))


@asynccontextmanager
async def fleet_of(file: File) -> AsyncIterator[Live]:
    async with live(load(file.path), path=file.path) as fleet:
        yield fleet


async def marks_of(fleet: Live, text: str) -> tuple[str, str]:
    """Node and reason of an answered request."""
    answer = await fleet.client.chat.completions.with_raw_response.create(
        model=MODEL, messages=[{"role": "user", "content": text}]
    )
    return answer.headers["x-slipstream-node"], answer.headers["x-slipstream-reason"]


async def usable(fleet: Live, name: str) -> None:
    await eventually(lambda: fleet.node(name).usable)


async def reloaded(fleet: Live) -> dict[str, Any]:
    """What came of one more reload, as the admin API tells it."""
    before = sum(fleet.service.reloads.counts.values())
    fleet.service.reload("a test")
    await eventually(lambda: sum(fleet.service.reloads.counts.values()) > before)
    last: dict[str, Any] = (await fleet.admin("/fleet"))["config"]["last"]
    return last


async def test_policy_categories_rules_limits_and_pins_take_hold_in_one_step(tmp_path: Path) -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        file = File(tmp_path / "fleet.yaml", spec, std)
        async with fleet_of(file) as fleet:
            assert await marks_of(fleet, CODE) == ("spec-0", "speculative")
            file.write(
                pools={"speculative": {"short_output_tokens": 1000, "ceiling": 3}},
                categories={"greeting": {"prior_alpha": 0.9}},
                category_rules=[{"category": "greeting", "words": ["hello"]}],
                routing={"pins": {"code": "standard"}},
                gateway={"listen": "127.0.0.1:0", "max_body_bytes": 200},
            )
            last = await reloaded(fleet)
            assert last["result"] == "applied"
            assert last["sentences"] == [
                "gateway.max_body_bytes 33554432 → 200",
                "pools.speculative.ceiling 8 → 3",
                "pools.speculative.short_output_tokens 64 → 1000",
                "routing.pins.code left out → standard",
                "categories.greeting changed",
                "category_rules changed",
            ]
            assert await marks_of(fleet, CODE) == ("std-0", "pinned")
            assert await marks_of(fleet, CHAT) == ("spec-0", "speculative")
            assert (await fleet.shown("spec-0"))["ceiling"] == 3
            assert (await fleet.category("greeting"))["name"] == "greeting"
            with pytest.raises(openai.APIStatusError) as refused:
                await marks_of(fleet, "long " * 100)
            assert refused.value.status_code == 413


async def test_evidence_decisions_and_running_requests_outlast_a_reload(tmp_path: Path) -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        file = File(tmp_path / "fleet.yaml", spec, std)
        async with fleet_of(file) as fleet:
            await marks_of(fleet, CODE)
            evidence = (await fleet.category("code"))["evidence_requests"]
            spec.gate.clear()
            asking = asyncio.create_task(marks_of(fleet, CODE))
            await eventually(lambda: spec.in_flight == 1)
            file.write(pools={"speculative": {"ceiling": 1}}, gateway={"listen": "127.0.0.1:0", "max_body_bytes": 10})
            assert (await reloaded(fleet))["result"] == "applied"
            assert (await fleet.shown("spec-0"))["state"] == "saturated"
            assert fleet.in_flight == 1
            spec.gate.set()
            assert await asking == ("spec-0", "speculative")
            await fleet.drained()
            assert (await fleet.category("code"))["evidence_requests"] == evidence + 1
            assert len(fleet.placements()) == 2


async def test_a_bad_file_changes_nothing_and_says_why_where_people_look(tmp_path: Path) -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        file = File(tmp_path / "fleet.yaml", spec, std)
        async with fleet_of(file) as fleet:
            before = fleet.service.settings
            file.write(routing={"holdback": 2})
            last = await reloaded(fleet)
            assert (last["result"], fleet.service.settings) == ("refused", before)
            assert re.fullmatch(
                r".*fleet\.yaml:\d+: routing\.holdback: found 2; allowed: at most 1", "; ".join(last["sentences"])
            )
            console = Console(record=True, file=StringIO(), width=200)
            console.print(fleet_report(await fleet.admin("/fleet")))
            assert f"so the one before goes on:\n  {last['sentences'][0]}" in console.export_text()
            async with fleet.session.get(fleet.service.admin_url + "/metrics") as response:
                page = await response.text()
            assert 'slipstream_config_reloads_total{result="refused"} 1.0' in page
            assert 'slipstream_config_reloads_total{result="applied"} 0.0' in page
            assert await marks_of(fleet, CODE) == ("spec-0", "speculative")


async def test_listeners_stay_where_they_are(tmp_path: Path) -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        file = File(tmp_path / "fleet.yaml", spec, std)
        async with fleet_of(file) as fleet:
            file.write(gateway={"listen": "127.0.0.1:1"}, routing={"holdback": 1.0})
            last = await reloaded(fleet)
            allowed = "127.0.0.1:0, as at the start: listeners are moved by a restart alone"
            assert last["result"] == "refused"
            assert last["sentences"] == [f"{file.path}: gateway.listen: found 127.0.0.1:1; allowed: {allowed}"]
            assert await marks_of(fleet, CODE) == ("spec-0", "speculative")


async def test_a_removed_node_drains_and_then_its_series_are_gone(tmp_path: Path) -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std, vllm_like() as other:
        file = File(tmp_path / "fleet.yaml", spec, std)
        async with fleet_of(file) as fleet:
            std.gate.clear()
            asking = asyncio.create_task(marks_of(fleet, CHAT))
            await eventually(lambda: std.in_flight == 1)
            file.write(nodes=[file.data["nodes"][0], {"name": "std-1", "url": other.url, "pool": "standard"}])
            last = await reloaded(fleet)
            assert last["sentences"] == ["node std-1 added", "node std-0 removed"]
            assert (await fleet.shown("std-0"))["state"] == "draining"
            await eventually(lambda: fleet.node("std-1").usable)
            assert (await marks_of(fleet, CHAT))[0] == "std-1"
            std.gate.set()
            assert (await asking)[0] == "std-0"
            await eventually(lambda: fleet.service.dispatcher.fleet.node("std-0") is None)
            async with fleet.session.get(fleet.service.admin_url + "/metrics") as response:
                page = await response.text()
            assert 'node="std-1"' in page
            assert 'node="std-0"' not in page
            await eventually(lambda: std.node.open_connections == 0)


async def test_no_request_is_refused_when_every_node_is_replaced_at_once(tmp_path: Path) -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        file = File(tmp_path / "fleet.yaml", spec, std)
        async with fleet_of(file) as fleet:
            for generation in "blue", "green":
                file.write(nodes=[node | {"name": f"{generation}-{node['pool']}"} for node in file.data["nodes"]])
                assert (await reloaded(fleet))["result"] == "applied"
                nodes = set()
                async with asyncio.timeout(20):
                    while f"{generation}-speculative" not in nodes:
                        nodes.add((await marks_of(fleet, CODE))[0])
            await eventually(lambda: len(list(fleet.service.dispatcher.fleet.nodes())) == 2)


async def test_a_node_at_another_address_is_another_node(tmp_path: Path) -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std, vllm_like() as other:
        file = File(tmp_path / "fleet.yaml", spec, std)
        async with fleet_of(file) as fleet:
            std.gate.clear()
            asking = asyncio.create_task(marks_of(fleet, CHAT))
            await eventually(lambda: std.in_flight == 1)
            file.write(nodes=[file.data["nodes"][0], {"name": "std-0", "url": other.url, "pool": "standard"}])
            assert (await reloaded(fleet))["sentences"] == [
                f"node std-0 url {std.url} → {other.url}",
                "node std-0 engine vllm → left out",
            ]
            await eventually(lambda: fleet.node("std-0").usable)
            await marks_of(fleet, CHAT)
            assert other.finished == 1
            std.gate.set()
            await asking
            await fleet.drained()


async def test_a_file_that_has_lost_its_keys_or_its_token_opens_nothing(tmp_path: Path) -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        file = File(tmp_path / "fleet.yaml", spec, std)
        (tmp_path / "key").write_text("clients-own\n")
        file.write(
            gateway={"listen": "127.0.0.1:0", "keys": [{"id": "team", "file": "key"}]},
            admin={"listen": "127.0.0.1:0", "token": {"file": "key"}},
        )
        config = load(file.path)
        for section in "gateway", "admin":
            whole = file.data[section]
            file.write(**{section: {"listen": "127.0.0.1:0"}})
            with pytest.raises(ConfigError, match=r"found none; allowed: .*, as now: a file cut short must not open"):
                read_settings(file.path, config)
            file.write(**{section: whole})
        assert read_settings(file.path, config).config == config


async def test_keys_and_the_admin_token_are_those_of_the_file(tmp_path: Path) -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        file = File(tmp_path / "fleet.yaml", spec, std)
        (tmp_path / "key").write_text("clients-own\n")
        (tmp_path / "token").write_text("operators-own\n")
        async with fleet_of(file) as fleet:
            gateway = {"listen": "127.0.0.1:0", "keys": [{"id": "team", "file": "key"}]}
            file.write(gateway=gateway, admin={"listen": "127.0.0.1:0", "token": {"file": "token"}})
            fleet.service.reload("a test")
            await eventually(lambda: fleet.service.reloads.counts["applied"] == 1)
            assert await marks_of(fleet, CODE) == ("spec-0", "speculative")
            async with openai.AsyncOpenAI(base_url=fleet.base_url, api_key="another", max_retries=0) as stranger:
                with pytest.raises(openai.AuthenticationError):
                    await stranger.models.list()
            async with fleet.session.get(fleet.service.admin_url + "/fleet") as response:
                assert response.status == 401
            bearer = {"authorization": "Bearer operators-own"}
            async with fleet.session.get(fleet.service.admin_url + "/fleet", headers=bearer) as response:
                assert response.status == 200


async def test_nodes_of_a_second_file_come_and_go_when_that_file_changes(tmp_path: Path) -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        file = File(tmp_path / "fleet.yaml", spec, std)
        nodes = tmp_path / "nodes.yaml"
        nodes.write_text("nodes: []\n")
        more = file.data.pop("nodes")
        file.write(discovery={"file": "nodes.yaml"})
        async with fleet_of(file) as fleet:
            assert [*fleet.service.dispatcher.fleet.nodes()] == []
            nodes.write_text(yaml.safe_dump({"nodes": more}))
            await eventually(lambda: len(fleet.service.dispatcher.fleet) == 2)
            await fleet.service.ready(20)
            assert await marks_of(fleet, CODE) == ("spec-0", "speculative")
            nodes.write_text(yaml.safe_dump({"nodes": more[1:]}))
            await eventually(lambda: len(fleet.service.dispatcher.fleet) == 1)
            assert (await marks_of(fleet, CODE))[0] == "std-0"


async def test_a_host_name_is_as_many_nodes_as_it_has_addresses(tmp_path: Path) -> None:
    """``localhost`` has one or two, and the node listens on one of them."""
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        file = File(tmp_path / "fleet.yaml", spec, std)
        url = std.url.replace("127.0.0.1", "localhost")
        file.write(nodes=[file.data["nodes"][0], {"name": "std", "url": url, "pool": "standard", "resolve": "all"}])
        async with live(load(file.path), ready_s=None) as fleet:
            await eventually(lambda: "std-127.0.0.1" in [node.name for node in fleet.service.dispatcher.fleet.nodes()])
            await eventually(lambda: fleet.node("std-127.0.0.1").usable)
            assert (await marks_of(fleet, CHAT))[0] == "std-127.0.0.1"


async def test_no_task_is_left_of_a_service_that_was_reloaded(tmp_path: Path) -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        file = File(tmp_path / "fleet.yaml", spec, std)
        own = asyncio.all_tasks()
        async with running(load(file.path), file.path) as service:
            await service.ready(20)
            for interval in (0.05, 0.2, 0.07):
                file.write(control={"poll_interval_s": interval}, nodes=file.data["nodes"][::-1])
                service.reload("a test")
                service.reload("a test")
            await eventually(lambda: sum(service.reloads.counts.values()) == 6)
            names = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("poll ")]
            assert sorted(names) == ["poll spec-0", "poll std-0"]
            service.reload("stopped before it is done")
        left = asyncio.all_tasks() - own
        await eventually(lambda: not any(task.get_name().startswith(("poll", "look up")) for task in left))
        assert {task.get_name() for task in asyncio.all_tasks() - own if "slipstream" in repr(task)} == set()


async def test_no_request_fails_while_nodes_and_settings_change_again_and_again(tmp_path: Path) -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std, vllm_like() as other:
        file = File(tmp_path / "fleet.yaml", spec, std)
        nodes = [*file.data["nodes"], {"name": "std-1", "url": other.url, "pool": "standard", "engine": "vllm"}]
        async with fleet_of(file) as fleet:
            going_on = True

            async def ask(text: str) -> None:
                while going_on:
                    await marks_of(fleet, text)

            clients = [asyncio.create_task(ask(text)) for text in (CODE, CHAT, CODE, CHAT)]
            for turn in range(4):
                wanted = nodes[:2] if turn % 2 else [nodes[0], nodes[2]]
                file.write(nodes=wanted, pools={"speculative": {"ceiling": 1 + turn % 3}})
                assert (await reloaded(fleet))["result"] == "applied"
                await usable(fleet, wanted[1]["name"])
                for _ in range(20):
                    await marks_of(fleet, CHAT)
            going_on = False
            await asyncio.gather(*clients)
            await fleet.drained()
            await eventually(lambda: len(fleet.service.dispatcher.fleet) == 2)
            assert fleet.service.instruments.rejections.total() == 0


async def test_a_listener_gets_or_loses_its_certificate_only_by_a_restart(tmp_path: Path) -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        file = File(tmp_path / "fleet.yaml", spec, std)
        async with fleet_of(file) as fleet:
            certificate, key = chain_and_key("server")
            file.write(gateway={"listen": "127.0.0.1:0", "tls": {"certificate": certificate, "key": key}})
            last = await reloaded(fleet)
            assert last["result"] == "refused"
            assert "gateway.tls: found a certificate; allowed: no certificate, as at the start" in last["sentences"][0]


async def test_a_service_without_a_file_has_nothing_to_reload(tmp_path: Path) -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        file = File(tmp_path / "fleet.yaml", spec, std)
        async with live(load(file.path)) as fleet:
            fleet.service.reload("a test")
            assert await marks_of(fleet, CODE) == ("spec-0", "speculative")
            assert fleet.service.reloads.last is None

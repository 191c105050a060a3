"""What users of gateways complain about, theme by theme: each has a test named after it, over sockets.

The themes were collected from the issue trackers of ten routers. The whole service runs before emulated nodes; where
bytes matter, a client writes and reads them itself.
"""

from __future__ import annotations

import asyncio
import io
import json
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml

from emulated_client import clear_faults, draft, fault
from live_service import Live, eventually, eventually_async, live
from slipstream.cli.descriptors import allow_many_connections
from slipstream.config import FleetConfig, load
from slipstream.emulate import EmulatedNode, NodeSettings, emulated

CODE = "Write a Python function that reverses a string and returns it."
QUICK = NodeSettings(ttft_s=0.0, step_s=0.0, output_tokens=20, slots=16)
SLOW = NodeSettings(ttft_s=0.2, step_s=0.02, output_tokens=400, slots=64)
MODEL = "emulated"


@asynccontextmanager
async def fleet(
    *nodes: NodeSettings, path: Path | None = None, dialect: str = "vllm", **sections: Any
) -> AsyncIterator[tuple[Live, list[EmulatedNode]]]:
    """The service before nodes with these settings: named by pool and number."""
    async with AsyncExitStack() as stack:
        started = [await stack.enter_async_context(emulated(dialect, settings)) for settings in nodes]
        data = {
            "gateway": {"listen": "127.0.0.1:0"} | sections.pop("gateway", {}),
            "admin": {"listen": "127.0.0.1:0"},
            "nodes": [section(number, node, dialect) for number, node in enumerate(started)],
            **sections,
        }
        config = FleetConfig.model_validate(data) if path is None else written(path, data)
        yield await stack.enter_async_context(live(config, path=path)), started


def written(path: Path, data: dict[str, Any]) -> FleetConfig:
    path.write_text(yaml.safe_dump(data))
    return load(path)


def section(number: int, node: EmulatedNode, dialect: str) -> dict[str, Any]:
    pool = "speculative" if node.settings.speculator else "standard"
    return {
        "name": f"{pool}-{number}",
        "url": node.url,
        "pool": pool,
        "engine": dialect,
        "max_in_flight": max(256, node.settings.slots),
    }


def body(*, stream: bool = False, text: str = CODE, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "stream": stream, **fields}


async def post(
    served: Live, *, path: str = "/v1/chat/completions", **fields: Any
) -> tuple[int, Mapping[str, str], bytes]:
    data = io.BytesIO(json.dumps(body(**fields)).encode())
    headers = {"content-type": "application/json"}
    async with served.session.post(served.service.gateway_url + path, data=data, headers=headers) as response:
        return response.status, response.headers, await response.read()


class Raw:
    """A client that is bytes on a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def ask(self, **fields: Any) -> None:
        sent = json.dumps(body(**fields)).encode()
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        self.writer.write(f"{head}content-length: {len(sent)}\r\n\r\n".encode() + sent)

    async def until(self, mark: bytes, deadline_s: float = 20) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(mark), deadline_s)

    def leave(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def connected(served: Live) -> AsyncIterator[Raw]:
    host, _, port = served.service.gateway_url.removeprefix("http://").partition(":")
    client = Raw(*await asyncio.open_connection(host, int(port)))
    try:
        yield client
    finally:
        client.leave()


# Clients that leave, or do not read


@pytest.mark.parametrize("moment", ["before the first token", "in the stream", "while it waits for a whole answer"])
async def test_client_gone_upstream_keeps_generating(moment: str) -> None:
    slow = NodeSettings(ttft_s=30.0 if moment == "before the first token" else 0.0, step_s=0.01, output_tokens=5000)
    async with fleet(slow) as (served, [node]), connected(served) as client:
        client.ask(stream=moment != "while it waits for a whole answer")
        if moment == "in the stream":
            await client.until(b"data: ")
        await eventually(lambda: node.record.in_flight == 1)
        client.leave()
        await eventually(lambda: node.record.in_flight == 0)
        assert node.record.outcomes["aborted"] == 1
        await served.drained()


async def test_slot_or_counter_leak_on_abort_or_flap() -> None:
    chance = random.Random(1)
    settings = NodeSettings(ttft_s=0.01, step_s=0.005, output_tokens=20, slots=64)
    async with fleet(draft(ttft_s=0.01, step_s=0.005, slots=64), settings) as (served, [spec, std]):
        places = asyncio.Semaphore(60)

        async def one() -> None:
            async with places, connected(served) as client:
                client.ask(stream=chance.random() < 0.6)
                with suppress(TimeoutError, asyncio.IncompleteReadError, ConnectionError):
                    await asyncio.wait_for(client.reader.readexactly(10**6), chance.uniform(0.0, 0.12))
                client.leave()

        leaving = [asyncio.create_task(one()) for _ in range(1000)]
        await fault(std, "refuse", seconds=0.3)
        await fault(spec, "die", after_events=2, requests=20)
        await asyncio.gather(*leaving)
        await served.drained()
        await eventually(lambda: spec.record.in_flight == std.record.in_flight == 0)
        assert all(node["occupancy"] == 0 for node in (await served.admin("/fleet"))["nodes"] if node["foreign"] == 0)


async def test_connected_but_not_reading_client_pins_a_slot() -> None:
    endless = NodeSettings(ttft_s=0.0, step_s=0.0, output_tokens=200_000)
    impatient = {"timeouts": {"write_s": 0.5}}
    async with fleet(endless, gateway=impatient) as (served, [node]), connected(served) as client:
        client.ask(stream=True)
        await eventually(lambda: node.record.in_flight == 1)
        await eventually(lambda: node.record.in_flight == 0)
        await served.drained()


# Streams


async def test_upstream_dies_mid_stream_looks_like_success() -> None:
    async with fleet(QUICK, QUICK) as (served, nodes):
        for node in nodes:
            await fault(node, "die", after_events=4)
        status, _, answer = await post(served, stream=True)
        assert status == 200
        assert b"[DONE]" not in answer
        *_, last = answer.decode().strip().split("\n\n")
        assert json.loads(last.removeprefix("data: "))["error"]["message"]
        await served.drained()
        endings = served.service.dispatcher.endings
        assert {ending: count for (_, ending), count in endings.items()} == {"upstream_lost": 1}


async def test_sse_buffering_or_batching_delays() -> None:
    async with fleet(QUICK) as (served, [node]):
        await fault(node, "stall", after_events=3)
        async with connected(served) as client:
            client.ask(stream=True)
            await client.until(b"\r\n\r\n")
            for _ in range(3):  # each is here although the next one never comes
                await client.until(b"\n\n")
            client.leave()


@pytest.mark.parametrize("size", [1, 2, 3, 7])
async def test_utf_8_split_over_chunks(size: int) -> None:
    async with fleet(QUICK) as (served, [node]):
        async with served.session.post(node.url + "/v1/chat/completions", json=body(stream=True, seed=1)) as direct:
            expected = text_of(await direct.read())
        await fault(node, "split", bytes=size, gap_ms=0.0)
        _, _, answer = await post(served, stream=True, seed=1)
        assert text_of(answer) == expected
        assert not expected.isascii()


def text_of(stream: bytes) -> str:
    events = [json.loads(line[6:]) for line in stream.decode().split("\n\n") if line.startswith("data: {")]
    return "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"])


@pytest.mark.parametrize(
    ("options", "usages"),
    [
        ({}, 0),
        ({"stream_options": {"include_usage": True}}, 1),
        ({"stream_options": {"include_usage": True, "continuous_usage_stats": True}}, 22),
    ],
    ids=["none", "last chunk", "every chunk"],
)
async def test_usage_missing_or_doubled_in_streams(options: dict[str, Any], usages: int) -> None:
    async with fleet(QUICK) as (served, _):
        _, _, answer = await post(served, stream=True, **options)
        assert answer.count(b'"usage":{') == usages
        await served.drained()
        placement = served.placements()[-1]
        assert placement.outcome is not None
        assert placement.outcome.output_tokens == (20 if usages else None)  # the last count, and not their sum


# Retries, circuits, recovery


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_4xx_opens_breaker(status: int) -> None:
    async with fleet(QUICK) as (served, [node]):
        await fault(node, "status", status=status, body={"error": {"message": "no"}}, requests=20)
        for _ in range(20):
            assert (await post(served))[0] == status
        assert (await post(served))[0] == 200
        assert (await served.shown("standard-0"))["healthy"]


async def test_retry_duplicates_work_or_hides_codes() -> None:
    async with fleet(QUICK, QUICK) as (served, nodes):
        for node in nodes:
            await fault(node, "die", after_events=1)
        status, _, _ = await post(served)  # part of an answer was there: nobody repeats that work
        assert status == 502
        assert sum(node.record.received for node in nodes) == 1
        for node in nodes:
            await clear_faults(node)
            await fault(node, "status", status=500, body={"error": {"message": "boom"}})
        status, _, answer = await post(served)
        assert (status, json.loads(answer)["error"]["message"]) == (500, "boom")
        assert sum(node.record.received for node in nodes) == 2
        for node in nodes:
            await clear_faults(node)
        await fault(nodes[0], "die", after_events=0, requests=5)
        for _ in range(6):  # nothing had come: another node answers, and the client never knows
            assert (await post(served))[0] == 200


async def test_stale_keep_alive_502s() -> None:
    async with fleet(QUICK) as (served, [node]):
        for _ in range(5):
            assert (await post(served))[0] == 200
            await fault(node, "refuse", seconds=0.05)  # closes its idle connections, as servers do after a while
            await eventually_async(lambda: listens(node))
            await eventually_async(lambda: is_healthy(served, "standard-0", wanted=True))  # a poll may have met it shut
            assert (await post(served))[0] == 200


async def listens(node: EmulatedNode) -> bool:
    host, _, port = node.url.removeprefix("http://").partition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    return True


async def test_backend_recovered_router_did_not() -> None:
    async with fleet(QUICK) as (served, [node]):
        await fault(node, "refuse", seconds=1.0)
        await eventually_async(lambda: is_healthy(served, "standard-0", wanted=False))
        assert (await post(served))[0] == 503
        await eventually_async(lambda: listens(node))
        await eventually_async(lambda: is_healthy(served, "standard-0", wanted=True))
        assert (await post(served))[0] == 200


async def is_healthy(served: Live, name: str, *, wanted: bool) -> bool:
    healthy: bool = (await served.shown(name))["healthy"]
    return healthy is wanted


async def test_one_bad_backend_hangs_all() -> None:
    async with fleet(QUICK, QUICK) as (served, [bad, good]):
        await fault(bad, "stall", after_events=0, requests=None)
        asking = [asyncio.create_task(post(served)) for _ in range(20)]
        await eventually(lambda: good.record.outcomes["completed"] >= 10)
        done = [task for task in asking if task.done()]
        assert all(task.result()[0] == 200 for task in done)
        await clear_faults(bad)
        await asyncio.gather(*asking)


async def test_dead_nodes_still_routed() -> None:
    async with fleet(QUICK, QUICK) as (served, [dead, alive]):
        await fault(dead, "refuse", seconds=60)
        await eventually_async(lambda: is_healthy(served, "standard-0", wanted=False))
        before = dead.record.received
        for _ in range(20):
            _, headers, _ = await post(served)
            assert headers["x-slipstream-node"] == "standard-1"
        assert (dead.record.received, alive.record.outcomes["completed"]) == (before, 20)
        assert all(placement.attempt == 1 for placement in served.placements()[-20:])


async def test_worker_removal_unsafe(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    async with fleet(SLOW, SLOW, path=path) as (served, nodes):
        asking = [asyncio.create_task(post(served, stream=True, max_tokens=60)) for _ in range(6)]
        await eventually(lambda: all(node.record.in_flight for node in nodes))
        data = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump(data | {"nodes": data["nodes"][1:]}))
        served.service.reload("a test")
        await eventually(
            lambda: [node.name for node in served.service.dispatcher.fleet.nodes() if node.usable] == ["standard-1"]
        )
        for status, _, answer in await asyncio.gather(*asking):  # the removed node finished what it had
            assert (status, answer.count(b"data: [DONE]")) == (200, 1)
        await eventually(lambda: [node.name for node in served.service.dispatcher.fleet.nodes()] == ["standard-1"])


async def test_a_node_that_was_removed_has_a_deadline(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    async with fleet(SLOW, path=path, gateway={"timeouts": {"drain_s": 0.3}}) as (served, [node]):
        streamed = asyncio.create_task(post(served, stream=True, max_tokens=400))
        whole = asyncio.create_task(post(served, max_tokens=400))
        await eventually(lambda: node.record.in_flight == 2)
        data = yaml.safe_load(path.read_text())
        other = data["nodes"][0] | {"name": "standard-1", "url": "http://127.0.0.1:9"}
        path.write_text(yaml.safe_dump(data | {"nodes": [other]}))
        served.service.reload("a test")
        status, _, answer = await streamed
        assert (status, answer.count(b"data: [DONE]")) == (200, 0)
        assert b"Node 'standard-0' was removed 0.3 seconds ago, before its answer ended." in answer
        status, _, answer = await whole
        assert (status, json.loads(answer)["error"]["code"]) == (503, "nothing_usable")
        await eventually(lambda: [node.name for node in served.service.dispatcher.fleet.nodes()] == ["standard-1"])
        await eventually(lambda: node.record.in_flight == 0)


# Metrics


async def test_stale_metrics_lead_to_a_herd() -> None:
    settings = NodeSettings(ttft_s=0.3, step_s=0.0, output_tokens=2, slots=64)
    async with fleet(settings, settings, settings, settings) as (served, nodes):
        for node in nodes:
            await fault(node, "freeze_metrics")  # every page says for ever that its node is idle
        await asyncio.gather(*(post(served) for _ in range(40)))
        assert [node.record.peak_in_flight for node in nodes] == [10, 10, 10, 10]


async def test_metrics_gaps(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    async with fleet(draft(), QUICK, QUICK, path=path) as (served, _):
        page = await metrics(served)
        for series in (
            'slipstream_node_occupancy_sequences{node="standard-2"',
            'slipstream_rejected_requests_total{error="AllFull"} 0.0',
        ):
            assert series in page
        data = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump(data | {"nodes": data["nodes"][:2]}))
        served.service.reload("a test")
        await eventually_async(lambda: gone_from_metrics(served, 'node="standard-2"'))
        assert 'node="standard-1"' in await metrics(served)


async def metrics(served: Live) -> str:
    async with served.session.get(served.service.admin_url + "/metrics") as response:
        return await response.text()


async def gone_from_metrics(served: Live, label: str) -> bool:
    return label not in await metrics(served)


# Headers, bodies, errors


async def test_headers() -> None:
    async with fleet(QUICK) as (served, [node]):
        sent = {
            "authorization": "Bearer secret",
            "x-api-key": "secret",
            "cookie": "a=secret",
            "host": "secret.example",
            "x-forwarded-for": "10.9.8.7",
            "connection": "keep-alive, x-hop",
            "x-hop": "secret",
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "x-request-id": "mine-1",
            "openai-organization": "org",
        }
        url = served.service.gateway_url + "/v1/chat/completions"
        async with served.session.post(url, json=body(), headers=sent) as response:
            assert response.headers["x-request-id"] == "mine-1"
        [seen] = node.record.requests
        assert "secret" not in json.dumps(seen.headers)
        assert "10.9.8.7" not in json.dumps(seen.headers)
        assert {name: seen.headers[name] for name in ("traceparent", "x-request-id", "openai-organization")} == {
            name: sent[name] for name in ("traceparent", "x-request-id", "openai-organization")
        }
        assert node.url.endswith(seen.headers["host"])


@pytest.mark.parametrize("chunked", [False, True])
async def test_big_bodies(chunked: bool) -> None:
    limit = 10 * 2**20
    async with fleet(QUICK, gateway={"max_body_bytes": limit}) as (served, [node]):
        empty = len(json.dumps(body(text="")))
        url = served.service.gateway_url + "/v1/chat/completions"
        for size, status in ((limit, 200), (limit + 1, 413)):
            sent = json.dumps(body(text="x" * (size - empty))).encode()
            assert len(sent) == size
            data = in_pieces(sent) if chunked else io.BytesIO(sent)
            headers = {"content-type": "application/json"}
            async with served.session.post(url, data=data, headers=headers) as response:
                assert response.status == status, await response.text()
        assert node.record.received == 1


async def in_pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 2**16):
        yield data[start : start + 2**16]


async def test_error_shape() -> None:
    async with fleet(QUICK) as (served, [node]):
        url = served.service.gateway_url
        for path, data, status in (
            ("/v1/chat/completions", b"{", 400),
            ("/v1/chat/completions", b'{"model":"emulated"}', 400),
            ("/v1/chat/completions", b'{"model":"other","messages":[{"role":"user","content":"x"}]}', 404),
            ("/nowhere", b"{}", 404),
            ("/v1/models", b"{}", 405),
        ):
            async with served.session.post(url + path, data=data) as response:
                assert response.status == status
                error = (await response.json())["error"]
                assert set(error) >= {"message", "type", "param", "code"}
        own = {"error": {"message": "the engine's own words", "odd": [1, 2]}}
        await fault(node, "status", status=418, body=own)
        status, _, answer = await post(served)
        assert (status, json.loads(answer)) == (418, own)
        with pytest.raises(openai.NotFoundError):
            await served.client.chat.completions.create(model="other", messages=[{"role": "user", "content": "x"}])


# The gateway itself


async def test_event_loop_stalls() -> None:
    steady = NodeSettings(ttft_s=0.0, step_s=0.02, output_tokens=10_000)
    async with fleet(steady) as (served, _), connected(served) as client:
        client.ask(stream=True)
        await client.until(b"data: ")
        big = asyncio.create_task(post(served, text="word " * 5_000_000, max_tokens=1))
        events = 0
        while not big.done():  # a body of 25 MB is read while the other client's chunks go on
            await client.until(b"\n\n")
            events += 1
        client.leave()
        assert (await big)[0] == 200
        assert events >= 2
        assert "slipstream_event_loop_lag_seconds" in await metrics(served)


async def test_crash_at_1k_concurrency() -> None:
    if allow_many_connections() < 6000:  # clients, gateway and node are in one process: four descriptors a stream
        pytest.skip("this system allows too few descriptors")
    many = NodeSettings(ttft_s=3.0, step_s=0.05, output_tokens=6, slots=2000)
    async with fleet(many) as (served, [node]), AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(served)) for _ in range(1000)]
        for client in clients:
            client.ask(stream=True)
        ends = await asyncio.gather(*(client.until(b"0\r\n\r\n", 100) for client in clients))
        assert sum(b"[DONE]" in end for end in ends) == 1000
        assert node.record.peak_in_flight == 1000


async def test_classifier_outage_taxes_everyone() -> None:
    """Nothing can be out: categories come from the request's own text, in microseconds, or by default."""
    async with fleet(QUICK) as (served, _):
        for text in ("", "\x00\ufffd\u200b", "a" * 100_000, "(" * 5000):
            status, headers, _ = await post(served, text=text)
            assert (status, headers["x-slipstream-category"]) == (200, "chat")


async def test_config_reload_half_applied(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    async with fleet(QUICK, QUICK, path=path) as (served, _):
        before = served.service.settings
        data = yaml.safe_load(path.read_text())
        wrong = data | {"nodes": data["nodes"][:1], "routing": {"holdback": 7}, "default_category": "code"}
        path.write_text(yaml.safe_dump(wrong))
        served.service.reload("a test")
        await eventually(lambda: served.service.reloads.counts["refused"] == 1)
        assert served.service.settings is before
        assert len(served.service.dispatcher.fleet) == 2
        assert (await post(served))[1]["x-slipstream-category"] == "code"  # by its words, as before


async def test_replicas_disagree() -> None:
    """Each gateway has its own books, and sees what the other sent as foreign: the ceiling holds for their sum."""
    slow = draft(ttft_s=2.0, slots=64)
    async with fleet(slow, NodeSettings(ttft_s=2.0, slots=64)) as (first, [spec, std]):
        config = first.service.config.model_copy(
            update={"gateway": first.service.config.gateway, "admin": first.service.config.admin}
        )
        async with live(config) as second:
            asking = [asyncio.create_task(post(first)) for _ in range(8)]
            await eventually(lambda: spec.record.in_flight == 8)
            await eventually(lambda: second.node("speculative-0").foreign == 8)
            asking += [asyncio.create_task(post(second)) for _ in range(4)]
            await eventually(lambda: std.record.in_flight == 4)
            assert spec.record.peak_in_flight == 8
            await asyncio.gather(*asking)

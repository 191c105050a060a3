"""Everything that can be made to go wrong does, as often as it should, and then no more."""

from __future__ import annotations

import asyncio
import errno
import json
from typing import Any

import aiohttp
import pytest

from emulated_client import CHAT, ask, clear_faults, draft, fault, fetch, payloads, state, text_in
from gateway_rig import eventually
from live_service import eventually_async
from slipstream.emulate import EmulatedNode, NodeSettings, emulated
from slipstream.emulate.words import text_of
from slipstream.engines.vllm import VLLM

DIALECTS = ["vllm", "llamacpp", "sglang"]
BODY = json.dumps({"model": "emulated", "messages": [{"role": "user", "content": "x"}], "stream": True}).encode()


class Raw:
    """One connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.received = b""
        self.reads = 0

    @classmethod
    async def to(cls, node: EmulatedNode) -> Raw:
        host, _, port = node.url.removeprefix("http://").partition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def post(self, body: bytes = BODY, path: str = CHAT, headers: str = "") -> None:
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)

    async def until(self, ending: bytes) -> bytes:
        """Read until the bytes end so."""
        async with asyncio.timeout(20):
            while not self.received.endswith(ending):
                data = await self.reader.read(65536)
                assert data, f"closed after {self.received!r}"
                self.received += data
                self.reads += 1
        return self.received

    async def until_closed(self) -> bytes:
        async with asyncio.timeout(20):
            self.received += await self.reader.read()
        return self.received

    @property
    def events(self) -> int:
        return self.received.count(b"data: ")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_it_dies_after_so_many_events_and_answers_the_next(dialect: str) -> None:
    async with emulated(dialect, draft()) as node:
        await fault(node, "die", after_events=3)
        raw = await Raw.to(node)
        raw.post()
        received = await raw.until_closed()
        raw.writer.close()
        assert raw.events == 3
        assert b"[DONE]" not in received
        assert (await ask(node)).status == 200
        told = await state(node)
        assert (told["died"], told["completed"], told["in_flight"], told["running"]) == (1, 1, 0, 0)
        assert told["faults"] == []


async def test_it_dies_before_the_first_byte() -> None:
    async with emulated("vllm", draft()) as node:
        await fault(node, "die", after_events=0, requests=2)
        for stream in (True, False):
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await ask(node, stream=stream)
        assert (await ask(node)).status == 200


async def test_it_dies_within_an_unstreamed_body() -> None:
    async with emulated("vllm", draft()) as node:
        await fault(node, "die", after_events=1)
        with pytest.raises(aiohttp.ClientPayloadError):
            await ask(node)
        assert (await state(node))["died"] == 1


async def test_it_resets_the_connection() -> None:
    async with emulated("vllm", draft()) as node:
        await fault(node, "die", after_events=2, reset=True)
        raw = await Raw.to(node)
        raw.post()
        with pytest.raises(ConnectionResetError):
            await raw.until_closed()
        raw.writer.close()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_stall_keeps_the_slot_until_it_is_cleared(stream: bool) -> None:
    async with emulated("vllm", draft()) as node:
        await fault(node, "stall", after_events=0)
        asking = asyncio.create_task(ask(node, stream=stream))
        await eventually(lambda: any(one.emitted for one in node.engine.generations()))
        assert (await state(node))["running"] == 1
        assert not asking.done()
        await clear_faults(node)
        answer = await asking
        assert answer.status == 200
        assert (await state(node))["completed"] == 1


async def test_a_stall_after_events_ends_by_itself() -> None:
    async with emulated("vllm", draft()) as node:
        await fault(node, "stall", after_events=4, seconds=0.05)
        raw = await Raw.to(node)
        raw.post()
        received = await raw.until(b"0\r\n\r\n")
        assert b"[DONE]" in received
        assert raw.reads > 1
        raw.writer.close()
        assert (await state(node))["completed"] == 1


async def test_a_stalled_request_that_is_left_frees_its_slot() -> None:
    async with emulated("vllm", draft()) as node:
        await fault(node, "stall", after_events=2)
        raw = await Raw.to(node)
        raw.post()
        await eventually(lambda: node.record.received == 1)
        await raw.until(b"\r\n")
        raw.writer.close()
        await eventually(lambda: node.record.in_flight == 0)
        assert (node.engine.running, node.record.outcomes["aborted"]) == (0, 1)


async def test_it_stalls_and_then_dies() -> None:
    async with emulated("vllm", draft()) as node:
        await fault(node, "stall", after_events=2, seconds=0.01)
        await fault(node, "die", after_events=4)
        raw = await Raw.to(node)
        raw.post()
        await raw.until_closed()
        raw.writer.close()
        assert raw.events == 4
        assert node.record.outcomes == {"died": 1}


@pytest.mark.parametrize(
    ("body", "sent", "content_type"),
    [
        ({"error": {"message": "no"}}, b'{"error":{"message":"no"}}', "application/json"),
        ("<html>", b"<html>", "text/plain"),
    ],
)
async def test_any_status_for_the_next_requests(body: object, sent: bytes, content_type: str) -> None:
    async with emulated("vllm", draft()) as node:
        await fault(node, "status", status=529, body=body, headers={"retry-after": "7"}, requests=2)
        answers = [await ask(node) for _ in range(3)]
        assert [answer.status for answer in answers] == [529, 529, 200]
        assert answers[0].body == sent
        assert (answers[0].headers["retry-after"], answers[0].headers["content-type"]) == ("7", content_type)
        assert (await state(node))["refused"] == 2


async def test_a_status_with_a_content_type_of_its_own_has_no_other() -> None:
    async with emulated("vllm", draft()) as node:
        await fault(node, "status", status=502, body="<html>", headers={"Content-Type": "text/html"})
        raw = await Raw.to(node)
        raw.post(headers="connection: close\r\n")
        received = await raw.until_closed()
        raw.writer.close()
        assert received.lower().count(b"content-type:") == 1
        assert b"content-type: text/html\r\n" in received


async def test_a_status_for_a_page() -> None:
    async with emulated("vllm", draft()) as node, aiohttp.ClientSession() as session:
        await fault(node, "status", status=500, path="/metrics")
        assert (await ask(node)).status == 200
        async with session.get(f"{node.url}/metrics") as broken, session.get(f"{node.url}/metrics") as whole:
            assert (broken.status, whole.status) == (500, 200)


async def test_it_refuses_connections_for_a_time() -> None:
    async with emulated("vllm", draft()) as node:
        kept = await Raw.to(node)
        await eventually_async(lambda: connected(node, 1))
        await fault(node, "refuse", seconds=0.3)
        assert await kept.reader.read() == b"", "idle connections are closed"
        kept.writer.close()
        with pytest.raises(ConnectionRefusedError):
            await Raw.to(node)
        await eventually_async(lambda: answers(node))


async def connected(node: EmulatedNode, count: int) -> bool:
    return bool((await state(node))["connections"] > count)


async def answers(node: EmulatedNode) -> bool:
    try:
        return (await ask(node)).status == 200
    except aiohttp.ClientConnectorError:
        return False


@pytest.mark.parametrize(
    ("lie", "running", "waiting"),
    [({"running": 0}, 0, 1), ({"running": 40, "waiting": 7}, 40, 7), ({"factor": 3}, 6, 3)],
    ids=str,
)
async def test_metrics_lie(lie: dict[str, int], running: int, waiting: int) -> None:
    settings = NodeSettings(slots=2, ttft_s=3600)
    for dialect, name in (("vllm", "vllm:num_requests_running{"), ("llamacpp", "llamacpp:requests_processing ")):
        async with emulated(dialect, settings) as node:
            hanging = [await Raw.to(node) for _ in range(3)]
            for raw in hanging:
                raw.post()
            await eventually(lambda node=node: node.record.in_flight == 3)  # type: ignore[misc]  # bound here
            await fault(node, "lie_in_metrics", **lie)
            page = (await fetch(node, "/metrics")).decode()
            value = next(line for line in page.splitlines() if line.startswith(name)).split()[-1]
            assert float(value) == running
            if dialect == "llamacpp":
                assert f"requests_deferred {waiting}\n" in page
                slots = json.loads(await fetch(node, "/slots"))
                assert sum(slot["is_processing"] for slot in slots) == min(running, 2)
            for raw in hanging:
                raw.writer.close()


async def test_metrics_freeze_and_thaw() -> None:
    async with emulated("llamacpp", draft()) as node:
        await ask(node)
        await fault(node, "freeze_metrics")
        frozen = await fetch(node, "/metrics"), await fetch(node, "/slots")
        await ask(node)
        assert (await fetch(node, "/metrics"), await fetch(node, "/slots")) == frozen
        await clear_faults(node)
        assert b"tokens_predicted_total 60\n" in await fetch(node, "/metrics")


async def test_metrics_are_garbage() -> None:
    async with emulated("vllm", draft()) as node:
        await fault(node, "garbage_metrics", body="\x00nothing")
        assert await fetch(node, "/metrics") == b"\x00nothing"
        assert b'"vllm"' in await fetch(node, "/v1/models")


async def test_counters_begin_anew() -> None:
    async with emulated("vllm", draft()) as node:
        await ask(node)
        await fault(node, "reset_counters")
        (page,) = VLLM.load
        counters = page.read(await fetch(node, "/metrics")).counters
        assert counters is not None
        assert (counters.drafted, counters.generated_tokens, counters.accepted_per_position) == (0, 0, (0, 0, 0, 0))
        assert (await state(node))["completed"] == 1


@pytest.mark.parametrize("seconds", [3600, 0.01])
async def test_slots_of_those_who_left_drain_slowly(seconds: float) -> None:
    async with emulated("vllm", NodeSettings(slots=1, ttft_s=3600)) as node:
        await fault(node, "slow_drain", seconds=seconds)
        raw, other = await Raw.to(node), await Raw.to(node)
        raw.post()
        await eventually(lambda: node.engine.running == 1)
        other.post()
        await eventually(lambda: node.engine.waiting == 1)
        raw.writer.close()
        await eventually(lambda: node.record.outcomes["aborted"] == 1)
        if seconds > 1:
            assert (node.engine.running, node.engine.waiting) == (1, 1)
        else:
            await eventually(lambda: node.engine.waiting == 0)
        other.writer.close()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("size", [None, 1, 7])
async def test_split_writes_carry_the_same_bytes(dialect: str, size: int | None) -> None:
    async with emulated(dialect, draft(output_tokens=12)) as node:
        await fault(node, "split", bytes=size, gap_ms=0.0)
        answer = await ask(node, stream=True)
        assert text_in(payloads(answer.body)) == text_of(0, 12)
        assert (await ask(node)).status == 200
        assert (await state(node))["completed"] == 2


async def test_a_split_cuts_within_a_character() -> None:
    async with emulated("vllm", draft(output_tokens=7, step_s=0.05)) as node:
        await fault(node, "split", gap_ms=5.0)
        raw = await Raw.to(node)
        raw.post()
        cuts = 0
        async with asyncio.timeout(20):
            while not raw.received.endswith(b"0\r\n\r\n"):
                raw.received += await raw.reader.read(65536)
                cuts += not decodes(raw.received)
        raw.writer.close()
        assert cuts


def decodes(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ('{"kind": "explode"}', "explode"),
        ('{"kind": "stall", "after_events": -1}', "after_events"),
        ('{"kind": "refuse"}', "seconds"),
        ('{"kind": "die", "aftr_events": 1}', "aftr_events"),
        ("{", "no fault"),
    ],
)
async def test_what_is_no_fault_is_said_so(body: str, complaint: str) -> None:
    async with emulated() as node, aiohttp.ClientSession() as session:
        async with session.post(f"{node.url}/emulate/faults", data=body) as response:
            assert response.status == 400
            assert complaint in (await response.json())["error"]
        async with session.get(f"{node.url}/emulate/nothing") as response:
            assert response.status == 404
        assert (await state(node))["faults"] == []


@pytest.mark.parametrize("path", ["/v1/rerank", "/v1/messages/count_tokens"])
async def test_other_paths_of_the_engines_are_not_emulated(path: str) -> None:
    async with emulated("vllm") as node:
        assert (await ask(node, path)).status == 404


async def test_the_state_tells_what_was_seen() -> None:
    async with emulated("vllm", draft()) as node:
        await asyncio.gather(*(ask(node, headers={"x-request-id": f"r{number}"}) for number in range(3)))
        told = await state(node)
    assert (told["received"], told["completed"], told["peak_in_flight"], told["peak_running"]) == (3, 3, 3, 3)
    requests = told["requests"]
    assert {one["headers"]["x-request-id"] for one in requests} == {"r0", "r1", "r2"}
    assert [one["number"] for one in requests] == [1, 2, 3]
    for one in requests:
        assert (one["status"], one["outcome"], one["output_tokens"]) == (200, "completed", 30)
        assert one["ended_at_s"] >= one["at_s"] >= 0
        assert one["accepted"] <= one["drafted"]


async def test_a_kept_connection_serves_requests_in_order() -> None:
    async with emulated("vllm", draft(output_tokens=3)) as node:
        raw = await Raw.to(node)
        raw.post()
        raw.post(BODY.replace(b"true", b"false"), headers="expect: 100-continue\r\n")
        raw.writer.write(b"GET /version HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        received = await raw.until_closed()
        raw.writer.close()
    assert received.count(b"HTTP/1.1 200 OK") == 3
    assert received.count(b"HTTP/1.1 100 Continue") == 1
    assert received.endswith(b'{"version":"0.32.0"}')
    assert [seen.streamed for seen in node.record.requests] == [True, False]


@pytest.mark.parametrize("garbage", [b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"])
async def test_what_is_not_http_is_closed(garbage: bytes) -> None:
    async with emulated() as node:
        raw = await Raw.to(node)
        raw.writer.write(garbage)
        assert (await raw.until_closed()).startswith(b"HTTP/1.1 400 ")
        raw.writer.close()


async def test_an_upgrade_is_not_taken() -> None:
    async with emulated() as node:
        raw = await Raw.to(node)
        raw.writer.write(b"GET /version HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        assert (await raw.until(b"}")).startswith(b"HTTP/1.1 200 ")
        raw.writer.close()


async def test_the_node_ends_while_it_answers() -> None:
    async with emulated("vllm", NodeSettings(ttft_s=3600)) as node:
        raw = await Raw.to(node)
        raw.post()
        await eventually(lambda: node.record.in_flight == 1)
        await fault(node, "refuse", seconds=60)
        await refusal(node)
    assert await raw.until_closed() == b""
    raw.writer.close()
    assert node.record.in_flight == 0


async def refusal(node: EmulatedNode) -> None:
    """Wait until it refuses connections."""
    async with asyncio.timeout(20):
        while True:
            try:
                raw = await Raw.to(node)
            except ConnectionRefusedError:
                return
            raw.writer.close()
            await asyncio.sleep(0.01)


async def test_a_reply_in_pieces_is_whole_before_the_next_begins() -> None:
    async with emulated("vllm", draft(output_tokens=4)) as node:
        await fault(node, "split", bytes=9, gap_ms=0.2, requests=1)
        raw = await Raw.to(node)
        raw.post()
        raw.post()
        raw.writer.write(b"GET /version HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        received = await raw.until_closed()
        raw.writer.close()
    assert received.count(b"[DONE]") == 2
    assert received.endswith(b'{"version":"0.32.0"}')


async def test_a_client_that_leaves_a_reply_in_pieces_is_noticed() -> None:
    async with emulated("vllm", draft(output_tokens=100)) as node:
        await fault(node, "split", bytes=1, gap_ms=50.0)
        raw = await Raw.to(node)
        raw.post()
        await raw.until(b"H")
        raw.writer.close()
        await eventually_async(lambda: connected_exactly(node, 1))
        assert node.record.in_flight == 0


async def connected_exactly(node: EmulatedNode, count: int) -> bool:
    return bool((await state(node))["connections"] == count)


async def test_refusing_twice_is_refusing_once() -> None:
    async with emulated("vllm", draft()) as node:
        raw = await Raw.to(node)
        order = b'{"kind": "refuse", "seconds": 0.1}'
        head = b"POST /emulate/faults HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(order)
        raw.writer.write((head + order) * 2)
        assert (await raw.until_closed()).count(b"HTTP/1.1 200 OK") == 2
        raw.writer.close()
        await eventually_async(lambda: answers(node))


async def test_it_comes_back_when_its_port_is_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with emulated("vllm", draft()) as node:
        loop, tries = asyncio.get_running_loop(), []
        create_server = loop.create_server

        async def taken_at_first(*arguments: Any, **options: Any) -> asyncio.Server:
            tries.append(arguments)
            if len(tries) == 1:
                raise OSError(errno.EADDRINUSE, "taken")
            return await create_server(*arguments, **options)

        monkeypatch.setattr(loop, "create_server", taken_at_first)
        await fault(node, "refuse", seconds=0.05)
        await eventually(lambda: len(tries) == 2)
        await eventually_async(lambda: answers(node))


async def test_the_answer_to_head_has_no_body() -> None:
    async with emulated() as node:
        raw = await Raw.to(node)
        raw.writer.write(b"HEAD /nope HTTP/1.1\r\nhost: x\r\n\r\n")
        raw.writer.write(b"GET /version HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        first, second = (await raw.until_closed()).split(b"HTTP/1.1 ")[1:]
        raw.writer.close()
    assert first.startswith(b"404 ")
    assert first.endswith(b"\r\n\r\n")
    assert second.endswith(b'{"version":"0.32.0"}')


async def test_without_metrics_there_is_nothing_to_freeze() -> None:
    async with emulated("llamacpp", NodeSettings(metrics=False)) as node, aiohttp.ClientSession() as session:
        await fault(node, "freeze_metrics")
        async with session.get(f"{node.url}/metrics") as response:
            assert response.status == 501
        assert len(json.loads(await fetch(node, "/slots"))) == 8


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_unknown_paths_are_not_found(dialect: str) -> None:
    async with emulated(dialect) as node, aiohttp.ClientSession() as session:
        async with session.get(f"{node.url}/nope") as response:
            assert response.status == 404
        async with session.get(node.url + CHAT) as response:
            assert response.status == 404


async def test_busy_slots_tell_what_they_do() -> None:
    async with emulated("llamacpp", draft(ttft_s=3600)) as node:
        raw = await Raw.to(node)
        raw.post()
        await eventually(lambda: node.engine.running == 1)
        busy, *idle = json.loads(await fetch(node, "/slots"))
        assert (busy["is_processing"], busy["params"]["speculative.types"]) == (True, "draft-simple")
        assert busy["next_token"][0]["n_remain"] == 30
        assert not any(slot["is_processing"] for slot in idle)
        raw.writer.close()

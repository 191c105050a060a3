"""The whole service writes down what it did, as configured, and goes on doing so through reloads."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from live_service import Live, command, eventually, eventually_async, live
from slipstream.config import FleetConfig, load
from slipstream.core.policy import Reason
from slipstream.service import Service, running
from slipstream.telemetry.line_file import CanNotWrite
from slipstream.telemetry.recording import read_recording
from vllm_like_node import MODEL, Drafts, VllmLike, vllm_like

CODE = "Write a Python function that reverses a string and returns it."


def sections(spec: VllmLike, std: VllmLike, **others: Any) -> dict[str, Any]:
    return {
        "gateway": {"listen": "127.0.0.1:0"},
        "admin": {"listen": "127.0.0.1:0"},
        "nodes": [
            {"name": "spec-0", "url": spec.url, "pool": "speculative"},
            {"name": "std-0", "url": std.url, "pool": "standard"},
        ],
        **others,
    }


async def ask(fleet: Live, request_id: str, **fields: Any) -> None:
    await fleet.client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": CODE}],
        extra_headers={"x-request-id": request_id},
        **fields,
    )


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def logged(path: Path, request_id: str) -> bool:
    return path.exists() and any(line["id"] == request_id for line in lines(path))


async def test_access_log_recording_and_metrics_tell_the_same_of_a_request(tmp_path: Path) -> None:
    access, recording = tmp_path / "access.jsonl", tmp_path / "decisions.jsonl"
    async with vllm_like(Drafts(10, 20)) as spec, vllm_like() as std:
        written = {"log": {"access": str(access)}, "record": {"file": str(recording)}}
        async with live(FleetConfig.model_validate(sections(spec, std, **written))) as fleet:
            await ask(fleet, "mine")
            async with fleet.session.get(f"{fleet.service.gateway_url}/nowhere") as response:
                assert response.status == 404
            async with fleet.session.get(f"{fleet.service.admin_url}/metrics") as response:
                assert 'slipstream_lost_lines_total{log="access"} 0.0' in await response.text()
    mine, refused = lines(access)
    assert (mine["id"], mine["status"], mine["category"], mine["node"]) == ("mine", 200, "code", "spec-0")
    assert (mine["reason"], mine["pool"], mine["attempts"]) == ("speculative", "speculative", 1)
    assert mine["output_tokens"] == 31
    assert mine["e2e_ms"] > 0
    assert (refused["status"], refused["error"], refused["path"]) == (404, "unknown_path", "/nowhere")
    first, second = read_recording(recording)
    assert (first.id, first.status, second.error) == ("mine", 200, "unknown_path")
    assert first.shape is not None
    assert first.shape.prompt_characters == len(CODE)
    (attempt,) = first.attempts
    assert (attempt.node, attempt.reason, attempt.occupancy, attempt.ceiling) == ("spec-0", Reason.SPECULATIVE, 0, 8)
    assert attempt.output_tokens == 31
    for path in (access, recording):
        assert CODE[:10] not in path.read_text()
        assert "clients-own" not in path.read_text(), "the client's key"


async def test_a_reload_moves_the_access_log_and_one_that_can_not_changes_nothing(tmp_path: Path) -> None:
    file, old, new = tmp_path / "fleet.yaml", tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    async with vllm_like() as spec, vllm_like() as std:
        whole = sections(spec, std)
        file.write_text(yaml.safe_dump(whole | {"log": {"access": "old.jsonl"}}))
        async with running(load(file), file) as service:
            client = Live(service, None, None)  # type: ignore[arg-type]  # only its addresses are used
            await asyncio.wait_for(service.ready(30), 30)
            await health(client)
            await eventually(lambda: len(lines(old)) == 1)
            file.write_text(yaml.safe_dump(whole | {"log": {"access": "missing/new.jsonl"}}))
            await eventually(lambda: service.reloads.counts["refused"] == 1)
            assert service.reloads.last is not None
            assert "can not write to" in service.reloads.last.sentences[0]
            await health(client)
            await eventually(lambda: len(lines(old)) == 2)
            file.write_text(yaml.safe_dump(whole | {"log": {"access": "new.jsonl"}}))
            await eventually(lambda: service.reloads.counts["applied"] == 1)
            await health(client)
            old.rename(tmp_path / "rotated")
            service.reload("a test")
            await eventually(old.exists)
        assert (len(lines(tmp_path / "rotated")), len(lines(new))) == (2, 1)


async def test_metrics_gaps_series_are_there_from_the_start_and_gone_with_their_node(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    async with vllm_like(Drafts(10, 20)) as spec, vllm_like() as std:
        whole = sections(spec, std)
        file.write_text(yaml.safe_dump(whole))
        async with running(load(file), file) as service, aiohttp.ClientSession() as session:
            fresh = await metrics(service, session)
            drawn = {name for name in NEEDED if f"\n{name}" not in fresh}
            assert drawn == set(), "a dashboard would have gaps"
            await service.ready(30)
            assert 'node="std-0"' in await metrics(service, session)
            file.write_text(yaml.safe_dump(whole | {"nodes": whole["nodes"][:1]}))
            await eventually(lambda: service.reloads.counts["applied"] == 1)
            await eventually_async(lambda: _gone("std-0", service, session))
            assert 'node="spec-0"' in await metrics(service, session)


NEEDED = [
    "slipstream_requests_total",
    "slipstream_request_endings_total",
    "slipstream_rejected_requests_total",
    "slipstream_ttft_seconds_bucket",
    "slipstream_tpot_seconds_sum",
    "slipstream_e2e_seconds_count",
    "slipstream_output_tokens_total",
    "slipstream_decision_seconds_bucket",
    "slipstream_queue_requests",
    "slipstream_lost_lines_total",
    "slipstream_config_reloads_total",
    "slipstream_client_connections",
    "slipstream_fleet_blind",
    "slipstream_node_healthy",
    "slipstream_node_own_sequences",
    "slipstream_node_circuit_state",
]
"""Counters and states that rates and alerts are made of: without traffic, and before any node has reported."""


async def metrics(service: Service, session: aiohttp.ClientSession) -> str:
    async with session.get(f"{service.admin_url}/metrics") as response:
        return await response.text()


async def _gone(node: str, service: Service, session: aiohttp.ClientSession) -> bool:
    return f'"{node}"' not in await metrics(service, session)


async def health(fleet: Live) -> None:
    host, _, port = fleet.service.gateway_url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b" 200 " in await asyncio.wait_for(reader.read(), 20)
    writer.close()


async def test_an_access_log_that_can_not_be_opened_stops_the_start_with_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    node = {"name": "s", "url": "http://127.0.0.1:9", "pool": "standard"}
    file.write_text(
        yaml.safe_dump(
            {
                "gateway": {"listen": "127.0.0.1:0"},
                "admin": {"listen": "127.0.0.1:0"},
                "nodes": [node],
                "log": {"access": "missing/access.jsonl"},
            }
        )
    )
    with pytest.raises(CanNotWrite):
        async with running(load(file), file):
            pass
    process = await asyncio.create_subprocess_exec(
        *command("serve", "-c", str(file)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
    )
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert said.decode().splitlines()[-1].startswith("can not write to")
    assert "Traceback" not in said.decode()


async def test_a_trace_goes_from_the_client_through_the_gateway_to_the_node() -> None:
    spans: list[Any] = []

    async def receive(request: web.Request) -> web.Response:
        message = ExportTraceServiceRequest.FromString(await request.read())
        spans.extend(span for one in message.resource_spans for scope in one.scope_spans for span in scope.spans)
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/traces", receive)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    trace_id, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    try:
        async with vllm_like(Drafts(10, 20)) as spec, vllm_like() as std:
            tracing = {"tracing": {"endpoint": f"http://127.0.0.1:{runner.addresses[0][1]}", "sample": 0.0}}
            async with live(FleetConfig.model_validate(sections(spec, std, **tracing))) as fleet:
                await fleet.client.chat.completions.create(
                    model=MODEL,
                    messages=[{"role": "user", "content": CODE}],
                    extra_headers={"traceparent": f"00-{trace_id}-{parent}-01"},
                )
            (call,) = [one for one in spec.node.calls if one.method == "POST"]
    finally:
        await runner.cleanup()
    (span,) = spans
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (trace_id, parent)
    assert call.headers["traceparent"] == f"00-{trace_id}-{span.span_id.hex()}-01"
    assert span.name == f"chat {MODEL}"

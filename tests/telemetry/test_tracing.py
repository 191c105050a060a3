"""Spans as a collector gets them, over HTTP."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from histories import ANSWERED, attempt, history
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.request import RequestShape
from slipstream.telemetry.tracing import Tracer

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
WALL_CLOCK = 1_790_000_002.5
"""When the histories of these tests end."""


@dataclass
class Collector:
    """An OTLP receiver."""

    url: str = ""
    resources: list[dict[str, Any]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    async def receive(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/x-protobuf"
        body = await request.read()  # aiohttp has undone a content-encoding
        message = ExportTraceServiceRequest.FromString(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
        for resource in message.resource_spans:
            self.resources.append(values(resource.resource.attributes))
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return web.Response()


@asynccontextmanager
async def collector(
    answer: Callable[[web.Request], Awaitable[web.Response]] | None = None,
) -> AsyncIterator[Collector]:
    received = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", received.receive if answer is None else answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    received.url = f"http://{host}:{port}"
    try:
        yield received
    finally:
        await runner.cleanup()


def values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


def tracer_to(endpoint: str, sample: float = 1.0, draw: float = 0.5, close_s: float = 10.0) -> Tracer:
    return Tracer(
        endpoint, version="1.2.3", draw=lambda: draw, wall_clock=lambda: WALL_CLOCK, sample=sample, close_s=close_s
    )


async def closed(tracer: Tracer) -> None:
    await asyncio.get_running_loop().run_in_executor(None, tracer.close)


async def test_a_request_is_a_span_with_what_it_asked_and_what_became_of_it() -> None:
    async with collector() as received:
        tracer = tracer_to(received.url)
        trace = tracer.begin(b"accept: */*\r\n", 2.5)
        assert trace is not None
        trace.end(history(attempt(), key_id="team-a"))
        await closed(tracer)
    (span,) = received.spans
    assert (span.name, span.kind) == ("chat m", Span.SPAN_KIND_SERVER)
    assert span.start_time_unix_nano == pytest.approx(1_790_000_000.0 * 1e9, abs=1000)
    assert span.end_time_unix_nano == pytest.approx(WALL_CLOCK * 1e9, abs=1000)
    assert span.parent_span_id == b""
    assert span.status.code == Status.STATUS_CODE_UNSET
    assert values(span.attributes) == {
        "http.request.method": "POST",
        "url.path": "/v1/chat/completions",
        "http.response.status_code": 200,
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": False,
        "gen_ai.usage.input_tokens": 120,
        "gen_ai.usage.output_tokens": 76,
        "slipstream.request_id": "r-1",
        "slipstream.key_id": "team-a",
        "slipstream.attempts": 1,
        "slipstream.category": "code",
        "slipstream.traffic_class": "interactive",
        "slipstream.node": "spec-0",
        "slipstream.pool": "speculative",
        "slipstream.reason": "speculative",
        "slipstream.ending": "completed",
        "slipstream.ttft_s": 0.1234564,
        "slipstream.tpot_s": 0.0213456,
        "slipstream.tau": 3.4,
    }
    (resource,) = received.resources
    assert (resource["service.name"], resource["service.version"]) == ("slipstream", "1.2.3")


async def test_the_nodes_span_goes_on_from_ours_and_ours_from_the_clients() -> None:
    async with collector() as received:
        tracer = tracer_to(received.url, sample=0.0)
        lines = f"accept: */*\r\ntraceparent: 00-{TRACE}-{PARENT}-01\r\ntracestate: a=b\r\n".encode()
        trace = tracer.begin(lines, 0.0)
        assert trace is not None
        trace.end(history(attempt()))
        await closed(tracer)
    (span,) = received.spans
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    own = f"traceparent: 00-{TRACE}-{span.span_id.hex()}-01\r\n".encode()
    assert trace.lines == b"accept: */*\r\ntracestate: a=b\r\n" + own


@pytest.mark.parametrize(
    ("lines", "sample", "traced"),
    [
        (b"", 0.5, False),
        (b"", 0.6, True),
        (f"traceparent: 00-{TRACE}-{PARENT}-00\r\n".encode(), 1.0, False),
        (f"traceparent: 00-{TRACE}-{PARENT}-01\r\n".encode(), 0.0, True),
        (f"traceparent: 01-{TRACE}-{PARENT}-01-more\r\n".encode(), 0.0, True),
        (f"traceparent: 00-{TRACE}-{PARENT}-01-more\r\n".encode(), 0.0, False),
        (f"traceparent: ff-{TRACE}-{PARENT}-01\r\n".encode(), 0.0, False),
        (f"traceparent: 00-{'0' * 32}-{PARENT}-01\r\n".encode(), 0.0, False),
        (f"traceparent: 00-{TRACE}-{PARENT}-01\r\n".encode() * 2, 0.0, False),
        (f"user-agent: traceparent: 00-{TRACE}-{PARENT}-01\r\n".encode(), 0.0, False),
        (b"traceparent: nonsense\r\n", 0.6, True),
    ],
)
async def test_who_is_traced(lines: bytes, sample: float, traced: bool) -> None:
    tracer = tracer_to("http://127.0.0.1:9", sample)
    trace = tracer.begin(lines, 0.0)
    assert (trace is not None) is traced
    if trace is not None:
        assert trace.lines.count(b"traceparent: ") == 1
    await closed(tracer)


async def test_errors_of_ours_are_errors_and_those_of_clients_are_not() -> None:
    ended = [
        history(status=429, error="all_full"),
        history(status=503, error="nothing_usable"),
        history(attempt(Outcome(Ending.UPSTREAM_LOST, 200)), status=200, error="upstream_failed"),
        history(attempt(Outcome(Ending.REFUSED, 500)), status=500),
        history(attempt(Outcome(Ending.CLIENT_GONE)), status=None),
    ]
    async with collector() as received:
        tracer = tracer_to(received.url)
        for one in ended:
            trace = tracer.begin(b"", 0.0)
            assert trace is not None
            trace.end(one)
        await closed(tracer)
    told = [(values(span.attributes).get("error.type"), span.status.code) for span in received.spans]
    error, unset = Status.STATUS_CODE_ERROR, Status.STATUS_CODE_UNSET
    assert told == [
        ("all_full", unset),
        ("nothing_usable", error),
        ("upstream_failed", error),
        ("500", error),
        (None, unset),
    ]


async def test_every_attempt_is_an_event() -> None:
    async with collector() as received:
        tracer = tracer_to(received.url)
        trace = tracer.begin(b"", 0.0)
        assert trace is not None
        trace.end(history(attempt(Outcome(Ending.FULL, 503)), attempt(ANSWERED, "std-0", 2, at=10.25)))
        await closed(tracer)
    (span,) = received.spans
    assert [
        (one.name, values(one.attributes)["slipstream.node"], values(one.attributes)["slipstream.ending"])
        for one in span.events
    ] == [
        ("slipstream.attempt", "spec-0", "full"),
        ("slipstream.attempt", "std-0", "completed"),
    ]
    assert span.events[1].time_unix_nano == pytest.approx(1_790_000_000.25 * 1e9, abs=1000)


async def test_a_request_that_is_no_generation_is_named_by_its_method() -> None:
    async with collector() as received:
        tracer = tracer_to(received.url)
        trace = tracer.begin(b"", 0.0)
        assert trace is not None
        trace.end(history(attempt(None), path="/v1/rerank"))
        await closed(tracer)
    (span,) = received.spans
    assert span.name == "POST"
    assert "gen_ai.operation.name" not in values(span.attributes)
    assert "slipstream.ending" not in values(span.attributes)


@pytest.mark.parametrize(("limit", "shown"), [(2**63 - 1, 2**63 - 1), (2**63, None)])
async def test_a_limit_that_no_span_can_hold_is_left_out_in_silence(
    limit: int, shown: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with collector() as received:
        tracer = tracer_to(received.url)
        trace = tracer.begin(b"", 0.0)
        assert trace is not None
        trace.end(history(attempt(), shape=RequestShape("m", "code", output_limit=limit)))
        await closed(tracer)
    (span,) = received.spans
    assert values(span.attributes).get("gen_ai.request.max_tokens") == shown
    assert not caplog.records


async def test_a_collector_that_hangs_does_not_hold_up_the_end() -> None:
    asked, over = asyncio.Event(), asyncio.Event()

    async def hang(_request: web.Request) -> web.Response:
        asked.set()
        await over.wait()
        return web.Response()

    async with collector(hang) as hung:
        tracer = tracer_to(hung.url, close_s=0.2)
        trace = tracer.begin(b"", 1.0)
        assert trace is not None
        trace.end(history(attempt()))
        async with asyncio.timeout(8):  # the exporter's own patience is 10 s and more
            await closed(tracer)
        assert asked.is_set()
        over.set()

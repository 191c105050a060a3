"""Spans of requests for OpenTelemetry, sent by OTLP over HTTP. Needs the extra ``slipstream[otel]``.

Names follow OpenTelemetry's semantic conventions for HTTP servers and for generative AI; what is ours begins with
``slipstream.``. No text of a request is in a span.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation import set_span_in_context
from opentelemetry.util.types import AttributeValue

from slipstream.core.acceptance import mean_acceptance_length_from_counts
from slipstream.core.history import Attempt, History
from slipstream.telemetry.access_log import MODEL_CHARACTERS, PATH_CHARACTERS

__all__ = ["Trace", "Tracer"]

CLOSE_S: Final = 5.0
"""The exporter itself would wait half a minute for a collector that hangs, and service managers wait no longer."""

_TRACEPARENT: Final = re.compile(rb"^traceparent:[ \t]*([^\r\n]*?)[ \t]*\r\n", re.MULTILINE)
_VALUE: Final = re.compile(rb"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_LARGEST: Final = 2**63 - 1
"""OTLP has no larger number; JSON has, and the exporter would log a traceback of each that a client sends."""
_OPERATIONS: Final = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}


class Trace:
    """The span of one request, from its arrival to its end. ``lines`` are the header lines its nodes get."""

    __slots__ = ("_span", "_wall_clock", "lines")

    def __init__(self, span: Span, lines: bytes, wall_clock: Callable[[], float]) -> None:
        self._span = span
        self._wall_clock = wall_clock
        self.lines = lines

    def end(self, history: History) -> None:
        """The request has ended."""
        span = self._span
        offset = self._wall_clock() - history.ended_at
        span.update_name(_name(history))
        span.set_attributes(_attributes(history))
        for attempt in history.attempts:
            at = attempt.placement.decision.at
            span.add_event("slipstream.attempt", _attempt_attributes(attempt), _nanoseconds(at + offset))
        if history.error is not None or (history.status or 0) >= 500:
            span.set_attribute("error.type", history.error or str(history.status))
            if history.status is None or not 400 <= history.status < 500:  # a client's fault is none of ours
                span.set_status(Status(StatusCode.ERROR))
        span.end(_nanoseconds(history.ended_at + offset))


class Tracer:
    """Begins spans, and sends those that have ended from a thread of its own.

    A request whose client sent a ``traceparent`` is traced if that says so; of the others a share, ``sample`` (0..1).
    ``draw`` returns uniform numbers in [0, 1), ``wall_clock`` the time of day in seconds since 1970.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        version: str,
        draw: Callable[[], float],
        wall_clock: Callable[[], float],
        sample: float = 0.0,
        close_s: float = CLOSE_S,
    ) -> None:
        """``endpoint`` is the collector's address, of which ``/v1/traces`` is asked. ``version`` is Slipstream's."""
        self.sample = sample
        self._close_s = close_s
        self._draw = draw
        self._wall_clock = wall_clock
        names = {"service.name": os.environ.get("OTEL_SERVICE_NAME", "slipstream"), "service.version": version}
        self._provider = TracerProvider(resource=Resource.create(names), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces")))
        self._tracer = self._provider.get_tracer("slipstream", version)

    def begin(self, lines: bytes, waited_s: float) -> Trace | None:
        """The trace of a request that arrived ``waited_s`` seconds ago; ``None`` when it is not traced.

        ``lines`` are its header lines that are passed on.
        """
        found = _TRACEPARENT.findall(lines)
        parent = _parent(found[0]) if len(found) == 1 else None
        if not (parent.trace_flags.sampled if parent is not None else self._draw() < self.sample):
            return None
        span = self._tracer.start_span(
            "request",
            None if parent is None else set_span_in_context(NonRecordingSpan(parent)),
            SpanKind.SERVER,
            start_time=_nanoseconds(self._wall_clock() - waited_s),
        )
        context = span.get_span_context()
        own = b"traceparent: 00-%032x-%016x-01\r\n" % (context.trace_id, context.span_id)
        return Trace(span, _TRACEPARENT.sub(b"", lines) + own, self._wall_clock)

    def close(self) -> None:
        """Send what has ended, as far as that takes no more than ``close_s``. Blocks."""
        closing = threading.Thread(target=self._provider.shutdown, name="send spans", daemon=True)
        closing.start()
        closing.join(self._close_s)


def _parent(value: bytes) -> SpanContext | None:
    """The caller's span (W3C Trace Context, level 1); ``None`` when the header is not a valid one."""
    match = _VALUE.fullmatch(value)
    if match is None or (match[1] == b"00" and match[5] is not None):
        return None
    context = SpanContext(
        int(match[2], 16), int(match[3], 16), is_remote=True, trace_flags=TraceFlags(int(match[4], 16))
    )
    return context if context.is_valid else None


def _name(history: History) -> str:
    operation = _OPERATIONS.get(history.path)
    if operation is None or history.shape is None:
        return history.method
    return f"{operation} {history.shape.model[:MODEL_CHARACTERS]}"


def _attributes(history: History) -> dict[str, AttributeValue]:
    shape = history.shape
    found: dict[str, AttributeValue | None] = {
        "http.request.method": history.method,
        "url.path": history.path[:PATH_CHARACTERS],
        "http.response.status_code": history.status,
        "slipstream.request_id": history.request_id,
        "slipstream.key_id": history.key_id,
        "slipstream.attempts": len(history.attempts),
    }
    if shape is not None:
        found |= {
            "gen_ai.operation.name": _OPERATIONS.get(history.path),
            "gen_ai.request.model": shape.model[:MODEL_CHARACTERS],
            "gen_ai.request.max_tokens": None if (shape.output_limit or 0) > _LARGEST else shape.output_limit,
            "gen_ai.request.stream": shape.streamed,
            "slipstream.category": shape.category,
            "slipstream.traffic_class": str(shape.traffic_class),
        }
    if history.attempts:
        found |= _outcome_attributes(history.attempts[-1])
    return {name: value for name, value in found.items() if value is not None}


def _outcome_attributes(attempt: Attempt) -> dict[str, AttributeValue | None]:
    placement = attempt.placement
    outcome = placement.outcome
    found: dict[str, AttributeValue | None] = {
        "gen_ai.provider.name": placement.state.engine,
        "slipstream.node": placement.decision.node,
        "slipstream.pool": str(placement.decision.pool),
        "slipstream.reason": str(placement.decision.reason),
    }
    if outcome is not None:
        sample, latency = outcome.sample, outcome.latency
        found |= {
            "gen_ai.usage.input_tokens": outcome.prompt_tokens,
            "gen_ai.usage.output_tokens": outcome.output_tokens,
            "slipstream.ending": str(outcome.ending),
        }
        if latency is not None:
            found |= {"slipstream.ttft_s": latency.ttft_s, "slipstream.tpot_s": latency.tpot_s}
        if sample is not None and sample.verify_steps is not None:
            found["slipstream.tau"] = mean_acceptance_length_from_counts(sample.accepted, sample.verify_steps)
    return found


def _attempt_attributes(attempt: Attempt) -> dict[str, AttributeValue]:
    decision, outcome = attempt.placement.decision, attempt.placement.outcome
    return {
        "slipstream.node": decision.node,
        "slipstream.reason": str(decision.reason),
        "slipstream.occupancy": attempt.occupancy,
        "slipstream.ending": "" if outcome is None else str(outcome.ending),
    }


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)

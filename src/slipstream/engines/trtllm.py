"""TensorRT-LLM's server (``trtllm-serve``, PyTorch backend).

Written from its source and documents; no output of it was recorded.
"""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec

from slipstream.core.node import Instrument, NodeReport, SpeculativeCounters, SpeculatorKind
from slipstream.engines.added_field import INCLUDE_USAGE
from slipstream.engines.document import UNREADABLE, read_document
from slipstream.engines.drafter import drafter_name
from slipstream.engines.engine import Engine, Page, ResponseStatistics
from slipstream.engines.exposition import samples_by_label
from slipstream.engines.metrics import MetricNames, read_metrics, total_by_label
from slipstream.engines.models import MODELS
from slipstream.engines.usage import NO_USAGE, Count, Usage
from slipstream.engines.version import VERSION

__all__ = ["TRTLLM"]

NAME = "trtllm"

METRICS = MetricNames(
    running=b"trtllm_num_requests_running",
    waiting=b"trtllm_num_requests_waiting",
    kv_use=b"trtllm_kv_cache_utilization",
    drafted=b"trtllm_spec_decode_num_draft_tokens_total",
    accepted=b"trtllm_spec_decode_num_accepted_tokens_total",
    generated_tokens=b"trtllm_generation_tokens_total",
)
DRAFTED_AT = b"trtllm_spec_decode_drafted_tokens_total"
ACCEPTED_AT = b"trtllm_spec_decode_accepted_tokens_total"
SPECULATION = b"trtllm_speculative_config_info"


def _read_metrics(page: bytes) -> NodeReport:
    """Load, counters and, in the labels of a series that stands at 1, what drafts.

    The gauges are set when a request ends, from the engine's last step.
    """
    report = replace(read_metrics(METRICS, page), engine=NAME)
    counters = report.counters
    if counters is not None:
        counters = _counted_by_position(page, counters)
    enabled, method = _label(page, b"spec_enabled"), _label(page, b"spec_method")
    if enabled != "true" or method is None:
        # Without the series nothing is said; but what was drafted, something drafted.
        drafts = True if counters is not None and counters.drafted else None
        return replace(report, counters=counters, speculating=False if enabled == "false" else drafts)
    length = _label(page, b"spec_num_tokens") or ""
    lookup = "ngram" in method.lower() or "lookup" in method.lower()
    return replace(
        report,
        counters=counters,
        speculating=True,
        k=int(length) or None if re.fullmatch(r"\d{1,4}", length) else None,
        speculator_kind=SpeculatorKind.NGRAM if lookup else SpeculatorKind.DRAFT,
        drafter=drafter_name(method, _label(page, b"spec_draft_model")),
    )


def _counted_by_position(page: bytes, counters: SpeculativeCounters) -> SpeculativeCounters:
    """Counts of requests that ended, by draft position: a step that drafted at all drafted at position 0.

    Where the engine has them they replace the totals of its steps, which move at other times than the output tokens.
    A position that was never accepted has no series.
    """
    drafted = total_by_label(page, DRAFTED_AT, b"token_position")
    if not drafted:
        return counters
    accepted = total_by_label(page, ACCEPTED_AT, b"token_position")
    return replace(
        counters,
        drafted=sum(drafted),
        accepted=sum(accepted),
        verify_steps=drafted[0],
        accepted_per_position=accepted + (0,) * (len(drafted) - len(accepted)),
    )


def _label(page: bytes, label: bytes) -> str | None:
    values = samples_by_label(page, SPECULATION, label)
    return next(iter(values)).decode("utf-8", "replace") if values else None


class _Blocks(msgspec.Struct):
    usedNumBlocks: Count  # noqa: N815  # the engine's own spelling
    maxNumBlocks: Count  # noqa: N815


class _Step(msgspec.Struct):
    numActiveRequests: Count  # noqa: N815
    numQueuedRequests: Count = 0  # noqa: N815
    kvCacheStats: _Blocks | None = None  # noqa: N815


_steps_decoder = msgspec.json.Decoder(list[_Step])


def _read_steps(page: bytes) -> NodeReport:
    """The engine's steps since the last look, which takes them away: without a step nothing ran.

    Their counts of tokens are each step's own; added up here they would lack what another reader took.
    """
    steps = read_document(_steps_decoder, page, "TensorRT-LLM's steps")
    if not steps:
        return NodeReport(running=0, waiting=0, engine=NAME)
    last = steps[-1]
    blocks = last.kvCacheStats
    return NodeReport(
        running=last.numActiveRequests,
        waiting=last.numQueuedRequests,
        kv_use=min(1.0, blocks.usedNumBlocks / blocks.maxNumBlocks) if blocks and blocks.maxNumBlocks else None,
        engine=NAME,
    )


class _ServerInfo(msgspec.Struct):
    max_batch_size: Count | None = None


_info_decoder = msgspec.json.Decoder(_ServerInfo)


def _read_server_info(page: bytes) -> NodeReport:
    """How many sequences run at once. What drafts is not in here."""
    return NodeReport(capacity=read_document(_info_decoder, page, "TensorRT-LLM's server info").max_batch_size or None)


class _Answer(msgspec.Struct, gc=False):
    usage: Usage | None = None


_answer_decoder = msgspec.json.Decoder(_Answer)


def _read_statistics(payload: bytes) -> ResponseStatistics:
    """Usage. Mean tokens a step are told too, but not what was drafted, so that is no sample."""
    try:
        usage = _answer_decoder.decode(payload).usage or NO_USAGE
    except UNREADABLE:
        return ResponseStatistics()
    return ResponseStatistics(usage.prompt_tokens, usage.completion_tokens)


TRTLLM = Engine(
    name=NAME,
    # Not by `/metrics`: looking there takes away what another reader may be waiting for.
    marks={"/v1/models": re.compile(rb'"owned_by"\s*:\s*"tensorrt_llm"')},
    load=(Page("/prometheus/metrics", _read_metrics, cost_s=0.005), Page("/metrics", _read_steps, cost_s=0.001)),
    facts=(MODELS, VERSION, Page("/server_info", _read_server_info)),
    read_statistics=_read_statistics,
    instruments={Instrument.USAGE: (INCLUDE_USAGE,), Instrument.ENGINE: (INCLUDE_USAGE,)},
    # Not measured. Gauges stand still from the end of one request to that of the next, so what we had in flight in the
    # last seconds may still be on them; a client that left is looked for once a second.
    gauge_lag_s=5.0,
    abort_lag_s=1.5,
)

"""vLLM, version 1 engine (0.11 and later)."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec

from slipstream.core.acceptance.sample import SpeculationSample
from slipstream.core.node import Instrument, NodeReport
from slipstream.engines.added_field import INCLUDE_USAGE
from slipstream.engines.document import UNREADABLE
from slipstream.engines.engine import Engine, Page, ResponseStatistics
from slipstream.engines.exposition import samples
from slipstream.engines.metrics import MetricNames, read_metrics
from slipstream.engines.models import MODELS
from slipstream.engines.usage import NO_USAGE, Count, Usage
from slipstream.engines.version import VERSION

__all__ = ["VLLM"]

NAME = "vllm"

METRICS = MetricNames(
    running=b"vllm:num_requests_running",
    waiting=b"vllm:num_requests_waiting",
    kv_use=b"vllm:kv_cache_usage_perc",
    drafted=b"vllm:spec_decode_num_draft_tokens_total",
    accepted=b"vllm:spec_decode_num_accepted_tokens_total",
    verify_steps=b"vllm:spec_decode_num_drafts_total",
    accepted_per_position=b"vllm:spec_decode_num_accepted_tokens_per_pos_total",
    generated_tokens=b"vllm:generation_tokens_total",
)


def _read_load(page: bytes) -> NodeReport:
    """The speculative series exist exactly when a speculator is configured, one position for each token of its K.

    That they are absent says something only of a page that has the other token counters.
    """
    ranks = len(samples(page, METRICS.running))  # each data-parallel engine has a series of its own
    report = replace(read_metrics(METRICS, page), engine=NAME, replicas=ranks or None)
    counters = report.counters
    if counters is None or (counters.drafted is None and counters.generated_tokens is None):
        return report
    return replace(
        report,
        speculating=counters.drafted is not None,
        k=len(counters.accepted_per_position) or None,
    )


class _Speculation(msgspec.Struct, gc=False):
    num_draft_tokens: Count
    num_accepted_draft_tokens: Count
    num_spec_steps: Count


class _Metrics(msgspec.Struct, gc=False):
    speculative_decoding: _Speculation | None = None


class _Answer(msgspec.Struct, gc=False):
    usage: Usage | None = None
    metrics: _Metrics | None = None


_answer_decoder = msgspec.json.Decoder(_Answer)


def _read_statistics(payload: bytes) -> ResponseStatistics:
    """Usage, and with ``--per-request-spec-decode-metrics`` the speculative statistics (one prompt, ``n`` = 1 only)."""
    try:
        answer = _answer_decoder.decode(payload)
    except UNREADABLE:
        return ResponseStatistics()
    usage = answer.usage or NO_USAGE
    own = answer.metrics.speculative_decoding if answer.metrics else None
    if own is None:
        return ResponseStatistics(usage.prompt_tokens, usage.completion_tokens)
    sample = SpeculationSample(
        own.num_draft_tokens, own.num_accepted_draft_tokens, own.num_spec_steps, usage.completion_tokens
    )
    return ResponseStatistics(usage.prompt_tokens, usage.completion_tokens, sample)


USAGE = replace(INCLUDE_USAGE, moved=("system_fingerprint",))

VLLM = Engine(
    name=NAME,
    marks={
        "/v1/models": re.compile(rb'"owned_by"\s*:\s*"vllm"'),
        "/metrics": re.compile(rb"^vllm:", re.MULTILINE),
    },
    load=(Page("/metrics", _read_load, cost_s=0.005),),
    facts=(MODELS, VERSION),
    read_statistics=_read_statistics,
    # What was drafted stands beside the usage, provided that the engine was started with the flag for it.
    instruments={Instrument.USAGE: (USAGE,), Instrument.ENGINE: (USAGE,)},
    # Gauges are set, and aborts taken, once an engine step; these are long steps. Not measured.
    gauge_lag_s=0.1,
    abort_lag_s=0.2,
    rejects_when_speculating=frozenset({"min_p", "logit_bias"}),
)

"""SGLang, 0.5.23 and later: older ones lack the counters, and statistics of a request's own on OpenAI's paths.

Written from its source; no output of it was recorded.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

import msgspec

from slipstream.core.acceptance.sample import SpeculationSample
from slipstream.core.errors import EngineGarbage
from slipstream.core.node import Instrument, NodeReport, SpeculativeCounters, SpeculatorKind
from slipstream.engines.added_field import INCLUDE_USAGE, AddedField
from slipstream.engines.document import UNREADABLE, read_document
from slipstream.engines.drafter import drafter_name
from slipstream.engines.engine import Engine, Page, ResponseStatistics
from slipstream.engines.metrics import MetricNames, count, mean, read_metrics
from slipstream.engines.models import MODELS
from slipstream.engines.usage import NO_USAGE, Count, Usage
from slipstream.engines.version import bounded_version

__all__ = ["SGLANG"]

NAME = "sglang"

METRICS = MetricNames(
    running=b"sglang:num_running_reqs",
    waiting=b"sglang:num_queue_reqs",
    kv_use=b"sglang:token_usage",
    verify_steps=b"sglang:spec_verify_calls_total",
    generated_tokens=b"sglang:generation_tokens_total",
)
FINISHED = b"sglang:num_requests_total"
VERIFIED_A_STEP = b"sglang:spec_num_draft_tokens"

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class _Rank(msgspec.Struct):
    num_running_reqs: Count
    num_waiting_reqs: Count
    max_running_requests: Count | None = None
    token_usage: Share | None = None


class _Loads(msgspec.Struct):
    loads: list[_Rank]
    version: str | None = None


_loads_decoder = msgspec.json.Decoder(_Loads)


def _read_loads(page: bytes) -> NodeReport:
    """The load of all data-parallel ranks. What it says of acceptance is a mean, no counter."""
    document = read_document(_loads_decoder, page, "SGLang's loads")
    ranks = document.loads
    if not ranks:
        raise EngineGarbage("not SGLang's loads: it lists no rank")
    limits = [rank.max_running_requests for rank in ranks]
    shares = [rank.token_usage for rank in ranks if rank.token_usage is not None]
    return NodeReport(
        running=sum(rank.num_running_reqs for rank in ranks),
        waiting=sum(rank.num_waiting_reqs for rank in ranks),
        kv_use=sum(shares) / len(shares) if shares else None,
        capacity=sum(limit or 0 for limit in limits) or None if None not in limits else None,
        engine=NAME,
        version=bounded_version(document.version),
        replicas=len(ranks),
    )


def _read_metrics(page: bytes) -> NodeReport:
    """Load and counters. Drafted and accepted tokens are not counted, but follow where every step is a verify step.

    All its counters move when a request ends. Each verify step then gave one token of its own beside the accepted
    ones, and each request's first token came from its prefill. What the end of an answer cuts off its last draft is
    missing here, though requests' own statistics have it.
    """
    report = read_metrics(METRICS, page)
    counters = report.counters
    if counters is None or not counters.verify_steps or counters.generated_tokens is None:
        return replace(report, engine=NAME)
    finished, verified = count(page, FINISHED), mean(page, VERIFIED_A_STEP)
    accepted = None if finished is None else counters.generated_tokens - counters.verify_steps - finished
    # Each data-parallel rank says how many tokens it verifies a step; between ranks that differ there is no one number.
    known = verified is not None and verified > 1.0 and verified.is_integer()
    drafted = counters.verify_steps * (round(verified) - 1) if known and verified else None
    told = replace(counters, drafted=drafted, accepted=None if accepted is None else max(0, accepted))
    return replace(report, counters=told, engine=NAME)


class _ServerInfo(msgspec.Struct):
    version: str | None = None
    max_running_requests: Count | None = None
    speculative_algorithm: str | None = None
    speculative_draft_model_path: str | None = None
    speculative_num_steps: Count | None = None
    speculative_num_draft_tokens: Count | None = None
    speculative_adaptive: bool | None = None


_info_decoder = msgspec.json.Decoder(_ServerInfo)


def _read_server_info(page: bytes) -> NodeReport:
    """What the server was started with. An adaptive draft length is no fixed ``k``."""
    info = read_document(_info_decoder, page, "SGLang's server info")
    algorithm = info.speculative_algorithm
    speculating = bool(algorithm) and algorithm != "NONE"
    if not speculating or algorithm is None:
        return NodeReport(
            capacity=info.max_running_requests or None, speculating=False, version=bounded_version(info.version)
        )
    k = info.speculative_num_steps
    if k is None and info.speculative_num_draft_tokens:
        k = info.speculative_num_draft_tokens - 1  # the last one verified is the target's own
    return NodeReport(
        capacity=info.max_running_requests or None,
        speculating=True,
        k=None if info.speculative_adaptive else k or None,
        speculator_kind=SpeculatorKind.NGRAM if algorithm.upper() == "NGRAM" else SpeculatorKind.DRAFT,
        drafter=drafter_name(algorithm, info.speculative_draft_model_path),
        version=bounded_version(info.version),
    )


def _completed(report: NodeReport) -> NodeReport:
    """With an adaptive draft length some steps verify nothing, so their tokens would pass for accepted ones."""
    counters = report.counters
    steady = report.k is not None or report.speculator_kind is SpeculatorKind.NGRAM
    if counters is None or (steady and report.speculating):
        return report
    known = SpeculativeCounters(verify_steps=counters.verify_steps, generated_tokens=counters.generated_tokens)
    return replace(report, counters=known)


class _Details(msgspec.Struct, gc=False):
    spec_num_proposed_drafts: Count
    spec_num_correct_drafts: Count
    spec_verify_ct: Count


class _Extension(msgspec.Struct, gc=False):
    spec_tokens_details: _Details | list[_Details] | None = None


class _Answer(msgspec.Struct, gc=False):
    usage: Usage | None = None
    sglext: _Extension | None = None


_answer_decoder = msgspec.json.Decoder(_Answer)


def _read_statistics(payload: bytes) -> ResponseStatistics:
    """Usage, and what ``return_spec_tokens_details`` asked for: of one choice, or one of each."""
    try:
        answer = _answer_decoder.decode(payload)
    except UNREADABLE:
        return ResponseStatistics()
    usage = answer.usage or NO_USAGE
    told = answer.sglext.spec_tokens_details if answer.sglext else None
    if not told:
        return ResponseStatistics(usage.prompt_tokens, usage.completion_tokens)
    choices = told if isinstance(told, list) else [told]
    sample = SpeculationSample(
        sum(each.spec_num_proposed_drafts for each in choices),
        sum(each.spec_num_correct_drafts for each in choices),
        sum(each.spec_verify_ct for each in choices),
        usage.completion_tokens,
    )
    return ResponseStatistics(usage.prompt_tokens, usage.completion_tokens, sample)


SPECULATION_DETAILS = AddedField(
    # Other fields that begin so are answered in the same object.
    "return_spec_tokens_details", b"true", "sglext", streamed_only=False, unless_prefix="return_"
)  # fmt: skip

SGLANG = Engine(
    name=NAME,
    marks={
        "/v1/models": re.compile(rb'"owned_by"\s*:\s*"sglang"'),
        "/metrics": re.compile(rb"^sglang:", re.MULTILINE),
    },
    load=(Page("/v1/loads", _read_loads, cost_s=0.001), Page("/metrics", _read_metrics, cost_s=0.005)),
    counters=(Page("/metrics", _read_metrics, cost_s=0.005),),
    facts=(MODELS, Page("/server_info", _read_server_info)),
    completed=_completed,
    read_statistics=_read_statistics,
    instruments={
        Instrument.USAGE: (INCLUDE_USAGE,),
        Instrument.ENGINE: (INCLUDE_USAGE, SPECULATION_DETAILS),
    },
    # Not measured. Gauges are set once a step; a stream whose client left is aborted about 2 s after it.
    gauge_lag_s=0.1,
    abort_lag_s=2.5,
    statistics_apart=True,
)

"""llama.cpp's server (build b11434 and later; older ones lack the speculative counters)."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec

from slipstream.core.acceptance.sample import SpeculationSample
from slipstream.core.node import NodeReport, SpeculatorKind
from slipstream.engines.document import UNREADABLE, read_document
from slipstream.engines.engine import Engine, Page, ResponseStatistics
from slipstream.engines.metrics import MetricNames, read_metrics
from slipstream.engines.models import MODELS
from slipstream.engines.usage import NO_USAGE, Count, Usage
from slipstream.engines.version import bounded_version

__all__ = ["LLAMACPP"]

NAME = "llamacpp"

METRICS = MetricNames(
    running=b"llamacpp:requests_processing",
    waiting=b"llamacpp:requests_deferred",
    drafted=b"llamacpp:spec_decode_num_draft_tokens_total",
    accepted=b"llamacpp:spec_decode_num_accepted_tokens_total",
    verify_steps=b"llamacpp:spec_decode_num_drafts_total",
    accepted_per_position=b"llamacpp:spec_decode_num_accepted_tokens_per_pos_total",
    generated_tokens=b"llamacpp:tokens_predicted_total",
)

LONGEST_MODEL_DRAFT = 32
"""No draft model or head proposes more tokens a step; n-gram lookup does (64 by default)."""

MOST_SLOTS = 1_000_000
"""More than any server has: a larger number is a mistake, not a capacity."""


def _read_metrics(page: bytes) -> NodeReport:
    """The speculative counters are there, at 0, without a speculator too: only `/slots` tells that there is none."""
    report = read_metrics(METRICS, page)
    counters = report.counters
    if counters is None or not counters.drafted:
        return replace(report, engine=NAME)
    positions = len(counters.accepted_per_position)
    lookup = positions > LONGEST_MODEL_DRAFT
    return replace(
        report,
        speculating=True,
        k=None if lookup else positions or None,
        speculator_kind=SpeculatorKind.NGRAM if lookup else None,
        engine=NAME,
    )


class _SlotParameters(msgspec.Struct):
    speculators: str = msgspec.field(name="speculative.types", default="none")


class _Slot(msgspec.Struct):
    speculative: bool
    is_processing: bool
    params: _SlotParameters = msgspec.field(default_factory=_SlotParameters)


_slots_decoder = msgspec.json.Decoder(list[_Slot])


def _read_slots(page: bytes) -> NodeReport:
    """Which slots work, and whether they draft. Only busy slots tell what drafts; requests that wait have none."""
    slots = read_document(_slots_decoder, page, "llama.cpp's slots")
    return NodeReport(
        running=sum(slot.is_processing for slot in slots),
        capacity=len(slots) or None,
        speculating=any(slot.speculative for slot in slots) if slots else None,
        speculator_kind=next(filter(None, (_kind(slot.params.speculators) for slot in slots)), None),
        engine=NAME,
    )


def _kind(speculators: str) -> SpeculatorKind | None:
    """What a chain such as ``ngram-mod,draft-simple`` amounts to: a draft model proposes where lookup does not."""
    names = [name for name in speculators.split(",") if name and name != "none"]
    if not names:
        return None
    return SpeculatorKind.NGRAM if all(name.startswith("ngram") for name in names) else SpeculatorKind.DRAFT


def _read_slot_facts(page: bytes) -> NodeReport:
    """What of `/slots` stays true until the next look: not how many are busy."""
    return replace(_read_slots(page), running=None)


class _Properties(msgspec.Struct):
    total_slots: int
    build_info: str | None = None


_properties_decoder = msgspec.json.Decoder(_Properties)


def _read_properties(page: bytes) -> NodeReport:
    """`speculative.types` in here reads ``none`` whatever is configured, so it is not looked at."""
    properties = read_document(_properties_decoder, page, "llama.cpp's properties")
    believable = 0 < properties.total_slots <= MOST_SLOTS
    return NodeReport(
        capacity=properties.total_slots if believable else None, version=bounded_version(properties.build_info)
    )


class _Timings(msgspec.Struct, gc=False):
    predicted_n: Count | None = None
    prompt_n: Count | None = None
    cache_n: Count = 0
    draft_n: Count = 0
    draft_n_accepted: Count = 0


class _Answer(msgspec.Struct, gc=False):
    usage: Usage | None = None
    timings: _Timings | None = None


_answer_decoder = msgspec.json.Decoder(_Answer)


def _read_statistics(payload: bytes) -> ResponseStatistics:
    """Every final response has timings; ``draft_n`` is left out when nothing was drafted, which is 0, not unknown.

    Verify steps are not told, except that there are none without a draft.
    """
    try:
        answer = _answer_decoder.decode(payload)
    except UNREADABLE:
        return ResponseStatistics()
    usage = answer.usage or NO_USAGE
    timings = answer.timings
    if timings is None:
        return ResponseStatistics(usage.prompt_tokens, usage.completion_tokens)
    prompt_tokens = usage.prompt_tokens
    if prompt_tokens is None and timings.prompt_n is not None:
        prompt_tokens = timings.prompt_n + timings.cache_n
    output_tokens = timings.predicted_n if usage.completion_tokens is None else usage.completion_tokens
    verify_steps = None if timings.draft_n else 0
    sample = SpeculationSample(timings.draft_n, timings.draft_n_accepted, verify_steps, timings.predicted_n)
    return ResponseStatistics(prompt_tokens, output_tokens, sample)


LLAMACPP = Engine(
    name=NAME,
    marks={
        "/v1/models": re.compile(rb'"owned_by"\s*:\s*"llamacpp"'),
        "/metrics": re.compile(rb"^llamacpp:", re.MULTILINE),
        "/props": re.compile(rb'"total_slots"\s*:'),
    },
    load=(Page("/metrics", _read_metrics, cost_s=0.0001), Page("/slots", _read_slots, cost_s=0.0001)),
    facts=(MODELS, Page("/props", _read_properties), Page("/slots", _read_slot_facts)),
    read_statistics=_read_statistics,
    # No instruments: every answer tells its counts and what was drafted, streamed or not, whatever is asked.
    # Measured on b11549 with a 135M model on one core: requests show, and are gone again, within a poll of 20 ms; an
    # aborted one runs on for up to 0.14 s, and longer where one step takes longer; a page costs 80 us of CPU.
    gauge_lag_s=0.02,
    abort_lag_s=1.0,
)

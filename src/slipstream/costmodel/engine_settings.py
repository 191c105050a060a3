"""What was found, in the words of an engine's own configuration: K by batch size, and the two pools' opposite settings.

Names and rules are those of vLLM 0.33 (``num_speculative_tokens_per_batch_size`` since 0.28 at the latest), SGLang
0.5.23 and TensorRT-LLM's PyTorch backend as of 2026.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from slipstream.costmodel.errors import ImpossibleInput

__all__ = ["ENGINES", "DraftRange", "EngineSettings", "Plan", "ceiling_of", "engine_settings", "schedule_of"]

SPECULATIVE_PREFILL_TOKENS = 2048
STANDARD_PREFILL_TOKENS = 8192
"""Tokens of prompts that one step may take in. A speculative node is there for steady latency, and a long prompt in a
step delays everybody's next tokens; a standard node is there for throughput, which large steps serve best.
"""


@dataclass(frozen=True, slots=True)
class DraftRange:
    """From ``first`` to ``last`` sequences, both included, ``k`` tokens are drafted a step; 0 = none."""

    first: int
    last: int
    k: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What the engines of a fleet are to be told.

    ``method``: draft, eagle, eagle3, medusa, mtp, block or ngram; ``draft``: what holds its weights, ``None`` where
    it has none of its own. ``schedule``: the best K by batch size, from 1 on without a gap. ``admitted…``: the most
    sequences that fit a standard node, and a speculative one. ``pinned``: categories for which speculation does not
    pay.
    """

    target: str
    method: str
    draft: str | None
    schedule: tuple[DraftRange, ...]
    admitted_standard: int
    admitted_speculative: int
    tensor_parallel: int = 1
    pinned: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.schedule or self.schedule[0].first != 1:
            raise ImpossibleInput("a schedule of draft lengths begins at batch size 1")
        for before, after in zip(self.schedule, self.schedule[1:], strict=False):
            if after.first != before.last + 1:
                raise ImpossibleInput(
                    f"a schedule of draft lengths has no gap, and {before.last} is followed by {after.first}"
                )
        if any(one.last < one.first or one.k < 0 for one in self.schedule):
            raise ImpossibleInput("a range of a schedule ends behind its beginning and drafts no fewer than 0 tokens")


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """One node's settings: ``text`` as the engine reads it, ``notes`` on what else holds, a sentence each."""

    title: str
    text: str
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"# {self.title}", *(f"# {note}" for note in self.notes), self.text])


def schedule_of(
    batch_sizes: Sequence[int], best_k: Sequence[int], last_size: int | None = None
) -> tuple[DraftRange, ...]:
    """Ranges of equal K from the best K at rising batch sizes; between two of them the K of the lower one holds.

    The K of the last one holds up to ``last_size``, or for itself alone.
    """
    ranges: list[DraftRange] = []
    for place, (batch, k) in enumerate(zip(batch_sizes, best_k, strict=True)):
        first = 1 if place == 0 else batch
        last = batch_sizes[place + 1] - 1 if place + 1 < len(batch_sizes) else last_size or batch
        if ranges and ranges[-1].k == k:
            ranges[-1] = DraftRange(ranges[-1].first, last, k)
        else:
            ranges.append(DraftRange(first, last, k))
    return tuple(ranges)


def ceiling_of(plan: Plan) -> int | None:
    """The most sequences at which drafting still pays, from one on; ``None`` where it does not pay even for one.

    Never more than fit. A batch size above a gap, where drafting pays anew, is not reached: the gap lies before it.
    """
    paying = 0
    for one in plan.schedule:
        if one.k == 0:
            break
        paying = one.last
    return min(paying, plan.admitted_speculative) or None


def engine_settings(engine: str, plan: Plan) -> tuple[EngineSettings, ...]:
    """Settings of ``engine`` for one node that does both, and for a node of either pool.

    Raises `ImpossibleInput` for an engine that is not known, and for a speculator that it has not.
    """
    if engine not in ENGINES:
        raise ImpossibleInput(f"settings are written for {', '.join(ENGINES)}, not for {engine!r}")
    return ENGINES[engine](plan)


def _k_at(plan: Plan, sequences: int) -> int:
    return next((one.k for one in plan.schedule if one.first <= sequences <= one.last), plan.schedule[-1].k)


def _within(schedule: Sequence[DraftRange], most: int) -> tuple[DraftRange, ...]:
    return tuple(DraftRange(one.first, min(one.last, most), one.k) for one in schedule if one.first <= most)


def _largest_k(schedule: Sequence[DraftRange]) -> int:
    return max(one.k for one in schedule)


def _prefill_tokens(wanted: int, sequences: int, k: int) -> int:
    """A step has room for every sequence's own tokens first."""
    return max(wanted, sequences * (k + 1))


def _known(method: str, names: Mapping[str, str], engine: str) -> str:
    if method not in names:
        raise ImpossibleInput(f"{engine} has no speculator of the kind {method}; it has {', '.join(names)}")
    return names[method]


def _command(*words: str) -> str:
    """A shell command, one option a line."""
    lines = [words[0]]
    for word in words[1:]:
        if word.startswith("--"):
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return " \\\n".join(lines)


# vLLM ----------------------------------------------------------------------------------------------------------------

_VLLM_METHODS = {
    "draft": "draft_model",
    "eagle": "eagle",
    "eagle3": "eagle3",
    "medusa": "medusa",
    "mtp": "mtp",
    "block": "dflash",
    "ngram": "ngram",
}
_VLLM_UNSCHEDULED = ("medusa",)
_VLLM_REJECTS = "a node with a speculator rejects requests with min_p or logit_bias; Slipstream sends them elsewhere"


def _vllm(plan: Plan) -> tuple[EngineSettings, ...]:
    method = _known(plan.method, _VLLM_METHODS, "vLLM")
    scheduled = plan.method not in _VLLM_UNSCHEDULED

    def speculation(schedule: Sequence[DraftRange]) -> str:
        settings: dict[str, object] = {"method": method}
        if plan.draft is not None:
            settings["model"] = plan.draft
        settings["num_speculative_tokens"] = _largest_k(schedule)
        if len(schedule) > 1 and scheduled:
            settings["num_speculative_tokens_per_batch_size"] = [[one.first, one.last, one.k] for one in schedule]
        return json.dumps(settings)

    def serve(sequences: int, prefill: int, schedule: Sequence[DraftRange]) -> str:
        k = _largest_k(schedule) if schedule else 0
        words = ["vllm serve", plan.target, "--tensor-parallel-size", str(plan.tensor_parallel)]
        words += ["--max-num-seqs", str(sequences)]
        words += ["--max-num-batched-tokens", str(_prefill_tokens(prefill, sequences, k))]
        return _command(*words, *(["--speculative-config", speculation(schedule)] if k else []))

    notes = [_VLLM_REJECTS]
    if scheduled:
        notes.append("the schedule is read at the start, from vLLM 0.28 on, and dropped with data parallelism")
    else:
        notes.append(f"vLLM keeps one K for {plan.method}: it can not turn it off by batch size, so split the pools")
    return _three(plan, serve, tuple(notes))


# SGLang --------------------------------------------------------------------------------------------------------------

_SGLANG_METHODS = {"draft": "STANDALONE", "eagle": "EAGLE", "eagle3": "EAGLE3", "mtp": "NEXTN", "ngram": "NGRAM"}
_SGLANG_ADAPTIVE = ("eagle", "eagle3")
_ADAPTIVE_FILE = "adaptive.json"


def _sglang(plan: Plan) -> tuple[EngineSettings, ...]:
    algorithm = _known(plan.method, _SGLANG_METHODS, "SGLang")
    adaptive = plan.method in _SGLANG_ADAPTIVE

    def speculation(schedule: Sequence[DraftRange], sequences: int) -> list[str]:
        varies = adaptive and len(schedule) > 1
        k = _largest_k(schedule) if varies else next(one.k for one in reversed(_within(schedule, sequences)) if one.k)
        words = ["--speculative-algorithm", algorithm]
        if plan.draft is not None:
            words += ["--speculative-draft-model-path", plan.draft]
        if plan.method != "ngram":
            words += ["--speculative-num-steps", str(k), "--speculative-eagle-topk", "1"]
        words += ["--speculative-num-draft-tokens", str(k + 1)]
        return [
            *words,
            *(["--speculative-adaptive", "--speculative-adaptive-config", _ADAPTIVE_FILE] if varies else []),
        ]

    def serve(sequences: int, prefill: int, schedule: Sequence[DraftRange]) -> str:
        k = _largest_k(schedule) if schedule else 0
        words = ["python -m sglang.launch_server", "--model-path", plan.target, "--tp-size", str(plan.tensor_parallel)]
        words += ["--max-running-requests", str(sequences)]
        words += ["--chunked-prefill-size", str(_prefill_tokens(prefill, sequences, k))]
        command = _command(*words, *(speculation(schedule, sequences) if k else []))
        if adaptive and k and len(schedule) > 1:
            steps = {str(one.first): {"candidate_steps": [one.k]} for one in schedule}
            command = f"echo {shlex.quote(json.dumps(steps))} > {_ADAPTIVE_FILE}\n{command}"
        return command

    notes = ["with a speculator SGLang takes 48 requests at once unless told otherwise, so the number is given"]
    if adaptive:
        notes.append("steps by batch size need topk 1 and no data-parallel attention, else SGLang falls back to one K")
    else:
        notes.append(f"SGLang keeps one K for {algorithm} and never turns it off by batch size, so split the pools")
    return _three(plan, serve, tuple(notes))


# TensorRT-LLM --------------------------------------------------------------------------------------------------------

_TRTLLM_METHODS = {"draft": "DraftTarget", "eagle3": "Eagle", "mtp": "MTP", "ngram": "NGram"}


def _trtllm(plan: Plan) -> tuple[EngineSettings, ...]:
    decoding = _known(plan.method, _TRTLLM_METHODS, "TensorRT-LLM's PyTorch backend")

    def serve(sequences: int, prefill: int, schedule: Sequence[DraftRange]) -> str:
        k = _largest_k(schedule) if schedule else 0
        lines = ["return_perf_metrics: true", "enable_iter_perf_stats: true"]
        lines += [f"tensor_parallel_size: {plan.tensor_parallel}", f"max_batch_size: {sequences}"]
        lines.append(f"max_num_tokens: {_prefill_tokens(prefill, sequences, k)}")
        if not k:
            return "\n".join(lines)
        lines += ["speculative_config:", f"  decoding_type: {decoding}", f"  max_draft_len: {k}"]
        if plan.draft is not None:
            lines.append(f"  speculative_model_dir: {json.dumps(plan.draft)}")
        return "\n".join([*lines, *_trtllm_limits(schedule)])

    notes = (
        "for the file that `trtllm-serve` takes as --extra_llm_api_options",
        "requests that outlast a draft length of 0 are accepted less from then on (pull request 16888); pools avoid it",
        "draft_len_schedule is read as `up to this batch size`; older releases read `from this size on`",
    )
    return _three(plan, serve, notes)


def _trtllm_limits(schedule: Sequence[DraftRange]) -> list[str]:
    """``max_concurrency`` for one K and then none, ``draft_len_schedule`` for more; the two exclude one another."""
    drafting = list(schedule)
    while drafting and drafting[-1].k == 0:
        drafting.pop()  # above the last key of a schedule nothing is drafted anyway
    if len({one.k for one in drafting}) > 1:
        return [f"  draft_len_schedule: {{{', '.join(f'{one.last}: {one.k}' for one in drafting)}}}"]
    return [f"  max_concurrency: {drafting[-1].last}"] if len(drafting) < len(schedule) else []


# All of them ---------------------------------------------------------------------------------------------------------


def _three(
    plan: Plan, serve: Callable[[int, int, Sequence[DraftRange]], str], notes: tuple[str, ...]
) -> tuple[EngineSettings, ...]:
    """One node for everything, then one of either pool. Where drafting pays nowhere, a standard node alone."""
    standard = EngineSettings(
        "standard pool: many sequences, large prefills, no speculator (K = 0 is not free)",
        serve(plan.admitted_standard, STANDARD_PREFILL_TOKENS, ()),
    )
    ceiling = ceiling_of(plan)
    if ceiling is None:
        return (
            EngineSettings(
                "drafting does not pay even for one sequence that fits: every node is standard", standard.text
            ),
        )
    most = plan.admitted_speculative
    return (
        EngineSettings(
            "one node without pools: K by batch size",
            serve(most, STANDARD_PREFILL_TOKENS, _within(plan.schedule, most)),
            notes,
        ),
        EngineSettings(
            f"speculative pool: at most {ceiling} sequences, small prefills, K = {_k_at(plan, ceiling)} at the ceiling",
            serve(ceiling, SPECULATIVE_PREFILL_TOKENS, _within(plan.schedule, ceiling)),
        ),
        standard,
    )


def _slipstream(plan: Plan) -> tuple[EngineSettings, ...]:
    """The part of a fleet's configuration that depends on what was found."""
    ceiling = ceiling_of(plan)
    if ceiling is None:
        text = "pools:\n  standard: {}"
        return (EngineSettings("drafting does not pay even for one sequence that fits: every node is standard", text),)
    lines = ["pools:", f"  speculative: {{ceiling: {ceiling}}}", "  standard: {}"]
    if plan.pinned:
        lines += ["routing:", "  pins:", *(f"    {json.dumps(category)}: standard" for category in plan.pinned)]
    return (EngineSettings("for fleet.yaml", "\n".join(lines)),)


ENGINES: Mapping[str, Callable[[Plan], tuple[EngineSettings, ...]]] = MappingProxyType(
    {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm, "slipstream": _slipstream}
)

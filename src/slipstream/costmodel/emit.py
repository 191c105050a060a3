"""Engines' own configuration for what a curve found, within the rules each engine has for it.

Sources of the rules: vLLM's ``config/speculative.py`` (ranges start at 1, are inclusive, K at most
``num_speculative_tokens``, none with data parallel), TensorRT-LLM's ``llm_args`` (``draft_len_schedule`` and
``max_concurrency`` exclude each other; both keys rise), SGLang's server arguments (no threshold by batch size, so the
ceiling is ours; 48 running requests where none are set).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from slipstream.costmodel.speculator import SpeculatorKind

__all__ = ["ENGINES", "DraftRange", "Emitted", "emit", "ranges_of"]

ENGINES = ("vllm", "sglang", "trtllm", "slipstream")

SPECULATIVE_PREFILL_TOKENS = 2048
STANDARD_PREFILL_TOKENS = 16384
"""Token budgets of a step for prefill: a small one keeps running requests quick, a large one fills a throughput
node."""

_VLLM_METHODS = {
    SpeculatorKind.DRAFT_MODEL: "draft_model",
    SpeculatorKind.EAGLE: "eagle",
    SpeculatorKind.EAGLE3: "eagle3",
    SpeculatorKind.MEDUSA: "medusa",
    SpeculatorKind.MTP: "mtp",
    SpeculatorKind.BLOCK: "dflash",
    SpeculatorKind.NGRAM: "ngram",
}
_VLLM_SCHEDULED = {"ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"}
_SGLANG_ALGORITHMS = {
    SpeculatorKind.DRAFT_MODEL: "STANDALONE",
    SpeculatorKind.EAGLE: "EAGLE",
    SpeculatorKind.EAGLE3: "EAGLE3",
    SpeculatorKind.MTP: "NEXTN",
    SpeculatorKind.NGRAM: "NGRAM",
}
_TRTLLM_TYPES = {
    SpeculatorKind.DRAFT_MODEL: "DraftTarget",
    SpeculatorKind.EAGLE: "Eagle",
    SpeculatorKind.EAGLE3: "Eagle3",
    SpeculatorKind.MEDUSA: "Medusa",
    SpeculatorKind.MTP: "MTP",
    SpeculatorKind.NGRAM: "NGram",
}


@dataclass(frozen=True, slots=True)
class DraftRange:
    """From batch size ``start`` to ``end``, both included, draft ``k`` tokens (0 = none)."""

    start: int
    end: int
    k: int


@dataclass(frozen=True, slots=True)
class Emitted:
    """Configuration of the two pools' engines, ready to be written as JSON or YAML.

    ``speculative`` and ``standard`` hold the engine's own option names. ``notes`` are sentences to read before using
    it.
    """

    engine: str
    speculative: dict[str, Any]
    standard: dict[str, Any]
    notes: tuple[str, ...]


def ranges_of(batch_sizes: Sequence[float], ks: Sequence[int]) -> tuple[DraftRange, ...]:
    """Ranges of constant K from a best K at each of some rising batch sizes; a K holds up to the next batch size.

    The first range starts at 1. Raises ValueError if the two do not go together.
    """
    if len(batch_sizes) != len(ks) or not ks:
        raise ValueError(f"{len(batch_sizes)} batch sizes do not go with {len(ks)} draft lengths")
    if any(k < 0 for k in ks) or any(b <= a for a, b in pairwise(batch_sizes)):
        raise ValueError("batch sizes must rise, and draft lengths must not be negative")
    found: list[DraftRange] = []
    for index, k in enumerate(ks):
        start = 1 if index == 0 else int(batch_sizes[index])
        end = int(batch_sizes[index + 1]) - 1 if index + 1 < len(ks) else int(batch_sizes[index])
        if end < start:
            continue
        if found and found[-1].k == k:
            found[-1] = DraftRange(found[-1].start, end, k)
        else:
            found.append(DraftRange(start, end, k))
    return tuple(found)


def emit(
    engine: str,
    kind: SpeculatorKind,
    ranges: Sequence[DraftRange],
    *,
    ceiling: int,
    standard_concurrency: int,
    drafter: str | None = None,
) -> Emitted:
    """What the engine of each pool should be started with.

    ``ranges`` are `ranges_of` a curve's best K; ``ceiling`` is the largest batch size worth speculating at (the
    crossover, or what memory admits); ``standard_concurrency`` what a standard node admits; ``drafter`` the path or
    name of the draft model. Raises ValueError for an unknown engine, a speculator that it does not have, or ranges it
    would refuse.
    """
    if engine not in ENGINES:
        raise ValueError(f"no configuration can be written for {engine}; known are {', '.join(ENGINES)}")
    _checked(ranges)
    if ceiling < 1 or standard_concurrency < 1:
        raise ValueError(f"both pools must hold a request, not {ceiling} and {standard_concurrency}")
    most = max(found.k for found in ranges)
    if most == 0:
        raise ValueError("speculation pays at no batch size: there is nothing to configure but standard nodes")
    make = {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm, "slipstream": _slipstream}[engine]
    return make(kind, tuple(ranges), most, ceiling, standard_concurrency, drafter)


def _checked(ranges: Sequence[DraftRange]) -> None:
    if not ranges or ranges[0].start != 1:
        raise ValueError("ranges must begin at batch size 1")
    for before, after in pairwise(ranges):
        if after.start != before.end + 1:
            raise ValueError(f"ranges must follow one another: {after.start} comes after {before.end}")
    for found in ranges:
        if found.end < found.start or found.k < 0:
            raise ValueError(f"the range from {found.start} to {found.end} with K = {found.k} is none")


def _known(kinds: dict[SpeculatorKind, str], kind: SpeculatorKind, engine: str) -> str:
    if kind not in kinds:
        raise ValueError(f"{engine} has no speculator of the kind {kind.value}")
    return kinds[kind]


def _vllm(
    kind: SpeculatorKind,
    ranges: tuple[DraftRange, ...],
    most: int,
    ceiling: int,
    standard_concurrency: int,
    drafter: str | None,
) -> Emitted:
    method = _known(_VLLM_METHODS, kind, "vLLM")
    config: dict[str, Any] = {"method": method, "num_speculative_tokens": most}
    if drafter is not None:
        config["model"] = drafter
    notes = ["num_speculative_tokens_per_batch_size is dropped with data parallel; it needs vLLM 0.24 or newer"]
    if method in _VLLM_SCHEDULED:
        config["num_speculative_tokens_per_batch_size"] = [[found.start, found.end, found.k] for found in ranges]
    else:
        notes = [f"vLLM has no schedule by batch size for {method}: the gateway's ceiling is what ends speculation"]
    return Emitted(
        "vllm",
        {
            "speculative_config": config,
            "max_num_seqs": ceiling,
            "max_num_batched_tokens": max(SPECULATIVE_PREFILL_TOKENS, ceiling * (most + 1)),
        },
        {"max_num_seqs": standard_concurrency, "max_num_batched_tokens": STANDARD_PREFILL_TOKENS},
        tuple(notes),
    )


def _sglang(
    kind: SpeculatorKind,
    ranges: tuple[DraftRange, ...],
    most: int,
    ceiling: int,
    standard_concurrency: int,
    drafter: str | None,
) -> Emitted:
    algorithm = _known(_SGLANG_ALGORITHMS, kind, "SGLang")
    flags: dict[str, Any] = {
        "speculative-algorithm": algorithm,
        "speculative-num-steps": most,
        "speculative-eagle-topk": 1,
        "speculative-num-draft-tokens": most + 1,
        "max-running-requests": ceiling,
        "chunked-prefill-size": SPECULATIVE_PREFILL_TOKENS,
    }
    if drafter is not None:
        flags["speculative-draft-model-path"] = drafter
    notes = ["SGLang can not be told where to stop by batch size: the gateway's ceiling does it"]
    if len({found.k for found in ranges}) > 1 and kind in (SpeculatorKind.EAGLE, SpeculatorKind.EAGLE3):
        flags["speculative-adaptive"] = True
        notes.append("speculative-adaptive chooses K by itself, from {1, 3, 5, 7}, {0, 1, 3} from batch size 8 on")
    return Emitted(
        "sglang",
        flags,
        {"max-running-requests": standard_concurrency, "chunked-prefill-size": STANDARD_PREFILL_TOKENS},
        tuple(notes),
    )


def _trtllm(
    kind: SpeculatorKind,
    ranges: tuple[DraftRange, ...],
    most: int,
    ceiling: int,
    standard_concurrency: int,
    drafter: str | None,
) -> Emitted:
    config: dict[str, Any] = {"decoding_type": _known(_TRTLLM_TYPES, kind, "TensorRT-LLM"), "max_draft_len": most}
    if drafter is not None:
        config["speculative_model"] = drafter
    drafting = [found for found in ranges if found.k]
    notes = []
    if len({found.k for found in drafting}) == 1 and drafting[0].start == 1:
        config["max_concurrency"] = drafting[-1].end
    else:
        config["draft_len_schedule"] = {found.end: found.k for found in ranges if found is not ranges[-1] or found.k}
        notes.append('keys of draft_len_schedule mean "up to this size"; releases before 1.2 read them as "from it on"')
    notes.append("where drafting stops and starts again, acceptance stays low for the requests that saw it stop")
    return Emitted(
        "trtllm",
        {
            "speculative_config": config,
            "max_batch_size": ceiling,
            "max_num_tokens": max(SPECULATIVE_PREFILL_TOKENS, ceiling * (most + 1)),
        },
        {"max_batch_size": standard_concurrency, "max_num_tokens": STANDARD_PREFILL_TOKENS},
        tuple(notes),
    )


def _slipstream(
    kind: SpeculatorKind,
    ranges: tuple[DraftRange, ...],
    most: int,
    ceiling: int,
    standard_concurrency: int,
    drafter: str | None,
) -> Emitted:
    del kind, ranges, most, drafter  # the gateway's configuration says nothing of them
    return Emitted(
        "slipstream",
        {"pools": {"speculative": {"ceiling": ceiling}, "standard": {}}},
        {"nodes": [{"pool": "standard", "max_in_flight": standard_concurrency}]},
        ("merge the pools into fleet.yaml, and max_in_flight into each standard node's entry",),
    )

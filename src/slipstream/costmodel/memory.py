"""How many requests fit beside the weights, with and without a speculator."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.roofline import Deployment
from slipstream.costmodel.speculator import Speculator

__all__ = ["USABLE_SHARE", "Admitted", "admitted", "kv_token_capacity"]

USABLE_SHARE = 0.9
"""Share of a GPU's memory that engines give to weights and cache; the rest is activations and graphs (vLLM's
default)."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Sequences of one context length that fit at once, and what takes the memory. Bytes are over all GPUs.

    ``speculative`` is ``None`` when no speculator was given; it is never above ``standard``.
    """

    standard: int
    speculative: int | None
    usable_bytes: float
    weight_bytes: float
    speculator_bytes: float
    sequence_bytes: float
    speculator_sequence_bytes: float


def admitted(
    deployment: Deployment, speculator: Speculator | None, context: float, *, usable_share: float = USABLE_SHARE
) -> Admitted:
    """Admitted concurrency at ``context`` tokens a sequence.

    A speculator that is not sharded lies whole on every GPU, its cache too. Keys and values of a model with fewer KV
    heads than GPUs are repeated on them. Raises ImpossibleInput if the weights alone do not fit, saying whose, and for
    a model that keeps no keys and values.
    """
    if not context > 0.0:
        raise ImpossibleInput(f"how many requests fit is told for a context above 0, not {context:g}")
    model, ranks = deployment.model, deployment.tensor_parallel
    usable = ranks * deployment.hardware.memory_bytes * usable_share
    weights = model.weight_bytes(deployment.weights)
    where = f"{ranks} × {deployment.hardware.name}"
    if weights >= usable:
        raise ImpossibleInput(
            f"{model.name} needs {weights / 1e9:.0f} GB for its weights, and {where} has {usable / 1e9:.0f} GB to give"
        )
    sequence = model.kv_bytes(context, deployment.kv_dtype) * _repeated(deployment, model.kv_heads, model.kv_rank)
    if not sequence > 0.0:
        raise ImpossibleInput(f"{model.name} keeps no keys and values, so that memory does not bound what it takes on")
    standard = floor((usable - weights) / sequence)
    if speculator is None:
        return Admitted(standard, None, usable, weights, 0.0, sequence, 0.0)
    copies = 1 if speculator.sharded else ranks
    draft_weights = speculator.weight_bytes() * copies
    if weights + draft_weights >= usable:
        raise ImpossibleInput(
            f"{speculator.name} needs {draft_weights / 1e9:.0f} GB beside {model.name}'s {weights / 1e9:.0f} GB, "
            f"and {where} has {usable / 1e9:.0f} GB to give"
        )
    drafter = speculator.drafter
    draft_sequence = speculator.kv_bytes(context, deployment.kv_dtype)
    if drafter is not None:
        repeated = _repeated(deployment, drafter.kv_heads, drafter.kv_rank) if speculator.sharded else ranks
        draft_sequence *= repeated
    speculative = floor((usable - weights - draft_weights) / (sequence + draft_sequence))
    return Admitted(standard, speculative, usable, weights, draft_weights, sequence, draft_sequence)


def kv_token_capacity(
    deployment: Deployment,
    speculator: Speculator | None,
    *,
    usable_share: float = USABLE_SHARE,
    context: float = 1024.0,
) -> int:
    """Tokens whose keys and values, the target's and the drafter's, fit beside the weights, over all sequences.

    ``context`` is the length of a sequence and counts only where layers or a drafter keep a window of it: what the
    window takes is shared out over so many tokens. Raises ImpossibleInput as `admitted`.
    """
    fits = admitted(deployment, speculator, context, usable_share=usable_share)
    room = fits.usable_bytes - fits.weight_bytes - fits.speculator_bytes
    return floor(room / (fits.sequence_bytes + fits.speculator_sequence_bytes) * context)


def _repeated(deployment: Deployment, kv_heads: int, kv_rank: int) -> float:
    shards = 1 if kv_rank else min(kv_heads, deployment.tensor_parallel)
    return deployment.tensor_parallel / shards

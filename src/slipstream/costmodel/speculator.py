"""What drafts, and what drafting costs: each kind with its own weights, cache and time.

A speculator is a small model that makes `passes` over the batch for a verify step. Kinds differ in where that model
comes from: a draft model is a model of its own, an EAGLE head is one layer fed by the target's hidden states, a
multi-token predictor is one of the target's own layers, Medusa's heads share one pass, a block drafter proposes all
positions in one, and n-gram lookup has no weights at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.model import Model
from slipstream.costmodel.roofline import Deployment, pass_s

__all__ = [
    "HEADS",
    "Speculator",
    "SpeculatorKind",
    "block_head",
    "draft_model",
    "draft_s",
    "drafter_prefill_s",
    "eagle_head",
    "medusa_heads",
    "mtp_layer",
    "ngram",
    "self_speculation",
]

EAGLE3_VOCABULARY = 32_000
"""EAGLE-3 heads propose from the most frequent tokens only; published heads keep 32,000."""

BLOCK_LAYERS = 5
"""Layers of published block drafters (DFlash)."""

NGRAM_S_PER_SEQUENCE = 5e-6
"""Host time of one lookup in the prompt."""


class SpeculatorKind(StrEnum):
    """Where the draft comes from."""

    DRAFT_MODEL = "draft-model"
    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    MEDUSA = "medusa"
    MTP = "mtp"
    BLOCK = "block"
    NGRAM = "ngram"
    SELF = "self"


@dataclass(frozen=True, slots=True)
class Speculator:
    """A drafter beside a target.

    ``drafter`` is what a pass reads, ``None`` for n-gram lookup. ``parallel``: all positions come out of one pass.
    ``kv_window`` is the most context its cache keeps (``None`` = all). ``sharded``: split over the target's GPUs rather
    than whole on each. ``shares_weights``: its weights are the target's own and take no further memory.
    ``proposing_share`` is p, 0..1.
    """

    name: str
    kind: SpeculatorKind
    drafter: Model | None
    parallel: bool = False
    kv_window: int | None = None
    sharded: bool = True
    shares_weights: bool = False
    proposing_share: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.proposing_share <= 1.0:
            raise ImpossibleInput(f"{self.name}: the proposing share must be within 0..1, not {self.proposing_share}")

    def weight_bytes(self) -> float:
        """Memory of its weights over all ranks if sharded, on each if not. Heads borrow the target's embeddings."""
        if self.drafter is None or self.shares_weights:
            return 0.0
        if self.kind is SpeculatorKind.DRAFT_MODEL:
            return self.drafter.weight_bytes()
        borrowed = self.drafter.head_parameters * (1 if self.kind in _BORROWS_HEAD else 0)
        own = self.drafter.weight_bytes()
        return own - 2.0 * (self.drafter.head_parameters + borrowed)

    def kv_bytes(self, context: float, kv_dtype: str = "bf16") -> float:
        """Memory of its cache for one sequence."""
        if self.drafter is None:
            return 0.0
        return self.drafter.kv_bytes(context if self.kv_window is None else min(context, self.kv_window), kv_dtype)


_BORROWS_HEAD = {SpeculatorKind.EAGLE, SpeculatorKind.MTP, SpeculatorKind.BLOCK}


def draft_model(model: Model, *, sharded: bool = True, name: str = "") -> Speculator:
    """A separate, smaller model of the same vocabulary."""
    return Speculator(name or model.name, SpeculatorKind.DRAFT_MODEL, model, sharded=sharded)


def eagle_head(target: Model, *, version: int = 3, name: str = "") -> Speculator:
    """One decoder layer on the target's hidden states. Version 1 and 2 use the target's output head; 3 has its own.

    Version 1 and 2 reduce two hidden states to one before the layer; 3 reduces three, and its layer takes the embedding
    beside the result (Li et al., 2024 and 2025).
    """
    hidden, heads = target.hidden, target.heads
    width = target.intermediate if not target.experts else max(4 * hidden, target.expert_intermediate)
    kv_heads, head_dim = target.kv_heads, target.head_dim
    if target.kv_rank:
        kv_heads, head_dim, heads = 8, 128, hidden // 128
    reduced = (3 if version == 3 else 2) * hidden * hidden
    widened = hidden * head_dim * (heads + 2 * kv_heads) if version == 3 else 0
    head = Model(
        name=f"EAGLE-{version} of {target.name}",
        layers=1,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=width,
        vocabulary=min(EAGLE3_VOCABULARY, target.vocabulary) if version == 3 else target.vocabulary,
        extra_parameters=reduced + widened,
        source=f"computed from {target.name}",
    )
    kind = SpeculatorKind.EAGLE3 if version == 3 else SpeculatorKind.EAGLE
    return Speculator(name or kind.value, kind, head)


def medusa_heads(target: Model, heads: int = 4, *, name: str = "medusa") -> Speculator:
    """``heads`` residual blocks with an output head each, all in one pass over the last hidden state."""
    if heads < 1:
        raise ImpossibleInput(f"Medusa has at least one head, not {heads}")
    each = target.hidden * target.hidden + target.head_parameters
    blocks = replace(
        target,
        name=f"Medusa of {target.name}",
        layers=1,
        experts=0,
        experts_per_token=0,
        dense_layers=0,
        intermediate=0,
        shared_intermediate=0,
        kv_rank=0,
        kv_layers=0,
        sliding_layers=0,
        heads=1,
        kv_heads=1,
        head_dim=1,
        extra_parameters=heads * each - target.head_parameters,
        weight_dtype="bf16",
    )
    return Speculator(name, SpeculatorKind.MEDUSA, blocks, parallel=True)


def mtp_layer(target: Model, *, name: str = "mtp") -> Speculator:
    """The target's own next-token-prediction layer: one layer of its kind, two hidden states reduced to one before."""
    layer = replace(
        target,
        name=f"MTP of {target.name}",
        layers=1,
        dense_layers=0,
        kv_layers=None,
        sliding_layers=0,
        extra_parameters=2 * target.hidden * target.hidden,
    )
    return Speculator(name, SpeculatorKind.MTP, layer)


def block_head(target: Model, *, layers: int = BLOCK_LAYERS, name: str = "block") -> Speculator:
    """A drafter of a few dense layers that proposes all positions in one pass (DFlash)."""
    width = target.intermediate if not target.experts else max(4 * target.hidden, target.expert_intermediate)
    head = eagle_head(target, version=2).drafter
    assert head is not None
    drafter = replace(head, name=f"block drafter of {target.name}", layers=layers, intermediate=width)
    return Speculator(name, SpeculatorKind.BLOCK, drafter, parallel=True)


def ngram(proposing_share: float, *, name: str = "ngram") -> Speculator:
    """Lookup in the prompt. It proposes only where it finds something: without its share p the model is wrong."""
    return Speculator(name, SpeculatorKind.NGRAM, None, parallel=True, proposing_share=proposing_share)


def self_speculation(target: Model, window: int, *, name: str = "self") -> Speculator:
    """The target drafts for itself with a cache of the last ``window`` tokens only (MagicDec)."""
    return Speculator(name, SpeculatorKind.SELF, target, kv_window=window, shares_weights=True)


def _drafting(deployment: Deployment, speculator: Speculator, drafter: Model) -> Deployment:
    ranks = deployment.tensor_parallel if speculator.sharded else 1
    own_layers = speculator.kind in (SpeculatorKind.MTP, SpeculatorKind.SELF)
    return replace(
        deployment,
        model=drafter,
        tensor_parallel=ranks,
        weight_dtype=deployment.weight_dtype if own_layers else None,
    )


def draft_s(
    deployment: Deployment, speculator: Speculator, batch_size: ArrayLike, k: ArrayLike, context: ArrayLike
) -> NDArray[np.float64]:
    """Seconds to draft ``k`` tokens for each of ``batch_size`` sequences: K passes in a row, or one for all positions.

    Only the proposing share of the batch is drafted for. 0 at K = 0.
    """
    batch_size, k = np.asarray(batch_size, float), np.asarray(k, float)
    share = speculator.proposing_share
    if speculator.drafter is None:
        return np.asarray(NGRAM_S_PER_SEQUENCE * batch_size * (k > 0.0), float)
    seen = np.asarray(context, float)
    if speculator.kv_window is not None:
        seen = np.minimum(seen, speculator.kv_window)
    on = _drafting(deployment, speculator, speculator.drafter)
    if speculator.parallel:
        tokens = 1.0 if speculator.kind is SpeculatorKind.MEDUSA else k + 1.0
        once = pass_s(on, batch_size * share, tokens, seen) + deployment.engine.draft_pass_s
        return np.asarray(once * (k > 0.0), float)
    return np.asarray(k * (pass_s(on, batch_size * share, 1.0, seen) + deployment.engine.draft_pass_s), float)


def drafter_prefill_s(deployment: Deployment, speculator: Speculator, prompt_tokens: ArrayLike) -> NDArray[np.float64]:
    """Seconds that the drafter adds to the prefill of one prompt."""
    prompt = np.asarray(prompt_tokens, float)
    if speculator.drafter is None or speculator.kind in (SpeculatorKind.MEDUSA, SpeculatorKind.SELF):
        return np.zeros_like(prompt)
    return pass_s(_drafting(deployment, speculator, speculator.drafter), 1.0, prompt, prompt / 2.0)


HEADS: Mapping[str, Callable[[Model], Speculator]] = MappingProxyType(
    {
        "eagle": lambda target: eagle_head(target, version=1),
        "eagle3": eagle_head,
        "medusa": medusa_heads,
        "mtp": mtp_layer,
        "block": block_head,
    }
)
"""Speculators that are made for a target, by name. Others are ngram, and draft models by their own names."""

"""How long one pass takes: bytes over bandwidth against arithmetic, from a datasheet and a model card.

Two limits meet in a soft knee: `√(memory² + compute²)`, since near the ridge neither is reached alone (Vidur's
kernel times bend over a factor of four in tokens). Keys and values are read per sequence and their time is added, since
attention and matrix products take turns. The number of distinct experts that `t` unrelated tokens touch is
`E·(1 − ((E − k)/E)^t)` (Huang et al., "MoESD", 2025), for uniform routing; the tokens of one sequence are related, and
count for less (`ROUTING_NOVELTY`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slipstream.costmodel.engine import Engine
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.hardware import Hardware
from slipstream.costmodel.model import BYTES_PER_VALUE, Model

__all__ = ["Deployment", "attention_pair_s", "distinct_experts", "pass_s", "prefill_s", "standard_step_s"]

Seconds = NDArray[np.float64]

ROUTING_NOVELTY = 0.5
"""Neighbouring tokens route alike: each further one of a sequence touches experts as this share of a token does."""

_BF16 = BYTES_PER_VALUE["bf16"]


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model on so many GPUs of a kind, run by an engine. ``weight_dtype`` ``None`` is as published."""

    model: Model
    hardware: Hardware
    engine: Engine
    tensor_parallel: int = 1
    weight_dtype: str | None = None
    kv_dtype: str = "bf16"

    def __post_init__(self) -> None:
        if self.tensor_parallel < 1:
            raise ImpossibleInput(f"tensor parallel must be at least 1, not {self.tensor_parallel}")
        for dtype in (self.weight_dtype, self.kv_dtype):
            if dtype is not None and dtype not in BYTES_PER_VALUE:
                raise ImpossibleInput(f"{dtype!r} is not a known data type; known are {', '.join(BYTES_PER_VALUE)}")

    @property
    def weights(self) -> str:
        """Data type of the linear layers."""
        return self.weight_dtype or self.model.weight_dtype


def distinct_experts(experts: int, per_token: int, tokens: ArrayLike) -> Seconds:
    """Expected number of experts of a layer that at least one of ``tokens`` tokens uses."""
    if per_token >= experts:
        return np.full_like(np.asarray(tokens, float), experts)
    return np.asarray(-experts * np.expm1(np.asarray(tokens, float) * np.log1p(-per_token / experts)))


def pass_s(deployment: Deployment, sequences: ArrayLike, tokens_each: ArrayLike, context: ArrayLike) -> Seconds:
    """Seconds of one forward pass on the GPUs: ``sequences`` of ``tokens_each`` new tokens and ``context`` cached ones.

    The three broadcast against one another. The host's part of a step is not in it.
    """
    model, hardware, engine = deployment.model, deployment.hardware, deployment.engine
    ranks = deployment.tensor_parallel
    sequences, context = np.asarray(sequences, float), np.asarray(context, float)
    each = np.asarray(tokens_each, float)
    tokens = sequences * each
    bandwidth = hardware.memory_bytes_per_s * hardware.memory_efficiency
    rate = hardware.flops_of(deployment.weights) * hardware.compute_efficiency
    rate_bf16 = hardware.flops["bf16"] * hardware.compute_efficiency
    weight_bytes = BYTES_PER_VALUE[deployment.weights]

    read = (model.shared_parameters * weight_bytes + model.head_parameters * _BF16) / (ranks * bandwidth)
    per_token = 2.0 * (model.shared_parameters / rate + model.head_parameters / rate_bf16) / ranks
    total = _knee(np.asarray(read), per_token * tokens)
    if model.experts:
        unlike = sequences * (1.0 + ROUTING_NOVELTY * (each - 1.0))
        touched = distinct_experts(model.experts, model.experts_per_token, unlike) * model.moe_layers
        expert_read = touched * model.expert_parameters * weight_bytes / (ranks * bandwidth)
        used = model.moe_layers * model.experts_per_token * model.expert_parameters
        total = total + _knee(expert_read, 2.0 * used * tokens / (ranks * rate * engine.expert_efficiency))
    total = total + _attention_s(deployment, sequences, tokens, context)
    total = total + model.layers * engine.layer_s + model.moe_layers * engine.expert_layer_s
    if ranks > 1:
        sent = 2.0 * (ranks - 1) / ranks * model.hidden * _BF16 / hardware.link_bytes_per_s
        total = total + 2 * model.layers * (engine.collective_s + sent * tokens)
    return np.asarray(total, float)


def _attention_s(deployment: Deployment, sequences: Seconds, tokens: Seconds, context: Seconds) -> Seconds:
    model, hardware = deployment.model, deployment.hardware
    shards = deployment.tensor_parallel if not model.kv_rank else 1
    shards = min(shards, model.kv_heads)
    value = BYTES_PER_VALUE[deployment.kv_dtype]
    seen = context * (model.caching_layers - model.sliding_layers)
    if model.sliding_layers:
        seen = seen + np.minimum(context, model.sliding_window) * model.sliding_layers
    bandwidth = hardware.memory_bytes_per_s * hardware.memory_efficiency
    read = sequences * seen * model.kv_values_per_token * value / (shards * bandwidth)
    return _knee(read, tokens * seen * attention_pair_s(deployment))


def attention_pair_s(deployment: Deployment) -> float:
    """Seconds of attention arithmetic for one query token, one cached token that it sees, and one layer."""
    model, hardware = deployment.model, deployment.hardware
    width = 2 * model.kv_rank + model.rope_dim if model.kv_rank else 2 * model.head_dim
    rate = hardware.flops["bf16"] * hardware.compute_efficiency * deployment.tensor_parallel
    return 2.0 * model.heads * width / rate


def _knee(memory: Seconds, compute: Seconds) -> Seconds:
    """Both as the legs of a right triangle: a p-norm with p = 2."""
    return np.hypot(memory, compute)


def standard_step_s(deployment: Deployment, batch_size: ArrayLike, context: ArrayLike) -> Seconds:
    """Seconds of a decode step without speculation, host included."""
    engine = deployment.engine
    host = engine.step_s + engine.sequence_s * np.asarray(batch_size, float)
    return pass_s(deployment, batch_size, 1.0, context) + host


def prefill_s(deployment: Deployment, prompt_tokens: ArrayLike) -> Seconds:
    """Seconds to process one prompt of ``prompt_tokens``, each token seeing half of it on average."""
    prompt = np.asarray(prompt_tokens, float)
    return pass_s(deployment, 1.0, prompt, prompt / 2.0)

"""A model card: what a forward pass of a transformer reads and computes, counted from its published shape."""

from __future__ import annotations

from dataclasses import dataclass, fields

from slipstream.costmodel.errors import ImpossibleInput

__all__ = ["BYTES_PER_VALUE", "Model"]

BYTES_PER_VALUE = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.53, "int4": 0.53}
"""Bytes a stored value takes, scales included: four-bit formats keep one scale of 8 or 16 bits for 16 to 128 values."""


MOST = 1e15
"""No model has more of anything; what is beyond is a slip of a file."""


@dataclass(frozen=True, slots=True)
class Model:
    """The shape of a decoder-only transformer, in the terms of its ``config.json``.

    ``intermediate`` is the width of a dense MLP. ``experts`` 0 is a dense model; otherwise all layers but the first
    ``dense_layers`` have ``experts`` of width ``expert_intermediate``, of which a token uses ``experts_per_token``,
    beside a shared expert of width ``shared_intermediate`` (0 = none). ``kv_layers`` is how many layers keep keys and
    values (``None`` = all; linear attention keeps a constant state, which is left out). ``sliding_layers`` of them see
    at most ``sliding_window`` tokens. ``kv_rank`` above 0 is multi-head latent attention: per token and layer one
    latent of that width and a rotary key of ``rope_dim``. ``extra_parameters`` are further weights that a pass reads
    once (the projections that feed an EAGLE head). ``weight_dtype`` is how the published checkpoint stores its linear
    layers.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    tied_embeddings: bool = False
    gated: bool = True
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate: int = 0
    shared_intermediate: int = 0
    dense_layers: int = 0
    kv_layers: int | None = None
    sliding_window: int = 0
    sliding_layers: int = 0
    kv_rank: int = 0
    query_rank: int = 0
    rope_dim: int = 0
    extra_parameters: int = 0
    weight_dtype: str = "bf16"
    source: str = ""

    def __post_init__(self) -> None:
        for name, figure in ((field.name, getattr(self, field.name)) for field in fields(self)):
            if isinstance(figure, int | float) and not 0 <= figure <= MOST:
                raise ImpossibleInput(f"{self.name}: {name} must be 0 to {MOST:g}, not {figure}")
        for what, some, of, all_of in (
            ("dense_layers", self.dense_layers, "its", self.layers),
            ("kv_layers", self.caching_layers, "its", self.layers),
            ("sliding_layers", self.sliding_layers, "the", self.caching_layers),
        ):
            if some > all_of:
                raise ImpossibleInput(f"{self.name}: {what} {some} are more than {of} {all_of} layers")
        for what in ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocabulary"):
            if getattr(self, what) < 1:
                raise ImpossibleInput(f"{self.name}: {what} must be at least 1, not {getattr(self, what)}")
        if self.experts and not 1 <= self.experts_per_token <= self.experts:
            raise ImpossibleInput(
                f"{self.name}: a token can not use {self.experts_per_token} of {self.experts} experts"
            )
        if self.weight_dtype not in BYTES_PER_VALUE:
            raise ImpossibleInput(
                f"{self.name}: weights as {self.weight_dtype}; known are {', '.join(BYTES_PER_VALUE)}"
            )

    @property
    def moe_layers(self) -> int:
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def attention_parameters(self) -> int:
        """Of one layer."""
        if self.kv_rank:
            query = self.query_rank * (self.hidden + self.heads * (self.head_dim + self.rope_dim))
            if not self.query_rank:
                query = self.hidden * self.heads * (self.head_dim + self.rope_dim)
            latent = self.hidden * (self.kv_rank + self.rope_dim) + self.kv_rank * self.heads * 2 * self.head_dim
            return query + latent + self.heads * self.head_dim * self.hidden
        return self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)

    def _mlp(self, width: int) -> int:
        return (3 if self.gated else 2) * self.hidden * width

    @property
    def expert_parameters(self) -> int:
        """Of one expert of one layer; 0 for a dense model."""
        return self._mlp(self.expert_intermediate) if self.experts else 0

    @property
    def shared_parameters(self) -> int:
        """What every token's pass uses, over all layers, without experts, embeddings and output head."""
        dense_mlps = (self.layers - self.moe_layers) * self._mlp(self.intermediate)
        moe = self.moe_layers * (self._mlp(self.shared_intermediate) + self.hidden * self.experts)
        return self.layers * self.attention_parameters + dense_mlps + moe + self.extra_parameters

    @property
    def head_parameters(self) -> int:
        """The output head, read once a pass; also the embedding where the two are tied."""
        return self.hidden * self.vocabulary

    @property
    def parameters(self) -> int:
        """All weights, embeddings included."""
        experts = self.moe_layers * self.experts * self.expert_parameters
        return self.shared_parameters + experts + self.head_parameters * (1 if self.tied_embeddings else 2)

    @property
    def active_parameters(self) -> int:
        """What one token's pass multiplies with, output head included."""
        return (
            self.shared_parameters
            + self.moe_layers * self.experts_per_token * self.expert_parameters
            + self.head_parameters
        )

    @property
    def kv_values_per_token(self) -> int:
        """Values kept for one token of one layer."""
        return self.kv_rank + self.rope_dim if self.kv_rank else 2 * self.kv_heads * self.head_dim

    @property
    def caching_layers(self) -> int:
        return self.layers if self.kv_layers is None else self.kv_layers

    def weight_bytes(self, dtype: str | None = None) -> float:
        """Memory of all weights. Embeddings and output head stay in 16 bits however the rest is quantised."""
        embeddings = self.head_parameters * (1 if self.tied_embeddings else 2)
        linear = self.parameters - embeddings
        return linear * BYTES_PER_VALUE[dtype or self.weight_dtype] + embeddings * 2.0

    def kv_bytes_per_token(self, dtype: str = "bf16") -> float:
        """Memory of one further token of context in the layers that see all of it."""
        layers = self.caching_layers - self.sliding_layers
        return layers * self.kv_values_per_token * BYTES_PER_VALUE[dtype]

    def kv_bytes(self, context: float, dtype: str = "bf16") -> float:
        """Memory of one sequence of ``context`` tokens."""
        window = self.sliding_layers * self.kv_values_per_token * BYTES_PER_VALUE[dtype]
        return self.kv_bytes_per_token(dtype) * context + window * min(context, self.sliding_window)

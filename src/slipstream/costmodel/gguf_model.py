"""A model card from the metadata of a GGUF file."""

from __future__ import annotations

from pathlib import Path

from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.gguf import read_metadata
from slipstream.costmodel.model import Model

__all__ = ["model_from_gguf"]

_DTYPES = {0: "fp32", 1: "bf16", 7: "int8", 32: "bf16"}
"""Of ``general.file_type``: all of F32, F16, Q8_0, BF16. Every other is some mixture of two to six bits."""


def model_from_gguf(file: Path) -> Model:
    """The model in ``file``. Raises `ImpossibleInput`, naming it, for a key that is missing, and for a damaged file."""
    metadata = read_metadata(file)
    architecture = metadata.get("general.architecture")

    def number(key: str, default: int | None = None) -> int:
        value = metadata.get(f"{architecture}.{key}")
        if isinstance(value, list) and value:
            value = max((one for one in value if isinstance(one, int)), default=None)  # given layer by layer
        if isinstance(value, int):
            return value
        if default is None:
            raise ImpossibleInput(f"{file} does not tell {architecture}.{key}, so what the model costs is not known")
        return default

    tokens = metadata.get("tokenizer.ggml.tokens")
    hidden, heads, experts = number("embedding_length"), number("attention.head_count"), number("expert_count", 0)
    width = number("expert_feed_forward_length", 0) if experts else 0
    kind = metadata.get("general.file_type")
    return Model(
        name=file.stem,
        layers=number("block_count"),
        hidden=hidden,
        heads=heads,
        kv_heads=number("attention.head_count_kv", heads),
        head_dim=number("attention.key_length", hidden // heads if heads else 0),
        intermediate=number("feed_forward_length", width or None),
        vocabulary=number("vocab_size", len(tokens) if isinstance(tokens, list) else None),
        experts=experts,
        experts_per_token=number("expert_used_count") if experts else 0,
        expert_intermediate=width or (number("feed_forward_length") if experts else 0),
        shared_intermediate=number("expert_shared_feed_forward_length", 0) if experts else 0,
        dense_layers=number("leading_dense_block_count", 0) if experts else 0,
        weight_dtype=_DTYPES.get(kind, "int4") if isinstance(kind, int) else "bf16",
        source=str(file),
    )

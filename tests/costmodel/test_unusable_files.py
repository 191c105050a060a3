"""Files of people's own are told what is wrong with them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from slipstream.costmodel.catalogue import engine_named, hardware_named, model_named
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.memory import admitted
from slipstream.costmodel.profiles import read_profile
from slipstream.costmodel.roofline import Deployment

GPU = {
    "name": "x",
    "memory_bytes": 80e9,
    "memory_bytes_per_s": 3e12,
    "flops": {"bf16": 1e15},
    "link_bytes_per_s": 4e11,
}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"memory_bytes": "80 GB"}, "holds something of another kind"),
        ({"flops": 1e15}, "holds something of another kind"),
        ({"flops": {"fp8": 1e15}}, "flops needs at least bf16"),
        ({"flops": {"bf16": 1e15, "fp8": 1e400}}, "rates of 1 to"),
        ({"memory_bytes": 1e400}, "memory_bytes must be positive, 1 to 1e.30, not inf"),
        ({"memory_bytes_per_s": 1e-300}, "memory_bytes_per_s must be positive"),
        ({"memory_efficiency": 1e-300}, "memory_efficiency must be within 0.001..1"),
        ({"tflops": 1}, "unknown keys tflops"),
    ],
)
def test_a_gpu_that_can_not_be(tmp_path: Path, change: dict[str, object], sentence: str) -> None:
    file = tmp_path / "gpu.json"
    file.write_text(json.dumps({**GPU, **change}))
    with pytest.raises(ImpossibleInput, match=sentence):
        hardware_named(str(file))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"layer_s": -1e-6}, "layer_s is 0 to 1 s, not -1e-06"),
        ({"step_s": float("nan")}, "step_s is 0 to 1 s, not nan"),
        ({"step_s": "fast"}, "holds something of another kind"),
        ({"interference": 1e9}, "interference is 0 to 10"),
        ({"expert_efficiency": 0}, "expert_efficiency is 0.001 to 1"),
        ({"graph_sequences": -1}, "graph_sequences must not be negative"),
    ],
)
def test_an_engine_that_can_not_be(tmp_path: Path, change: dict[str, object], sentence: str) -> None:
    file = tmp_path / "engine.json"
    file.write_text(json.dumps({**asdict(engine_named("vllm")), **change}))
    with pytest.raises(ImpossibleInput, match=sentence):
        engine_named(str(file))


def test_a_model_without_heads(tmp_path: Path) -> None:
    shape = {"hidden_size": 8, "num_attention_heads": 0, "num_hidden_layers": 1, "vocab_size": 2}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    with pytest.raises(ImpossibleInput, match="heads must be at least 1"):
        model_named(str(tmp_path))


def test_a_model_whose_width_is_no_number(tmp_path: Path) -> None:
    shape = {"hidden_size": float("inf"), "num_attention_heads": 8, "num_hidden_layers": 1, "vocab_size": 2}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    with pytest.raises(ImpossibleInput, match="hidden_size must be finite, not inf"):
        model_named(str(tmp_path))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"intermediate_size": [64, 64]}, r"intermediate_size must be a number, not \[64, 64\]"),
        ({"num_experts": "8"}, "num_experts must be a number, not '8'"),
        (
            {"num_experts": 4, "num_experts_per_tok": 2, "first_k_dense_replace": 9},
            "dense_layers 9 are more than its 2",
        ),
        ({"layer_types": ["sliding_attention"] * 3, "sliding_window": 8}, "sliding_layers 3 are more than the 2"),
        ({"layer_types": ["linear_attention"] * 3}, "kv_layers must be 0 to"),
    ],
)
def test_a_model_that_would_be_less_than_nothing_or_is_told_in_words(
    tmp_path: Path, change: dict[str, object], sentence: str
) -> None:
    """Taken for what is usual, or for fewer than no weights and caches, it would give figures of no model."""
    shape = {"hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 2, "vocab_size": 2}
    (tmp_path / "config.json").write_text(json.dumps(shape | change))
    with pytest.raises(ImpossibleInput, match=sentence):
        model_named(str(tmp_path))


def test_more_layers_that_cache_than_there_are(tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    file.write_text(json.dumps(asdict(model_named("Qwen3-0.6B")) | {"kv_layers": 29}))
    with pytest.raises(ImpossibleInput, match="kv_layers 29 are more than its 28"):
        model_named(str(file))


def test_a_kind_that_is_none_is_taken_for_a_gated_one(tmp_path: Path) -> None:
    shape = {"hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 1, "vocab_size": 2, "model_type": {}}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    assert model_named(str(tmp_path)).gated


@pytest.mark.parametrize("nested", [None, [], "none"])
def test_a_text_config_that_is_none_is_not_looked_into(tmp_path: Path, nested: object) -> None:
    shape = {"hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 1, "vocab_size": 2}
    (tmp_path / "config.json").write_text(json.dumps({**shape, "text_config": nested}))
    assert model_named(str(tmp_path)).hidden == 64


def test_what_a_gpu_lacks_is_named(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    file.write_text(json.dumps({"name": "x", "memory_bytes": 1e9}))
    with pytest.raises(ImpossibleInput, match="incomplete: memory_bytes_per_s, flops, link_bytes_per_s must be told"):
        hardware_named(str(file))


def test_a_model_of_more_layers_than_anything_has(tmp_path: Path) -> None:
    shape = {"hidden_size": 8, "num_attention_heads": 1, "num_hidden_layers": 10**400, "vocab_size": 2}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    with pytest.raises(ImpossibleInput, match=r"layers must be 0 to 1e.15"):
        model_named(str(tmp_path))


def test_a_step_that_takes_longer_than_anything(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    who = {"engine": "vllm", "version": "0.33", "hardware": "H100", "model": "m", "date": "2026-11-01"}
    file.write_text(json.dumps({"form": "linear", **who, "coefficients": {"step_s": 1e300, "token_s": 1}}))
    with pytest.raises(ImpossibleInput, match=r"step_s must be a number, at most 1e.15, not 1e.300"):
        read_profile(file)


def test_a_context_of_nothing_can_not_be_counted() -> None:
    deployment = Deployment(model_named("Llama-3-8B"), hardware_named("H100"), engine_named("vllm"))
    with pytest.raises(ImpossibleInput, match="a context above 0, not 0"):
        admitted(deployment, None, 0.0)

"""Catalogues, model cards and configurations on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slipstream.costmodel.catalogue import (
    engine_named,
    engines,
    hardware,
    hardware_named,
    model_named,
    models,
)
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.huggingface import model_of

LLAMA_8B: dict[str, Any] = {
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_V3: dict[str, Any] = {
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "num_hidden_layers": 61,
    "intermediate_size": 18432,
    "vocab_size": 129280,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "quantization_config": {"quant_method": "fp8"},
}
GPT_OSS_20B: dict[str, Any] = {
    "hidden_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_hidden_layers": 24,
    "intermediate_size": 2880,
    "vocab_size": 201088,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "quantization_config": {"quant_method": "mxfp4"},
}


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [
        ("Llama-2-7B", 6.74, 6.6),
        ("Llama-2-70B", 69.0, 68.7),
        ("Llama-3.1-8B", 8.03, 7.5),
        ("Llama-3.3-70B", 70.6, 69.5),
        ("Qwen3-32B", 32.8, 32.0),
        ("Qwen3-30B-A3B", 30.5, 3.0),
        ("Qwen3-235B-A22B", 235.1, 21.6),
        ("gpt-oss-20b", 20.9, 3.6),
        ("gpt-oss-120b", 116.8, 5.1),
        ("DeepSeek-V3", 671.0, 36.6),
    ],
)
def test_parameters_are_those_that_the_model_cards_state(name: str, billions: float, active: float) -> None:
    model = models()[name]
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.01)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=0.03)


def test_cache_per_token_is_that_of_the_published_shape() -> None:
    assert model_named("Llama-3.1-8B").kv_bytes_per_token() == 131_072
    assert model_named("DeepSeek-V3").kv_bytes_per_token() == 61 * 576 * 2
    assert model_named("Qwen3-Next-80B-A3B").caching_layers == 12


def test_what_issue_and_articles_name_is_there_with_its_source() -> None:
    assert {"A100-80", "H100", "H200", "L40S", "MI300X", "B200"} <= set(hardware())
    assert {"vllm", "sglang", "trtllm"} <= set(engines())
    assert all(gpu.source for gpu in hardware().values())
    assert all(model.source for model in models().values())
    assert all(engine.source for engine in engines().values())


def test_names_are_found_however_they_are_written() -> None:
    assert hardware_named("a100").name == "A100-80"
    assert model_named("meta-llama/Meta-Llama-3-70B-Instruct").name == "Llama-3-70B"
    assert model_named("Qwen/Qwen3-32B-FP8").name == "Qwen3-32B"
    assert engine_named("vLLM").name == "vllm"


@pytest.mark.parametrize(
    ("named", "what"), [(hardware_named, "hardware"), (model_named, "model"), (engine_named, "engine")]
)
def test_an_unknown_name_is_told_with_the_known_ones(named: Any, what: str) -> None:
    with pytest.raises(ImpossibleInput, match=f"no {what} is called Nothing; known are"):
        named("Nothing")


@pytest.mark.parametrize(
    ("config", "name"), [(LLAMA_8B, "Llama-3.1-8B"), (DEEPSEEK_V3, "DeepSeek-V3"), (GPT_OSS_20B, "gpt-oss-20b")]
)
def test_a_configuration_on_disk_gives_the_models_card(config: dict[str, Any], name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    read, known = model_named(str(tmp_path)), models()[name]
    assert read.parameters == known.parameters
    assert read.weight_dtype == known.weight_dtype
    assert read.kv_bytes(10_000) == known.kv_bytes(10_000)
    assert model_named(str(tmp_path / "config.json")).parameters == known.parameters


def test_text_models_inside_others_and_other_names_of_keys_are_read() -> None:
    model = model_of({"text_config": LLAMA_8B, "tie_word_embeddings": True}, name="seeing")
    assert model.tied_embeddings
    bloom = {"model_type": "bloom", "n_embd": 1024, "n_head": 16, "n_layer": 24, "vocab_size": 250880}
    assert not model_of(bloom, name="bloom").gated
    assert model_of({**LLAMA_8B, "torch_dtype": "float32"}, name="wide").weight_dtype == "fp32"
    awq = {**LLAMA_8B, "quantization_config": {"quant_method": "awq", "bits": 4}}
    assert model_of(awq, name="awq").weight_dtype == "int4"
    eight = {**LLAMA_8B, "quantization_config": {"quant_method": "gptq", "bits": 8}}
    assert model_of(eight, name="eight").weight_dtype == "int8"
    hybrid = {**LLAMA_8B, "layer_types": ["linear_attention"] * 24 + ["full_attention"] * 8}
    assert model_of(hybrid, name="hybrid").caching_layers == 8


def test_a_configuration_that_says_too_little_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 8}')
    with pytest.raises(ImpossibleInput, match="num_attention_heads is missing"):
        model_named(str(tmp_path))
    for content, sentence in (
        (b"no", "is not JSON: Expecting value"),
        (b"[" * 100_000, "is not JSON: maximum recursion depth"),
        (b'{"a": "\xe9"}', "is not JSON: 'utf-8' codec can't decode byte 0xe9"),
        (b"\xef\xbb\xbf{}", "is not JSON: Unexpected UTF-8 BOM"),
        (b"[]", "holds no JSON object"),
    ):
        (tmp_path / "config.json").write_bytes(content)
        with pytest.raises(ImpossibleInput, match=sentence):
            model_named(str(tmp_path))
    with pytest.raises(ImpossibleInput, match="can not be read"):
        model_named(str(tmp_path / "nothing" / "config.json"))


def test_own_hardware_models_and_engines_come_from_files(tmp_path: Path) -> None:
    card = {
        "name": "own",
        "memory_bytes": 1e11,
        "memory_bytes_per_s": 1e12,
        "flops": {"bf16": 1e14},
        "link_bytes_per_s": 1e11,
    }
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps(card))
    assert hardware_named(str(path)).name == "own"
    path.write_text(json.dumps({**card, "speed": 3}))
    with pytest.raises(ImpossibleInput, match="unknown keys speed"):
        hardware_named(str(path))
    path.write_text(json.dumps({"name": "own"}))
    with pytest.raises(ImpossibleInput, match="incomplete"):
        hardware_named(str(path))
    path.write_text(json.dumps({**card, "flops": {}}))
    with pytest.raises(ImpossibleInput, match="at least bf16"):
        hardware_named(str(path))
    path.write_text(json.dumps({**card, "memory_efficiency": 2}))
    with pytest.raises(ImpossibleInput, match="must be within"):
        hardware_named(str(path))
    path.write_text(json.dumps({**card, "memory_bytes": 0}))
    with pytest.raises(ImpossibleInput, match="must be positive"):
        hardware_named(str(path))
    path.write_text(json.dumps(LLAMA_8B))
    assert model_named(str(path)).layers == 32
    shape = {
        "name": "m",
        "layers": 2,
        "hidden": 8,
        "heads": 2,
        "kv_heads": 2,
        "head_dim": 4,
        "intermediate": 8,
        "vocabulary": 9,
    }
    path.write_text(json.dumps(shape))
    assert model_named(str(path)).layers == 2
    for wrong, sentence in (
        ({"layers": 0}, "at least 1"),
        ({"experts": 4, "experts_per_token": 5}, "can not use 5 of 4"),
        ({"weight_dtype": "fp3"}, "known are"),
    ):
        path.write_text(json.dumps({**shape, **wrong}))
        with pytest.raises(ImpossibleInput, match=sentence):
            model_named(str(path))
    engine = dict.fromkeys(("layer_s", "expert_layer_s", "step_s", "sequence_s", "collective_s", "draft_pass_s"), 0.0)
    engine |= {"speculative_step_s": 0.0, "speculative_token_s": 0.0, "interference": 1.0, "expert_efficiency": 0.5}
    path.write_text(json.dumps({**engine, "name": "own"}))
    assert engine_named(str(path)).name == "own"

"""A model card from the ``config.json`` of a Hugging Face model folder."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from math import inf
from os.path import isdir
from pathlib import Path
from typing import Any

from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.model import Model

__all__ = ["model_from_config", "model_of", "read_json"]

_QUANTISED = {"fp8": "fp8", "mxfp4": "fp4", "nvfp4": "fp4", "awq": "int4", "gptq": "int4", "bitsandbytes": "int4"}


def read_json(path: Path) -> dict[str, Any]:
    """An object from a JSON file. Raises ImpossibleInput with a sentence if there is none."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise OSError(errno.EINVAL, "no regular file")  # a device or a pipe may never end
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ImpossibleInput(f"{path} can not be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ImpossibleInput(f"{path} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ImpossibleInput(f"{path} holds no JSON object")
    return document


def model_from_config(path: Path) -> Model:
    """The model whose ``config.json`` is ``path`` or lies in the folder ``path``. Raises ImpossibleInput if it can not
    be told."""
    file = path / "config.json" if isdir(path) else path
    return model_of(read_json(file), name=file.resolve().parent.name, source=str(file))


def model_of(config: Mapping[str, Any], *, name: str, source: str = "") -> Model:
    """A model card from the keys that Transformers uses. Raises ImpossibleInput, naming it, for a key that is
    missing."""
    nested = config.get("text_config")
    text: Mapping[str, Any] = nested if isinstance(nested, Mapping) else config

    def number(*keys: str, default: int | None = None) -> int:
        for key in keys:
            value = text.get(key)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                if not -inf < value < inf:
                    raise ImpossibleInput(f"{source or name}: {key} must be finite, not {value}")
                return int(value)
        for key in keys:
            if text.get(key) is not None:
                raise ImpossibleInput(f"{source or name}: {key} must be a number, not {text[key]!r}")
        if default is None:
            raise ImpossibleInput(f"{source or name}: {keys[0]} is missing, so the model's cost can not be told")
        return default

    hidden = number("hidden_size", "n_embd", "d_model")
    heads = number("num_attention_heads", "n_head")
    layers = number("num_hidden_layers", "n_layer", "num_layers")
    experts = number("num_local_experts", "num_experts", "n_routed_experts", default=0)
    kv_rank = number("kv_lora_rank", default=0)
    expert_width = number("moe_intermediate_size", "intermediate_size", default=0) if experts else 0
    shared = number("shared_expert_intermediate_size", default=0)
    shared = shared or number("n_shared_experts", "num_shared_experts", default=0) * expert_width
    kinds = text.get("layer_types")
    kinds = kinds if isinstance(kinds, list) else []
    window = number("sliding_window", default=0)
    linear = sum(kind == "linear_attention" for kind in kinds)
    sliding = sum(kind == "sliding_attention" for kind in kinds)
    return Model(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=number("num_key_value_heads", default=heads),
        head_dim=number("qk_nope_head_dim" if kv_rank else "head_dim", default=hidden // max(heads, 1)),
        intermediate=number("intermediate_size", "ffn_hidden_size", "n_inner", default=4 * hidden),
        vocabulary=number("vocab_size"),
        tied_embeddings=bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
        gated=str(text.get("model_type")) not in {"bloom", "gpt2", "opt", "falcon", "gpt_neox"},
        experts=experts,
        experts_per_token=number("num_experts_per_tok", "moe_topk") if experts else 0,
        expert_intermediate=expert_width,
        shared_intermediate=shared if experts else 0,
        dense_layers=number("first_k_dense_replace", default=0) if experts else 0,
        kv_layers=layers - linear if linear else None,
        sliding_window=window if sliding else 0,
        sliding_layers=sliding if window else 0,
        kv_rank=kv_rank,
        query_rank=number("q_lora_rank", default=0) if kv_rank else 0,
        rope_dim=number("qk_rope_head_dim", default=0) if kv_rank else 0,
        weight_dtype=_weight_dtype(config, text),
        source=source,
    )


def _weight_dtype(config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    quantised = config.get("quantization_config", text.get("quantization_config"))
    if isinstance(quantised, Mapping):
        method = str(quantised.get("quant_method", "")).lower()
        if method in _QUANTISED:
            return "int8" if quantised.get("load_in_8bit") or quantised.get("bits") == 8 else _QUANTISED[method]
    declared = str(config.get("torch_dtype", config.get("dtype", text.get("torch_dtype", ""))))
    return "fp32" if declared == "float32" else "bf16"

"""Published step times and speedups, read from tables, with what each of them was measured on.

Two tables, one row a figure; what their columns mean is in ``data/README.md``. A row that cannot be placed (no such
model or GPU in the catalogue, no draft length) is left out and counted by the reason, never guessed at.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from math import inf
from pathlib import Path

from slipstream.costmodel.catalogue import engine_named, hardware_named, model_named
from slipstream.costmodel.engine import Engine
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.model import Model
from slipstream.costmodel.roofline import Deployment
from slipstream.costmodel.speculator import (
    Speculator,
    block_head,
    draft_model,
    eagle_head,
    mtp_layer,
    ngram,
    self_speculation,
)

__all__ = ["SHIPPED", "Measurements", "SpeedupRow", "StepRow", "read_measurements"]

SHIPPED = Path(str(files("slipstream.costmodel.validation") / "data"))

LENGTHS = {
    "gsm8k": (120, 200),
    "math500": (120, 800),
    "mt-bench": (150, 400),
    "mtbench": (150, 400),
    "humaneval": (180, 300),
    "livecodebench": (500, 700),
    "cnn/dm": (900, 150),
    "sharegpt": (250, 300),
    "instructcoder": (300, 300),
}
"""Prompt and output tokens where a source names a data set and no lengths; anything else is taken for 300 and 300."""

NGRAM_SHARE = 0.25
"""Share of steps in which n-gram lookup proposes, where a source does not say: 0.085 to 0.37 were measured."""

DRAFTING_WINDOW = 512
"""Cache of a self-speculating target (MagicDec)."""

_RULED_OUT = {
    "angelslim_hy3": "no GPU is stated",
    "laguna": "no GPU is stated",
    "vllm_52362": "no GPU is stated",
    "hochelaga_card": "a single community run of which every row is a loss",
}


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step time. ``kernels`` are the linear layers alone; ``prompt_tokens`` 0 with no prefill in between."""

    source: str
    deployment: Deployment
    kernels: bool
    load: float
    prompt_tokens: float
    output_tokens: float
    step_ms: float
    curve: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SpeedupRow:
    """One speedup. ``tau`` is ``None`` where no acceptance is known for it."""

    source: str
    deployment: Deployment
    speculator: Speculator
    k: int
    verified: int
    tau: float | None
    load: float
    prompt_tokens: float
    output_tokens: float
    decode_only: bool
    speedup: float
    curve: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Measurements:
    """What could be read, and why the rest could not."""

    steps: tuple[StepRow, ...]
    speedups: tuple[SpeedupRow, ...]
    left_out: Counter[str] = field(default_factory=Counter)


def read_measurements(folder: Path = SHIPPED) -> Measurements:
    """Every row of the tables in ``folder`` that can be placed.

    Raises ImpossibleInput if a table or one of its columns is missing.
    """
    left_out: Counter[str] = Counter()
    try:
        acceptance = _acceptance(folder)
        steps = tuple(_step_rows(folder / "decode_step_latency.csv", left_out))
        speedups = tuple(_speedup_rows(folder / "spec_vs_batch.csv", acceptance, left_out))
    except KeyError as error:
        raise ImpossibleInput(f"a table in {folder} lacks the column {error}") from None
    return Measurements(steps, speedups, left_out)


def _table(path: Path) -> Iterator[Mapping[str, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ImpossibleInput(f"{path} can not be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ImpossibleInput(f"{path} is not UTF-8 text") from None
    yield from csv.DictReader(text.splitlines(), restval="")


def _model(name: str) -> Model | None:
    plain = name.split("/")[-1].split(" (")[0]
    plain = re.sub(r"llama-?(\d)", r"Llama-\1", plain, flags=re.IGNORECASE).removesuffix("-32k")
    plain = re.sub(r"-(0528|2507|NVFP4|FP4|FP8|Thinking|Base)\b", "", plain)
    if plain.startswith("DeepSeek-R1-Distill-Llama-"):
        plain = plain.replace("DeepSeek-R1-Distill-Llama-", "Llama-3.1-")
    try:
        return model_named(plain)
    except ValueError:
        return None


def _weights(name: str, precision: str = "") -> str | None:
    if precision:
        return {"fp16": "bf16", "nvfp4": "fp4"}.get(precision, precision)
    return "fp8" if "FP8" in name else "fp4" if "FP4" in name else None


def _deployment(row: Mapping[str, str], model_column: str, engine: Engine) -> Deployment | str:
    model = _model(row[model_column])
    if model is None:
        return "the model is not in the catalogue"
    plain = re.sub(r"^\d+x", "", row["hardware"]).replace("_sxm", "").replace(" PCIe", "")
    try:
        hardware = hardware_named(plain)
    except ValueError:
        return "the GPU is not in the catalogue"
    weights = _weights(row[model_column], row.get("precision", ""))
    if row["tp"].isdigit():
        ranks = int(row["tp"])
    else:
        ranks = 1
        while model.weight_bytes(weights) > 0.5 * hardware.memory_bytes * ranks and ranks < 16:
            ranks *= 2
    if ranks > 8:
        return "more GPUs than one machine has are not plain tensor parallel"
    try:
        return Deployment(model, hardware, engine, ranks, weights)
    except ValueError:
        return "the data type or the number of GPUs is none"


def _engine_of(text: str) -> Engine:
    plain = text.lower()
    if "sglang" in plain:
        return engine_named("sglang-0.4" if re.search(r"sglang 0\.4\.\d$", plain) else "sglang")
    if "trtllm" in plain or "tensorrt" in plain:
        return engine_named("trtllm")
    if "v0" in plain or "vllm 0.6" in plain:
        return engine_named("vllm-0")
    return engine_named("vllm-0.8" if plain == "vllm v1" or re.search(r"vllm 0\.[89]\b", plain) else "vllm")


def _step_rows(path: Path, left_out: Counter[str]) -> Iterator[StepRow]:
    for row in _table(path):
        quantity, context = row["quantity"], row["ctx"]
        kernels = quantity.startswith("linear+norm")
        if not kernels and not quantity.startswith(("TPOT", "decode step")):
            left_out["step time of a part of the step only"] += 1
            continue
        if row["hardware"].lower().startswith("gb200") or "pcap" in row["hardware"]:
            left_out["step times that are not monotone, or of a capped GPU"] += 1
            continue
        engine = engine_named("eager") if "splitwise" in row["source"] else _engine_of(row["notes"])
        deployment = _deployment(row, "model", engine)
        if isinstance(deployment, str):
            left_out[f"step time: {deployment}"] += 1
            continue
        given = [_positive(part) for part in re.split(r"[+-]", context)] if re.search(r"[+-]", context) else [0.0, 0.0]
        load = _positive(row["tokens_per_step"] if kernels else row["batch"])
        took = _positive(row["ms"])
        if load is None or took is None or len(given) != 2 or given[0] is None or given[1] is None:
            left_out["step time: a figure that is none"] += 1
            continue
        prompt, output = (given[0], given[1]) if "+" in context else (0.0, given[0] + given[1])
        curve = tuple(
            row[name] for name in ("source", "hardware", "tp", "precision", "model", "quantity", "ctx", "notes")
        )
        step = StepRow(row["source"], deployment, kernels, load, prompt, output, took, curve)
        if not kernels and _beats_the_datasheet(step):
            left_out["step time: faster than the datasheet allows"] += 1
            continue
        yield step


def _beats_the_datasheet(row: StepRow) -> bool:
    """Reading the weights that every token needs, and all experts' once a batch is large, at full bandwidth."""
    deployment = row.deployment
    model = deployment.model
    touched = (
        model.experts * (1.0 - (1.0 - model.experts_per_token / model.experts) ** row.load) if model.experts else 0.0
    )
    share = (model.shared_parameters + touched * model.moe_layers * model.expert_parameters) / model.parameters
    floor = model.weight_bytes(deployment.weights) * share
    floor += row.load * model.kv_bytes(row.prompt_tokens + row.output_tokens / 2, deployment.kv_dtype)
    seconds = floor / (deployment.hardware.memory_bytes_per_s * deployment.tensor_parallel)
    return row.step_ms < 1e3 * seconds


def _acceptance(folder: Path) -> dict[tuple[str, str, str, str], float]:
    """Mean acceptance lengths by model, method, K and data set (also "" = any), of sources that measured nothing
    else."""
    found: dict[tuple[str, str, str, str], list[float]] = {}
    for name in ("acceptance_vs_K.csv", "acceptance_by_category.csv"):
        path = folder / name
        if not path.exists():
            continue
        for row in _table(path):
            length = _positive(row["accept_len"])
            if length is not None and row["K"].isdigit():
                key = (row["target_model"], row["method"], row["K"])
                for data_set in (row["dataset"], ""):
                    found.setdefault((*key, data_set), []).append(length)
    return {key: sum(values) / len(values) for key, values in found.items()}


def _speedup_rows(
    path: Path, acceptance: Mapping[tuple[str, str, str, str], float], left_out: Counter[str]
) -> Iterator[SpeedupRow]:
    for row in _table(path):
        source = row["source_id"]
        why = _RULED_OUT.get(source)
        if source == "specbundle" and "Llama-4-Scout" in row["target_model"]:
            why = "speedups above the acceptance length"
        if not row["speedup"]:
            why = "no arm without speculation"
        load, gain = _positive(row["load"]), _positive(row["speedup"])
        if row["load_kind"] not in ("batch", "concurrency") or load is None:
            why = "not at a given batch or concurrency"
        shape = _shape(row["K"], row["tree"])
        if why is None and shape is None:
            why = "no draft length"
        deployment = _deployment(row, "target_model", _engine_of(row["engine"]))
        if why is None and isinstance(deployment, str):
            why = deployment
        if why is None and gain is None:
            why = "a figure that is none"
        if why is not None or shape is None or load is None or gain is None or isinstance(deployment, str):
            left_out[f"speedup: {why}"] += 1
            continue
        k, verified = shape
        speculator = _speculator(row["method"].lower(), row["draft"], deployment.model)
        if speculator is None:
            left_out["speedup: a drafter that is not modelled"] += 1
            continue
        data_set = row["dataset"]
        prompt, output = LENGTHS.get(data_set.lower(), (300, 300))
        if row["input_len"].isdigit():
            prompt = int(row["input_len"])
        if row["output_len"].isdigit():
            output = int(row["output_len"]) or output
        context_only = "magicdec" in row["method"].lower()
        names = ("source_id", "hardware", "tp", "engine", "target_model", "method", "draft", "K", "tree", "dataset")
        yield SpeedupRow(
            source,
            deployment,
            speculator,
            k,
            verified,
            _tau(row, k, acceptance),
            load,
            float(prompt),
            float(output),
            context_only or row["metric"] in ("tpot_mean", "interactivity"),
            gain,
            tuple(row[name] for name in (*names, "load_kind", "metric", "input_len")),
        )


def _positive(text: str) -> float | None:
    """A finite number above 0; ``None`` for anything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 < value < inf else None


def _shape(k: str, tree: str) -> tuple[int, int] | None:
    """Draft depth and tokens verified, root included."""
    steps = re.search(r"steps (\d+), topk \d+, verify (\d+)", tree)
    if steps:
        return int(steps[1]), int(steps[2])
    depth = re.search(r"tree depth (\d+), (\d+) tokens", tree)
    if depth:
        return int(depth[1]), int(depth[2])
    chain = re.search(r"chain, steps (\d+)", tree)
    if chain:
        return int(chain[1]), int(chain[1]) + 1
    return (int(k), int(k) + 1) if k.isdigit() else None


def _tau(row: Mapping[str, str], k: int, acceptance: Mapping[tuple[str, str, str, str], float]) -> float | None:
    value = _positive(row["accept_value"])
    if row["accept_metric"] == "accept_len" and value is not None and value >= 1.0:
        return value
    if row["accept_metric"] == "accept_rate" and value is not None and value <= 1.0:
        return 1.0 + k * value
    if "tree" in row["tree"]:
        return None
    for data_set in (row["dataset"], ""):
        found = acceptance.get((row["target_model"], row["method"], str(k), data_set))
        if found is not None and found >= 1.0:
            return found
    return None


def _speculator(method: str, draft: str, target: Model) -> Speculator | None:
    if "magicdec" in method:
        return self_speculation(target, DRAFTING_WINDOW) if "self" in draft else _named_draft(draft)
    if "p-eagle" in method:
        return block_head(target, layers=4, name="p-eagle")
    if "eagle-3" in method or "eagle3" in method:
        return eagle_head(target)
    if method in ("eagle", "eagle-2"):
        return eagle_head(target, version=1)
    if "mtp" in method:
        return mtp_layer(target)
    if "dflash" in method:
        return block_head(target)
    if "n-gram" in method or "ngram" in method:
        return ngram(NGRAM_SHARE)
    return _named_draft(draft) if "draft model" in method else None


def _named_draft(draft: str) -> Speculator | None:
    model = _model(draft.split(" ")[0])
    return None if model is None else draft_model(model)

"""Step times: their limits, their laws, and what speculators add."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments import deployed
from slipstream.costmodel.arms import request_s, speculative_step_s
from slipstream.costmodel.catalogue import model_named
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.roofline import Deployment, distinct_experts, pass_s, prefill_s, standard_step_s
from slipstream.costmodel.speculator import (
    Speculator,
    SpeculatorKind,
    block_head,
    draft_model,
    draft_s,
    drafter_prefill_s,
    eagle_head,
    medusa_heads,
    mtp_layer,
    ngram,
    self_speculation,
)

MODELS = st.sampled_from(
    ["Llama-3.1-8B", "Llama-2-7B", "Qwen3-30B-A3B", "DeepSeek-V3", "gpt-oss-20b", "Qwen3-Next-80B-A3B"]
)
GPUS = st.sampled_from(["A100-80", "H100", "L40S", "MI300X", "B200"])
ENGINES = st.sampled_from(["vllm", "sglang", "trtllm", "sglang-0.4", "eager"])


@st.composite
def deployments(draw: st.DrawFn) -> Deployment:
    gpus = draw(st.sampled_from([1, 2, 8]))
    weights = draw(st.sampled_from([None, "bf16", "fp8", "int4"]))
    return deployed(draw(MODELS), draw(GPUS), draw(ENGINES), gpus=gpus, weights=weights)


def speculators(deployment: Deployment) -> list[Speculator]:
    target = deployment.model
    return [
        eagle_head(target),
        eagle_head(target, version=1),
        medusa_heads(target),
        mtp_layer(target),
        block_head(target),
        draft_model(model_named("Llama-3.2-1B")),
        draft_model(model_named("Llama-3.2-1B"), sharded=False),
        ngram(0.3),
        self_speculation(target, 512),
    ]


@given(deployments(), st.integers(1, 256), st.floats(1.0, 32_768.0))
def test_a_step_is_never_faster_than_reading_what_it_must(deployment: Deployment, batch: int, context: float) -> None:
    model = deployment.model
    bandwidth = deployment.hardware.memory_bytes_per_s * deployment.tensor_parallel
    least = 0.5 * model.shared_parameters / bandwidth  # the narrowest type is half a byte
    assert standard_step_s(deployment, batch, context) > least


@given(deployments(), st.integers(1, 500), st.integers(1, 16), st.floats(1.0, 32_768.0))
def test_a_pass_takes_longer_with_more_sequences_tokens_and_context(
    deployment: Deployment, batch: int, tokens: int, context: float
) -> None:
    one = pass_s(deployment, batch, tokens, context)
    assert np.isfinite(one)
    assert pass_s(deployment, batch + 1, tokens, context) >= one
    assert pass_s(deployment, batch, tokens + 1, context) >= one
    assert pass_s(deployment, batch, tokens, context * 2) >= one


@settings(max_examples=50, deadline=None)
@given(deployments(), st.integers(1, 256), st.integers(1, 8), st.floats(1.0, 8192.0))
def test_drafting_costs_something_and_nothing_at_k_0(
    deployment: Deployment, batch: int, k: int, context: float
) -> None:
    for speculator in speculators(deployment):
        assert draft_s(deployment, speculator, batch, 0, context) == 0.0
        assert draft_s(deployment, speculator, batch, k, context) > 0.0
        assert drafter_prefill_s(deployment, speculator, 512) >= 0.0
        step = speculative_step_s(deployment, speculator, batch, k, context)
        assert step > standard_step_s(deployment, batch, context)
        assert speculative_step_s(deployment, speculator, batch, k, context, verified=2 * k + 1) >= step


def test_distinct_experts_are_counted_as_published() -> None:
    assert distinct_experts(512, 10, 4) == pytest.approx(38.8, abs=0.05)
    assert distinct_experts(8, 8, 1) == 8
    assert distinct_experts(128, 8, 1) == pytest.approx(8)


def test_the_line_that_was_fitted_elsewhere_is_the_same_hardware() -> None:
    """SpecDecode-Bench's coefficients for this model and GPU."""
    deployment = deployed("Llama-3.1-8B", "H100")
    bare = replace(deployment, engine=replace(deployment.engine, layer_s=0.0))
    assert pass_s(bare, 1, 1, 0) * 1e3 == pytest.approx(5.886, rel=0.2)
    cached = (pass_s(bare, 1, 1, 100_000) - pass_s(bare, 1, 1, 0)) / 100_000
    assert cached * 1e9 == pytest.approx(39.3, rel=0.2)
    token = (pass_s(bare, 4000, 1, 0) - pass_s(bare, 3000, 1, 0)) / 1000
    assert token * 1e6 == pytest.approx(21.0, rel=0.2)


def test_narrow_weights_are_read_faster_and_computed_as_wide_ones_where_the_gpu_has_no_such_unit() -> None:
    wide, narrow = deployed(hardware="A100-80"), deployed(hardware="A100-80", weights="fp8")
    assert pass_s(narrow, 1, 1, 0) < pass_s(wide, 1, 1, 0)
    assert prefill_s(narrow, 8192) == pytest.approx(prefill_s(wide, 8192), rel=0.05)
    hopper = deployed(weights="int8")
    assert prefill_s(hopper, 8192) < prefill_s(deployed(), 8192)


def test_tensor_parallel_shares_weights_but_pays_for_collectives() -> None:
    one, eight = deployed("Llama-3.1-70B"), deployed("Llama-3.1-70B", gpus=8)
    assert standard_step_s(one, 1, 512) / 8 < standard_step_s(eight, 1, 512) < standard_step_s(one, 1, 512)


def test_a_tree_is_charged_for_its_width_and_not_for_its_depth_twice() -> None:
    deployment = deployed("Qwen3-8B")
    chain = speculative_step_s(deployment, eagle_head(deployment.model), 64, 3, 512)
    tree = speculative_step_s(deployment, eagle_head(deployment.model), 64, 3, 512, verified=21)
    assert tree > 1.5 * chain


def test_beyond_captured_graphs_the_drafter_launches_its_layers_one_by_one_too() -> None:
    deployment = deployed(engine="sglang-0.4")
    engine = deployment.engine
    for speculator, layers in (
        (eagle_head(deployment.model), 32 + 3),
        (block_head(deployment.model, layers=5), 32 + 5),
    ):
        captured = replace(deployment, engine=replace(engine, graph_sequences=None))
        eager_s, graph_s = (speculative_step_s(one, speculator, [16, 17], 3, 256) for one in (deployment, captured))
        assert (eager_s - graph_s).tolist() == pytest.approx([0.0, layers * engine.eager_layer_s])


def test_a_request_waits_for_everyones_prompt() -> None:
    deployment = deployed()
    alone = request_s(deployment, 0.01, 1.0, 1, 1024, 100)
    among = request_s(deployment, 0.01, 1.0, 9, 1024, 100)
    assert among - alone == pytest.approx(8 * float(prefill_s(deployment, 1024)))
    head = eagle_head(deployment.model)
    assert request_s(deployment, 0.01, 1.0, 1, 1024, 100, head) > alone


def test_heads_weigh_what_is_published() -> None:
    target = model_named("Llama-3.1-8B")
    assert eagle_head(target, version=1).weight_bytes() / 2e9 == pytest.approx(0.25, abs=0.05)
    assert eagle_head(target).weight_bytes() / 2e9 == pytest.approx(0.42, abs=0.08)
    assert medusa_heads(target, 5).weight_bytes() / 2e9 == pytest.approx(5 * (0.525 + 0.017), rel=0.02)
    assert mtp_layer(model_named("DeepSeek-V3")).weight_bytes() / 1e9 == pytest.approx(11.6, abs=1.0)
    assert ngram(0.2).weight_bytes() == 0.0
    assert self_speculation(target, 512).weight_bytes() == 0.0


def test_a_seven_billion_draft_takes_fourteen_gigabytes() -> None:
    draft = draft_model(model_named("Llama-2-7B"))
    assert draft.kind is SpeculatorKind.DRAFT_MODEL
    assert draft.weight_bytes() / 1e9 == pytest.approx(14, abs=0.6)


@pytest.mark.parametrize(
    ("impossible", "sentence"),
    [
        (lambda: deployed(gpus=0), "at least 1"),
        (lambda: deployed(weights="fp3"), "not a known data type"),
        (lambda: ngram(1.5), "share must be within"),
        (lambda: medusa_heads(model_named("Llama-3.1-8B"), 0), "at least one head"),
    ],
)
def test_impossible_deployments_are_told(impossible: object, sentence: str) -> None:
    assert callable(impossible)
    with pytest.raises(ImpossibleInput, match=sentence):
        impossible()

"""What fits, with and without a speculator, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments import deployed
from slipstream.costmodel.catalogue import model_named
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.memory import admitted, kv_token_capacity
from slipstream.costmodel.price import cost_per_million_tokens, gpu_tps
from slipstream.costmodel.speculator import draft_model, eagle_head, medusa_heads, mtp_layer, ngram, self_speculation


@given(
    st.sampled_from(["Llama-3.1-8B", "Llama-2-7B", "Qwen3-32B", "gpt-oss-20b", "Qwen3-30B-A3B"]),
    st.sampled_from([2, 4, 8]),
    st.floats(64.0, 131_072.0),
    st.booleans(),
)
def test_memory_never_admits_more_with_a_draft_than_without(
    model: str, gpus: int, context: float, sharded: bool
) -> None:
    deployment = deployed(model, "H100", gpus=gpus)
    target = deployment.model
    for speculator in (
        draft_model(model_named("Llama-3.2-1B"), sharded=sharded),
        eagle_head(target),
        medusa_heads(target),
        mtp_layer(target),
        ngram(0.3),
    ):
        fits = admitted(deployment, speculator, context)
        assert fits.speculative is not None
        assert 0 <= fits.speculative <= fits.standard
    assert admitted(deployment, None, context).speculative is None


def test_the_articles_draft_costs_requests_more_replicated_than_sharded() -> None:
    """A 7B draft in BF16 beside Llama-3-70B on four 80 GB cards, 2,048 tokens a request."""
    deployment = deployed("Llama-3-70B", "A100-80", gpus=4)
    draft = model_named("Llama-2-7B")
    sharded = admitted(deployment, draft_model(draft), 2048)
    replicated = admitted(deployment, draft_model(draft, sharded=False), 2048)
    assert sharded.speculator_bytes / 1e9 == pytest.approx(13.5, abs=0.1)
    assert replicated.speculator_bytes == pytest.approx(4 * sharded.speculator_bytes)
    assert sharded.standard == replicated.standard == 218
    assert (sharded.speculative, replicated.speculative) == (76, 18)


@given(
    st.sampled_from(["Llama-3.1-8B", "Qwen3-32B", "gpt-oss-20b", "DeepSeek-V3"]),
    st.sampled_from([None, "head", "draft", "window"]),
    st.floats(600.0, 131_072.0),
)
def test_tokens_that_fit_are_those_of_the_sequences_that_fit(model: str, drafter: str | None, context: float) -> None:
    deployment = deployed(model, "MI300X", gpus=8)
    speculator = {
        None: None,
        "head": eagle_head(deployment.model),
        "draft": draft_model(model_named("Llama-3.2-1B"), sharded=False),
        "window": self_speculation(deployment.model, 512),
    }[drafter]
    fits = admitted(deployment, speculator, context)
    sequences = fits.standard if fits.speculative is None else fits.speculative
    tokens = kv_token_capacity(deployment, speculator, context=context)
    assert sequences * context - 1 <= tokens <= (sequences + 1) * context
    assert tokens <= kv_token_capacity(deployment, None, context=context)


def test_tokens_that_fit_need_no_context_where_all_of_it_is_kept() -> None:
    """The first article's fleet: a 7B draft takes two thirds of the room beside a 70B target on four cards."""
    deployment = deployed("Llama-3-70B", "A100-80", gpus=4)
    draft = draft_model(model_named("Llama-2-7B"))
    assert kv_token_capacity(deployment, None) == kv_token_capacity(deployment, None, context=9000) == 448_288
    assert kv_token_capacity(deployment, draft) == 156_600
    assert kv_token_capacity(deployment, None, usable_share=0.8) == 350_632
    with pytest.raises(ImpossibleInput, match="needs 141 GB for its weights"):
        kv_token_capacity(deployed("Llama-3-70B", "A100-80"), None)


def test_latent_attention_is_repeated_on_every_gpu() -> None:
    one = admitted(deployed("DeepSeek-V3", "MI300X", gpus=8), None, 4096)
    assert one.sequence_bytes == pytest.approx(8 * model_named("DeepSeek-V3").kv_bytes(4096))


def test_what_does_not_fit_says_which() -> None:
    with pytest.raises(ImpossibleInput, match="Llama-3-70B needs 141 GB for its weights, and 1 × A100-80 has 72 GB"):
        admitted(deployed("Llama-3-70B", "A100-80"), None, 1024)
    with pytest.raises(ImpossibleInput, match="Llama-3-70B needs 141 GB beside Qwen3-8B's 16 GB"):
        admitted(deployed("Qwen3-8B", "A100-80"), draft_model(model_named("Llama-3-70B")), 1024)
    deployment = deployed()
    without_cache = replace(deployment, model=replace(deployment.model, kv_layers=0))
    with pytest.raises(ImpossibleInput, match=r"Llama-3.1-8B keeps no keys and values"):
        admitted(without_cache, None, 1024)


def test_prices() -> None:
    assert gpu_tps(1000, 4) == 250
    assert cost_per_million_tokens(1000, 4, 3.6) == pytest.approx(4.0)
    assert cost_per_million_tokens(0, 4, 3.6) is None
    for price in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ImpossibleInput, match="a price is 0 to"):
            cost_per_million_tokens(1, 1, price)
    with pytest.raises(ImpossibleInput, match="at least one GPU"):
        gpu_tps(1, 0)

"""What fits, with and without a speculator, and what it costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments import deployed
from slipstream.costmodel.catalogue import model_named
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.memory import admitted
from slipstream.costmodel.price import cost_per_million_tokens, gpu_tps
from slipstream.costmodel.speculator import draft_model, eagle_head, medusa_heads, mtp_layer, ngram


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


def test_latent_attention_is_repeated_on_every_gpu() -> None:
    one = admitted(deployed("DeepSeek-V3", "MI300X", gpus=8), None, 4096)
    assert one.sequence_bytes == pytest.approx(8 * model_named("DeepSeek-V3").kv_bytes(4096))


def test_what_does_not_fit_says_which() -> None:
    with pytest.raises(ImpossibleInput, match="Llama-3-70B needs 141 GB for its weights, and 1 × A100-80 has 72 GB"):
        admitted(deployed("Llama-3-70B", "A100-80"), None, 1024)
    with pytest.raises(ImpossibleInput, match="Llama-3-70B needs 141 GB beside Qwen3-8B's 16 GB"):
        admitted(deployed("Qwen3-8B", "A100-80"), draft_model(model_named("Llama-3-70B")), 1024)


def test_prices() -> None:
    assert gpu_tps(1000, 4) == 250
    assert cost_per_million_tokens(1000, 4, 3.6) == pytest.approx(4.0)
    assert cost_per_million_tokens(0, 4, 3.6) is None
    for price in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ImpossibleInput, match="a price is 0 to"):
            cost_per_million_tokens(1, 1, price)
    with pytest.raises(ImpossibleInput, match="at least one GPU"):
        gpu_tps(1, 0)

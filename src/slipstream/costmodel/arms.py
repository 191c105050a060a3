"""The two arms side by side: what a step takes with and without speculation, and what comes out of it.

Formulas: standard step `T_t(B, B·L) + o_std`; speculative step `T_d(B, K) + T_t(B·(1 + p·K), B·L) + o_spec`; the gain
is `(1 + p·(tau − 1))` times the first over the second. With a prompt and an output length the prefill of both arms is
counted too: every running request waits while others' prompts are processed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slipstream.costmodel.roofline import Deployment, pass_s, prefill_s, standard_step_s
from slipstream.costmodel.speculator import Speculator, draft_s, drafter_prefill_s

__all__ = ["ZERO_DRAFT_TAX", "request_s", "speculative_step_s", "verify_step_s"]

Seconds = NDArray[np.float64]

ZERO_DRAFT_TAX = 0.12
"""What a speculative node loses against a standard one when it drafts nothing: vLLM measured 0.12 to 0.25 (48494)."""


def speculative_step_s(
    deployment: Deployment,
    speculator: Speculator,
    batch_size: ArrayLike,
    k: ArrayLike,
    context: ArrayLike,
    *,
    verified: ArrayLike | None = None,
    zero_draft_tax: float = ZERO_DRAFT_TAX,
) -> Seconds:
    """Seconds of one verify step over the batch, drafting and host included.

    ``k`` is the draft depth; ``verified`` the query tokens a proposing request has verified, root included: K + 1 for a
    chain (``None``), more for a tree. At K = 0 the step is a standard one, dearer by ``zero_draft_tax`` (a share).
    """
    batch_size, k = np.asarray(batch_size, float), np.asarray(k, float)
    width = (k if verified is None else np.asarray(verified, float) - 1.0) * speculator.proposing_share
    engine = deployment.engine
    drafting = draft_s(deployment, speculator, batch_size, k, context)
    verifying = pass_s(deployment, batch_size, 1.0 + width, context)
    host = engine.step_s + engine.sequence_s * batch_size
    overhead = speculator.proposing_share * engine.speculative_step_s + engine.speculative_token_s * width * batch_size
    overhead = overhead + _without_graphs_s(deployment, speculator, batch_size, k)
    at_zero = standard_step_s(deployment, batch_size, context) * (1.0 + zero_draft_tax)
    return np.where(k > 0.0, drafting + verifying + host + overhead, at_zero)


def verify_step_s(
    deployment: Deployment,
    speculator: Speculator,
    decoding: int,
    drafting: int,
    k: int,
    context: ArrayLike,
    *,
    verified: int | None = None,
) -> Seconds:
    """Seconds of one step of ``decoding`` sequences, ``drafting`` of which (1 or more) draft ``k`` tokens (1 or more).

    `speculative_step_s` is the mean over many steps at a proposing share; this is a single step whose drafts are
    counted: what a verify step costs beside its passes is paid whole as soon as one sequence drafts, and a lookup in
    the prompt is made for every sequence, since only then is it known which of them have something to propose.
    ``verified`` as there; the speculator's ``proposing_share`` is not looked at.
    """
    engine = deployment.engine
    width = k if verified is None else verified - 1
    drafted_for = decoding if speculator.drafter is None else drafting
    drafts = draft_s(deployment, replace(speculator, proposing_share=1.0), drafted_for, k, context)
    verifying = pass_s(deployment, decoding, 1.0 + width * drafting / decoding, context)
    host = engine.step_s + engine.sequence_s * decoding
    overhead = engine.speculative_step_s + engine.speculative_token_s * width * drafting
    without_graphs = _without_graphs_s(deployment, speculator, decoding, k)
    return np.asarray(drafts + verifying + host + overhead + without_graphs, float)


def _without_graphs_s(deployment: Deployment, speculator: Speculator, batch_size: ArrayLike, k: ArrayLike) -> Seconds:
    """What a verify step takes longer where the batch is larger than any captured graph, its drafting included."""
    engine = deployment.engine
    if engine.graph_sequences is None:
        return np.zeros(())
    drafted = 0 if speculator.drafter is None else speculator.drafter.layers
    layers = deployment.model.layers + drafted * np.asarray(1.0 if speculator.parallel else k, float)
    return np.where(np.asarray(batch_size) > engine.graph_sequences, layers * engine.eager_layer_s, 0.0)


def request_s(
    deployment: Deployment,
    step_s: ArrayLike,
    tokens_per_step: ArrayLike,
    batch_size: ArrayLike,
    prompt_tokens: float,
    output_tokens: float,
    speculator: Speculator | None = None,
) -> Seconds:
    """Seconds of a whole request among ``batch_size`` like it: all their prompts, then its own steps."""
    prefill = prefill_s(deployment, prompt_tokens)
    if speculator is not None:
        prefill = prefill + drafter_prefill_s(deployment, speculator, prompt_tokens)
    steps = output_tokens / np.asarray(tokens_per_step, float)
    return np.asarray(np.asarray(batch_size, float) * prefill + steps * np.asarray(step_s, float), float)

"""Single steps: what rows say is what the curves say, and no step gets shorter by having more to do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments import costs_of, deployed
from slipstream.costmodel.catalogue import model_named
from slipstream.costmodel.costs import RooflineCosts
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.profiles import LinearCosts, Provenance, TableCosts, article_1
from slipstream.costmodel.speculator import (
    Speculator,
    block_head,
    draft_model,
    drafter_prefill_s,
    eagle_head,
    medusa_heads,
    mtp_layer,
    ngram,
    self_speculation,
)
from slipstream.costmodel.steps import step_rows
from slipstream.enginemodel.step_times import KNOTS, StepRows, at

ORIGIN = Provenance("vllm", "0.33", "H100", "Llama-3.1-8B", "2026-11-20")
LINE = LinearCosts(ORIGIN, 0.0071, 21e-6, 39.3e-9, 0.00071, 0.84e-6, 0.0012, 25e-6)
TABLE = TableCosts(
    ORIGIN,
    {0: ((1.0, 0.007), (8.0, 0.0075), (64.0, 0.012)), 3: ((1.0, 0.010), (8.0, 0.012), (64.0, 0.030))},
    1024.0,
    prefill_base_s=0.004,
    prefill_token_s=30e-6,
    drafter_prefill_token_s=2e-6,
)


@st.composite
def rooflines(draw: st.DrawFn) -> RooflineCosts:
    model = draw(st.sampled_from(["Llama-3.1-8B", "Qwen3-30B-A3B", "gpt-oss-20b", "DeepSeek-V3"]))
    engine = draw(st.sampled_from(["vllm", "sglang", "trtllm", "sglang-0.4"]))
    deployment = deployed(model, draw(st.sampled_from(["A100-80", "H200", "L40S"])), engine, gpus=8)
    target = deployment.model
    speculators: list[Speculator] = [
        eagle_head(target),
        eagle_head(target, version=1),
        medusa_heads(target),
        mtp_layer(target),
        block_head(target),
        draft_model(model_named("Llama-3.2-1B"), sharded=draw(st.booleans())),
        ngram(0.3),
        self_speculation(target, 512),
    ]
    tree = draw(st.sampled_from([None, 21]))
    return RooflineCosts(deployment, draw(st.sampled_from(speculators)), tree)


@st.composite
def everything(draw: st.DrawFn) -> RooflineCosts | LinearCosts | TableCosts:
    given_times: list[LinearCosts | TableCosts] = [LINE, article_1(), TABLE]
    return draw(rooflines()) if draw(st.booleans()) else draw(st.sampled_from(given_times))


def share_1(costs: RooflineCosts | LinearCosts | TableCosts) -> RooflineCosts | LinearCosts | TableCosts:
    """The same where every sequence proposes; lines and tables here are of drafters that always do."""
    if isinstance(costs, RooflineCosts):
        return replace(costs, speculator=replace(costs.speculator, proposing_share=1.0))
    return costs


@settings(max_examples=60, deadline=None)
@given(everything(), st.integers(1, 64), st.sampled_from([512, 1024, 2048]))
def test_a_step_in_which_all_draft_or_none_does_is_the_curves_step(
    costs: RooflineCosts | LinearCosts | TableCosts, batch: int, context: int
) -> None:
    place = KNOTS.index(context)
    rows = step_rows(costs)
    standard = float(costs.standard_s(batch, context))
    assert rows.decode_row(batch, 0, 3)[place] == pytest.approx(standard, rel=1e-12)
    assert rows.decode_row(batch, batch, 0)[place] == pytest.approx(standard, rel=1e-12)
    speculative = float(share_1(costs).speculative_s(batch, 3, context))
    assert rows.decode_row(batch, batch, 3)[place] == pytest.approx(speculative, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(everything(), st.integers(1, 63), st.data())
def test_more_sequences_more_that_draft_and_longer_drafts_never_shorten_a_step(
    costs: RooflineCosts | LinearCosts | TableCosts, decoding: int, data: st.DataObject
) -> None:
    rows = step_rows(costs)
    drafting = data.draw(st.integers(0, decoding))
    base = rows.decode_row(decoding, drafting, 3)
    longer = [rows.decode_row(decoding + 1, drafting, 3), rows.decode_row(decoding + 1, drafting + 1, 3)]
    if drafting < decoding:
        longer.append(rows.decode_row(decoding, drafting + 1, 3))
    if not isinstance(costs, TableCosts):
        longer.append(rows.decode_row(decoding, drafting, 4))
    for row in longer:
        assert len(row) == len(KNOTS)
        assert all(after >= before * (1.0 - 1e-12) for before, after in zip(base, row, strict=True))
    assert list(base) == sorted(base)  # and neither does a longer context


@settings(max_examples=40, deadline=None)
@given(everything(), st.integers(0, 600))
def test_prompt_tokens_add_time_and_none_add_none(costs: RooflineCosts | LinearCosts | TableCosts, beside: int) -> None:
    rows = step_rows(costs)
    alone, added, drafter = rows.prefill_row(0), rows.prefill_row(beside), rows.drafter_prefill_row()
    for row in (alone, added, drafter):
        assert len(row) == len(KNOTS)
        assert row[0] == 0.0
        assert list(row) == sorted(row)
    assert 0.0 < added[11] <= alone[11]
    assert rows.pair_s >= 0.0


@settings(max_examples=40, deadline=None)
@given(rooflines(), st.sampled_from([64, 300, 1500, 6000]))
def test_a_prompt_in_one_step_takes_what_the_curves_charge_for_it_and_the_host(
    costs: RooflineCosts, prompt: int
) -> None:
    engine = costs.deployment.engine
    target, drafter = (float(part) for part in costs.prefill_s(prompt))
    rows = step_rows(costs)
    in_one_step = at(rows.prefill_row(0), prompt) + rows.pair_s * prompt * prompt / 2.0
    assert in_one_step == pytest.approx(target + engine.step_s + engine.sequence_s, rel=0.03)
    assert at(rows.drafter_prefill_row(), prompt) == pytest.approx(drafter, rel=0.02)


def test_a_prompt_rides_along_cheaply_where_weights_are_read_anyway() -> None:
    rows = step_rows(costs_of(deployed()))
    assert rows.prefill_row(8)[6] < 0.25 * rows.prefill_row(0)[6]
    assert rows.prefill_row(512)[13] > 0.9 * rows.prefill_row(0)[13]


def test_attention_on_what_a_prompt_has_cached_is_charged_by_layers_that_see_all_of_it() -> None:
    whole, windowed = step_rows(costs_of(deployed("Llama-3.1-8B"))), step_rows(costs_of(deployed("gpt-oss-20b")))
    flops = deployed().hardware.flops["bf16"] * deployed().hardware.compute_efficiency
    assert whole.pair_s == pytest.approx(2 * 32 * 32 * 2 * 128 / flops)
    assert windowed.pair_s == pytest.approx(2 * 12 * 64 * 2 * 64 / flops)


def test_one_sequence_that_drafts_pays_the_fixed_part_of_a_verify_step_alone() -> None:
    costs = costs_of(deployed())
    rows = step_rows(costs)
    one = rows.decode_row(32, 1, 3)[10] - rows.decode_row(32, 0, 3)[10]
    every = rows.decode_row(32, 32, 3)[10] - rows.decode_row(32, 0, 3)[10]
    assert (
        3 * costs.deployment.engine.draft_pass_s + costs.deployment.engine.speculative_step_s < one < every < 32 * one
    )


def test_a_bare_deployment_is_a_node_without_a_speculator() -> None:
    deployment = deployed()
    rows: StepRows = step_rows(deployment)
    assert rows.decode_row(4, 0, 0) == step_rows(costs_of(deployment)).decode_row(4, 0, 3)
    assert rows.prefill_row(4) == step_rows(costs_of(deployment)).prefill_row(4)
    assert set(rows.drafter_prefill_row()) == {0.0}
    assert drafter_prefill_s(deployment, medusa_heads(deployment.model), 512) == 0.0
    with pytest.raises(ImpossibleInput, match="without a speculator can not draft"):
        rows.decode_row(4, 1, 3)


def test_a_line_charges_prompt_tokens_as_others_where_it_does_not_say() -> None:
    assert step_rows(LINE).prefill_row(0)[11] == pytest.approx(0.0071 + 1024 * 25e-6)
    assert step_rows(LINE).prefill_row(9)[11] == pytest.approx(1024 * 25e-6)
    assert step_rows(replace(LINE, prefill_token_s=0.0)).prefill_row(9)[11] == pytest.approx(1024 * 21e-6)
    assert set(step_rows(LINE).drafter_prefill_row()) == {0.0}


def test_a_table_has_flat_rows_drafts_of_some_and_measured_prompts() -> None:
    rows = step_rows(TABLE)
    assert rows.decode_row(8, 8, 3) == pytest.approx((0.012,) * len(KNOTS))
    assert rows.decode_row(8, 1, 3)[0] == pytest.approx(0.0075 + 0.003)  # the drafts of one, beside seven others
    steep = step_rows(replace(TABLE, step_s={**TABLE.step_s, 3: ((1.0, 0.0071), (8.0, 0.0085), (64.0, 0.030))}))
    assert steep.decode_row(64, 8, 3)[0] == pytest.approx(0.012 + 0.018 / 8)  # their share of a batch that is wide
    assert rows.prefill_row(0)[11] == pytest.approx(0.004 + 1024 * 30e-6)
    assert rows.prefill_row(5)[11] == pytest.approx(1024 * 30e-6)
    assert rows.drafter_prefill_row()[11] == pytest.approx(1024 * 2e-6)
    assert set(step_rows(replace(TABLE, prefill_token_s=0.0)).prefill_row(5)) == {0.0}
    assert step_rows(replace(TABLE, context_tokens=None)).decode_row(8, 8, 3) == rows.decode_row(8, 8, 3)


def test_a_table_measured_where_few_propose_is_extended_to_all_but_not_its_noise() -> None:
    seldom = step_rows(replace(TABLE, proposing_share=0.25))
    assert seldom.decode_row(8, 2, 3)[0] == pytest.approx(0.012)
    assert seldom.decode_row(8, 8, 3)[0] == pytest.approx(0.0075 + 4 * 0.0045)
    noisy = replace(TABLE, step_s={**TABLE.step_s, 3: ((1.0, 0.006), (64.0, 0.006))}, proposing_share=0.25)
    assert step_rows(noisy).decode_row(1, 1, 3)[0] == pytest.approx(0.006)
    with pytest.raises(ImpossibleInput, match="does not tell what a draft costs"):
        step_rows(replace(TABLE, proposing_share=0.0))


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        ((65, 0, 0), "from batch size 1 to 64 only, at k 0"),
        ((8, 8, 4), "no draft length 4; it has 0, 3"),
        ((0, 0, 0), "1 or more sequences"),
        ((2, 3, 1), "not 2, 3 and 1"),
        ((2, 1, -1), "not 2, 1 and -1"),
    ],
)
def test_a_step_that_can_not_be_says_why(step: tuple[int, int, int], sentence: str) -> None:
    with pytest.raises(ImpossibleInput, match=sentence):
        step_rows(TABLE).decode_row(*step)


def test_there_are_no_fewer_than_no_tokens_beside_a_prompt() -> None:
    for source in (deployed(), LINE, TABLE):
        with pytest.raises(ImpossibleInput, match="no -1 tokens beside"):
            step_rows(source).prefill_row(-1)

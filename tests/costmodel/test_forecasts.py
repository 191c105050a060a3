"""Forecasts out of profiles: they say what the profile says, as far as it says anything."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleets import fleet_of, report, speculative, standard
from slipstream.core.calibration import Calibration
from slipstream.core.node_state import NodeState
from slipstream.core.request import Pool
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.forecasts import Profile, ProfileForecasts, forecast_of, foretelling_profile
from slipstream.costmodel.paces import ProfilePaces
from slipstream.costmodel.profiles import LinearCosts, Provenance, TableCosts

MADE = Provenance("vllm", "1", "none", "m", "2026-11-30")
LINE = LinearCosts(MADE, step_s=0.006, token_s=2e-4, cached_token_s=1e-7, draft_pass_s=5e-4, overhead_s=1e-3)
TABLE = TableCosts(
    MADE,
    {0: ((1.0, 0.010), (8.0, 0.014)), 4: ((1.0, 0.016), (8.0, 0.030))},
    context_tokens=512.0,
    proposing_share=0.5,
    prefill_base_s=0.1,
    prefill_token_s=1e-4,
    drafter_prefill_token_s=5e-5,
)
CALIBRATION = Calibration("p.json", "2026-11-30", "vllm", "1", "m")


def nodes(k: int | None = 4) -> tuple[NodeState, NodeState]:
    """A speculative and a standard node that have a profile."""
    specs = [replace(one, calibration=CALIBRATION) for one in (speculative("s"), standard("t"))]
    fleet = fleet_of(*specs, report_all=False)
    fleet.report("s", 0.0, 0.0, report(k=k))
    fleet.report("t", 0.0, 0.0, report(speculating=False))
    drafting, plain = fleet.nodes()
    return drafting, plain


def forecasts(profile: Profile, *, outdated: bool = False) -> ProfileForecasts:
    return ProfileForecasts({"p.json": profile}, lambda _node: outdated)


@settings(max_examples=20)
@given(batch=st.integers(1, 256), context=st.floats(0, 1e5), k=st.integers(0, 8))
def test_a_line_is_foretold_as_it_is_at_every_context(batch: int, context: float, k: int) -> None:
    wanted = LINE.speculative_s(batch, k, context) if k else LINE.standard_s(batch, context)
    found = forecast_of(LINE, k)
    assert found.step_s(batch, context) == pytest.approx(float(wanted))
    assert (found.drafts[batch - 1], found.most) == (k, 256)


def test_a_line_without_a_price_of_prompts_has_that_of_any_other_token() -> None:
    assert forecast_of(LINE, 0).prefill_s(500.0) == pytest.approx(0.1)
    assert forecast_of(replace(LINE, prefill_token_s=1e-5), 4).prefill_s(500.0) == pytest.approx(0.005)


def test_a_table_is_foretold_as_far_as_it_goes_with_the_share_that_proposes_in_its_times() -> None:
    drafting, plain = forecast_of(TABLE, 4), forecast_of(TABLE, 0)
    assert (drafting.most, plain.most) == (8, 8)
    assert drafting.step_s(8, 3000.0) == pytest.approx(0.030)
    assert plain.step_s(1, 0.0) == pytest.approx(0.010)
    assert (drafting.proposing_share, plain.proposing_share) == (0.5, 0.0)
    assert drafting.prefill_s(1000.0) == pytest.approx(0.15)
    assert plain.prefill_s(1000.0) == pytest.approx(0.1)


def test_a_profile_that_says_nothing_of_one_sequence_foretells_nothing(tmp_path: Path) -> None:
    with pytest.raises(ImpossibleInput, match="from batch size 2 to 8 only"):
        forecast_of(replace(TABLE, step_s={0: ((2.0, 0.01), (8.0, 0.014))}), 0)
    with pytest.raises(ImpossibleInput, match="no draft length 3"):
        forecast_of(TABLE, 3)
    file = tmp_path / "p.json"
    points = [{"batch_size": 2, "k": k, "step_ms": 9} for k in (0, 4)]
    told = {"engine": "vllm", "version": "1", "hardware": "none", "model": "m", "date": "2026-11-30"}
    file.write_text(json.dumps(told | {"form": "table", "points": points}))
    with pytest.raises(ImpossibleInput, match="from batch size 2 to 2 only"):
        foretelling_profile(file)


@pytest.mark.parametrize("profile", [LINE, TABLE])
def test_nodes_are_foretold_by_what_they_draft(profile: Profile) -> None:
    drafting, plain = nodes()
    found = forecasts(profile)
    first, second = found(drafting), found(plain)
    assert first is not None
    assert second is not None
    assert (first.drafts[0], second.drafts[0]) == (4, 0)
    assert (found(drafting), found(plain)) == (first, second)  # made once: a policy tells nodes alike by it


def test_a_draft_that_varies_is_the_one_that_was_measured_if_there_is_one() -> None:
    drafting, _ = nodes(k=None)
    found = forecasts(TABLE)(drafting)
    assert found is not None
    assert found.drafts[0] == 4
    assert forecasts(LINE)(drafting) is None
    assert forecasts(replace(TABLE, step_s={**TABLE.step_s, 2: TABLE.step_s[4]}))(drafting) is None


def test_without_a_profile_that_holds_there_is_no_forecast() -> None:
    drafting, plain = nodes(k=7)
    assert forecasts(TABLE)(drafting) is None
    assert forecasts(TABLE, outdated=True)(plain) is None
    assert ProfileForecasts({"other.json": TABLE}, lambda _node: False)(plain) is None
    (bare,) = fleet_of(standard("t")).nodes()
    assert forecasts(TABLE)(bare) is None


def test_forecasts_of_alike_profiles_are_alike() -> None:
    assert ProfileForecasts({"p": LINE}, bool) == ProfileForecasts({"p": replace(LINE)}, bool)
    assert ProfileForecasts({"p": LINE}, bool) != ProfileForecasts({"p": TABLE}, bool)


def test_a_pace_is_the_tokens_of_a_step_over_its_time_in_either_role() -> None:
    drafting, plain = nodes()
    paces = ProfilePaces({"p.json": TABLE}, lambda _node: False)
    for node in (drafting, plain):  # a standard node would draft what was measured
        assert paces(node, Pool.STANDARD, 8, 3.0) == pytest.approx(8 / 0.014)
        assert paces(node, Pool.SPECULATIVE, 8, 3.0) == pytest.approx(8 * 2.0 / 0.030)
        assert paces(node, Pool.SPECULATIVE, 100, 3.0) == pytest.approx(8 * 2.0 / 0.030)  # as far as the table goes
        assert paces(node, Pool.SPECULATIVE, 8, None) is None
        assert paces(node, Pool.STANDARD, 0, 3.0) is None
    line = ProfilePaces({"p.json": LINE}, lambda _node: False)
    assert line(drafting, Pool.SPECULATIVE, 2, 3.0) == pytest.approx(2 * 3.0 / float(LINE.speculative_s(2, 4, 0.0)))
    assert line(plain, Pool.SPECULATIVE, 2, 3.0) is None  # nobody knows what it would draft


def test_nothing_is_known_of_a_node_without_profile_or_with_an_old_one() -> None:
    drafting, _ = nodes()
    assert ProfilePaces({"p.json": TABLE}, lambda _node: True)(drafting, Pool.STANDARD, 1, 3.0) is None
    assert ProfilePaces({}, lambda _node: False)(drafting, Pool.STANDARD, 1, 3.0) is None  # another configuration's
    drafting.spec = replace(drafting.spec, calibration=None)
    assert ProfilePaces({"p.json": TABLE}, lambda _node: False)(drafting, Pool.STANDARD, 1, 3.0) is None

"""Means over seeds and their intervals."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from made_runs import node_run, run_of
from slipstream.core.request import Pool, TrafficClass
from slipstream.sim.bound import Bound, summarise_bounds
from slipstream.sim.intervals import compare, interval_of, mean_of, summarise
from slipstream.sim.measures import Measures, measure
from slipstream.sim.report import as_json, document
from slipstream.sim.scenario import Policy, PolicyKind, Target
from slipstream.sim.sweep import Point, sweep
from tiny_scenarios import group, plan_of, scenario


def measures(*, ends: float = 2.0, good: int = 4, drafted: int = 8) -> Measures:
    """Of four requests, of which ``good`` finish, ``ends`` seconds after they came."""
    run = run_of(
        arrival_s=[0.0, 1.0, 2.0, 3.0],
        first_token_s=[1.0, 2.0, 3.0, 4.0],
        ended_s=[ends, 1.0 + ends, 2.0 + ends, 3.0 + ends],
        fate=[0 if row < good else 1 for row in range(4)],
        drafted=[drafted] * 4,
        verify_steps=[drafted // 4] * 4,
        nodes=(node_run("spec-0", pool=Pool.SPECULATIVE, steps=10, mean_running=2.0),),
    )
    return measure(run, {TrafficClass.INTERACTIVE: Target(e2e_s=60.0)}, window=(0.0, 10.0))


@settings(max_examples=30)
@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12))
def test_the_interval_is_students(values: list[float]) -> None:
    found = interval_of(values)
    assert found is not None
    middle, error = float(np.mean(values)), float(stats.sem(values))
    quantile = float(stats.t.ppf(0.975, len(values) - 1))
    assert found == pytest.approx((middle - quantile * error, middle + quantile * error), rel=1e-3, abs=1e-6)


def test_one_value_has_no_interval_and_none_no_mean() -> None:
    assert interval_of([1.0]) is None
    assert mean_of([]) is None
    assert interval_of([2.0, 2.0]) == (2.0, 2.0)


def test_intervals_hold_the_mean_they_are_of_in_95_of_100() -> None:
    rng = np.random.default_rng(5)
    held = sum(low <= 3.0 <= high for low, high in map(_ends, rng.normal(3.0, 2.0, (400, 4)).tolist()))
    assert 0.92 <= held / 400 <= 0.98


def _ends(values: list[float]) -> tuple[float, float]:
    found = interval_of(values)
    assert found is not None
    return found


def test_policies_are_summed_up_figure_by_figure() -> None:
    result = summarise("p", [measures(good=4), measures(good=2)])
    assert (result.policy, result.seeds) == ("p", 2)
    assert result.mean.requests.goodput == pytest.approx(0.3)
    low, high = result.low.requests.goodput, result.high.requests.goodput
    assert (low, high) == pytest.approx(interval_of([0.4, 0.2]))
    assert result.mean.categories["code"].e2e.p50 == pytest.approx(2.0)
    assert result.mean.nodes["spec-0"].running_mean == 2.0
    with pytest.raises(ValueError, match="without a run"):
        summarise("p", [])


def test_a_figure_that_one_run_does_not_know_is_the_others() -> None:
    result = summarise("p", [measures(drafted=8), measures(drafted=0)])
    assert result.mean.wasted_drafts == 1.0
    assert result.low.wasted_drafts is None


def test_what_a_seed_does_to_both_cancels_when_policies_are_compared() -> None:
    ours = [measures(ends=ends) for ends in (2.0, 12.0, 30.0)]
    theirs = [measures(ends=ends + 1.0) for ends in (2.0, 12.0, 30.0)]
    difference = compare("ours", ours, theirs)
    assert difference.mean.requests.e2e.mean == pytest.approx(-1.0)
    assert difference.low.requests.e2e.mean == pytest.approx(-1.0)
    assert difference.high.requests.e2e.mean == pytest.approx(-1.0)
    apart = summarise("ours", ours)
    assert apart.low.requests.e2e.mean is not None
    assert apart.low.requests.e2e.mean < 0.0 < 60.0
    with pytest.raises(ValueError, match="seed by seed"):
        compare("ours", ours, theirs[:2])


def test_what_only_one_of_two_knows_has_no_difference() -> None:
    assert compare("p", [measures(drafted=8)], [measures(drafted=0)]).mean.wasted_drafts is None


def test_json_has_the_keys_that_were_promised() -> None:
    found = as_json(summarise("p", [measures(good=4), measures(good=2)]))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert {"name", "goodput", "goodput_interval", "attainment", "ttft_ms", "tpot_ms", "e2e_ms"} <= found.keys()
    for key in ("ttft_ms", "tpot_ms", "e2e_ms"):
        assert {"mean", "p50", "p95", "p99"} <= found[key].keys()
    assert found["e2e_ms"]["p50"] == pytest.approx(2000.0)
    assert found["classes"].keys() == {"interactive"}
    assert found["categories"]["code"]["offered"] == 4.0
    assert found["reasons"] == {"speculative": 1.0}
    assert found["nodes"]["spec-0"]["running_mean"] == 2.0


def test_json_of_one_seed_has_null_intervals() -> None:
    found = as_json(summarise("p", [measures()]))
    assert found["goodput_interval"] is None
    assert found["ttft_ms"]["intervals"] == dict.fromkeys(("mean", "p50", "p95", "p99"))


def test_json_of_the_bound_knows_goodput_alone() -> None:
    bounds = [Bound(1, 2.0, 0.5, 40, 40), Bound(2, 4.0, None, 0, 0)]
    found = as_json(summarise_bounds("bound", bounds))
    assert (found["goodput"], found["attainment"], found["attainment_interval"]) == (3.0, 0.5, None)
    assert found["goodput_interval"] == list(_ends([2.0, 4.0]))
    assert found["ttft_ms"]["p99"] is None
    assert as_json(summarise_bounds("bound", [bounds[0], replace(bounds[0], attainment=0.7)]))["attainment_interval"]
    with pytest.raises(ValueError, match="without a bound"):
        summarise_bounds("bound", [])


def test_the_document_of_one_scenario_has_its_policies_at_the_top() -> None:
    made = scenario(plan_of([0.0, 1.0]), (group(),), policies=(Policy("all-standard", PolicyKind.ALL_STANDARD),))
    whole = document(sweep(lambda _: made, {}), 0.5)
    assert [policy["name"] for policy in whole["policies"]] == ["all-standard"]
    assert whole["run"] == {"requests": 2, "wall_s": 0.5, "requests_per_s": 4.0}
    several = document(sweep(lambda _: made, {"rate": [1.0]}), 0.0)
    assert several["points"][0]["values"] == {"rate": 1.0}
    assert several["run"]["requests_per_s"] is None
    assert Point({}, made).scenario is made

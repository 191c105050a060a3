"""What a run was worth, reckoned by hand from its columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from made_runs import node_run, run_of
from slipstream.core.latency import latency_of
from slipstream.core.reason import Reason
from slipstream.core.request import Pool, TrafficClass
from slipstream.sim.fate import REASONS, Fate
from slipstream.sim.measures import UNPLACED, latencies, latency_curves, measure
from slipstream.sim.scenario import Target
from slipstream.sim.simulate import simulate
from tiny_scenarios import group, plan_of, scenario

ALL = {TrafficClass.INTERACTIVE: Target(ttft_s=1.0, tpot_s=0.1, e2e_s=5.0)}
WINDOW = (0.0, 10.0)


def test_goodput_counts_who_met_every_target_of_its_class() -> None:
    """By row: good; first token late; tokens slow; end late; refused; expired; unfinished."""
    run = run_of(
        arrival_s=[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        output_tokens=11,
        first_token_s=[0.5, 2.1, 2.5, 3.5, np.nan, np.nan, 6.5],
        ended_s=[1.4, 2.5, 3.6, 8.5, np.nan, np.nan, np.nan],
        fate=[Fate.FINISHED] * 4 + [Fate.REFUSED, Fate.EXPIRED, Fate.UNFINISHED],
    )
    found = measure(run, ALL, window=WINDOW).requests
    assert (found.offered, found.finished, found.shed, found.expired, found.unfinished) == (7.0, 4.0, 1.0, 1.0, 1.0)
    assert found.goodput == pytest.approx(0.1)
    assert found.attainment == pytest.approx(1 / 7)
    assert latencies(run, ALL).good.tolist() == [True] + [False] * 6


def test_a_class_without_targets_is_good_when_it_finishes() -> None:
    run = run_of(arrival_s=[0.0, 1.0], first_token_s=[9.0, np.nan], ended_s=[99.0, np.nan], fate=[0, 3])
    found = measure(run, {TrafficClass.BULK: Target(ttft_s=0.1)}, window=WINDOW)
    assert found.requests.goodput == pytest.approx(0.1)
    assert found.classes["bulk"].attainment is None
    assert found.classes["bulk"].ttft.p95 is None


def test_one_token_passes_tpot_and_leaves_it_unknown() -> None:
    run = run_of(arrival_s=[0.0], output_tokens=1, first_token_s=[0.5], ended_s=[0.5], fate=[0])
    found = measure(run, ALL, window=WINDOW).requests
    assert found.goodput == pytest.approx(0.1)
    assert found.tpot.mean is None
    assert found.e2e.p50 == 0.5


def test_only_arrivals_in_the_window_count() -> None:
    run = run_of(arrival_s=[0.9, 1.0, 2.9, 3.0], first_token_s=[4.0] * 4, ended_s=[5.0] * 4, fate=[0] * 4)
    found = measure(run, {}, window=(1.0, 3.0))
    assert found.requests.offered == 2.0
    assert found.requests.goodput == 1.0
    with pytest.raises(ValueError, match="ends after it begins"):
        measure(run, {}, window=(3.0, 3.0))


def test_latencies_are_those_of_the_one_definition() -> None:
    made = scenario(plan_of(np.linspace(0.0, 3.0, 40).tolist()), (group(),), window_s=4.0)
    run = simulate(made, made.policies[0], 1)
    found = latencies(run, {})
    for row in range(len(run.plan)):
        one = latency_of(
            run.plan.arrival_s[row], run.first_token_s[row], run.ended_s[row], int(run.plan.output_tokens[row])
        )
        assert (found.ttft_s[row], found.tpot_s[row], found.e2e_s[row]) == pytest.approx(
            (one.ttft_s, one.tpot_s, one.e2e_s)
        )


def test_tokens_count_where_they_came_out_whenever_their_request_came() -> None:
    """11 tokens from 0 to 20 s, half of the time in the window; a first token before; one that never finished."""
    run = run_of(
        arrival_s=[0.0, 0.0, 9.0],
        output_tokens=[11, 3, 100],
        first_token_s=[0.0, 12.0, 9.5],
        ended_s=[20.0, 12.0, np.nan],
        fate=[0, 0, 3],
        steps=[10, 2, 4],
        accepted=[0, 0, 6],
        ended_at_s=19.5,
        nodes=(node_run("a", gpus=2, seconds=19.5), node_run("b", gpus=2, seconds=9.75)),
    )
    found = measure(run, {}, window=(10.0, 20.0))
    assert found.tokens_per_s == pytest.approx((5.0 + 3.0 + 9.5) / 10.0)
    assert found.tokens_per_s_per_gpu == pytest.approx(1.75 / 3.0)


def test_what_was_drafted_in_vain() -> None:
    run = run_of(
        arrival_s=[0.0, 1.0], first_token_s=[1.0] * 2, ended_s=[2.0] * 2, fate=[0, 0],
        drafted=[40, 40], accepted=[30, 10], verify_steps=[10, 10],
    )  # fmt: skip
    found = measure(run, {}, window=WINDOW)
    assert found.wasted_drafts == pytest.approx(0.5)
    assert found.wasted_verification == pytest.approx(0.4)


def test_where_nothing_is_known_it_says_so() -> None:
    run = run_of(arrival_s=[50.0], first_token_s=[51.0], ended_s=[52.0], fate=[0], ended_at_s=0.0)
    found = measure(run, ALL, window=WINDOW)
    assert found.requests.attainment is None
    unknown = (
        found.tokens_per_s_per_gpu,
        found.wasted_drafts,
        found.wasted_verification,
        found.running_mean,
        found.running_p95,
        found.saturated_share,
        found.busy_share,
        found.queued.mean,
    )
    assert unknown == (None,) * 8
    assert sum(found.reasons.values()) == 0.0


def test_nodes_are_weighed_by_their_steps_and_saturation_by_speculative_ones() -> None:
    nodes = (
        node_run("spec-0", pool=Pool.SPECULATIVE, steps=100, mean_running=2.0, running_p95=4.0, saturated_share=0.5),
        node_run("spec-1", pool=Pool.SPECULATIVE, steps=0, mean_running=0.0, running_p95=0.0, saturated_share=0.1),
        node_run("std-0", steps=300, mean_running=6.0, running_p95=8.0, busy_s=5.0, saturated_share=0.9),
    )
    run = run_of(arrival_s=[0.0], first_token_s=[1.0], ended_s=[2.0], fate=[0], nodes=nodes)
    found = measure(run, {}, window=WINDOW)
    assert (found.running_mean, found.running_p95) == (5.0, 7.0)
    assert found.saturated_share == pytest.approx(0.3)
    assert found.busy_share == pytest.approx(5.0 / 30.0)
    assert found.nodes["std-0"].busy_share == 0.5


def test_reasons_are_shares_of_all_that_came() -> None:
    speculative, saturated = (REASONS.index(reason) for reason in (Reason.SPECULATIVE, Reason.SATURATED))
    run = run_of(
        arrival_s=[0.0, 1.0, 2.0, 3.0],
        first_token_s=[1.0, 2.0, 3.0, np.nan],
        ended_s=[2.0, 3.0, 4.0, np.nan],
        fate=[0, 0, 0, 1],
        reason=[speculative, saturated, speculative, -1],
    )
    reasons = measure(run, {}, window=WINDOW).reasons
    assert {name: share for name, share in reasons.items() if share} == {
        "speculative": 0.5,
        "saturated": 0.25,
        UNPLACED: 0.25,
    }


def test_waits_are_of_all_in_the_gateway_and_of_those_that_ran_in_the_engine() -> None:
    run = run_of(
        arrival_s=[0.0, 1.0], first_token_s=[1.0, np.nan], ended_s=[2.0, np.nan], fate=[0, 2],
        queued_s=[0.0, 10.0], engine_wait_s=[0.25, 0.0], node=[0, -1],
    )  # fmt: skip
    found = measure(run, {}, window=WINDOW)
    assert found.queued.mean == 5.0
    assert found.engine_wait.mean == 0.25


def test_curves_go_from_the_least_to_the_most() -> None:
    run = run_of(
        arrival_s=[0.0, 1.0, 2.0], first_token_s=[1.0, 3.0, np.nan], ended_s=[2.0, 5.0, np.nan], fate=[0, 0, 3]
    )
    curves = latency_curves(run, window=WINDOW, points=3)
    assert curves.ttft_s == (1.0, 1.5, 2.0)
    assert curves.e2e_s == (2.0, 3.0, 4.0)
    assert latency_curves(run, window=(5.0, 6.0)).ttft_s == ()


@settings(max_examples=20, deadline=None)
@given(
    arrivals=st.lists(st.floats(0.0, 9.0), min_size=1, max_size=40),
    categories=st.lists(st.integers(0, 1), min_size=40, max_size=40),
)
def test_kinds_add_up_to_the_whole(arrivals: list[float], categories: list[int]) -> None:
    rows = len(arrivals)
    run = run_of(
        arrival_s=sorted(arrivals),
        first_token_s=[10.0] * rows,
        ended_s=[11.0] * rows,
        fate=[row % 4 for row in range(rows)],
        categories=("code", "chat"),
        category=categories[:rows],
    )
    found = measure(run, ALL, window=WINDOW)
    for kinds in (found.categories, found.classes):
        for name in ("offered", "finished", "shed", "expired", "unfinished", "goodput"):
            assert sum(getattr(kind, name) for kind in kinds.values()) == pytest.approx(getattr(found.requests, name))

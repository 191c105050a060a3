"""The bound is one: no simulated policy exceeds it, and where it can be reckoned by hand it is close."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.core.request import Pool
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.profiles import LinearCosts, TableCosts
from slipstream.costmodel.steps import step_rows
from slipstream.enginemodel.settings import EngineSettings
from slipstream.sim.bound import bound
from slipstream.sim.measures import measure
from slipstream.sim.scenario import Category, Scenario, Target
from slipstream.sim.simulate import simulate
from tiny_scenarios import ALL_ACCEPTED, COSTS, PROVENANCE, group, plan_of, scenario

TARGETS = st.builds(
    Target,
    ttft_s=st.none() | st.sampled_from([0.03, 0.2, 2.0]),
    tpot_s=st.none() | st.sampled_from([0.006, 0.008, 0.012, 0.016, 0.1]),
    e2e_s=st.none() | st.sampled_from([0.2, 0.5, 3.0]),
)
CONSTANT = LinearCosts(PROVENANCE, step_s=0.01, token_s=0.0, prefill_token_s=1e-9)
"""A step of a hundredth of a second, whatever is in it."""


def most_good(made: Scenario) -> float:
    """The best goodput of the scenario's policies, each the mean over seeds."""
    window = (made.warm_up_s, made.warm_up_s + made.window_s)
    return max(
        sum(measure(simulate(made, policy, seed), made.targets, window=window).requests.goodput for seed in made.seeds)
        / len(made.seeds)
        for policy in made.policies
    )


@pytest.mark.no_cover
@settings(max_examples=15, deadline=None)
@given(
    arrivals=st.lists(st.floats(0.0, 3.9), min_size=1, max_size=40),
    prompt=st.sampled_from([1, 10, 400]),
    output=st.sampled_from([1, 2, 21, 60]),
    target=TARGETS,
    slots=st.integers(1, 6),
    k=st.integers(1, 4),
    survival=st.sampled_from([(1.0, 1.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 1.0)]),
    kv_tokens=st.none() | st.just(2000),
)
def test_no_policy_exceeds_the_bound(
    arrivals: list[float],
    prompt: int,
    output: int,
    target: Target,
    slots: int,
    k: int,
    survival: tuple[float, ...],
    kv_tokens: int | None,
) -> None:
    """Where acceptance is certain, run by run."""
    plan = plan_of(arrivals, prompt_tokens=prompt, output_tokens=output)
    groups = (
        group("spec", 1, Pool.SPECULATIVE, slots=slots, k=k, kv_tokens=kv_tokens),
        group("std", 1, Pool.STANDARD, slots=slots, k=k, kv_tokens=kv_tokens),
    )
    made = scenario(plan, groups, target=target, categories=(replace(ALL_ACCEPTED, survival=survival),), window_s=4.0)
    most = bound(made, 1)
    assert most_good(made) <= most.goodput + 1e-6
    assert most.goodput * 4.0 <= most.possible + 1e-6 <= most.offered + 1e-6


@pytest.mark.no_cover
@pytest.mark.parametrize(("tpot_s", "per_s"), [(0.008, 8.0), (0.01, 15.0), (None, 30.0)])
def test_no_policy_exceeds_the_bound_on_average_where_acceptance_is_chance(tpot_s: float | None, per_s: float) -> None:
    plan = plan_of([index / per_s for index in range(int(4 * per_s))], output_tokens=40)
    made = scenario(
        plan,
        (group("spec", 1, slots=8, k=3), group("std", 1, Pool.STANDARD, slots=8, k=3)),
        target=Target(tpot_s=tpot_s, e2e_s=2.0),
        categories=(Category("code", (0.8, 0.65, 0.5), spread=0.1),),
        seeds=(1, 2),
        window_s=4.0,
    )
    assert 0.0 < most_good(made) <= bound(made, 1).goodput


def test_it_is_close_where_steps_always_take_the_same() -> None:
    """A request takes a hundred steps after its first token, four at a time: 4 a second. What still comes in time after
    the window adds at most 2 of 100 seconds.
    """
    plan = plan_of([index / 10.0 for index in range(1000)], prompt_tokens=1, output_tokens=101)
    standard = replace(group(slots=4, costs=CONSTANT), speculative=None)
    made = scenario(plan, (standard,), target=Target(e2e_s=2.0), window_s=100.0)
    most = bound(made, 1)
    assert most.possible == most.offered == 1000
    assert 4.0 <= most.goodput <= 4.0 * 1.025
    few = plan_of([index / 3.8 for index in range(380)], prompt_tokens=1, output_tokens=101)
    enough = scenario(few, (standard,), target=Target(e2e_s=2.0), window_s=100.0, policies=made.policies[:1])
    assert bound(enough, 1).goodput == pytest.approx(3.8)
    assert most_good(enough) == pytest.approx(3.8)


def test_a_target_for_each_token_limits_the_batch() -> None:
    """In steps of 10 + B ms, 14 ms a token leave room for four at a time, whatever the slots: 4 a 1.4 s."""
    plan = plan_of([index / 10.0 for index in range(1000)], prompt_tokens=1, output_tokens=101)
    costs = replace(COSTS, prefill_token_s=1e-9)
    standard = replace(group(slots=64, costs=costs), speculative=None)
    made = scenario(plan, (standard,), target=Target(ttft_s=0.5, tpot_s=0.014), window_s=100.0)
    assert 4 / 1.4 <= bound(made, 1).goodput <= 4 / 1.4 * 1.04


def test_accepted_drafts_save_steps() -> None:
    """Two of two accepted: three tokens a step of 12 + 3·B ms. At 5.5 ms a token half of the steps have two sequences
    and half of them one: 12 ms of node time a step, so 0.4 s a request.
    """
    plan = plan_of([index / 10.0 for index in range(1000)], prompt_tokens=1, output_tokens=101)
    made = scenario(
        plan,
        (group(slots=64, costs=replace(COSTS, prefill_token_s=1e-9)),),
        target=Target(ttft_s=0.5, tpot_s=0.0055),
        window_s=100.0,
    )
    assert 1 / 0.4 <= bound(made, 1).goodput <= 1 / 0.4 * 1.06


def test_memory_limits_what_can_run_together() -> None:
    """A cache for four prompts of 1000 tokens that take 10 ms each: a request takes 260 ms, in 64 slots too."""
    plan = plan_of([index / 10.0 for index in range(1000)], prompt_tokens=1000, output_tokens=101)
    costs = replace(CONSTANT, prefill_token_s=1e-5)
    standard = replace(group(slots=64, costs=costs, kv_tokens=4400), speculative=None)
    made = scenario(plan, (standard,), target=Target(e2e_s=2.0), window_s=100.0)
    assert 1 / 0.26 <= bound(made, 1).goodput <= 1 / 0.26 * 1.1


@settings(max_examples=8, deadline=None)
@given(
    count=st.integers(1, 5),
    target=TARGETS,
    arrivals=st.lists(st.floats(0.0, 9.9), min_size=1, max_size=200),
)
def test_more_nodes_never_lower_it(count: int, target: Target, arrivals: list[float]) -> None:
    plan = plan_of(arrivals)
    found = [
        bound(scenario(plan, (group(count=nodes), group("std", 1, Pool.STANDARD)), target=target), 1).goodput
        for nodes in (count, count + 1)
    ]
    assert found[0] <= found[1] + 1e-6
    assert found[1] <= len(arrivals) / 10.0 + 1e-6


@pytest.mark.parametrize(
    "target", [Target(ttft_s=0.005), Target(tpot_s=0.001), Target(e2e_s=0.03)], ids=["ttft", "tpot", "e2e"]
)
def test_who_could_not_be_good_on_an_empty_node_is_not_counted(target: Target) -> None:
    most = bound(scenario(plan_of([1.0, 2.0]), (group(),), target=target), 1)
    assert (most.goodput, most.attainment, most.offered, most.possible) == (0.0, 0.0, 2, 0)


def test_who_never_fits_a_cache_is_not_counted() -> None:
    plan = plan_of([1.0, 2.0], prompt_tokens=[10, 500])
    assert bound(scenario(plan, (group(kv_tokens=256),)), 1).possible == 1


def test_only_arrivals_in_the_window_count() -> None:
    made = scenario(plan_of([1.0, 6.0, 7.0]), (group(),), window_s=10.0, warm_up_s=5.0)
    assert bound(made, 1).offered == 2
    assert bound(made, 1).goodput == pytest.approx(0.2)
    nobody = replace(made, warm_up_s=100.0)
    assert (bound(nobody, 1).goodput, bound(nobody, 1).attainment) == (0.0, None)


def test_a_model_that_no_node_serves_is_not_answered() -> None:
    plan = plan_of([1.0, 2.0, 3.0], models=("m", "other"), model=[0, 1, 1])
    made = scenario(plan, (group(),))
    assert (bound(made, 1).offered, bound(made, 1).possible) == (3, 1)
    assert bound(replace(made, groups=(group(), group("b", model="other"))), 1).possible == 3


def test_nodes_that_come_and_go_count_while_they_are_there() -> None:
    """One node of two is away from 40 to 80 s: what it began before it may still finish."""
    plan = plan_of([index / 10.0 for index in range(1000)], prompt_tokens=1, output_tokens=101)
    always = replace(group(slots=4, count=2, costs=CONSTANT), speculative=None)
    made = scenario(plan, (always,), target=Target(e2e_s=2.0), window_s=100.0)
    away = replace(made, groups=(replace(always, capacity_changes=((40.0, 1), (80.0, 2))),))
    assert bound(made, 1).goodput == pytest.approx(8.0, rel=0.03)
    assert bound(away, 1).goodput == pytest.approx(8.0 * 0.6 + 4.0 * 0.4, rel=0.06)


def test_a_node_that_never_comes_back_ends_what_it_has() -> None:
    plan = plan_of([1.0, 2.0, 9.0])
    made = scenario(plan, (replace(group(), capacity_changes=((5.0, 0),)),), target=Target(e2e_s=2.0))
    assert bound(made, 1).goodput == pytest.approx(0.2)


def test_draft_lengths_that_a_table_does_not_have_are_left_out() -> None:
    """Measured at K of 0 and 2: nobody can draft one token."""
    points = {k: tuple((size, 0.01 + 0.001 * size * (k + 1)) for size in (1.0, 4.0)) for k in (0, 2)}
    table = step_rows(TableCosts(PROVENANCE, points))
    drawn = group(slots=4, k=2)
    assert drawn.speculative is not None
    measured = replace(
        drawn, standard=replace(drawn.standard, rows=table), speculative=replace(drawn.speculative, rows=table)
    )
    made = scenario(plan_of([index / 10.0 for index in range(100)]), (measured,), target=Target(tpot_s=0.006))
    assert 0.0 < most_good(made) <= bound(made, 1).goodput + 1e-6
    no_standard = replace(measured, standard=replace(measured.standard, rows=step_rows(TableCosts(PROVENANCE, points))))
    wide = replace(no_standard, standard=replace(no_standard.standard, settings=EngineSettings(slots=64)))
    with pytest.raises(ImpossibleInput, match="batch size"):
        bound(replace(made, groups=(wide,)), 1)


def test_hardware_of_two_kinds_adds_up() -> None:
    plan = plan_of([index / 10.0 for index in range(1000)], prompt_tokens=1, output_tokens=101)
    slow = replace(CONSTANT, step_s=0.02)
    groups = tuple(
        replace(group(name, slots=4, costs=costs), speculative=None) for name, costs in (("a", CONSTANT), ("b", slow))
    )
    made = scenario(plan, groups, target=Target(e2e_s=3.0), window_s=100.0)
    assert 6.0 <= bound(made, 1).goodput <= 6.0 * 1.05


@pytest.mark.parametrize("share", [0.3, 0.0])
def test_engines_that_draft_now_and_then_are_bounded_too(share: float) -> None:
    made = scenario(plan_of([index / 40.0 for index in range(160)]), (group(),), target=Target(e2e_s=1.0), window_s=4.0)
    equipment = made.groups[0].speculative
    assert equipment is not None
    speculation = equipment.settings.speculation
    assert speculation is not None
    settings_ = replace(equipment.settings, speculation=replace(speculation, proposing_share=share, drop_below=1.5))
    made = replace(made, groups=(replace(made.groups[0], speculative=replace(equipment, settings=settings_)),))
    assert 0.0 < most_good(made) <= bound(made, 1).goodput + 1e-6


def test_answers_of_one_token_take_their_prompt_only() -> None:
    """A prompt of 100 tokens takes 10 ms beside others; longer answers can not be good at all here."""
    plan = plan_of([index / 100.0 for index in range(1000)], prompt_tokens=100, output_tokens=[1, 50] * 500)
    made = scenario(plan, (replace(group(), speculative=None),), target=Target(ttft_s=1.0, tpot_s=0.001))
    most = bound(made, 1)
    assert most.possible == 500
    assert 40.0 < most.goodput <= 50.0

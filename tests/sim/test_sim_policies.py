"""What each policy makes of the same fleet and the same requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulated_fleets import BULK, THRESHOLD, group, plan, scenario, speculative
from slipstream.core.policy import ThresholdSettings
from slipstream.core.reason import Reason
from slipstream.core.request import Pool
from slipstream.enginemodel.settings import ImpossibleEngine
from slipstream.sim.policies import ceiling_of, equipped
from slipstream.sim.run import REASONS, Fate, Run
from slipstream.sim.scenario import Policy, PolicyKind, Scenario
from slipstream.sim.simulate import simulate

TOGETHER = [0.001 * number for number in range(8)]


def split(**fields: object) -> Scenario:
    traffic = plan(TOGETHER, output_tokens=100, category=[0, 1] * 4, **fields)  # type: ignore[arg-type] # plan's own names
    return scenario([speculative("spec", 2), group("std", 2)], traffic)


def run_of(kind: PolicyKind, chosen: Scenario | None = None, **fields: object) -> Run:
    return simulate(chosen or split(), Policy("policy", kind, **fields), 1)  # type: ignore[arg-type] # Policy's own names


def on(run: Run) -> list[int]:
    """How many requests each node had."""
    return [run.node.tolist().count(index) for index in range(len(run.nodes))]


def test_all_standard_equips_no_node_with_a_speculator_and_spreads_by_load() -> None:
    run = run_of(PolicyKind.ALL_STANDARD)
    assert [node.pool for node in run.nodes] == [Pool.STANDARD] * 4
    assert [node.drafted for node in run.nodes] == [0] * 4
    assert on(run) == [2, 2, 2, 2]


def test_all_speculative_drafts_on_every_node_whatever_is_accepted() -> None:
    run = run_of(PolicyKind.ALL_SPECULATIVE)
    assert [node.pool for node in run.nodes] == [Pool.SPECULATIVE] * 4
    assert all(node.drafted > 0 for node in run.nodes)
    assert on(run) == [2, 2, 2, 2]
    assert set(run.reason.tolist()) == {REASONS.index(Reason.OBSERVE)}


def test_all_speculative_takes_more_than_the_ceiling() -> None:
    run = run_of(PolicyKind.ALL_SPECULATIVE, scenario([speculative("spec", ceiling=2)], plan(TOGETHER)))
    assert run.nodes[0].running_peak == 8
    assert run.nodes[0].saturated_share > 0.5


def test_all_scheduled_drafts_less_as_the_batch_grows() -> None:
    run = run_of(PolicyKind.ALL_SCHEDULED, schedule=((1, 4), (2, 1)))
    assert all(node.drafted > 0 for node in run.nodes)
    few = run.drafted[0] / run.verify_steps[0]
    assert 1.0 <= few < 4.0
    alone = run_of(PolicyKind.ALL_SCHEDULED, replace(split(), plan_of=lambda _seed: plan([0.0])), schedule=((1, 4),))
    assert alone.drafted[0] / alone.verify_steps[0] == 4.0


def test_round_robin_takes_nodes_in_turn_whatever_their_pool() -> None:
    assert run_of(PolicyKind.SPLIT_ROUND_ROBIN).node.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]


def test_round_robin_passes_over_nodes_that_are_full_and_waits_when_all_are() -> None:
    groups = [group("small", slots=1), group("large", slots=4)]
    run = run_of(PolicyKind.SPLIT_ROUND_ROBIN, scenario(groups, plan(TOGETHER, output_tokens=50)))
    assert run.node.tolist()[:5] == [0, 1, 1, 1, 1]
    assert (run.queued_s[5:] > 0.0).all()
    assert (run.fate == Fate.FINISHED).all()


def test_round_robin_refuses_a_model_that_nobody_serves() -> None:
    run = run_of(PolicyKind.SPLIT_ROUND_ROBIN, scenario([group("std")], plan([0.0], models=("other",))))
    assert run.fate.tolist() == [Fate.REFUSED]


def test_least_load_of_a_split_fleet_knows_no_pools() -> None:
    run = run_of(PolicyKind.SPLIT_LEAST_LOAD)
    assert [node.pool for node in run.nodes] == [Pool.SPECULATIVE] * 2 + [Pool.STANDARD] * 2
    assert on(run) == [2, 2, 2, 2]


def test_lists_send_listed_categories_to_the_speculative_pool_and_all_others_to_the_standard_one() -> None:
    run = run_of(PolicyKind.SPLIT_LISTS, speculative_categories=frozenset({"chat"}))
    assert set(run.node[0::2].tolist()) == {2, 3}
    assert set(run.node[1::2].tolist()) == {0, 1}
    assert set(run.reason.tolist()) == {REASONS.index(Reason.PINNED)}


def test_lists_look_at_no_ceiling_and_at_no_class_but_overflow_when_the_pool_is_full() -> None:
    traffic = plan(TOGETHER, output_tokens=100, traffic_class=BULK)
    run = run_of(
        PolicyKind.SPLIT_LISTS,
        scenario([speculative("spec", slots=6, ceiling=2), group("std")], traffic),
        speculative_categories=frozenset({"code"}),
    )
    assert run.node.tolist() == [0] * 6 + [1] * 2


def test_threshold_has_its_own_settings_and_ceiling() -> None:
    open_to_all = Policy("low", PolicyKind.THRESHOLD, ceiling=1, threshold=ThresholdSettings(alpha_floor=0.1))
    run = simulate(split(), open_to_all, 1)
    assert on(run) == [1, 1, 3, 3]
    assert [node.running_peak for node in run.nodes[:2]] == [1, 1]


def test_the_requests_are_the_same_under_every_policy() -> None:
    runs = [run_of(kind, split()) for kind in (PolicyKind.ALL_STANDARD, PolicyKind.SPLIT_LEAST_LOAD)]
    assert (runs[0].plan.quantile == runs[1].plan.quantile).all()


def test_nodes_without_a_speculator_can_not_be_made_to_speculate() -> None:
    bare = replace(group("std"), speculative=None)
    with pytest.raises(ImpossibleEngine, match="'std' have no speculator, but should speculate under 'policy'"):
        run_of(PolicyKind.ALL_SPECULATIVE, scenario([bare], plan([0.0])))
    assert equipped(bare, THRESHOLD) == (Pool.STANDARD, bare.standard)


def test_a_policy_without_a_ceiling_leaves_each_group_its_own() -> None:
    assert ceiling_of(speculative("spec", ceiling=5), THRESHOLD) == 5
    assert ceiling_of(speculative("spec", ceiling=5), replace(THRESHOLD, ceiling=12)) == 12


def test_the_bound_decides_nothing() -> None:
    with pytest.raises(ValueError, match="computed, not simulated"):
        run_of(PolicyKind.BOUND)

"""When a node lays its speculator down or takes it up: watermarks, patience, and what a change costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.request import Pool
from slipstream.core.roles import RoleController, RoleNode, RoleReason, RoleSettings, RoleVerdict, remaining_s

LONG_AGO = -1e6
SETTINGS = RoleSettings(high_for_s=10.0, low_for_s=60.0)


def node(name: str, pool: Pool, sequences: int, *, since: float = LONG_AGO, changeable: bool = True) -> RoleNode:
    """A node that holds 8 sequences with its speculator, 32 without, and makes more of them without."""
    return RoleNode(name, pool, since, sequences, 8, 32, 400.0, 1000.0, 50.0, changeable)


def fleet(speculative: int, standard: int, sequences: int) -> list[RoleNode]:
    return [
        *(node(f"spec-{number}", Pool.SPECULATIVE, sequences) for number in range(speculative)),
        *(node(f"std-{number}", Pool.STANDARD, sequences) for number in range(standard)),
    ]


def after(controller: RoleController, nodes: list[RoleNode], seconds: float, queued: int = 0) -> RoleVerdict:
    """The last verdict when load stays as it is for so long, from time 0 on."""
    controller.look(nodes, queued, 0.0)
    return controller.look(nodes, queued, seconds)


def test_in_a_surge_that_lasts_a_speculative_node_becomes_standard() -> None:
    controller, nodes = RoleController(SETTINGS), fleet(2, 1, 8)
    assert controller.look(nodes, 40, 0.0).reason is RoleReason.TOO_SHORT
    assert controller.look(nodes, 40, 9.0).reason is RoleReason.TOO_SHORT
    verdict = controller.look(nodes, 40, 10.0)
    assert (verdict.reason, verdict.node, verdict.pool) == (RoleReason.SURGE, "spec-0", Pool.STANDARD)
    assert (verdict.speculative, verdict.wanted) == (2, 1)
    assert verdict.load == pytest.approx((3 * 8 + 40) / (8 + 8 + 32))
    assert verdict.payoff is not None
    assert verdict.payoff.pays


def test_what_is_quiet_for_long_enough_speculates() -> None:
    controller, nodes = RoleController(SETTINGS), fleet(0, 3, 1)
    assert after(controller, nodes, 59.0).reason is RoleReason.TOO_SHORT
    verdict = controller.look(nodes, 0, 60.0)
    assert (verdict.reason, verdict.node, verdict.pool) == (RoleReason.QUIET, "std-0", Pool.SPECULATIVE)
    assert verdict.wanted == 1


def test_between_the_watermarks_nothing_changes() -> None:
    verdict = after(RoleController(SETTINGS), [*fleet(1, 0, 6), node("std-0", Pool.STANDARD, 22)], 1e5)
    assert verdict.reason is RoleReason.WITHIN
    assert verdict.node is None


def test_a_surge_that_ends_is_forgotten() -> None:
    controller, nodes = RoleController(SETTINGS), fleet(2, 1, 8)
    controller.look(nodes, 40, 0.0)
    assert controller.look(fleet(2, 1, 6), 8, 5.0).reason is RoleReason.WITHIN
    assert controller.look(nodes, 40, 10.0).reason is RoleReason.TOO_SHORT


def test_one_node_changes_at_a_time() -> None:
    controller, nodes = RoleController(SETTINGS), fleet(3, 1, 8)
    assert after(controller, nodes, 10.0, queued=60).node == "spec-0"
    controller.began("spec-0")
    assert controller.look(nodes[1:], 60, 11.0).reason is RoleReason.IN_TRANSITION
    controller.ended(12.0, 30.0)
    assert controller.transition_s == 30.0
    assert controller.look(nodes[1:], 60, 12.0).node == "spec-1"


def test_a_change_that_failed_does_not_say_how_long_one_takes_and_is_not_tried_at_once_again() -> None:
    controller, nodes = RoleController(SETTINGS), fleet(1, 1, 8)
    assert after(controller, nodes, 10.0, queued=60).node == "spec-0"
    controller.began("spec-0")
    controller.ended(20.0, None)
    assert controller.transition_s == SETTINGS.transition_s
    assert controller.look(nodes, 60, 619.0).reason is RoleReason.DWELLING
    assert controller.look(nodes, 60, 620.0).node == "spec-0"


@pytest.mark.parametrize(
    ("settings", "nodes", "queued"),
    [
        (replace(SETTINGS, minimum_speculative=2), fleet(2, 1, 8), 60),
        (replace(SETTINGS, minimum_standard=2), fleet(2, 2, 0), 0),
        (SETTINGS, [node("spec-0", Pool.SPECULATIVE, 8, changeable=False)], 60),
    ],
    ids=["speculative", "standard", "none that can change"],
)
def test_no_pool_gets_smaller_than_it_may(settings: RoleSettings, nodes: list[RoleNode], queued: int) -> None:
    assert after(RoleController(settings), nodes, 1e5, queued).reason is RoleReason.AT_MINIMUM


def test_a_node_keeps_its_role_for_a_while() -> None:
    nodes = [node("spec-0", Pool.SPECULATIVE, 8, since=0.0), node("std-0", Pool.STANDARD, 32)]
    controller = RoleController(SETTINGS)
    assert after(controller, nodes, 599.0, queued=20).reason is RoleReason.DWELLING
    assert controller.look(nodes, 20, 600.0).reason is RoleReason.SURGE


def test_where_a_change_takes_longer_than_the_surge_is_worth_the_ceiling_moves_instead() -> None:
    settings = replace(SETTINGS, transition_s=3000.0, expected_high_s=1000.0)
    controller, nodes = RoleController(settings), fleet(2, 1, 8)
    verdict = after(controller, nodes, 10.0, queued=40)
    assert verdict.reason is RoleReason.DOES_NOT_PAY
    assert verdict.node is None
    assert verdict.raised
    payoff = verdict.payoff
    assert payoff is not None
    assert (payoff.gain_tps, payoff.dwell_s) == (600.0, 990.0)
    assert (payoff.lost_tps, payoff.transition_s) == (400.0, 3000.0)
    assert controller.look(fleet(2, 1, 8), 10, 20.0).raised  # until load is low, not merely below the high mark
    assert not controller.look(fleet(2, 1, 1), 0, 30.0).raised


def test_a_node_that_is_missed_meanwhile_does_not_take_its_speculator_up() -> None:
    """Of two nodes with room for eight and ten sequences in all, one alone can not hold them."""
    small = [RoleNode(f"std-{n}", Pool.STANDARD, LONG_AGO, 5, 30, 8, 400.0, 400.0, 2.0) for n in range(2)]
    settings = replace(SETTINGS, transition_s=7000.0)
    assert after(RoleController(settings), small, 60.0).reason is RoleReason.DOES_NOT_PAY
    assert after(RoleController(SETTINGS), small, 60.0).reason is RoleReason.QUIET


def test_an_empty_fleet_changes_nothing() -> None:
    assert after(RoleController(SETTINGS), [], 1e5).reason is RoleReason.WITHIN
    assert after(RoleController(SETTINGS), [], 1e5, queued=5).reason is RoleReason.WITHIN


@pytest.mark.parametrize(
    ("periods", "lasted_s", "left_s"),
    [((), 0.0, 100.0), ((), 40.0, 60.0), ((20.0, 60.0), 40.0, 40.0), ((20.0, 300.0), 150.0, 150.0), ((), 700.0, 700.0)],
)
def test_what_has_lasted_is_expected_to_last_like_those_before_it(
    periods: tuple[float, ...], lasted_s: float, left_s: float
) -> None:
    assert remaining_s(periods, lasted_s, 100.0) == pytest.approx(left_s)


@given(
    loads=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60), st.floats(0.1, 400.0)), max_size=60),
    minimum=st.integers(0, 2),
)
def test_roles_never_change_too_soon_nor_below_a_minimum(loads: list[tuple[int, int, float]], minimum: int) -> None:
    settings = replace(SETTINGS, minimum_speculative=minimum, minimum_standard=minimum)
    controller, now = RoleController(settings), 0.0
    roles = {f"node-{n}": (Pool.SPECULATIVE if n < 3 else Pool.STANDARD) for n in range(6)}
    since = dict.fromkeys(roles, LONG_AGO)
    for sequences, queued, passed in loads:
        now += passed
        nodes = [node(name, pool, sequences, since=since[name]) for name, pool in roles.items()]
        verdict = controller.look(nodes, queued, now)
        if verdict.node is None:
            continue
        assert verdict.pool is not None
        assert verdict.pool is not roles[verdict.node]
        assert now - since[verdict.node] >= settings.minimum_dwell_s
        roles[verdict.node], since[verdict.node] = verdict.pool, now
        assert min(list(roles.values()).count(pool) for pool in Pool) >= minimum

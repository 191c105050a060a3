"""Which node gets what it already holds, and when that is not worth it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleets import MODEL, fleet_of, report, speculative, standard
from slipstream.core.affinity import Affinity, Match
from slipstream.core.errors import EngineUnreachable
from slipstream.core.fleet import Fleet
from slipstream.core.node_state import NodeState, ReplicaGroup
from slipstream.core.request import Pool


def nodes(fleet: Fleet, *names: str) -> list[NodeState]:
    found = [fleet.node(name) for name in names]
    assert None not in found
    return [node for node in found if node is not None]


def groups(fleet: Fleet, pool: Pool = Pool.SPECULATIVE) -> tuple[ReplicaGroup, ...]:
    serving = fleet.serving(MODEL)
    assert serving is not None
    return serving[pool is Pool.STANDARD]


def occupy(fleet: Fleet, name: str, sequences: int) -> None:
    fleet.admit(name, sequences, "code", 0.0)


def test_the_most_telling_key_that_is_known_names_the_holder() -> None:
    fleet = fleet_of(speculative("a"), speculative("b"))
    a, b = nodes(fleet, "a", "b")
    affinity = Affinity()
    affinity.remember((1, 2), a)
    affinity.remember((3, 2), b)
    assert affinity.holder((1, 2), Pool.SPECULATIVE) is a
    assert affinity.holder((9, 2), Pool.SPECULATIVE) is b
    assert affinity.holder((9,), Pool.SPECULATIVE) is None
    assert affinity.holder((1, 2), Pool.STANDARD) is None


def test_each_pool_is_remembered_apart() -> None:
    fleet = fleet_of(speculative("s"), standard("t"))
    s, t = nodes(fleet, "s", "t")
    affinity = Affinity()
    affinity.remember((1,), s)
    affinity.remember((1,), t)
    assert affinity.holder((1,), Pool.SPECULATIVE) is s
    assert affinity.holder((1,), Pool.STANDARD) is t


def chosen(affinity: Affinity, fleet: Fleet, least: str, slack: int = 2) -> str:
    (node,) = nodes(fleet, least)
    return affinity.choose((1,), node, groups(fleet, node.pool), 1, (), slack).name


def test_the_holder_is_taken_though_it_is_a_little_fuller() -> None:
    fleet = fleet_of(speculative("a"), speculative("b"))
    affinity = Affinity()
    assert chosen(affinity, fleet, "b") == "b"
    affinity.remember((1,), nodes(fleet, "a")[0])
    occupy(fleet, "a", 2)
    assert chosen(affinity, fleet, "b") == "a"
    occupy(fleet, "a", 1)
    assert chosen(affinity, fleet, "b") == "b"
    assert chosen(affinity, fleet, "a") == "a"
    assert affinity.matches == {Match.HELD: 2, Match.FULLER: 1, Match.CLOSED: 0, Match.UNKNOWN: 1}


def test_a_quarter_more_than_the_least_loaded_is_not_much_fuller() -> None:
    fleet = fleet_of(standard("a", limit=100), standard("b", limit=100))
    affinity = Affinity()
    affinity.remember((1,), nodes(fleet, "a")[0])
    occupy(fleet, "b", 40)
    occupy(fleet, "a", 50)
    assert chosen(affinity, fleet, "b", 0) == "a"
    occupy(fleet, "a", 1)
    assert chosen(affinity, fleet, "b", 0) == "b"


def test_nodes_of_different_size_are_compared_by_their_share() -> None:
    fleet = fleet_of(speculative("large", ceiling=16), speculative("small", ceiling=4))
    affinity = Affinity()
    affinity.remember((1,), nodes(fleet, "large")[0])
    occupy(fleet, "small", 2)
    occupy(fleet, "large", 10)
    assert chosen(affinity, fleet, "small") == "large"
    occupy(fleet, "large", 1)
    assert chosen(affinity, fleet, "small") == "small"


def test_without_slack_only_a_tie_goes_to_the_holder_of_a_quiet_fleet() -> None:
    fleet = fleet_of(speculative("a"), speculative("b"))
    affinity = Affinity()
    affinity.remember((1,), nodes(fleet, "a")[0])
    assert chosen(affinity, fleet, "b", 0) == "a"
    occupy(fleet, "a", 1)
    assert chosen(affinity, fleet, "b", 0) == "b"


@pytest.mark.parametrize("trouble", ["saturated", "draining", "unhealthy", "refusing", "gone", "avoided", "no room"])
def test_a_holder_that_can_not_take_the_request_is_passed_over(trouble: str) -> None:
    fleet = fleet_of(speculative("a"), speculative("b"))
    a, b = nodes(fleet, "a", "b")
    affinity = Affinity()
    affinity.remember((1,), a)
    assert chosen(affinity, fleet, "b") == "a"
    sequences, avoid = 1, ()
    match trouble:
        case "saturated":
            occupy(fleet, "a", 8)
        case "draining":
            fleet.drain("a", 0.0)
        case "unhealthy":
            fleet.report_failed("a", 0.0, EngineUnreachable("refused"))
            fleet.report_failed("a", 0.0, EngineUnreachable("refused"))
        case "refusing":
            fleet.refused(a, 0.0)
        case "gone":
            fleet.remove("a")
            fleet.add(speculative("a"), 0.0)  # another engine under the same name holds nothing
            fleet.report("a", 0.0, 0.0, report())
        case "avoided":
            avoid = ("a",)  # type: ignore[assignment]  # the empty tuple above has its own type
        case "no room":
            occupy(fleet, "a", 4)
            sequences = 5
    assert affinity.choose((1,), b, groups(fleet), sequences, avoid, 100) is b
    assert affinity.matches[Match.CLOSED] == 1


def test_a_holder_for_which_the_verdict_does_not_hold_is_passed_over() -> None:
    """Two speculators, and only the second one's acceptance is high enough: the first one's nodes are not eligible."""
    fleet = fleet_of(speculative("a"), speculative("b"))
    fleet.report("b", 0.0, 0.0, report(k=2))
    a, b = nodes(fleet, "a", "b")
    affinity = Affinity()
    affinity.remember((1,), a)
    assert b.group is not None
    assert affinity.choose((1,), b, (b.group,), 1, ()) is b


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=80), st.integers(0, 4))
def test_affinity_never_lets_a_node_get_much_fuller_than_the_least_loaded(
    steps: list[tuple[int, bool]], slack: int
) -> None:
    """Whatever is shared by whom, at the moment of a choice the chosen one is within the slack or a quarter."""
    fleet = fleet_of(*(speculative(f"n{i}", ceiling=30) for i in range(3)))
    affinity = Affinity()
    running: list[NodeState] = []
    for key, ends in steps:
        if ends and running:
            fleet.release(running.pop(0), 1, "code", 0.0)
            continue
        least = min(fleet.nodes(), key=lambda node: node.occupancy)
        node = affinity.choose((key,), least, groups(fleet), 1, (), slack)
        assert node.occupancy - least.occupancy <= max(slack, least.occupancy / 4 + 1e-9)
        fleet.admit(node.name, 1, "code", 0.0)
        affinity.remember((key,), node)
        running.append(node)

"""Which node a request must go to that refers to an earlier response."""

from __future__ import annotations

import pytest

from fleets import fleet_of, report, standard
from slipstream.core.errors import AllFull, EngineUnreachable, NothingUsable, ResponseNotFound
from slipstream.core.fleet import Fleet
from slipstream.core.node_state import NodeState
from slipstream.core.responses import MAX_ID_CHARACTERS, REMEMBERED_S, RESPONSES_REMEMBERED, ResponseOwners


def held(*, limit: int = 2) -> tuple[Fleet, NodeState, ResponseOwners]:
    fleet = fleet_of(standard("a", limit=limit), standard("b"))
    node = fleet.node("a")
    assert node is not None
    owners = ResponseOwners()
    owners.remember("resp_1", node, 0.0)
    return fleet, node, owners


def test_the_node_that_made_a_response_is_its_owner() -> None:
    _, node, owners = held()
    assert owners.owner("resp_1", 1, 1.0) is node


def test_a_response_nobody_made_is_not_found() -> None:
    _, _, owners = held()
    with pytest.raises(ResponseNotFound, match="No node is known to hold the response 'resp_2'") as raised:
        owners.owner("resp_2", 1, 1.0)
    assert raised.value.param == "previous_response_id"


def test_the_error_says_why_the_owner_is_out() -> None:
    fleet, _, owners = held()
    fleet.drain("a", 1.0)
    with pytest.raises(ResponseNotFound, match="held by node 'a', which is being drained"):
        owners.owner("resp_1", 1, 1.0)
    fleet.drain("a", 1.0, draining=False)
    for _ in range(2):
        fleet.report_failed("a", 1.0, EngineUnreachable("refused"))
    with pytest.raises(ResponseNotFound, match="which can not be reached"):
        owners.owner("resp_1", 1, 1.0)
    fleet.remove("a")
    with pytest.raises(ResponseNotFound, match="which has left the fleet"):
        owners.owner("resp_1", 1, 1.0)


def test_another_engine_under_the_same_name_holds_nothing() -> None:
    fleet, _, owners = held()
    fleet.remove("a")
    fleet.add(standard("a"), 1.0)
    fleet.report("a", 1.0, 1.0, report(speculating=False))
    with pytest.raises(ResponseNotFound, match="left the fleet"):
        owners.owner("resp_1", 1, 1.0)


def test_a_full_owner_is_worth_waiting_for() -> None:
    fleet, node, owners = held(limit=2)
    fleet.admit("a", 1, "chat", 1.0)
    with pytest.raises(AllFull, match="'a', which alone holds the response 'resp_1', is at its limit"):
        owners.owner("resp_1", 2, 1.0)
    assert owners.owner("resp_1", 1, 1.0) is node
    fleet.refused(node, 1.0)
    with pytest.raises(AllFull):
        owners.owner("resp_1", 1, 1.0)


def test_an_owner_that_has_just_failed_is_not_replaced_by_another_node() -> None:
    _, _, owners = held()
    with pytest.raises(NothingUsable, match="'a', which alone holds"):
        owners.owner("resp_1", 1, 1.0, frozenset({"a"}))


def test_responses_are_forgotten_in_time_and_within_bounds() -> None:
    _, node, owners = held()
    assert owners.owner("resp_1", 1, 0.49 * REMEMBERED_S) is node
    assert owners.owner("resp_1", 1, 0.5 * REMEMBERED_S) is node
    with pytest.raises(ResponseNotFound):
        owners.owner("resp_1", 1, REMEMBERED_S)
    owners.remember("resp_1", node, REMEMBERED_S)
    with pytest.raises(ResponseNotFound):  # nobody asked for long enough to forget it twice
        owners.owner("resp_1", 1, 3 * REMEMBERED_S)
    for number in range(2 * RESPONSES_REMEMBERED):
        owners.remember(f"r{number}", node, 3 * REMEMBERED_S)
    with pytest.raises(ResponseNotFound):
        owners.owner("r0", 1, 3 * REMEMBERED_S)
    assert owners.owner(f"r{2 * RESPONSES_REMEMBERED - 1}", 1, 3 * REMEMBERED_S) is node


def test_an_id_of_any_length_is_neither_kept_nor_repeated() -> None:
    _, node, owners = held()
    long = "r" * (MAX_ID_CHARACTERS + 1)
    owners.remember(long, node, 0.0)
    with pytest.raises(ResponseNotFound) as raised:
        owners.owner(long, 1, 0.0)
    assert len(str(raised.value)) < 300

"""Nodes that change their roles in a simulated fleet."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from simulated_fleets import FlatRows, group, plan, scenario
from slipstream.core.forecast import Forecast
from slipstream.core.request import Pool
from slipstream.core.roles import RoleSettings
from slipstream.enginemodel.step_times import KNOTS
from slipstream.sim.roles import pace_of
from slipstream.sim.run import Fate, Run
from slipstream.sim.scenario import Policy, PolicyKind, RoleChanges, Scenario
from slipstream.sim.simulate import simulate

SETTINGS = RoleSettings(
    high_watermark=0.8,
    low_watermark=0.3,
    high_for_s=2.0,
    low_for_s=10.0,
    minimum_dwell_s=5.0,
    expected_high_s=100.0,
    transition_s=3.0,
)


class CostlyDrafts(FlatRows):
    """What is drafted is verified: that pays for few sequences, and not for many."""

    def decode_row(self, decoding: int, drafting: int, k: int) -> tuple[float, ...]:
        return (0.01 + 0.002 * (decoding + k * drafting),) * len(KNOTS)


COSTLY_DRAFTS = CostlyDrafts()


def surge(output_tokens: int = 100) -> Scenario:
    """Quiet, then for half a minute more than the fleet was made for, then quiet."""
    arrivals = (
        [0.5 * n for n in range(60)] + [30.0 + 0.1 * n for n in range(300)] + [60.0 + 0.5 * n for n in range(120)]
    )
    groups = [
        group("spec", 2, Pool.SPECULATIVE, slots=16, ceiling=4, rows=COSTLY_DRAFTS),
        group("std", 1, slots=16, rows=COSTLY_DRAFTS),
    ]
    return scenario(groups, plan(arrivals, output_tokens=output_tokens))


def changing(restart_s: float = 2.0, drain_s: float = 60.0, **settings: float) -> Policy:
    roles = RoleChanges(replace(SETTINGS, **settings), restart_s, drain_s)  # type: ignore[arg-type] # RoleSettings' own names
    return Policy("roles", PolicyKind.THRESHOLD, roles=roles)


def events(policy: Policy, output_tokens: int = 100) -> tuple[Run, list[tuple[float, str, str, str]]]:
    """What came of it, and of roles: when, which node, which pool, what."""
    lines: list[bytes] = []
    run = simulate(surge(output_tokens), policy, 1, events=lines.append)
    told = [json.loads(line) for line in lines]
    return run, [(e["at_s"], e["node"], e["pool"], e["step"]) for e in told if e["event"] == "role"]


def test_in_a_surge_nodes_become_standard_and_after_it_speculative_again() -> None:
    run, told = events(changing())
    assert set(run.fate.tolist()) == {int(Fate.FINISHED)}  # nothing is lost on the way
    first, second = told[0], told[1]
    assert first[2:] == ("speculative", "leaves")
    assert 32.0 <= first[0] <= 45.0
    assert second[1:] == (f"{first[1]}/standard", "standard", "joins")
    assert second[0] >= first[0] + 2.0
    back = [(pool, step) for at, _, pool, step in told if at > 70.0]
    assert ("standard", "leaves") in back
    assert ("speculative", "joins") in back
    present: set[str] = {"spec-0", "spec-1", "std-0"}
    for _, node, _, step in told:  # one at a time
        present.symmetric_difference_update({node})
        assert len(present) == (2 if step == "leaves" else 3)
    assert run.nodes[3].name == "spec-0/standard"
    assert sum(node.seconds for node in run.nodes) < 3 * run.ended_at_s


def test_where_restarts_take_long_nothing_changes() -> None:
    _, told = events(changing(restart_s=1000.0, transition_s=1000.0))
    assert told == []


def test_a_node_that_does_not_drain_in_time_stays_what_it_was() -> None:
    _, told = events(changing(drain_s=1.0), output_tokens=200)
    first, second, third = told[:3]
    assert (first[3], second[3], second[1]) == ("leaves", "stays", first[1])
    assert {first[1], third[1]} == {"spec-0", "spec-1"}  # the other one is tried, and this one not at once again


def test_in_a_surge_that_does_not_pay_ceilings_move() -> None:
    lines: list[bytes] = []
    simulate(surge(), changing(transition_s=1000.0, surge_ceiling=12), 1, events=lines.append)
    told = [json.loads(line) for line in lines]
    most = [e["occupancy"] for e in told if e["event"] == "place" and e["reason"] == "speculative"]
    assert 4 < max(most) <= 12
    assert [e for e in told if e["event"] == "role"] == []


@pytest.mark.no_cover
def test_the_same_seed_gives_the_same_changes() -> None:
    assert events(changing())[1] == events(changing())[1]


def test_a_pace_is_the_forecasts_as_far_as_it_goes() -> None:
    forecast = Forecast((0.0, 100.0), ((0.01, 0.01), (0.02, 0.04)), (0, 0), 0.0, (0.0, 0.0), None)
    pace = pace_of(forecast, 100.0, 3.0)
    assert pace.rates == pytest.approx((0.0, 300.0, 150.0))
    assert pace.at(7) == pytest.approx(150.0)
    assert pace_of(None, 100.0, 3.0).at(4) == 0.0

"""Policy `predictive` on simulated fleets: where it is better than any other, and what it knows beforehand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from simulated_fleets import FlatRows, group, plan, scenario, speculative
from slipstream.core.goodput import Target
from slipstream.core.request import Pool, TrafficClass
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.enginemodel.settings import Speculation
from slipstream.enginemodel.step_times import KNOTS
from slipstream.sim.forecasts import forecast_of
from slipstream.sim.measures import measure
from slipstream.sim.scenario import Policy, PolicyKind, Scenario
from slipstream.sim.simulate import simulate

PREDICTIVE = Policy("predictive", PolicyKind.PREDICTIVE)
GROWING = FlatRows(0.01, 0.001)


def overloaded(arrivals: int = 600, every_s: float = 0.02) -> Scenario:
    """Two nodes of either pool that can serve about ten sequences each in time, asked for twice as much."""
    groups = [
        group("spec", 2, Pool.SPECULATIVE, slots=64, rows=GROWING),
        group("std", 2, slots=64, rows=GROWING),
    ]
    traffic = plan([every_s * n for n in range(arrivals)], output_tokens=100, category=[n % 2 for n in range(arrivals)])
    targets = {TrafficClass.INTERACTIVE: Target(tpot_s=0.02)}
    return replace(scenario(groups, traffic, window_s=every_s * arrivals), targets=targets)


def good_share(chosen: Scenario, policy: Policy) -> float:
    run = simulate(chosen, policy, 1)
    return measure(run, chosen.targets, window=(0.0, chosen.window_s)).requests.attainment or 0.0


@pytest.mark.no_cover
def test_in_an_overload_it_serves_many_in_time_where_others_serve_hardly_any() -> None:
    chosen = overloaded()
    shares = {kind: good_share(chosen, Policy(kind, kind)) for kind in (PolicyKind.ALL_STANDARD, PolicyKind.THRESHOLD)}
    predictive = good_share(chosen, PREDICTIVE)
    assert predictive > 1.1 * max(shares.values())
    assert good_share(chosen, replace(PREDICTIVE, profile_error=1.15)) > 1.1 * max(shares.values())


def test_where_nothing_is_short_nobody_misses() -> None:
    assert good_share(overloaded(100, 0.2), PREDICTIVE) == 1.0


def test_the_same_seed_gives_the_same_events() -> None:
    told: list[list[bytes]] = [[], []]
    for lines in told:
        simulate(overloaded(60), PREDICTIVE, 1, events=lines.append)
    assert told[0] == told[1] != []


def test_a_forecast_is_a_nodes_own_steps_times_what_they_are_mistaken_by() -> None:
    node = speculative("spec", slots=3).speculative
    assert node is not None
    found = forecast_of(replace(node, rows=GROWING), 1.5)
    assert found is not None
    assert found.most == 3
    assert found.drafts == (4, 4, 4)
    assert found.step_s(2, 700.0) == pytest.approx(1.5 * 0.012)
    assert found.prefill_s(100.0) == 0.0


def test_steps_that_draft_nothing_cost_a_speculative_node_more() -> None:
    made = group("std", slots=3, rows=GROWING, speculation=Speculation(schedule=((1, 4),))).speculative
    assert made is not None
    found = forecast_of(made)
    assert found is not None
    assert found.drafts == (4, 0, 0)
    assert found.step_s(2, 0.0) == pytest.approx(1.12 * 0.012)


@dataclass(frozen=True)
class UpTo(FlatRows):
    """Known up to a batch size only, as a measured table is."""

    most: int = 0

    def decode_row(self, decoding: int, drafting: int, k: int) -> tuple[float, ...]:
        if decoding > self.most:
            raise ImpossibleInput("measured up to there only")
        return (0.01,) * len(KNOTS)


def test_a_forecast_is_valid_as_far_as_its_profile_is() -> None:
    made = group("std", slots=8, rows=UpTo(most=3)).standard
    found = forecast_of(made)
    assert found is not None
    assert found.most == 3
    assert forecast_of(group("std", rows=UpTo()).standard) is None

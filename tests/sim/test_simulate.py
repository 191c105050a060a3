"""A fleet in virtual time: everybody ends somewhere, the books close, chance is repeatable, and theory holds."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulated_fleets import BULK, INTERACTIVE, THRESHOLD, FlatRows, group, plan, scenario, speculative
from slipstream.core.policy import ProbingSettings, ThresholdSettings
from slipstream.core.reason import Reason
from slipstream.sim.fleet_loop import FleetLoop
from slipstream.sim.run import REASONS, Fate, Run
from slipstream.sim.scenario import GatewaySettings, Policy, PolicyKind, Scenario
from slipstream.sim.simulate import ROW, fleet_loop, simulate
from slipstream.workload.plan import Plan

COLUMNS = (
    "node", "reason", "fate", "attempts", "queued_s", "engine_wait_s", "first_token_s", "ended_s",
    "drafted", "accepted", "verify_steps", "steps",
)  # fmt: skip
KINDS = tuple(kind for kind in PolicyKind if kind is not PolicyKind.BOUND)


def reasons(run: Run) -> list[Reason | None]:
    return [None if reason < 0 else REASONS[reason] for reason in run.reason.tolist()]


def assert_same(one: Run, other: Run) -> None:
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    assert one.nodes == other.nodes


@st.composite
def random_scenarios(draw: st.DrawFn) -> tuple[Scenario, Policy]:
    """Fleets that are too small for what comes as often as not."""
    slots = draw(st.integers(1, 6))
    queue_limit = draw(st.sampled_from([None, 0, 2]))
    kv_tokens = draw(st.sampled_from([None, 64, 160]))
    rows = FlatRows(0.02, draw(st.sampled_from([0.0, 0.003])))
    groups = [
        group(
            "spec",
            draw(st.integers(1, 2)),
            speculative("any").pool,
            slots=slots,
            ceiling=draw(st.integers(1, 6)),
            rows=rows,
            capacity_changes=draw(st.sampled_from([(), ((0.3, 1), (0.8, 0), (1.4, 1))])),
            queue_limit=queue_limit,
            kv_tokens=kv_tokens,
            step_tokens=draw(st.sampled_from([64, 12])),
        ),
        group("std", draw(st.integers(1, 2)), slots=slots, rows=rows, queue_limit=queue_limit, kv_tokens=kv_tokens),
    ]
    count = draw(st.integers(0, 60))
    chance = np.random.default_rng(draw(st.integers(0, 1000)))
    traffic = plan(
        np.sort(chance.uniform(0.0, draw(st.sampled_from([0.2, 2.0])), count)).tolist(),
        output_tokens=chance.integers(1, 40, count).tolist(),
        category=chance.integers(0, 2, count).tolist(),
        traffic_class=chance.integers(0, 2, count).tolist(),
        session=chance.integers(-1, 5, count).tolist(),
        prompt_tokens=draw(st.sampled_from([1, 30])),
    )
    gateway = GatewaySettings(
        queue_size=draw(st.sampled_from([0, 4, 256])),
        queue_timeout_s=draw(st.sampled_from([0.1, 10.0])),
        forward_s=draw(st.sampled_from([0.0, 0.0005])),
        retries=draw(st.integers(0, 2)),
    )
    policy = Policy(
        "any",
        draw(st.sampled_from(KINDS)),
        schedule=((2, 4), (4, 1)),
        speculative_categories=frozenset({"code"}),
        threshold=ThresholdSettings(probing=ProbingSettings(share=0.5), short_output_tokens=8, holdback=0.1),
    )
    return scenario(groups, traffic, gateway=gateway, window_s=3.0, drain_s=draw(st.sampled_from([0.0, 60.0]))), policy


class Census:
    """Counts heads at every event of a run."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.loop: FleetLoop | None = None
        self.lines = 0
        self.ended = 0
        self.last_at = 0.0

    def __call__(self, line: bytes) -> None:
        event = json.loads(line)
        self.lines += 1
        self.ended += event["event"] in ("finish", "refuse", "expire")
        assert event["at_s"] >= self.last_at
        self.last_at = event["at_s"]
        if self.loop is not None:
            self.count(undecided=1)

    def count(self, *, undecided: int = 0) -> None:
        """``undecided``: how many may be between two places, since an event is told in the middle of a request."""
        loop = self.loop
        assert loop is not None
        gateway = loop.gateway
        booked = sum(node.state.own for node in loop.nodes if node.state is not None)
        on_the_way = len(gateway.sent)
        in_engines = sum(node.engine.running + node.engine.waiting for node in loop.nodes)
        assert booked == on_the_way + in_engines + loop.unsettled
        alive = gateway.alive.values()
        assert booked == sum(exchange.placement is not None for exchange in alive)
        # A beat takes all from the queue that have waited too long, before it lets go of one after the other.
        late = sum(gateway.now - exchange.arrived_at >= self.timeout_s - 1e-9 for exchange in alive)
        assert abs(len(alive) - booked - gateway.queue.count) <= undecided + late
        assert 0 <= self.ended + len(gateway.alive) - loop.arrived <= undecided


@settings(max_examples=40, deadline=None)
@given(random_scenarios())
def test_at_every_instant_all_who_came_have_ended_or_run_or_wait(made: tuple[Scenario, Policy]) -> None:
    chosen, policy = made
    census = Census(chosen.gateway.queue_timeout_s)
    census.loop = loop = fleet_loop(chosen, policy, 1, chosen.plan_of(1), events=census)
    loop.run()
    over = np.ndarray(loop.arrived, ROW, loop.gateway.columns.rows)["fate"]
    assert census.ended == (over != Fate.UNFINISHED).sum()
    assert loop.gateway.queue.count == 0
    assert not loop.gateway.alive
    assert loop.unsettled == 0
    assert all(node.state is None for node in loop.nodes)
    assert all(node.own == 0 for node in loop.gateway.dispatcher.fleet.nodes())


@pytest.mark.no_cover
@settings(max_examples=20, deadline=None)
@given(random_scenarios(), st.sampled_from([0.005, 0.04]), st.booleans())
def test_polls_that_are_left_out_would_have_changed_nothing(
    made: tuple[Scenario, Policy],
    report_delay_s: float,
    statistics: bool,
) -> None:
    """A gateway that takes reports for stale after one beat and a half hears every one."""
    chosen, policy = made
    logs: list[list[bytes]] = []
    for stale_after_s in (0.15, 1.0, 30.0):
        logs.append([])
        gateway = replace(
            chosen.gateway,
            stale_after_s=stale_after_s,
            report_delay_s=report_delay_s,
            request_statistics=statistics,
        )
        simulate(replace(chosen, gateway=gateway), policy, 1, events=logs[-1].append)
    assert logs[0] == logs[1] == logs[2]


@pytest.mark.no_cover
@settings(max_examples=15, deadline=None)
@given(random_scenarios())
def test_engines_that_run_ahead_give_what_engines_give_that_are_held_at_every_millisecond(
    made: tuple[Scenario, Policy],
) -> None:
    chosen, policy = made
    watched = replace(
        chosen,
        groups=(
            *chosen.groups[:-1],
            replace(
                chosen.groups[-1],
                capacity_changes=tuple((step * 0.001, chosen.groups[-1].count) for step in range(1, 3000)),
            ),
        ),
    )
    assert_same(simulate(chosen, policy, 1), simulate(watched, policy, 1))


@settings(max_examples=15, deadline=None)
@given(random_scenarios())
def test_to_be_watched_changes_nothing(made: tuple[Scenario, Policy]) -> None:
    chosen, policy = made
    assert_same(simulate(chosen, policy, 1), simulate(chosen, policy, 1, events=lambda _line: None))


def busy(seed: int) -> Plan:
    chance = np.random.default_rng(seed)
    return plan(
        np.cumsum(chance.exponential(0.02, 400)).tolist(),
        output_tokens=chance.integers(1, 60, 400).tolist(),
        category=chance.integers(0, 2, 400).tolist(),
    )


def log_of(chosen: Scenario, seed: int) -> bytes:
    lines: list[bytes] = []
    simulate(chosen, THRESHOLD, seed, events=lines.append)
    return b"".join(lines)


def test_the_same_seed_gives_the_same_log_and_another_seed_another() -> None:
    chosen = scenario([speculative("spec", 2), group("std", 2)], busy)
    assert log_of(chosen, 1) == log_of(chosen, 1) != log_of(chosen, 2)


def test_waits_at_one_node_with_one_slot_are_those_of_the_theory() -> None:
    """Poisson arrivals, geometric lengths (exponential ones in whole tokens), first come first served: the mean wait is
    Pollaczek and Khinchine's `λ E[S²] / 2(1 − ρ)`, which for exponential sizes is M/M/1's.
    """
    step_s, mean, use, count = 0.01, 8.0, 0.5, 6_000
    chance = np.random.default_rng(7)
    rate = use / (mean * step_s)
    traffic = plan(
        np.cumsum(chance.exponential(1.0 / rate, count)).tolist(),
        output_tokens=chance.geometric(1 / mean, count).tolist(),
    )
    unhurried = GatewaySettings(queue_size=10_000, queue_timeout_s=1e9, forward_s=0.0, poll_interval_s=0.5)
    chosen = scenario(
        [group("only", slots=1, rows=FlatRows(step_s))], traffic, gateway=unhurried, window_s=1e6, drain_s=1e6
    )
    run = simulate(chosen, Policy("least", PolicyKind.SPLIT_LEAST_LOAD), 1)
    assert (run.fate == Fate.FINISHED).all()
    waits = run.ended_s - traffic.arrival_s - traffic.output_tokens * step_s
    success = 1.0 / mean
    second_moment = step_s**2 * (2.0 - success) / success**2
    expected = rate * second_moment / (2.0 * (1.0 - use))
    batches = waits[count // 10 :].reshape(-1, count // 20).mean(axis=1)
    error = batches.std(ddof=1) / math.sqrt(len(batches))
    assert abs(batches.mean() - expected) < 2.9 * error  # Student's t, 17 degrees of freedom, 99 %
    assert error < 0.15 * expected
    assert run.nodes[0].busy_s / run.ended_at_s == pytest.approx(use, abs=0.03)


def test_a_request_takes_the_way_to_its_node_and_its_steps() -> None:
    slow = GatewaySettings(forward_s=0.002)
    run = simulate(scenario([group("std")], plan([1.0], output_tokens=5), gateway=slow), THRESHOLD, 1)
    assert run.first_token_s[0] == pytest.approx(1.012)
    assert run.ended_s[0] == pytest.approx(1.052)
    assert run.ended_at_s == run.ended_s[0]
    assert (run.attempts[0], run.queued_s[0], run.engine_wait_s[0], run.steps[0]) == (1, 0.0, 0.0, 4)
    assert reasons(run) == [Reason.NO_SPECULATOR]


def test_a_plan_without_requests_is_over_at_once() -> None:
    run = simulate(scenario([group("std")], plan([])), THRESHOLD, 1)
    assert run.ended_at_s == 0.0
    assert len(run.fate) == 0
    assert run.nodes[0].steps == 0


def test_requests_that_no_node_has_room_for_wait_and_are_placed_as_room_comes_free() -> None:
    run = simulate(scenario([group("std", slots=1)], plan([0.0, 0.0, 0.0], output_tokens=10)), THRESHOLD, 1)
    np.testing.assert_allclose(run.queued_s, [0.0, 0.1005, 0.201])
    np.testing.assert_allclose(run.ended_s, [0.1005, 0.201, 0.3015])


def test_interactive_requests_go_before_bulk_ones() -> None:
    traffic = plan([0.0, 0.01, 0.02, 0.03], traffic_class=[INTERACTIVE, BULK, BULK, INTERACTIVE])
    run = simulate(scenario([group("std", slots=1)], traffic), THRESHOLD, 1)
    assert np.argsort(run.ended_s).tolist() == [0, 3, 1, 2]


def test_who_has_waited_as_long_as_it_may_is_sent_away() -> None:
    impatient = GatewaySettings(queue_timeout_s=0.5)
    traffic = plan([0.0, 0.0], output_tokens=200)
    run = simulate(scenario([group("std", slots=1)], traffic, gateway=impatient), THRESHOLD, 1)
    assert run.fate.tolist() == [Fate.FINISHED, Fate.EXPIRED]
    assert run.queued_s[1] == run.ended_s[1] == pytest.approx(0.525, abs=0.026)
    assert (run.node[1], reasons(run)[1]) == (-1, None)


def test_without_a_queue_who_finds_no_room_is_shed() -> None:
    run = simulate(
        scenario([group("std", slots=1)], plan([0.0, 0.0]), gateway=GatewaySettings(queue_size=0)), THRESHOLD, 1
    )
    assert run.fate.tolist() == [Fate.FINISHED, Fate.REFUSED]
    assert run.ended_s[1] == 0.0


def test_more_than_the_queue_holds_are_shed() -> None:
    run = simulate(
        scenario([group("std", slots=1)], plan([0.0] * 4), gateway=GatewaySettings(queue_size=2)), THRESHOLD, 1
    )
    assert run.fate.tolist() == [Fate.FINISHED, Fate.FINISHED, Fate.FINISHED, Fate.REFUSED]


def test_what_is_not_finished_when_the_run_is_over_is_said_to_be_so() -> None:
    traffic = plan([0.0, 0.0, 50.0], output_tokens=1000)
    run = simulate(scenario([group("std", slots=1)], traffic, window_s=2.0, drain_s=1.0), THRESHOLD, 1)
    assert run.ended_at_s == 3.0
    assert run.fate.tolist() == [Fate.UNFINISHED] * 3
    assert run.first_token_s[0] == pytest.approx(0.0105)
    assert np.isnan(run.ended_s).all()
    assert np.isnan(run.first_token_s[1:]).all()
    assert run.queued_s[1] == pytest.approx(3.0)
    assert run.steps[0] == pytest.approx(298, abs=1)


def test_a_request_that_its_node_refuses_is_tried_on_another() -> None:
    """Each engine says that it runs eight, but its cache has room for one, and then one more may wait."""
    traffic = plan([0.0, 0.0, 0.1, 0.1, 0.2], prompt_tokens=60, output_tokens=50)
    run = simulate(scenario([group("a", 2, kv_tokens=112, queue_limit=0)], traffic), THRESHOLD, 1)
    assert run.attempts.tolist() == [1, 1, 1, 1, 3]
    assert (run.fate == Fate.FINISHED).all()
    assert {node.running_peak for node in run.nodes} == {1}


def test_without_retries_and_queue_a_request_that_its_node_refuses_is_shed() -> None:
    traffic = plan([0.0, 0.1, 0.2], prompt_tokens=60, output_tokens=50)
    hasty = GatewaySettings(retries=0, queue_size=0)
    run = simulate(scenario([group("a", kv_tokens=112, queue_limit=0)], traffic, gateway=hasty), THRESHOLD, 1)
    assert run.fate.tolist() == [Fate.FINISHED, Fate.FINISHED, Fate.REFUSED]
    assert run.ended_s[2] == pytest.approx(0.2005)


def test_a_request_that_fits_no_cache_is_refused_and_its_node_is_not_taken_for_full() -> None:
    traffic = plan([0.0, 0.01, 0.02], output_tokens=[10, 900, 10])
    run = simulate(scenario([group("std", kv_tokens=320)], traffic), THRESHOLD, 1)
    assert run.fate.tolist() == [Fate.FINISHED, Fate.REFUSED, Fate.FINISHED]
    assert run.queued_s.tolist() == [0.0, 0.0, 0.0]


def test_sequences_wait_in_the_engine_for_room_in_its_cache() -> None:
    traffic = plan([0.0, 0.0], prompt_tokens=100, output_tokens=20)
    run = simulate(scenario([group("std", kv_tokens=160)], traffic), THRESHOLD, 1)
    assert run.engine_wait_s[0] == 0.0
    assert run.engine_wait_s[1] == pytest.approx(0.2)


def test_answers_teach_the_gateway_what_is_accepted() -> None:
    """What is believed of code is 0.75; in truth it is 0.3, and once that is known code goes to standard nodes."""
    traffic = plan([0.2 * number for number in range(60)], output_tokens=80)
    run = simulate(scenario([speculative("spec"), group("std")], traffic, alphas=(0.3, 0.5)), THRESHOLD, 1)
    told = reasons(run)
    assert told[0] is Reason.SPECULATIVE
    assert told[40:].count(Reason.BELOW_FLOOR) >= 18
    assert run.accepted.sum() / run.verify_steps.sum() == pytest.approx(0.3 + 0.09 + 0.027 + 0.0081, rel=0.2)


def test_what_is_accepted_is_learnt_from_counters_where_answers_do_not_tell() -> None:
    traffic = plan([0.25 * number for number in range(480)], output_tokens=80)
    silent = GatewaySettings(request_statistics=False)
    chosen = scenario([speculative("spec"), group("std")], traffic, alphas=(0.3, 0.5), gateway=silent)
    told = reasons(simulate(chosen, THRESHOLD, 1))
    assert set(told[:40]) == {Reason.SPECULATIVE}
    assert told[440:].count(Reason.BELOW_FLOOR) >= 30


def test_categories_below_the_floor_are_probed() -> None:
    traffic = plan([0.2 * number for number in range(120)], output_tokens=80, category=1)
    often = Policy("often", PolicyKind.THRESHOLD, threshold=ThresholdSettings(probing=ProbingSettings(share=0.1)))
    run = simulate(scenario([speculative("spec"), group("std")], traffic), often, 1)
    assert reasons(run).count(Reason.PROBE) == 12
    assert (run.verify_steps[run.reason == REASONS.index(Reason.PROBE)] > 0).all()


def test_short_answers_that_are_announced_and_bulk_go_to_standard_nodes() -> None:
    groups = [speculative("spec"), group("std")]
    short = simulate(scenario(groups, plan([0.0], output_limit=16)), THRESHOLD, 1)
    assert reasons(short) == [Reason.SHORT_OUTPUT]
    assert reasons(simulate(scenario(groups, plan([0.0], traffic_class=BULK)), THRESHOLD, 1)) == [Reason.BULK]


def test_a_conversation_stays_where_its_cache_is() -> None:
    traffic = plan([0.3 * number for number in range(20)], session=[number % 2 for number in range(20)])
    run = simulate(scenario([group("std", 4)], traffic), THRESHOLD, 1)
    assert len(set(run.node[::2].tolist())) == 1
    assert len(set(run.node[1::2].tolist())) == 1


def test_a_speculative_node_is_never_given_more_than_its_ceiling_and_its_time_at_it_is_counted() -> None:
    chosen = scenario([speculative("spec", ceiling=3), group("std")], plan([0.0] * 6, output_tokens=100))
    run = simulate(chosen, THRESHOLD, 1)
    spec, std = run.nodes
    assert (spec.running_peak, std.running_peak) == (3, 3)
    assert reasons(run) == [Reason.SPECULATIVE] * 3 + [Reason.SATURATED] * 3
    busy_share = run.ended_s[run.node == 0].min() / run.ended_at_s
    assert spec.saturated_share == pytest.approx(busy_share, abs=1e-6)
    assert std.saturated_share == 0.0


def test_reports_that_come_too_rarely_take_speculation_away() -> None:
    rarely = GatewaySettings(poll_interval_s=3.0, stale_after_s=1.0)
    chosen = scenario([speculative("spec"), group("std")], plan([0.5, 1.5], output_tokens=100), gateway=rarely)
    assert reasons(simulate(chosen, THRESHOLD, 1)) == [Reason.SPECULATIVE, Reason.STALE]


def test_nodes_that_go_finish_what_they_have_and_take_no_more() -> None:
    changing = group("std", 2, capacity_changes=((0.2, 1), (3.0, 2)))
    arrivals = [0.0, 0.0, *(0.3 + 0.01 * number for number in range(6)), *(3.2 + 0.01 * number for number in range(6))]
    run = simulate(scenario([changing], plan(arrivals, output_tokens=100)), THRESHOLD, 1)
    assert (run.fate == Fate.FINISHED).all()
    assert sorted(run.node[:2].tolist()) == [0, 1]
    assert run.node[2:8].tolist() == [0] * 6
    assert sorted(run.node[8:].tolist()) == [0, 0, 0, 1, 1, 1]
    gone_at = run.ended_s[:2][run.node[:2] == 1][0]
    assert run.nodes[1].seconds == pytest.approx(gone_at + run.ended_at_s - 3.0)
    assert run.nodes[0].seconds == run.ended_at_s


def test_a_node_that_is_wanted_again_before_it_has_gone_stays() -> None:
    changing = group("std", 1, capacity_changes=((0.1, 0), (0.3, 1)))
    run = simulate(scenario([changing], plan([0.0, 0.2, 0.4], output_tokens=100)), THRESHOLD, 1)
    assert run.fate.tolist() == [Fate.FINISHED, Fate.REFUSED, Fate.FINISHED]
    assert run.nodes[0].seconds == run.ended_at_s


def test_who_waits_is_refused_when_all_nodes_have_gone() -> None:
    leaving = group("std", 1, slots=1, capacity_changes=((0.2, 0), (0.25, 0)))
    run = simulate(scenario([leaving], plan([0.0, 0.1], output_tokens=100)), THRESHOLD, 1)
    assert run.fate.tolist() == [Fate.FINISHED, Fate.REFUSED]
    assert run.queued_s[1] == run.ended_s[1] - 0.1 == pytest.approx(0.1, abs=0.051)


def test_a_node_that_comes_back_at_once_is_polled_on_the_same_beat() -> None:
    changing = group("std", 1, capacity_changes=((0.52, 0), (0.53, 1)))
    run = simulate(scenario([changing], plan([0.0, 2.0])), THRESHOLD, 1)
    assert run.fate.tolist() == [Fate.FINISHED, Fate.FINISHED]
    assert run.nodes[0].seconds == pytest.approx(run.ended_at_s - 0.01)


def test_a_fleet_may_begin_smaller_than_it_becomes() -> None:
    changing = group("std", 3, capacity_changes=((0.0, 1), (1.0, 3)))
    run = simulate(scenario([changing], plan([0.0, 0.1, 0.2, 1.2, 1.3, 1.4], output_tokens=200)), THRESHOLD, 1)
    assert run.node[:3].tolist() == [0, 0, 0]
    assert set(run.node[3:].tolist()) == {1, 2}


def test_progress_is_told_every_thousand_requests() -> None:
    told: list[float] = []
    simulate(
        scenario([group("std", slots=64)], plan(np.linspace(0.0, 25.0, 2500).tolist(), output_tokens=1)),
        Policy("least", PolicyKind.SPLIT_LEAST_LOAD),
        1,
        progress=told.append,
    )
    assert told == [0.0, 0.4, 0.8]


def test_categories_of_unknown_acceptance_are_refused_before_anything_runs() -> None:
    with pytest.raises(ValueError, match="acceptance of poetry"):
        simulate(scenario([group("std")], plan([0.0], categories=("poetry",))), THRESHOLD, 1)


def test_a_model_that_no_node_serves_is_refused_request_by_request() -> None:
    run = simulate(scenario([group("std")], plan([0.0], models=("other",))), THRESHOLD, 1)
    assert run.fate.tolist() == [Fate.REFUSED]

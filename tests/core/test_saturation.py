from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, RuleBasedStateMachine, invariant, multiple, rule

from fleets import dispatcher_of, fleet_of, report, shape, speculative, standard
from slipstream.core.dispatch import Placement
from slipstream.core.errors import AllFull
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import Reason
from slipstream.core.saturation import WINDOW_S, TimeShare, is_saturated


def test_saturated_at_the_ceiling_and_not_below_it() -> None:
    assert [is_saturated(occupancy, 8) for occupancy in (7, 8, 9)] == [False, True, True]


def test_with_hysteresis_a_saturated_node_stays_so_until_it_is_that_far_below() -> None:
    assert [is_saturated(n, 8, was_saturated=True, hysteresis=3) for n in (8, 6, 5, 4)] == [True, True, True, False]
    assert not is_saturated(7, 8, was_saturated=False, hysteresis=3)


@given(st.lists(st.tuples(st.floats(0.01, 50.0), st.booleans()), min_size=1, max_size=40))
def test_the_share_of_time_agrees_with_adding_up_by_hand(changes: list[tuple[float, bool]]) -> None:
    share, now, true_for, state = TimeShare(0.0), 0.0, 0.0, False
    for pause, value in changes:
        true_for += pause * state
        now += pause
        share.set(value, now)
        state = value
    if now <= WINDOW_S:
        assert share.share(now) == pytest.approx(true_for / now, abs=1e-6)
    else:
        assert 0.0 <= (share.share(now) or 0.0) <= 1.0


def test_what_is_older_than_ten_minutes_is_forgotten() -> None:
    share = TimeShare(0.0)
    share.set(True, 0.0)
    share.set(False, 300.0)
    assert share.share(600.0) == pytest.approx(0.5)
    assert share.share(1000.0) == 0.0


def test_the_share_is_unknown_at_the_very_start() -> None:
    assert TimeShare(5.0).share(5.0) is None


def test_a_burst_of_forty_between_two_polls_never_puts_more_than_eight_on_the_speculative_node() -> None:
    fleet = fleet_of(speculative("s"), standard("t"))
    dispatcher = dispatcher_of(fleet)
    placements = [dispatcher.place(shape(), f"r{n}", 0.01) for n in range(40)]
    state = fleet.node("s")
    assert state is not None
    assert state.own == 8
    assert [p.decision.reason for p in placements].count(Reason.SATURATED) == 32
    assert state.saturation_events == 1


def test_one_event_for_each_crossing_from_below_and_none_for_staying_above() -> None:
    fleet = fleet_of(speculative("s", ceiling=2), standard("t"))
    state = fleet.node("s")
    assert state is not None
    for _ in range(3):
        fleet.admit("s", 1, "code", 1.0)
    assert (state.saturated, state.saturation_events) == (True, 1)
    fleet.release(state, 1, "code", 2.0)
    assert (state.saturated, state.saturation_events) == (True, 1)
    fleet.release(state, 1, "code", 3.0)
    assert not state.saturated
    fleet.admit("s", 1, "code", 4.0)
    assert state.saturation_events == 2


class LedgerAndSaturation(RuleBasedStateMachine):
    """Requests come and go, reports arrive late and lie: the laws of the ledger and of saturation hold throughout."""

    placements: Bundle[Placement] = Bundle("placements")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.fleet = fleet_of(speculative("s", ceiling=4), speculative("u", ceiling=2), standard("t", limit=5))
        self.dispatcher = dispatcher_of(self.fleet)
        self.running: dict[str, int] = {"s": 0, "u": 0, "t": 0}
        self.count = 0

    @rule(target=placements, sequences=st.integers(1, 3), pause=st.floats(0.0, 0.2))
    def place(self, sequences: int, pause: float) -> Placement | MultipleResults[Placement]:
        self.now += pause
        for name in ("s", "u", "t"):
            self.fleet.report(name, self.now, self.now, report(running=self.running[name]))
        self.count += 1
        before = {node.name: node.occupancy for node in self.fleet.nodes()}
        try:
            placement = self.dispatcher.place(shape(sequences=sequences), f"r{self.count}", self.now)
        except AllFull:
            return multiple()
        name = placement.node.name
        if placement.decision.reason is Reason.SPECULATIVE:
            assert before[name] + sequences <= placement.node.ceiling
        self.running[name] += sequences
        return placement

    @rule(placement=placements, ending=st.sampled_from([Ending.COMPLETED, Ending.CLIENT_GONE, Ending.REFUSED]))
    def settle(self, placement: Placement, ending: Ending) -> None:
        if placement.outcome is not None:
            with pytest.raises(RuntimeError, match="settled twice"):
                self.dispatcher.settle(placement, Outcome(ending), self.now)
            return
        self.dispatcher.settle(placement, Outcome(ending), self.now)
        self.running[placement.node.name] -= placement.shape.sequences

    @invariant()
    def the_ledger_is_what_is_running(self) -> None:
        for node in self.fleet.nodes():
            assert node.own == self.running[node.name]
            assert node.occupancy >= node.own

    @invariant()
    def saturated_means_at_or_above_the_ceiling(self) -> None:
        for node in self.fleet.nodes():
            if node.pool == "speculative":
                assert node.saturated == (node.occupancy >= node.ceiling)


TestLedgerAndSaturation = pytest.mark.no_cover(LedgerAndSaturation.TestCase)

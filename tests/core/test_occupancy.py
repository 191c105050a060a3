from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleets import fleet_of, report, speculative
from slipstream.core.occupancy import ForeignSequences, foreign_sequences


def test_what_was_ours_at_any_time_of_the_poll_is_not_foreign() -> None:
    assert foreign_sequences(reported=5, own_peak=5) == 0
    assert foreign_sequences(reported=5, own_peak=7) == 0
    assert foreign_sequences(reported=5, own_peak=2) == 3


def test_a_gauge_that_dips_for_one_or_two_polls_does_not_open_a_node() -> None:
    foreign = ForeignSequences()
    seen = []
    for reported in (6, 0, 0, 0):
        foreign.report(reported, 0)
        seen.append(foreign.sequences)
    assert seen == [6, 6, 6, 0]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=20))
def test_foreign_is_never_negative_and_never_above_what_the_last_three_reports_showed(
    reports: list[tuple[int, int]],
) -> None:
    foreign = ForeignSequences()
    for reported, peak in reports:
        foreign.report(reported, peak)
    assert foreign.sequences == max(max(0, reported - peak) for reported, peak in reports[-3:])


def test_a_request_that_ended_while_the_poll_was_under_way_is_not_counted_twice() -> None:
    fleet = fleet_of(speculative("s"))
    state = fleet.admit("s", 1, "code", 10.0)
    fleet.release(state, 1, "code", 10.05)
    fleet.report("s", 10.02, 10.06, report(running=1))  # the engine looked before our request ended
    assert state.occupancy == 0


def test_the_gauge_lag_of_an_engine_reaches_back_before_the_asking() -> None:
    fleet = fleet_of(speculative("s"))
    lagging = fleet_of(speculative("s"))
    lagging._gauge_lag_s = lambda _engine: 0.5
    for each in (fleet, lagging):
        state = each.admit("s", 1, "code", 10.0)
        each.release(state, 1, "code", 10.1)
        each.report("s", 10.3, 10.31, report(running=1))
    assert fleet.node("s").foreign == 1  # type: ignore[union-attr]  # the node exists
    assert lagging.node("s").foreign == 0  # type: ignore[union-attr]  # the node exists

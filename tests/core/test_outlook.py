"""What a request is worth on a node: by its occupancy, by how long it has waited, and by what came true before."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.core.forecast import Company, Forecast, Work, predict
from slipstream.core.goodput import Target
from slipstream.core.latency import Latency
from slipstream.core.outlook import Outlook, Records, outlook

LIMITS = ("ttft_s", "tpot_s", "e2e_s")


def forecast(step_ms: float = 20.0, sequence_ms: float = 1.0) -> Forecast:
    steps = tuple(((step_ms + sequence_ms * n) / 1e3,) * 2 for n in range(1, 33))
    return Forecast((0.0, 1000.0), steps, (0,) * 32, 1.0, (0.0, 0.1), None)


def work(target: Target | None = None) -> Work:
    return Work(500.0, 100.0, Company(500.0, 100.0, 550.0, 600.0), None, target or Target())


def outlook_of(target: Target | None = None, of: Forecast | None = None, spread: float = 0.2) -> Outlook:
    return outlook(of or forecast(), work(target), Records(spread, drafts=False))


@pytest.mark.parametrize("limit", LIMITS)
def test_a_target_used_up_is_met_by_half_of_the_requests(limit: str) -> None:
    foretold = getattr(predict(forecast(), work(), 10), limit)
    if limit == "e2e_s":
        foretold /= 1.28  # half of the answers are shorter than the median
    met = outlook_of(Target(**{limit: foretold})).worth[10]
    assert met == pytest.approx(0.5 - 0.02, abs=0.01)
    assert outlook_of(Target(**{limit: 1e-9})).worth[10] < -1e3  # hopeless, and no overflow


def test_without_a_target_less_time_a_token_is_worth_more() -> None:
    found = outlook_of()
    assert all(later < earlier for earlier, later in pairwise(found.worth[1:]))
    assert found.worth[1] > 0.99
    assert found.chance_left(5, 1000.0) == 1.0


@settings(max_examples=30, deadline=None)
@given(
    step_ms=st.floats(1.0, 100.0),
    sequence_ms=st.floats(0.0, 5.0),
    tpot_s=st.floats(0.005, 0.2),
    spread=st.floats(0.05, 0.5),
    waits=st.lists(st.floats(0.0, 3.0), min_size=2, max_size=4),
)
def test_neither_company_nor_waiting_is_ever_welcome(
    step_ms: float, sequence_ms: float, tpot_s: float, spread: float, waits: list[float]
) -> None:
    found = outlook_of(Target(ttft_s=1.0, tpot_s=tpot_s, e2e_s=10.0), forecast(step_ms, sequence_ms), spread)
    assert len(found.worth) == len(found.stay_s) == len(found.burden_s) == len(found.loss) == 33
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(found.worth[1:]))
    assert all(later >= earlier for earlier, later in pairwise(found.stay_s[1:]))
    assert max(found.loss) <= 0.0
    for how in (found.worth_late, found.chance_left):
        by_wait = [how(8, wait) for wait in sorted(waits)]
        assert all(later <= earlier + 1e-12 for earlier, later in pairwise(by_wait))


def test_who_has_not_waited_is_worth_as_much_as_ever() -> None:
    found = outlook_of(Target(ttft_s=1.0, tpot_s=0.04, e2e_s=10.0))
    assert found.worth_late(9, 0.0) == pytest.approx(found.worth[9])
    assert found.chance_left(9, 0.0) == 1.0
    assert found.chance_left(9, 2.0) == pytest.approx(0.0, abs=1e-6)
    assert outlook_of(Target(ttft_s=1e-12)).chance_left(9, 0.0) == 0.0  # there never was a chance


def told(ratio: float, limit: str, occupancies: tuple[int, ...] = (6, 8, 10, 12, 14), waited_s: float = 0.0) -> Outlook:
    """The outlook after many answers that took ``ratio`` times what was foretold."""
    foretold = predict(forecast(), work(), 10)
    target = Target(**{limit: getattr(foretold, limit)})
    records = Records(0.15, drafts=False)
    learning = outlook(forecast(), work(target), records)
    for _ in range(60):
        for occupancy in occupancies:
            one = predict(forecast(), work(), occupancy)
            latency = Latency(waited_s + ratio * one.ttft_s, ratio * one.tpot_s, waited_s + ratio * one.e2e_s)
            learning.learn(occupancy, latency, waited_s)
    return outlook(forecast(), work(target), records)


@pytest.mark.parametrize("limit", LIMITS)
def test_a_profile_that_is_wrong_is_put_right_by_what_comes_true(limit: str) -> None:
    slower, faster = told(1.15, limit, waited_s=0.3), told(0.85, limit)
    assert slower.worth[10] < 0.4
    assert faster.worth[10] > 0.6


def test_a_node_that_is_faster_than_its_profile_meets_targets_at_a_higher_occupancy() -> None:
    found = told(0.85, "tpot_s")
    exact = predict(forecast(), work(), 10).tpot_s
    by_right = max(n for n in range(1, 33) if 0.85 * predict(forecast(), work(), n).tpot_s <= exact)
    assert max(n for n in range(1, 33) if found.worth[n] > 0.48) == pytest.approx(by_right, abs=1)


def test_answers_that_tell_nothing_teach_nothing() -> None:
    records = Records(0.15, drafts=True)
    found = outlook(forecast(), work(Target(ttft_s=1.0, tpot_s=0.04, e2e_s=10.0)), records)
    before = records.lines()
    found.learn(33, Latency(1.0, 1.0, 1.0), 0.0)  # beyond the forecast
    found.learn(5, Latency(None, None, 0.5), 0.5)
    assert records.lines() == before
    assert records.tpot.spread == pytest.approx(sqrt(0.15**2 + 0.3**2))

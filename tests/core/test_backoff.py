from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.backoff import Backoff


def waits(deaths: int, ready_for_s: float) -> list[float]:
    wait: float | None = None
    seen = []
    for _ in range(deaths):
        wait = Backoff().next_wait(wait, ready_for_s)
        seen.append(wait)
    return seen


def test_waits_double_from_half_a_second_to_half_a_minute() -> None:
    assert waits(9, ready_for_s=1) == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_a_node_that_served_a_minute_starts_over() -> None:
    assert Backoff().next_wait(30.0, ready_for_s=60) == 0.5
    assert Backoff().next_wait(30.0, ready_for_s=59.9) == 30.0


@given(st.integers(1, 40), st.floats(0, 59))
def test_waits_never_shrink_and_never_pass_the_limit(deaths: int, ready_for_s: float) -> None:
    seen = waits(deaths, ready_for_s)
    assert seen == sorted(seen)
    assert seen[-1] <= Backoff().limit_s

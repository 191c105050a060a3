"""What a bounded map keeps and what it forgets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.recent import RecentMap


@given(st.integers(1, 20), st.lists(st.integers(0, 30), max_size=120))
def test_the_last_half_is_always_there_and_never_more_than_all(entries: int, puts: list[int]) -> None:
    recent: RecentMap[int, int] = RecentMap(entries)
    for number, key in enumerate(puts):
        recent.put(key, number)
        assert recent.get(key) == number
        assert len(recent) <= max(2, entries)
    latest = {key: number for number, key in enumerate(puts)}
    for key in list(dict.fromkeys(reversed(puts)))[: entries // 2]:
        assert recent.get(key) == latest[key]


def test_what_was_never_put_is_unknown_and_what_is_old_is_forgotten() -> None:
    recent: RecentMap[str, int] = RecentMap(4)
    recent.put("a", 1)
    assert (recent.get("a"), recent.get("b")) == (1, None)
    recent.age()
    assert recent.get("a") == 1
    recent.age()
    assert (recent.get("a"), len(recent)) == (None, 0)

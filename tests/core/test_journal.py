from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.journal import Journal

CHANGES = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 9)), max_size=40)


@given(CHANGES, st.integers(1, 50), st.integers(0, 40))
def test_undoing_gives_the_changes_since_then_newest_first_or_says_that_it_can_not(
    changes: list[tuple[str | None, int]], entries: int, version: int
) -> None:
    journal: Journal[int] = Journal(entries)
    numbers = [journal.record(name, before) for name, before in changes]
    assert numbers == list(range(1, len(changes) + 1))
    assert journal.version == len(changes)
    found = journal.undo(version)
    if len(changes) - version > entries:
        assert found is None
    else:
        assert found is not None
        assert list(found) == [(name, before) for name, before in reversed(changes[version:]) if name is not None]

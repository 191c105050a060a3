"""The index finds the least loaded as a look at every member would."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.core.load_index import SPARE_BUCKETS, Indexed, LoadIndex

MOVES = st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 4)), max_size=30)


@settings(max_examples=60)
@given(MOVES)
def test_the_least_loaded_are_found_however_members_come_and_go(moves: list[tuple[int, int | None]]) -> None:
    index: LoadIndex[Indexed] = LoadIndex()
    members = [Indexed() for _ in range(4)]
    loads: dict[int, float] = {}
    for number, load in moves:
        if loads.pop(number, None) is not None:
            index.remove(members[number])
        if load is not None:
            index.add(members[number], load / 4)
            loads[number] = load / 4
        assert {id(member) for member in index} == {id(members[number]) for number in loads}
        least = index.least()
        if least is None:
            assert not loads
        else:
            lowest = min(loads.values())
            tied = {id(members[number]) for number, at in loads.items() if at == lowest}
            assert (least[0], {id(member) for member in least[1]}) == (lowest, tied)
    assert len(index) == len(loads)


def test_loads_that_never_come_again_are_forgotten() -> None:
    index: LoadIndex[Indexed] = LoadIndex()
    resting, moving = Indexed(), Indexed()
    index.add(resting, 0.5)
    for number in range(1, 10 * SPARE_BUCKETS):
        index.add(moving, 1 / number)
        index.remove(moving)
    index.add(moving, 0.75)
    assert index.least() == (0.5, [resting])
    assert len(index._by_load) <= SPARE_BUCKETS + 4

"""What is in force, what wins, and what ends by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.overrides import FLEET, Change, Override, OverrideKind, Overrides, pool_of
from slipstream.core.request import Pool

CATEGORY, KEY = OverrideKind.PIN_CATEGORY, OverrideKind.PIN_KEY
OFF = Override(OverrideKind.SPECULATION, FLEET)


def test_without_any_nothing_is_active() -> None:
    overrides = Overrides()
    assert (overrides.active, len(overrides), list(overrides)) == (False, 0, [])
    assert overrides.pin("code", None) is None
    assert overrides.ceiling("n", Pool.SPECULATIVE) is None
    assert not overrides.drains("n")
    assert not overrides.expire(1e9)


def test_a_key_wins_over_a_category_and_the_switch_over_both() -> None:
    overrides = Overrides()
    of_category, of_key = Override(CATEGORY, "chat", Pool.STANDARD), Override(KEY, "team", Pool.SPECULATIVE)
    overrides.set(of_category, 0.0)
    overrides.set(of_key, 0.0)
    assert overrides.pin("chat", None) is of_category
    assert overrides.pin("chat", "team") is of_key
    assert overrides.pin("code", "other") is None
    overrides.set(OFF, 0.0)
    assert overrides.pin("code", "team") is OFF
    assert (pool_of(OFF), pool_of(of_key)) == (Pool.STANDARD, Pool.SPECULATIVE)


def test_a_nodes_own_ceiling_wins_over_its_pools() -> None:
    overrides = Overrides()
    overrides.set(Override(OverrideKind.POOL_CEILING, Pool.SPECULATIVE, 12), 0.0)
    overrides.set(Override(OverrideKind.NODE_CEILING, "a", 4), 0.0)
    assert overrides.ceiling("a", Pool.SPECULATIVE) == 4
    assert overrides.ceiling("b", Pool.SPECULATIVE) == 12
    assert overrides.ceiling("t", Pool.STANDARD) is None


def test_setting_one_again_replaces_it_and_clearing_one_again_does_nothing() -> None:
    heard: list[tuple[Change, Override]] = []
    overrides = Overrides(lambda change, override: heard.append((change, override)))
    first, second = Override(CATEGORY, "chat", Pool.STANDARD), Override(CATEGORY, "chat", Pool.SPECULATIVE)
    overrides.set(first, 0.0)
    overrides.set(second, 1.0)
    assert list(overrides) == [second]
    assert overrides.clear(CATEGORY, "chat", 2.0) is second
    assert overrides.clear(CATEGORY, "chat", 3.0) is None
    assert not overrides.active
    assert heard == [
        (Change.SET, first),
        (Change.REPLACED, first),
        (Change.SET, second),
        (Change.CLEARED, second),
    ]


def test_one_with_an_end_ends_by_itself_and_is_told_of() -> None:
    heard: list[tuple[Change, Override]] = []
    overrides = Overrides(lambda change, override: heard.append((change, override)))
    short, long = Override(OverrideKind.DRAIN, "a", expires_at=5.0), Override(OverrideKind.DRAIN, "b", expires_at=9.0)
    overrides.set(short, 0.0)
    overrides.set(long, 0.0)
    assert not overrides.expire(4.9)
    assert overrides.expire(5.0)
    assert (overrides.drains("a"), overrides.drains("b"), overrides.next_expiry) == (False, True, 9.0)
    assert heard[-1] == (Change.EXPIRED, short)


def test_what_pinned_a_past_request_is_known_after_it_ended() -> None:
    overrides = Overrides()
    first = Override(CATEGORY, "chat", Pool.STANDARD, set_at=1.0)
    second = Override(CATEGORY, "chat", Pool.SPECULATIVE, set_at=3.0)
    overrides.set(first, 1.0)
    overrides.set(second, 3.0)
    overrides.clear(CATEGORY, "chat", 5.0)
    found = [overrides.pin_at(moment, "chat", None) for moment in (0.5, 1.0, 2.9, 3.0, 4.9, 5.0)]
    assert found == [None, first, first, second, second, None]
    overrides.set(Override(CATEGORY, "chat", Pool.STANDARD, set_at=6.0), 6.0)
    assert overrides.pin_at(6.5, "chat", None) == overrides.pin("chat", None)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["set", "clear", "expire"]),
        st.sampled_from(list(OverrideKind)),
        st.sampled_from(["a", "b"]),
        st.one_of(st.none(), st.floats(0.0, 20.0)),
    )
)


@given(STEPS)
def test_every_override_that_was_set_is_in_force_or_was_told_to_have_ended(
    steps: list[tuple[str, OverrideKind, str, float | None]],
) -> None:
    heard: list[Change] = []
    overrides = Overrides(lambda change, _override: heard.append(change))
    for now, (step, kind, subject, lasts) in enumerate(steps):
        if step == "set":
            ends = None if lasts is None else now + lasts
            overrides.set(Override(kind, subject, set_at=float(now), expires_at=ends), float(now))
        elif step == "clear":
            overrides.clear(kind, subject, float(now))
        else:
            overrides.expire(float(now))
            assert all(one.expires_at is None or one.expires_at > now for one in overrides)
        ended = sum(change is not Change.SET for change in heard)
        assert heard.count(Change.SET) == len(overrides) + ended
        assert overrides.active == bool(len(overrides))
        assert overrides.next_expiry == min(
            (one.expires_at for one in overrides if one.expires_at is not None), default=float("inf")
        )

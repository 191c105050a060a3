"""What can be used and is hardly meant is told."""

from __future__ import annotations

import pytest

from slipstream.config import parse, warnings

SPECULATIVE = '{name: a, url: "http://h:1", pool: speculative}'
STANDARD = '{name: b, url: "http://h:2", pool: standard}'


def warned(*nodes: str, more: str = "") -> tuple[str, ...]:
    return warnings(parse(f"nodes: [{', '.join(nodes)}]\n{more}", "fleet.yaml"))


def limited(max_in_flight: int, ceiling: int | None = None) -> str:
    own = "" if ceiling is None else f", ceiling: {ceiling}"
    return SPECULATIVE.replace("}", f", max_in_flight: {max_in_flight}{own}}}")


def test_a_fleet_with_both_pools_gets_no_warning() -> None:
    assert warned(SPECULATIVE, STANDARD) == ()


@pytest.mark.parametrize(
    ("node", "more", "warning"),
    [
        (STANDARD, "", "no node is in the speculative pool, so nothing is ever speculated"),
        (
            SPECULATIVE,
            "",
            "no node is in the standard pool, so requests for which speculation does not pay speculate all the same",
        ),
        (
            SPECULATIVE,
            "routing: {fallback: false}",
            "no node is in the standard pool, so requests for which speculation does not pay are refused",
        ),
    ],
)
def test_a_fleet_with_one_pool_is_told_what_comes_of_it(node: str, more: str, warning: str) -> None:
    assert warned(node, more=more) == (warning,)


@pytest.mark.parametrize(
    ("routing", "idle"),
    [
        ("mode: observe", ()),
        ("mode: observe, holdback: 0.05", ("holdback",)),
        ("mode: observe, holdback: 0.05, pins: {code: standard}", ("holdback", "pins")),
        ("mode: steer, holdback: 0.05, pins: {code: standard}", ()),
    ],
)
def test_what_does_nothing_while_routing_only_observes_is_told(routing: str, idle: tuple[str, ...]) -> None:
    told = warned(SPECULATIVE, STANDARD, more=f"routing: {{{routing}}}")
    assert told == tuple(f"routing.{key} does nothing while routing.mode is observe" for key in idle)


@pytest.mark.parametrize(
    ("node", "more", "ceiling"),
    [
        (limited(4), "", 8),
        (limited(4, ceiling=5), "", 5),
        (limited(8), "pools: {speculative: {ceiling: 9}}", 9),
        (limited(8), "", None),
        (limited(4, ceiling=4), "", None),
        (STANDARD.replace("b,", "c,").replace("h:2", "h:3").replace("}", ", max_in_flight: 1}"), "", None),
    ],
)
def test_a_limit_below_the_ceiling_is_told(node: str, more: str, ceiling: int | None) -> None:
    told = warned(STANDARD, SPECULATIVE.replace("a,", "s,").replace("h:1", "h:9"), node, more=more)
    if ceiling is None:
        assert told == ()
    else:
        assert [warning.endswith(f"so its ceiling of {ceiling} is never reached") for warning in told] == [True]
        assert told[0].startswith("nodes[2] (a) takes at most ")

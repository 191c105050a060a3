"""What `explain` says of affinity and of what was only observed."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from fleets import dispatcher_of, fleet_of, shape, speculative, standard
from slipstream.admin.view import attempt_view
from slipstream.cli.explain import attempt_report
from slipstream.core.dispatch import Dispatcher
from slipstream.core.policy import ThresholdSettings
from slipstream.core.request import RequestShape


def view(dispatcher: Dispatcher, wanted: RequestShape) -> dict[str, Any]:
    placement = dispatcher.place(wanted, "r", 0.1)
    return attempt_view(placement, dispatcher.candidates(placement), dispatcher.acceptance(placement), 0.2)


def said(attempt: dict[str, Any]) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(attempt_report(attempt, ""))
    return capture.get()


def test_a_node_preferred_for_its_cache_is_said_to_be() -> None:
    fleet = fleet_of(speculative("a"), speculative("b"), standard("t"))
    dispatcher = dispatcher_of(fleet, draw=0.0)
    first = view(dispatcher, shape("code", cache_keys=(7,), session=0xAB))
    assert (first["node"], first["by_affinity"], first["session"]) == ("a", False, "00000000000000ab")
    assert "cache" not in said(first)
    second = view(dispatcher, shape("code", cache_keys=(7,)))
    assert (second["node"], second["by_affinity"], second["session"]) == ("a", True, None)
    assert "because speculative; not the least full node, but the one that has it in the cache" in said(second)
    assert {one["node"]: one["reason"] for one in second["candidates"]} == {
        "a": "speculative",
        "b": "affinity",
        "t": None,
    }


def test_what_was_observed_is_told_beside_where_the_request_went() -> None:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t", limit=4)), ThresholdSettings(observe=True))
    dispatcher.place(shape("chat"), "before", 0.1, frozenset({"s"}))
    attempt = view(dispatcher, shape("chat"))
    assert (attempt["node"], attempt["reason"]) == ("s", "observe")
    assert attempt["intended"] == {"node": "t", "pool": "standard", "reason": "below_floor"}
    text = said(attempt)
    assert "to s (speculative), because observe" in text
    assert "would have gone to t (standard), because below_floor" in text


def test_a_steered_request_has_no_other_intention() -> None:
    attempt = view(dispatcher_of(fleet_of(speculative("s"), standard("t"))), shape("code"))
    assert attempt["intended"] is None
    assert "would have gone" not in said(attempt)

"""The page of the admin API has a row for every path, parameter and key, and none for what is gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleets import dispatcher_of, fleet_of, shape, speculative, standard
from slipstream.admin import Admin
from slipstream.admin.query import DEFAULT_LIMIT, DecisionQuery
from slipstream.admin.roles import change_view, verdict_view
from slipstream.admin.view import advice_view, attempt_view, decision_view, fleet_view
from slipstream.core.advice import Advice, AdviceCode
from slipstream.core.dispatch import DECISIONS_REMEMBERED, Dispatcher
from slipstream.core.policy import AcceptanceFigure, Candidate
from slipstream.core.request import Pool
from slipstream.core.roles import RoleChange, RoleReason, RoleVerdict
from slipstream.core.summary import category_summaries, node_summaries
from slipstream.telemetry import FleetCollector, Instruments

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "admin.md").read_text()
SECTIONS = dict(re.findall(r"^## `?(.*?)`?\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def entries(text: str) -> set[str]:
    """The names in the first column of the tables."""
    rows = re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


@pytest.fixture
def dispatcher() -> Dispatcher:
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    dispatcher.place(shape("code"), "first", 0.2)
    return dispatcher


def test_every_path_has_a_row(dispatcher: Dispatcher) -> None:
    collector = FleetCollector(dispatcher, Instruments(), ["code"], lambda: 0.5, lambda: None)
    application = Admin(dispatcher, collector, lambda: 0.5, version="1").application()
    served = {resource.canonical for resource in application.router.resources()}
    assert entries(PAGE.split("## ", maxsplit=1)[0]) == served


def test_every_key_of_the_fleet_has_a_row(dispatcher: Dispatcher) -> None:
    nodes, categories = node_summaries(dispatcher, 0.5), category_summaries(dispatcher, ["code"])
    view = fleet_view(nodes, categories, blind=False)
    of_nodes, of_categories = SECTIONS["/fleet"].split("`categories` is a list")
    assert entries(of_nodes) == view["nodes"][0].keys()
    assert entries(of_categories) == view["categories"][0].keys()
    assert set(re.findall(r"`(by_\w+)`", of_categories)) == view["categories"][0]["requests"].keys()
    assert [key for key in view if f"`{key}` is" not in SECTIONS["/fleet"]] == []


def test_every_parameter_and_key_of_decisions_has_a_row(dispatcher: Dispatcher) -> None:
    placement = next(iter(dispatcher.placements()))
    parameters, keys = SECTIONS["/decisions"].split("`decisions` is a list")
    assert entries(parameters) == set(DecisionQuery._fields)
    assert f"{DEFAULT_LIMIT} unless given, at most {DECISIONS_REMEMBERED}" in parameters
    decision = decision_view(placement, 0.5)
    assert entries(keys) == decision.keys()
    attempt = attempt_view(placement, dispatcher.candidates(placement), dispatcher.acceptance(placement), 0.5)
    added = SECTIONS["/decisions/{request_id}"]
    assert entries(added) == attempt.keys() - decision.keys()
    assert [key for key in (*Candidate._fields, *AcceptanceFigure._fields) if f"`{key}`" not in added] == []


def test_every_code_and_key_of_advice_is_told() -> None:
    assert entries(SECTIONS["/advice"]) == set(AdviceCode)
    (one,) = advice_view([Advice(AdviceCode.CHANGE_DRAFT, "fleet", "sentence")])
    assert [key for key in one if f"`{key}`" not in SECTIONS["/advice"]] == []


def test_every_reason_and_key_of_roles_has_a_row() -> None:
    verdict = RoleVerdict(RoleReason.QUIET, 0.1, 0, 1, raised=False)
    keys = verdict_view(verdict).keys() | change_view(RoleChange("s", Pool.STANDARD, "agent", 0.0, verdict), 0.5).keys()
    assert entries(SECTIONS["/roles"]) == set(RoleReason) | keys

"""Alert rules and dashboard speak of metrics that exist, and the rules fire when they should and not when not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from fleets import dispatcher_of, fleet_of, speculative, standard
from promql import Labels, evaluate, parsed_series, selectors
from slipstream.core.node import NodeReport, SpeculativeCounters
from slipstream.core.outcome import Ending
from slipstream.core.policy import Reason
from slipstream.core.request import Pool
from slipstream.telemetry import FleetCollector, Instruments
from slipstream.telemetry.instruments import REJECTIONS
from slipstream.telemetry.metric import METRICS, Reading
from slipstream.telemetry.reloads import RESULTS
from slipstream.telemetry.sinks import LOGS

ROOT = Path(__file__).parents[1]
OPS = ROOT / "ops"
GROUPS = yaml.safe_load((OPS / "prometheus" / "alerts.yaml").read_text())["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
CASES = yaml.safe_load((OPS / "prometheus" / "alerts_test.yaml").read_text())
DASHBOARD = json.loads((OPS / "grafana" / "slipstream.json").read_text())
METRICS_PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text()

ADDED_BY_PROMETHEUS = {"instance", "job"}
VALUES: dict[str, set[str]] = {
    "pool": set(Pool),
    "reason": set(Reason),
    "ending": set(Ending),
    "error": set(REJECTIONS),
    "log": set(LOGS),
    "result": set(RESULTS),
}
"""The values that labels can have, where they are not names from a configuration."""


def panels() -> list[dict[str, Any]]:
    """The dashboard's panels without its rows."""
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def plain(expression: str) -> str:
    """A dashboard's expression, as Grafana would fill it in."""
    filled = expression.replace("$__rate_interval", "5m").replace("$__range", "1h")
    return re.sub(r'=~"\$\w+"', '=~".+"', filled)


def expressions() -> list[str]:
    """Every expression of rules, dashboard and documents."""
    written = [rule["expr"] for rule in RULES]
    written += [plain(target["expr"]) for panel in panels() for target in panel["targets"]]
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for fence in re.findall(r"^```promql\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            written += [re.sub(r"^#.*\n", "", query, flags=re.MULTILINE) for query in fence.split("\n\n")]
    return written


def families() -> dict[str, set[str]]:
    """The label names of every sample that a gateway whose node reported everything may show, by name."""
    dispatcher = dispatcher_of(fleet_of(speculative("s"), standard("t")))
    report = NodeReport(1, 0, 0.5, None, True, 4, counters=SpeculativeCounters(drafted=4, accepted=2, verify_steps=1))
    dispatcher.report("s", 0.1, 0.2, report)
    readings = [Reading(metric, lambda metric=metric: {metric.labels: 0.0}) for metric in METRICS]  # type: ignore[misc]
    collector = FleetCollector(dispatcher, Instruments(), ["code"], lambda: 0.5, lambda: 0.0, readings)
    found: dict[str, set[str]] = {}
    for family in collector.snapshot().collect():
        labels = set(family._labelnames)  # the names stay there when there is no sample
        if family.type == "histogram":
            found |= {f"{family.name}{end}": labels for end in ("_sum", "_count")}
            found[f"{family.name}_bucket"] = labels | {"le"}
        else:
            found[family.name + ("_total" if family.type == "counter" else "")] = labels
    return found


FAMILIES = families()


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_parses_and_names_metrics_labels_and_values_that_exist(expression: str) -> None:
    parsed = promql.parse(expression)
    named = list(selectors(parsed))
    assert named
    for selector in named:
        assert selector.name in FAMILIES, selector.name
        for matcher in selector.matchers.matchers:
            assert matcher.name in FAMILIES[str(selector.name)] | ADDED_BY_PROMETHEUS, f"{selector}: {matcher.name}"
            if matcher.name in VALUES and matcher.value != ".+":
                assert set(matcher.value.split("|")) <= VALUES[matcher.name], f"{selector}"
    labels = set.union(*(FAMILIES[str(selector.name)] for selector in named)) | ADDED_BY_PROMETHEUS
    grouped = {label.strip() for by in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", str(parsed)) for label in by.split(",")}
    assert grouped <= labels


# Alert rules.


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_a_rule_says_what_is_wrong_and_how_bad_it_is(rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"Slipstream[A-Z]\w+", rule["alert"])
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "description"}
    assert "for" in rule or "[" in rule["expr"], "one odd sample would wake somebody"
    templates = set(re.findall(r"\{\{(.*?)\}\}", "".join(rule["annotations"].values())))
    assert all(re.fullmatch(r" \$labels\.\w+ ", template) for template in templates)
    page = (ROOT / "docs" / "how-to" / "see-what-it-does.md").read_text()
    assert f"| `{rule['alert']}` |" in page, "what to do about it is not said"


def test_every_rule_is_seen_to_fire_and_not_to_fire() -> None:
    tests = [one for case in CASES["tests"] for one in case["alert_rule_test"]]
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)
    assert {one["alertname"] for one in tests if one.get("exp_alerts")} == set(names)
    assert {one["alertname"] for one in tests if not one.get("exp_alerts")} == set(names)


@pytest.mark.parametrize("case", CASES["tests"], ids=lambda case: str(case["name"]))
def test_rules_fire_as_their_own_tests_say(case: dict[str, Any]) -> None:
    interval_s = seconds(case["interval"])
    series = dict(parsed_series(one["series"], one["values"], interval_s) for one in case["input_series"])
    for expected in case["alert_rule_test"]:
        (rule,) = (rule for rule in RULES if rule["alert"] == expected["alertname"])
        fired = firing(rule, series, seconds(expected["eval_time"]), seconds(CASES["evaluation_interval"]))
        told = [(one["exp_labels"], one["exp_annotations"]) for one in expected.get("exp_alerts", [])]
        assert fired == told, f"{rule['alert']} at {expected['eval_time']}"


def seconds(duration: str) -> float:
    return promql.parse_duration(duration).total_seconds()


def firing(rule: dict[str, Any], series: Any, now: float, interval_s: float) -> list[tuple[Any, Any]]:
    """Labels and annotations of the alerts that fire at ``now``: whose condition has held for as long as it must."""
    expression = promql.parse(rule["expr"])
    needed = seconds(rule["for"]) if "for" in rule else 0.0
    since: dict[Labels, float] = {}
    at = 0.0
    while at <= now:
        found = evaluate(expression, series, at)
        assert isinstance(found, dict)
        active = [frozenset(pair for pair in labels if pair[0] != "__name__") for labels in found]
        since = {labels: since.get(labels, at) for labels in active}
        at += interval_s
    active_long = [dict(labels) for labels, start in since.items() if now - start >= needed]
    return [
        (values | rule["labels"], {name: filled_in(text, values) for name, text in rule["annotations"].items()})
        for values in active_long
    ]


def filled_in(text: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)


# The dashboard, against what Grafana asks of a file it imports.


def test_the_dashboard_can_be_imported_anywhere() -> None:
    assert DASHBOARD["schemaVersion"] >= 36
    assert DASHBOARD["id"] is None
    assert DASHBOARD["uid"] == "slipstream"
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    source = {"type": "prometheus", "uid": "${datasource}"}
    for variable in variables.values():
        if variable["type"] == "query":
            assert variable["datasource"] == source
            metric, label = re.fullmatch(
                r"label_values\((\w+)(?:\{[^}]*\})?, (\w+)\)", variable["query"]["query"]
            ).groups()  # type: ignore[union-attr]
            assert label in FAMILIES[metric] | ADDED_BY_PROMETHEUS
    for panel in panels():
        assert panel["datasource"] == source
        assert all(target["datasource"] == source for target in panel["targets"])
    used = set(re.findall(r"\$(\w+)", json.dumps(panels()))) - {"__rate_interval", "__range"}
    assert used <= set(variables)
    assert used >= set(variables) - {"datasource"}


def test_every_panel_has_a_title_a_meaning_a_unit_and_a_place_of_its_own() -> None:
    everything = DASHBOARD["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    assert len({panel["title"] for panel in everything}) == len(everything)
    taken: set[tuple[int, int]] = set()
    for panel in everything:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    for panel in panels():
        assert panel["type"] in {"timeseries", "stat"}
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        references = [target["refId"] for target in panel["targets"]]
        assert references == sorted(set(references))
        assert all(target["legendFormat"] for target in panel["targets"])


def test_rows_name_what_a_person_looks_for() -> None:
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == ["Fleet", "Speculation", "Categories", "Latency", "Gateway"]


def test_every_label_of_a_legend_is_one_that_the_expression_leaves() -> None:
    for panel in panels():
        for target in panel["targets"]:
            labels = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            expression = plain(target["expr"])
            grouped = re.findall(r"\bby \(([^)]*)\)", expression)
            if grouped:
                left = {label.strip() for by in grouped for label in by.split(",")}
            else:
                left = set.union(*(FAMILIES[str(one.name)] for one in selectors(promql.parse(expression))))
            assert labels <= left | ADDED_BY_PROMETHEUS, panel["title"]


def test_queries_of_the_documents_are_among_those_tested() -> None:
    assert "```promql" in METRICS_PAGE

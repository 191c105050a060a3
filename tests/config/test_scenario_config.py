"""A scenario's file is checked whole: every problem with its line, what was found and what is allowed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its stubs are not installed
import pytest
import yaml

from slipstream.config.reference import json_schema, keys, tables
from slipstream.config.scenario import ScenarioConfig
from slipstream.config.scenario_changes import CHANGES
from slipstream.config.scenario_loading import load_scenario, parse_scenario
from slipstream.core.errors import ConfigError
from slipstream.core.node import DEFAULT_CEILING
from slipstream.sim.scenario import PolicyKind

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "scenario.md"
SMALLEST = PAGE.read_text().split("```yaml\n")[1].split("```")[0]

GOOD = """\
seeds: [1, 2]
targets:
  interactive: {ttft_ms: 500, tpot_ms: 40}
profiles:
  small: {model: llama-3.1-8b, hardware: h100, speculator: {kind: eagle3}}
nodes:
  - {name: spec, count: 2, pool: speculative, profile: small, ceiling: 12}
  - {name: std, pool: standard, profile: small, capacity: [{at_s: 5, count: 0}, {at_s: 9, count: 1}]}
workload:
  arrivals: {process: poisson, per_s: 2}
  categories:
    code: {alpha: 0.75, prompt_tokens: 100, output_tokens: {mean: 50, p95: 100}}
    chat: {survival: [0.5, 0.3], prompt_tokens: {least: 1, most: 9}, output_tokens: 5, output_limit: exact}
policies:
  - threshold
  - {kind: threshold, name: high, ceiling: 16, alpha_floor: 0.5}
  - {kind: split-lists, categories: [code]}
"""


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        parse_scenario(text, "s.yaml")
    return [str(problem) for problem in raised.value.problems]


def test_what_is_left_out_has_its_default() -> None:
    config = parse_scenario(SMALLEST, "s.yaml").config
    assert (config.seeds, config.window_s, config.pools.speculative.ceiling) == ((1, 2, 3), 600.0, DEFAULT_CEILING)
    assert [policy.kind for policy in config.policies] == [
        "all-standard",
        "all-speculative",
        "split-round-robin",
        "split-least-load",
        "threshold",
        "bound",
    ]


def test_short_forms_are_their_sections() -> None:
    config = parse_scenario(GOOD, "s.yaml").config
    assert config.policies[0].kind == "threshold"
    lengths = config.workload.categories["code"].prompt_tokens
    assert lengths is not None
    assert lengths.tokens == 100
    assert config.workload.categories["chat"].output_limit == "exact"


def test_every_kind_of_policy_can_be_written() -> None:
    kinds = keys(ScenarioConfig)
    (kind,) = (key.kind for key in kinds if key.name == "policies[].kind")
    assert set(re.findall("`([^`]+)`", kind)) == set(PolicyKind)


@pytest.mark.parametrize(
    ("was", "now", "line", "said"),
    [
        ("ttft_ms: 500", "ttft_ms: 0", 3, "targets.interactive.ttft_ms: found 0; allowed: more than 0"),
        ("tpot_ms: 40", "tpot_ms: -1", 3, "targets.interactive.tpot_ms: found -1; allowed: more than 0"),
        ("{ttft_ms: 500, tpot_ms: 40}", "{}", 3, "targets.interactive: found no latency; allowed: at least one of"),
        ("ttft_ms", "tfft_ms", 3, 'found an unknown key (did you mean "ttft_ms"?)'),
        ("[1, 2]", "[1, 1]", 1, "seeds[1]: found 1 again; allowed: each seed once"),
        ("[1, 2]", "[]", 1, "seeds: found an empty list; allowed: at least one"),
        ("[1, 2]", "[x]", 1, 'seeds[0]: found "x"; allowed: a whole number'),
        ("hardware: h100, ", "", 5, "profiles.small.hardware: found nothing, and a profile without a file needs it"),
        ("model: llama-3.1-8b, hardware: h100, ", "", 5, "neither model and hardware nor a file"),
        (
            "model: llama-3.1-8b,",
            "file: p.json,",
            5,
            "profiles.small.hardware: found a key without effect beside a file",
        ),
        ("eagle3", "draft-model", 5, "speculator.model: found nothing, and a draft model needs it"),
        ("eagle3", "ngram", 5, "speculator.proposing_share: found nothing, and n-gram lookup"),
        ("kind: eagle3", "kind: eagle3, model: x", 5, "speculator.model: found a key without effect for eagle3"),
        ("eagle3", "eagle9", 5, 'speculator.kind: found "eagle9"; allowed: one of draft-model, eagle, eagle3'),
        ("name: std", "name: spec", 8, 'nodes[1].name: found "spec", as in nodes[0]; allowed: a name of its own'),
        (
            "speculative, profile: small",
            "speculative, profile: big",
            7,
            'found the unknown profile "big"; allowed: one of',
        ),
        ("pool: standard,", "pool: standard, ceiling: 3,", 8, "nodes[1].ceiling: found a key without effect"),
        ("at_s: 9, count: 1", "at_s: 9, count: 2", 8, "capacity[1].count: found 2; allowed: at most the 1 of"),
        ("at_s: 9", "at_s: 5", 8, "capacity[1].at_s: found 5, not after the change before it"),
        ("per_s: 2", "per_s: 2, cv: 3", 10, "workload.arrivals.cv: found a key without effect for poisson"),
        (", per_s: 2", "", 10, "workload.arrivals.per_s: found nothing, and poisson needs it"),
        ("poisson, per_s: 2", "rates", 10, "workload.arrivals.rates: found nothing, and rates needs it"),
        ("  arrivals: {process: poisson, per_s: 2}\n", "", 9, "workload: found neither arrivals nor a trace"),
        ("per_s: 2}", "per_s: 2}\n  trace: {file: t.csv}", 9, "workload: found arrivals and a trace"),
        ("alpha: 0.75, ", "", 12, "categories.code: found neither alpha nor survival"),
        ("alpha: 0.75", "alpha: 0.75, survival: [0.7]", 12, "categories.code: found both alpha and survival"),
        ("[0.5, 0.3]", "[0.5, 0.6]", 13, "chat.survival[1]: found 0.6; allowed: at most the 0.5 before it"),
        ("alpha: 0.75", "alpha: 1.5", 12, "categories.code.alpha: found 1.5; allowed: at most 1"),
        ("alpha: 0.75", "alpha: 0.75, share: 0", 12, ""),
        ("prompt_tokens: 100, ", "", 12, "code.prompt_tokens: found nothing, and a workload without a trace needs it"),
        ("{mean: 50, p95: 100}", "{mean: 50, most: 100}", 12, "output_tokens: found mean, most; allowed: a number of"),
        ("{mean: 50, p95: 100}", "{}", 12, "output_tokens: found nothing; allowed: a number of tokens, {least, most}"),
        ("output_limit: exact", "output_limit: some", 13, 'found "some"; allowed: exact, none or a number of tokens'),
        ("output_limit: exact", "output_limit: [1]", 13, "allowed: exact, none or a number of tokens"),
        ("output_limit: exact", "output_limit: 0", 13, "output_limit: found 0; allowed: exact, none or a number"),
        ("alpha: 0.75", "alpha: 0.75, traffic_class: slow", 12, 'found "slow"; allowed: one of interactive, bulk'),
        ("- threshold", "- tresholds", 15, 'policies[0].kind: found "tresholds"; allowed: one of all-standard'),
        (", name: high", "", 16, 'policies[1]: found the name "threshold", as in policies[0]'),
        ("kind: threshold, name: high", "kind: bound", 16, "policies[1].ceiling: found a key without effect for bound"),
        (", categories: [code]", "", 17, "policies[2].categories: found nothing, and split-lists needs it"),
        (
            "[code]",
            "[code, poems]",
            17,
            'categories[1]: found the unknown category "poems"; allowed: one of code, chat',
        ),
        (
            "kind: split-lists, categories: [code]",
            "kind: all-scheduled",
            17,
            "schedule: found nothing, and all-scheduled",
        ),
        (
            "kind: split-lists, categories: [code]",
            "kind: all-scheduled, schedule: [{up_to: 8, k: 4}, {up_to: 8, k: 2}]",
            17,
            "policies[2].schedule[1].up_to: found 8; allowed: more than the 8 before it: ranges rise",
        ),
        (
            "ceiling: 12",
            "ceiling: 12, speculation: {schedule: [{up_to: 8, k: 4}, {up_to: 2, k: 2}]}",
            7,
            "nodes[0].speculation.schedule[1].up_to: found 2; allowed: more than the 8 before it",
        ),
        (
            "pool: standard",
            "model: other, pool: standard",
            9,
            "workload.models: found nothing, and nodes serve model, other",
        ),
        (
            "seeds:",
            "pools: {speculative: {hysteresis: 12}}\nseeds:",
            8,
            "found 12; allowed: more than the hysteresis, 12",
        ),
        ("seeds:", "control: {stale_after_s: 0.1}\nseeds:", 1, "allowed: longer than the time between two polls"),
        ("seeds:", "gateway: {listen: a}\nseeds:", 1, "gateway.listen: found an unknown key"),
    ],
)
def test_a_problem_is_said_with_its_line(was: str, now: str, line: int, said: str) -> None:
    assert was in GOOD
    text = GOOD.replace(was, now, 1)
    if not said:
        parse_scenario(text, "s.yaml")  # one share of two may be 0
        return
    found = problems_of(text)
    assert any(problem.startswith(f"s.yaml:{line}: ") and said in problem for problem in found), found


def test_shares_that_are_all_0_are_refused() -> None:
    text = GOOD.replace("alpha: 0.75", "alpha: 0.75, share: 0").replace("{survival", "{share: 0, survival")
    assert problems_of(text) == [
        "s.yaml:11: workload.categories: found shares that are all 0; allowed: a share above 0"
    ]


def test_models_that_are_asked_for_are_served() -> None:
    text = GOOD + "\n"
    text = text.replace("workload:\n", "workload:\n  models: {model: 1, gpt: 2}\n")
    (problem,) = problems_of(text)
    assert problem == "s.yaml:10: workload.models.gpt: found a model that no node serves; allowed: one of model"
    text = text.replace("model: 1, gpt: 2", "model: 0")
    assert "shares that are all 0" in problems_of(text)[0]


@pytest.mark.parametrize("emptied", ["profiles", "nodes", "policies"])
def test_what_has_to_be_there_is(emptied: str) -> None:
    data = yaml.safe_load(GOOD)
    data[emptied] = {} if emptied == "profiles" else []
    assert any(f"{emptied}: found " in problem for problem in problems_of(yaml.safe_dump(data)))
    data = yaml.safe_load(GOOD)
    data["workload"]["categories"] = {}
    assert any("found no category" in problem for problem in problems_of(yaml.safe_dump(data)))


def test_all_problems_are_said_at_once_in_the_files_order() -> None:
    text = GOOD.replace("ttft_ms: 500", "ttft_ms: 0").replace("[1, 2]", "[]").replace("- threshold", "- tresholds")
    lines = [int(problem.split(":")[1]) for problem in problems_of(text)]
    assert lines == sorted(lines)
    assert len(lines) == 3


SHAPES = (
    ("at_s: 5", "at_s: x"),
    ("count: 2", "count: many"),
    ("up_to: 8", "up_to: eight"),
    ("[0.5, 0.3]", "[half, 0.3]"),
    ("- threshold", "- {name: 1}"),
    ("name: spec", "name: 5"),
)
SCHEDULED = GOOD.replace("ceiling: 12", "ceiling: 12, speculation: {schedule: [{up_to: 8, k: 4}]}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a list",
        "nodes: {a: 1}\nworkload: 3\npolicies: x\nprofiles: [1]\ntargets: 1",
        *(SCHEDULED.replace(was, now, 1) for was, now in SHAPES),
    ],
)
def test_a_file_of_another_shape_is_refused_whatever_it_has(text: str) -> None:
    assert problems_of(text)


def test_a_scenario_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(GOOD)
    assert load_scenario(file).config == parse_scenario(GOOD, "s.yaml").config
    with pytest.raises(ConfigError, match=re.escape("begin with a copy of examples/fleet-16.yaml")):
        load_scenario(tmp_path / "other.yaml")


# Changes without an edit ---------------------------------------------------------------------------------------------


def changed(changes: dict[str, float], text: str = GOOD) -> ScenarioConfig:
    return parse_scenario(text, "s.yaml", changes).config


def test_nothing_changed_is_the_file() -> None:
    assert changed({}) == parse_scenario(GOOD, "s.yaml").config


def test_rates_are_changed() -> None:
    def arrivals(config: ScenarioConfig) -> Any:
        assert config.workload.arrivals is not None
        return config.workload.arrivals

    assert arrivals(changed({"rate": 7})).per_s == 7
    assert arrivals(changed({"load": 1.5})).per_s == 3.0
    bursts = GOOD.replace("poisson, per_s: 2", "bursts, per_s: 2, burst_per_s: 8, burst_s: 5, every_s: 30")
    assert arrivals(changed({"load": 2}, bursts)).burst_per_s == 16
    rates = GOOD.replace("poisson, per_s: 2", "rates, rates: [{at_s: 0, per_s: 1}, {at_s: 9, per_s: 3}]")
    assert [point.per_s for point in arrivals(changed({"load": 2}, rates)).rates] == [2, 6]
    with pytest.raises(ConfigError, match="rate: found a change that can not be made; allowed: arrivals with per_s"):
        changed({"rate": 7}, rates)


def test_a_trace_is_played_faster() -> None:
    text = GOOD.replace("arrivals: {process: poisson, per_s: 2}", "trace: {file: t.csv, speed: 2}")
    trace = changed({"load": 3}, text).workload.trace
    assert trace is not None
    assert trace.speed == 6


def test_what_is_changed_for_all_holds_for_every_node_and_policy() -> None:
    config = changed({"ceiling": 20, "alpha_floor": 0.7, "holdback": 0.1, "k": 2, "window_s": 9, "warm_up_s": 0})
    assert config.pools.speculative.ceiling == 20
    assert config.pools.speculative.alpha_floor == 0.7
    assert config.routing.holdback == 0.1
    assert {group.ceiling for group in config.nodes} == {None}
    assert {(policy.ceiling, policy.alpha_floor, policy.holdback) for policy in config.policies} == {(None, None, None)}
    assert {group.speculation.k for group in config.nodes} == {2}
    assert (config.window_s, config.warm_up_s) == (9, 0)


@pytest.mark.parametrize(("number", "counts"), [(1, [1, 2]), (0, [3]), (3, [3])])
def test_the_split_of_the_pools_is_changed(number: int, counts: list[int]) -> None:
    text = GOOD.replace(", capacity: [{at_s: 5, count: 0}, {at_s: 9, count: 1}]", "")
    assert [group.count for group in changed({"speculative_nodes": number}, text).nodes] == counts


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"speculative_nodes": 1}, "allowed: one group of nodes in either pool, without capacity changes"),
        ({"rte": 1}, "s.yaml: rte: found a change that can not be made; allowed: one of rate, load, ceiling, k, "),
        ({"rate": -1}, "s.yaml: workload.arrivals.per_s: found -1; allowed: at least 0"),
        ({"ceiling": 1.5}, "s.yaml: pools.speculative.ceiling: found 1.5; allowed: a whole number"),
        ({"holdback": 2}, "s.yaml: routing.holdback: found 2; allowed: at most 1"),
    ],
)
def test_a_change_that_can_not_be_is_refused_without_a_line(changes: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        changed(changes)
    assert said in str(raised.value)


@pytest.mark.parametrize("number", [-1, 4, 0.5])
def test_a_split_into_more_nodes_than_there_are_is_refused(number: float) -> None:
    text = GOOD.replace(", capacity: [{at_s: 5, count: 0}, {at_s: 9, count: 1}]", "")
    with pytest.raises(ConfigError, match="a whole number from 0 to the 3 nodes that there are"):
        changed({"speculative_nodes": number}, text)


# The reference -------------------------------------------------------------------------------------------------------


def test_the_page_holds_the_tables_of_the_schema() -> None:
    assert tables(ScenarioConfig) in PAGE.read_text(), (
        "write the output of `python -m slipstream.config.reference scenario` into the page"
    )


def test_every_key_of_a_scenario_has_a_description() -> None:
    found = {key.name: key for key in keys(ScenarioConfig)}
    assert [name for name, key in found.items() if not key.description] == []
    assert found["workload.categories.<name>.prompt_tokens"].kind == "whole number, at least 1 or section"
    assert found["policies"].kind == "list of: text or section"


def test_the_schema_accepts_what_is_read_and_refuses_an_unknown_key() -> None:
    schema = json_schema(ScenarioConfig)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load(GOOD), schema)
    jsonschema.validate(yaml.safe_load(SMALLEST), schema)
    with pytest.raises(jsonschema.ValidationError, match="sedes"):
        jsonschema.validate(yaml.safe_load(GOOD.replace("seeds", "sedes")), schema)


def test_every_change_has_an_entry() -> None:
    section = PAGE.read_text().split("## What a sweep can vary")[1].split("\n## ")[0]
    assert set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| ([^|]*) \|", section, re.MULTILINE)))) == set(CHANGES)

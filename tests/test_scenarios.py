"""A scenario's file becomes a fleet that can be simulated, or is refused with its place before the first event."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstream.core.errors import ConfigError
from slipstream.core.policy import ThresholdSettings
from slipstream.core.request import Pool, TrafficClass
from slipstream.core.roles import RoleSettings
from slipstream.costmodel.steps import LinearRows, RooflineRows, TableRows
from slipstream.enginemodel.settings import Account, Speculation
from slipstream.scenarios import read_scenario
from slipstream.sim.scenario import PolicyKind, RoleChanges, Scenario, Target
from slipstream.sim.simulate import simulate

EXAMPLES = Path(__file__).parents[1] / "examples"

TEXT = """\
about: Three nodes.
seeds: [4]
window_s: 20
warm_up_s: 2
targets:
  interactive: {ttft_ms: 500, tpot_ms: 40}
profiles:
  small: {model: llama-3.1-8b, hardware: h100, speculator: {kind: eagle3}}
nodes:
  - {name: spec, count: 2, pool: speculative, profile: small, ceiling: 12}
  - {name: std, pool: standard, profile: small}
workload:
  arrivals: {process: poisson, per_s: 5}
  categories:
    code: {alpha: 0.75, spread: 0.05, prompt_tokens: 100, output_tokens: {mean: 50, p95: 100}}
    jobs: {survival: [0.5, 0.3], traffic_class: bulk, prompt_tokens: {least: 1, most: 9}, output_tokens: {values: [5]}}
policies: [threshold]
"""

TABLE: dict[str, Any] = {
    "form": "table",
    **dict.fromkeys(("engine", "version", "hardware", "model", "date"), "x"),
    "points": [
        {"k": k, "batch_size": batch, "step_ms": step}
        for k, steps in ((0, (10, 11, 14)), (4, (16, 18, 30)))
        for batch, step in zip((1, 8, 32), steps, strict=True)
    ],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "table.json").write_text(json.dumps(TABLE))
    points = [point for point in TABLE["points"] if point["k"] == 0]
    (tmp_path / "standard.json").write_text(json.dumps({**TABLE, "points": points}))
    shutil.copy(EXAMPLES / "traces" / "azure-2023-code.csv", tmp_path / "trace.csv")
    return tmp_path


def read(folder: Path, *edits: tuple[str, str], changes: dict[str, float] | None = None) -> Scenario:
    text = TEXT
    for was, now in edits:
        assert was in text
        text = text.replace(was, now)
    file = folder / "scenario.yaml"
    file.write_text(text)
    return read_scenario(file, changes=changes)


def refused(folder: Path, *edits: tuple[str, str], changes: dict[str, float] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        read(folder, *edits, changes=changes)
    return [str(problem).removeprefix(f"{folder}/") for problem in raised.value.problems]


def test_a_scenario_is_what_its_file_says(folder: Path) -> None:
    scenario = read(folder)
    spec, std = scenario.groups
    assert (spec.name, spec.count, spec.pool, spec.ceiling, std.ceiling) == ("spec", 2, Pool.SPECULATIVE, 12, 8)
    assert scenario.targets == {TrafficClass.INTERACTIVE: Target(0.5, 0.04)}
    assert (scenario.name, scenario.about) == ("scenario", "Three nodes.")
    assert (scenario.seeds, scenario.window_s, scenario.warm_up_s) == ((4,), 20.0, 2.0)
    code, jobs = scenario.categories
    assert code.survival == pytest.approx([0.75, 0.75**2, 0.75**3, 0.75**4])
    assert (code.spread, jobs.survival) == (0.05, (0.5, 0.3))
    (policy,) = scenario.policies
    assert policy.kind is PolicyKind.THRESHOLD
    defaults = ThresholdSettings(affinity_slack=None, rejected_features=policy.threshold.rejected_features)
    assert policy.threshold == defaults
    assert policy.threshold.rejected_features("vllm") == frozenset()


def test_a_node_is_equipped_either_way(folder: Path) -> None:
    group = read(folder, ("eagle3}", "eagle3, proposing_share: 0.9}")).groups[1]
    assert isinstance(group.standard.rows, RooflineRows)
    assert group.standard.settings.speculation is None
    assert group.speculative is not None
    assert group.speculative.settings.speculation == Speculation(k=4, proposing_share=0.9)
    alone, beside = group.standard.settings.kv_tokens, group.speculative.settings.kv_tokens
    assert alone is not None
    assert beside is not None
    assert 0.9 * alone < beside < alone
    assert group.speculative.rows.decode_row(8, 8, 4) > group.standard.rows.decode_row(8, 0, 0)


def test_speculation_is_as_it_is_set(folder: Path) -> None:
    given = "ceiling: 12, speculation: {schedule: [{up_to: 8, k: 3}], drop_below: 1.5, account: first-article}"
    group = read(folder, ("ceiling: 12", given)).groups[0]
    assert group.speculative is not None
    assert group.speculative.settings.speculation == Speculation(
        schedule=((8, 3),), drop_below=1.5, account=Account.FIRST_ARTICLE
    )


def test_the_longest_draft_of_any_policy_has_its_survival(folder: Path) -> None:
    scenario = read(folder, ("[threshold]", "[{kind: all-scheduled, schedule: [{up_to: 4, k: 7}]}]"))
    assert len(scenario.categories[0].survival) == 7


def test_policies_have_what_they_are_given(folder: Path) -> None:
    listed = "[{kind: threshold, ceiling: 5, alpha_floor: 0.5, holdback: 0.1}, {kind: split-lists, categories: [code]}]"
    threshold, lists = read(folder, ("[threshold]", listed)).policies
    assert threshold.ceiling == 5
    assert (threshold.threshold.alpha_floor, threshold.threshold.holdback) == (0.5, 0.1)
    assert lists.speculative_categories == {"code"}


def test_roles_change_as_they_are_told_to(folder: Path) -> None:
    roles = "roles: {restart_s: 40, high_watermark: 0.7, minimum_dwell_s: 60, drain_timeout_s: 30}"
    told, never = read(folder, ("[threshold]", f"[{{kind: threshold, name: a, {roles}}}, threshold]")).policies
    assert told.roles == RoleChanges(RoleSettings(high_watermark=0.7, minimum_dwell_s=60.0), 40.0, 30.0)
    assert never.roles is None


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("{kind: threshold, roles: {}}", "policies[0].roles.restart_s: found nothing"),
        ("{kind: predictive, roles: {restart_s: 1}}", "policies[0].roles: found a key without effect for predictive"),
        (
            "{kind: threshold, roles: {restart_s: 1, low_watermark: 0.9}}",
            "policies[0].roles.low_watermark: found 0.9; allowed: less than the high one, 0.9",
        ),
        (
            "{kind: threshold, roles: {restart_s: 1, high_watermark: 0.4}}",
            "policies[0].roles.high_watermark: found 0.4; allowed: more than the low one, 0.5",
        ),
    ],
)
def test_roles_that_can_not_be_are_refused(folder: Path, policy: str, said: str) -> None:
    (problem,) = refused(folder, ("[threshold]", f"[{policy}]"))
    assert said in problem


def test_roles_and_capacity_do_not_change_at_once(folder: Path) -> None:
    capacity = ("pool: standard, profile: small", "pool: standard, profile: small, capacity: [{at_s: 1, count: 1}]")
    (problem,) = refused(folder, capacity, ("[threshold]", "[{kind: threshold, roles: {restart_s: 1}}]"))
    assert "capacity: found changes of capacity, beside a policy under which nodes change their roles" in problem


def test_the_gateway_believes_what_it_is_told(folder: Path) -> None:
    prior = read(folder, ("alpha: 0.75", "alpha: 0.75, prior_alpha: 0.3")).prior
    assert [prior.alpha(name) for name in ("code", "jobs", "math")] == [0.3, 0.6, 0.7]


@pytest.mark.parametrize(
    "arrivals",
    [
        "constant, per_s: 5",
        "gamma, per_s: 5, cv: 2",
        "bursts, per_s: 1, burst_per_s: 30, burst_s: 3, every_s: 10",
        "rates, rates: [{at_s: 0, per_s: 1}, {at_s: 20, per_s: 9}]",
    ],
)
def test_every_process_arrives(folder: Path, arrivals: str) -> None:
    plan = read(folder, ("poisson, per_s: 5", arrivals)).plan_of(1)
    assert 40 < len(plan) < 400
    assert plan.duration_s < 22.0


def test_lengths_are_of_every_kind(folder: Path) -> None:
    kinds = "prompt_tokens: {mean: 30}, output_tokens: {mean: 50, p95: 150, maximum: 60}, output_limit: 20"
    plan = read(folder, ("prompt_tokens: 100, output_tokens: {mean: 50, p95: 100}", kinds)).plan_of(1)
    code = plan.category == 0
    assert plan.output_tokens[code].max() == 20
    assert set(plan.output_tokens[~code]) == {5}
    assert set(plan.output_limit) == {20, -1}
    assert np.std(plan.prompt_tokens[code]) > 15


def test_a_trace_arrives(folder: Path) -> None:
    lengths = ", prompt_tokens: 100, output_tokens: {mean: 50, p95: 100}"
    more = ", prompt_tokens: {least: 1, most: 9}, output_tokens: {values: [5]}"
    trace = "trace: {file: trace.csv, format: azure, speed: 4, repeat: true}"
    scenario = read(folder, ("arrivals: {process: poisson, per_s: 5}", trace), (lengths, ""), (more, ""))
    once, again = scenario.plan_of(1), scenario.plan_of(2)
    assert (once.prompt_tokens == again.prompt_tokens).all()
    assert once.prompt_tokens[0] == 4808


def test_a_measured_profile_is_a_file_beside_the_scenario(folder: Path) -> None:
    table = "{file: table.json, kv_tokens: 9000, speculative_kv_tokens: 8000}"
    small = "{model: llama-3.1-8b, hardware: h100, speculator: {kind: eagle3}}"
    group = read(folder, (small, table), ("profile: small", "profile: small, slots: 32")).groups[0]
    assert isinstance(group.standard.rows, TableRows)
    assert group.speculative is not None
    assert (group.standard.settings.kv_tokens, group.speculative.settings.kv_tokens) == (9000, 8000)
    article = read(folder, (small, "{file: article-1}")).groups[0]
    assert isinstance(article.standard.rows, LinearRows)
    assert article.standard.settings.kv_tokens is None


def test_what_a_profile_is_made_of_may_be_a_file_beside_the_scenario(folder: Path) -> None:
    card = {
        **dict.fromkeys(("num_hidden_layers", "num_attention_heads", "num_key_value_heads"), 8),
        "hidden_size": 512,
        "intermediate_size": 2048,
        "vocab_size": 32000,
    }
    (folder / "config.json").write_text(json.dumps(card))
    own = ("eagle3}", "draft-model, model: config.json, sharded: false}")
    group = read(folder, own, ("llama-3.1-8b", "config.json")).groups[0]
    assert group.speculative is not None
    ngram = read(folder, ("eagle3}", "ngram, proposing_share: 0.2}")).groups[0].speculative
    assert ngram is not None
    assert ngram.settings.speculation is not None
    assert ngram.settings.speculation.proposing_share == 0.2


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        (
            [("llama-3.1-8b", "llama-9")],
            "scenario.yaml:8: profiles.small: found something that can not be (no model is",
        ),
        (
            [("h100", "abacus")],
            "scenario.yaml:8: profiles.small: found something that can not be (no hardware is called",
        ),
        (
            [("llama-3.1-8b", "llama-3.1-405b")],
            "needs 812 GB for its weights, and 1 × H100 has 72 GB to give); allowed: a node that can be built",
        ),
        ([("h100,", "h100, tensor_parallel: 3,")], "has 32 attention heads, which 3 GPUs can not share"),
        ([("{model: llama-3.1-8b, hardware: h100, speculator: {kind: eagle3}}", "{file: no.json}")], "can not be read"),
        (
            [("h100,", "h100, kv_tokens: 3,")],
            "scenario.yaml:10: nodes[0]: found something that can not be (an engine's",
        ),
        ([("eagle3}", "draft-model, model: llama-3.1-70b}")], "needs 141 GB beside Llama-3.1-8B's 16 GB"),
        (
            [("spread: 0.05", "spread: 0.5")],
            "scenario.yaml:15: workload.categories.code.spread: found something that can not be (",
        ),
        ([("p95: 100", "p95: 1000")], "code.output_tokens: found something that can not be (lognormal lengths"),
        ([("per_s: 5", "per_s: 0")], "scenario.yaml:12: workload: found something that can not be (poisson arrivals"),
        ([("per_s: 5", "per_s: 1.0e-9")], "workload: found something that can not be (no request would arrive"),
        (
            [("window_s: 20", "window_s: 1.0e+9"), ("per_s: 5", "per_s: 1.0e-8")],
            "scenario.yaml:3: window_s: found 3e+10 polls of nodes until its end; allowed: at most 1e+09",
        ),
        ([("window_s: 20", "window_s: 1.0e-6")], "those of the first 2 s, the warm-up, do not count"),
        ([("h100,", f"{'h' * 300},")], "no hardware is called"),
        (
            [("{model: llama-3.1-8b, hardware: h100, speculator: {kind: eagle3}}", "{file: /dev/zero}")],
            "no regular file",
        ),
        ([("speculator: {kind: eagle3}", "")], "scenario.yaml:10: nodes[0].pool: found a pool whose nodes speculate"),
        ([("output_tokens: {values: [5]}", "output_tokens: {mean: 5, maximum: 4}")], "jobs.output_tokens: found some"),
    ],
)
def test_what_can_not_be_is_refused_with_its_place(folder: Path, edits: list[tuple[str, str]], said: str) -> None:
    found = refused(folder, *edits)
    assert any(said in problem for problem in found), found


@pytest.mark.parametrize(
    ("policy", "slots", "said"),
    [
        (
            "threshold",
            33,
            "nodes[0].slots: found something that can not be (the profile was measured from batch size 1",
        ),
        (
            "{kind: all-scheduled, schedule: [{up_to: 8, k: 3}]}",
            32,
            "policies[0].schedule: found draft lengths that spec",
        ),
    ],
)
def test_what_a_table_does_not_know_is_refused(folder: Path, policy: str, slots: int, said: str) -> None:
    small = "{model: llama-3.1-8b, hardware: h100, speculator: {kind: eagle3}}"
    table = (small, "{file: table.json}")
    found = refused(
        folder, table, ("profile: small", f"profile: small, slots: {slots}"), ("[threshold]", f"[{policy}]")
    )
    assert any(said in problem for problem in found), found
    lengths = refused(folder, table, ("profile: small", "profile: small, slots: 32, speculation: {k: 2}"))
    assert "nodes[0].speculation: found something that can not be (the profile has no draft length 2" in lengths[0]


@pytest.mark.parametrize("policy", ["all-speculative", "{kind: all-scheduled, schedule: [{up_to: 8, k: 3}]}"])
def test_a_policy_that_speculates_needs_something_to_draft_with(folder: Path, policy: str) -> None:
    bare = "small: {model: llama-3.1-8b, hardware: h100, speculator: {kind: eagle3}}"
    more = f"{bare}\n  bare: {{model: llama-3.1-8b, hardware: h100}}\n  table: {{file: standard.json}}"
    standard = ("pool: standard, profile: small", "pool: standard, profile: bare")
    (problem,) = refused(folder, (bare, more), standard, ("[threshold]", f"[threshold, {policy}]"))
    assert "policies[1]: found all-" in problem
    assert "the nodes std have a profile without speculator" in problem
    measured = ("pool: standard, profile: small", "pool: standard, slots: 32, profile: table")
    assert "the nodes std have" in refused(folder, (bare, more), measured, ("[threshold]", f"[{policy}]"))[0]


def test_a_bad_line_of_a_trace_is_named(folder: Path) -> None:
    lines = (folder / "trace.csv").read_text().splitlines()
    lines[40] = "yesterday,1,2"
    (folder / "trace.csv").write_text("\n".join(lines))
    (problem,) = refused(folder, ("arrivals: {process: poisson, per_s: 5}", "trace: {file: trace.csv}"))
    assert problem.startswith("trace.csv:41: found a line that is no request (")
    (problem,) = refused(folder, ("arrivals: {process: poisson, per_s: 5}", "trace: {file: none.csv}"))
    assert problem.startswith("none.csv: found a file that is no trace (can not be read")


ODD: tuple[object, ...] = (
    None,
    0,
    -1,
    1.5,
    1e308,
    float("nan"),
    "x",
    "",
    [],
    {},
    [1],
    {"a": 1},
    True,
    10**12,
    1e-300,
    "../x",
)


def places(data: Any, *path: str | int) -> list[tuple[str | int, ...]]:
    """Of everything in a file."""
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(place for key, value in inside for place in places(value, *path, key))]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from(places(yaml.safe_load(TEXT))[1:]), value=st.sampled_from(ODD))
def test_no_value_ends_in_a_traceback(folder: Path, place: tuple[str | int, ...], value: object) -> None:
    data = yaml.safe_load(TEXT)
    around = data
    for key in place[:-1]:
        around = around[key]
    around[place[-1]] = value
    file = folder / "odd.yaml"
    file.write_text(yaml.safe_dump(data))
    try:
        read_scenario(file)
    except ConfigError as error:
        assert error.problems  # noqa: PT017 - either it is usable, or it says what is wrong


def test_changes_reach_what_is_simulated(folder: Path) -> None:
    scenario = read(folder, changes={"rate": 50, "ceiling": 3, "speculative_nodes": 1, "window_s": 5})
    assert [(group.count, group.ceiling) for group in scenario.groups] == [(1, 3), (2, 3)]
    assert 250 < len(scenario.plan_of(1)) < 460
    assert refused(folder, changes={"rate": 0})[0].startswith(
        "scenario.yaml: workload: found something that can not be ("
    )


def test_a_scenario_can_be_sent_to_another_process(folder: Path) -> None:
    scenario = read(folder)
    sent = pickle.loads(pickle.dumps(scenario))
    assert sent.groups == scenario.groups
    assert sent.policies == scenario.policies
    one, other = (simulate(each, each.policies[0], 1) for each in (scenario, sent))
    assert (one.ended_s == other.ended_s).all()


def test_the_same_traffic_meets_every_policy(folder: Path) -> None:
    scenario = read(folder, ("[threshold]", "[threshold, all-standard, split-round-robin, bound]"))
    assert [policy.kind for policy in scenario.policies][-1] is PolicyKind.BOUND
    plans = [simulate(scenario, policy, 1).plan for policy in scenario.policies[:-1]]
    assert all((plan.arrival_s == plans[0].arrival_s).all() for plan in plans)

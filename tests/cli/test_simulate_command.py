"""`slipstream simulate`: every way to ask, what is printed in 80 columns, and a sentence for what can not be."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from live_service import COMMAND_ENVIRONMENT, command
from recordings import write_run
from slipstream.cli import application, simulate_runs
from slipstream.cli.simulate_runs import jobs_for
from slipstream.core.request import Pool
from slipstream.sim.simulate import simulate
from slipstream.sim.sweep import Point, Trial, TrialFailed, run_trials
from tiny_scenarios import POLICIES, group, plan_of, scenario

SCENARIO = """\
about: A fleet small enough to be simulated in a blink.
seeds: [1, 2]
window_s: 4
warm_up_s: 1
drain_s: 30
targets:
  interactive: {ttft_ms: 500, tpot_ms: 40}
profiles:
  measured: {file: article-1}
nodes:
  - {name: spec, count: 1, pool: speculative, profile: measured, slots: 16, speculation: {k: 4}}
  - {name: std, count: 1, pool: standard, profile: measured, slots: 16}
workload:
  arrivals: {process: poisson, per_s: 5}
  categories:
    code: {share: 0.5, alpha: 0.8, prompt_tokens: {tokens: 50}, output_tokens: {tokens: 20}}
    chat: {share: 0.5, alpha: 0.4, prompt_tokens: {tokens: 50}, output_tokens: {tokens: 20}}
policies: [all-standard, all-speculative, threshold]
"""
Ask = Callable[..., Result]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("simulate") / "tiny.yaml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture(scope="module")
def ask(file: Path) -> Ask:
    """The command in this process and on it alone, in 80 columns."""

    def asked(*arguments: str | Path, status: int = 0) -> Result:
        runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
        words = ["simulate", str(file), "--jobs", "1", *map(str, arguments)]
        result = runner.invoke(application("simulate"), words, catch_exceptions=False)
        assert result.exit_code == status, result.output
        return result

    return asked


@pytest.fixture(scope="module")
def compared(ask: Ask) -> dict[str, Any]:
    """Everything that one scenario has to tell."""
    told = json.loads(ask("--compare", "--json").stdout)
    assert isinstance(told, dict)
    return told


def test_every_policy_of_the_scenario_is_told_with_its_measures(compared: dict[str, Any]) -> None:
    assert [policy["name"] for policy in compared["policies"]] == ["all-standard", "all-speculative", "threshold"]
    for policy in compared["policies"]:
        low, high = policy["goodput_interval"]
        assert low <= policy["goodput"] <= high
        for key in ("ttft_ms", "tpot_ms", "e2e_ms"):
            assert policy[key].keys() >= {"mean", "p50", "p95", "p99"}
    assert compared["missing"] == []
    assert compared["scenario"] == {
        "name": "tiny",
        "about": "A fleet small enough to be simulated in a blink.",
        "nodes": 2,
        "gpus": 2,
        "seeds": [1, 2],
        "warm_up_s": 1.0,
        "window_s": 4.0,
    }


def test_a_run_is_as_long_as_all_its_seeds_and_policies(compared: dict[str, Any]) -> None:
    run = compared["run"]
    assert run["simulated_s"] == 3 * 2 * (1.0 + 4.0)
    assert run["times_real_time"] == pytest.approx(run["simulated_s"] / run["wall_s"])
    assert run["requests_per_s"] == pytest.approx(run["requests"] / run["wall_s"])
    assert run["jobs"] == 1


def test_differences_are_of_the_seeds_one_by_one(ask: Ask, compared: dict[str, Any]) -> None:
    assert compared["comparison"]["baseline"] == "all-standard"
    of = {policy["name"]: policy for policy in compared["policies"]}
    for difference in compared["comparison"]["differences"]:
        own, base = of[difference["name"]], of["all-standard"]
        assert difference["goodput"] == pytest.approx(own["goodput"] - base["goodput"])
        assert difference["e2e_ms"]["p95"] == pytest.approx(own["e2e_ms"]["p95"] - base["e2e_ms"]["p95"])
        assert "classes" not in difference
    other = json.loads(
        ask("--baseline", "threshold", "--policy", "threshold", "--policy", "all-standard", "--json").stdout
    )
    [reverse] = other["comparison"]["differences"]
    [forward] = [one for one in compared["comparison"]["differences"] if one["name"] == "threshold"]
    assert reverse["goodput"] == pytest.approx(-forward["goodput"])


def test_the_report_fits_80_columns_and_has_the_figures_of_the_json(ask: Ask, compared: dict[str, Any]) -> None:
    shown = ask("--compare", "--verbose").stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "left out, for want of room" not in shown
    assert shown.startswith("tiny: 2 nodes, 2 GPUs, 4 s, 2 seeds\nA fleet small enough")
    for policy in compared["policies"]:
        low, high = policy["goodput_interval"]
        told = f"{policy['goodput']:.2f} ±{(high - low) / 2:.2f}"
        assert re.search(rf"^{policy['name']} +{re.escape(told)} +{policy['attainment']:.1%}", shown, re.MULTILINE)
    for title in ("Latency of finished", "Speculation", "Sequences running", "What became", "By class", "Nodes"):
        assert f"\n\n{title}" in shown
    assert "unclear" in shown or "same" in shown
    assert "half of the 95 % interval" in shown
    assert re.search(r"requests simulated in [\d.]+ s: [\d,]+ a second, [\d,]+ times real time\.$", shown.strip())


def test_the_bound_can_be_asked_for_where_the_scenario_has_none(ask: Ask) -> None:
    shown = ask("--policy", "threshold", "--policy", "bound", "--seed", "1").stdout
    assert re.search(r"^bound +[\d.]+ +[\d.]+% +100%", shown, re.MULTILINE)
    assert "of bound" in shown
    assert "one seed tells not" in shown
    alone = json.loads(ask("--policy", "bound", "--seed", "1", "--json").stdout)
    assert [policy["name"] for policy in alone["policies"]] == ["bound"]
    assert alone["run"]["requests"] == 0
    assert "Latency" not in ask("--policy", "bound", "--seed", "1").stdout


def test_policies_that_do_the_same_are_told_to_be_the_same(tmp_path: Path) -> None:
    path = tmp_path / "twins.yaml"
    twins = "policies: [all-standard, {name: again, kind: all-standard}]"
    path.write_text(re.sub(r"policies: .*", twins, SCENARIO))
    result = CliRunner().invoke(application("simulate"), ["simulate", str(path), "--jobs", "1", "--compare"])
    compared = result.stdout.partition("Difference")[2]
    rows = re.findall(r"^(\S.*?) +again .* (\w+) *$", compared, re.MULTILINE)
    assert [verdict for _, verdict in rows] == ["same"] * len(rows)
    assert "goodput/s" in dict(rows)
    assert "verified" not in dict(rows)


def test_one_seed_leaves_every_difference_open(ask: Ask) -> None:
    shown = ask("--compare", "--seed", "7", "--policy", "all-standard", "--policy", "threshold").stdout
    assert re.search(r"^goodput/s +threshold .* – +one seed", shown, re.MULTILINE)


def test_a_sweep_has_every_point(ask: Ask) -> None:
    arguments = ("--sweep", "rate=2,4,ceiling=1..3:2", "--policy", "threshold", "--seeds", "1")
    told = json.loads(ask(*arguments, "--json").stdout)
    assert [point["values"] for point in told["points"]] == [
        {"rate": rate, "ceiling": ceiling} for rate in (2.0, 4.0) for ceiling in (1.0, 3.0)
    ]
    offered = [point["policies"][0]["offered"] for point in told["points"]]
    assert offered[0] == offered[1] < offered[2] == offered[3]
    shown = ask(*arguments).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert re.search(r"^ +4 +3 threshold ", shown, re.MULTILINE)
    assert "Nodes" not in shown


def test_a_sweep_in_full_has_the_tables_and_comparison_of_each_point(ask: Ask) -> None:
    policies = ("--policy", "threshold", "--policy", "all-standard")
    shown = ask("--sweep", "ceiling=1,2", *policies, "--seeds", "1", "--verbose", "--compare").stdout
    for title in ("ceiling 1", "ceiling 2"):
        assert f"\n{title}\n" in shown
    assert shown.count("Difference to all-standard") == 2
    assert shown.count("\nNodes") == 2


def test_a_change_is_made_and_a_shorter_window_counts(ask: Ask) -> None:
    told = json.loads(ask("--window", "2", "--set", "warm_up_s=0", "--policy", "all-standard", "--json").stdout)
    assert (told["scenario"]["window_s"], told["scenario"]["warm_up_s"]) == (2.0, 0.0)


def test_events_are_of_one_run_or_one_file_each(ask: Ask, tmp_path: Path) -> None:
    one = tmp_path / "one.jsonl"
    ask("--policy", "threshold", "--seed", "1", "--events", one)
    several = tmp_path / "several.jsonl"
    ask("--policy", "threshold", "--policy", "all-standard", "--policy", "bound", "--events", several)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "one.jsonl",
        *(f"several-{name}-{seed}.jsonl" for name in ("threshold", "all-standard") for seed in (1, 2)),
    }
    assert one.read_bytes() == (tmp_path / "several-threshold-1.jsonl").read_bytes()
    events = [json.loads(line) for line in one.read_text().splitlines()]
    assert events[0]["event"] == "arrive"


def test_a_picture_of_a_scenario_is_of_other_loads_too(ask: Ask, tmp_path: Path) -> None:
    arguments = ("--policy", "threshold", "--policy", "bound", "--policy", "all-standard")
    told = json.loads(ask(*arguments, "--plot", tmp_path / "p.svg", "--events", tmp_path / "e.jsonl", "--json").stdout)
    assert "points" not in told
    assert told["run"]["simulated_s"] == 5.0 * (2 * 2 + 4 * 2)
    drawn = (tmp_path / "p.svg").read_text()
    for words in (
        "offered load, requests a second",
        "time to first token, ms",
        "time per output token, ms",
        "end to end",
    ):
        assert f"<!-- {words}" in drawn
    for name in ("threshold", "all-standard", "bound"):
        assert f"<!-- {name} -->" in drawn
    assert len(list(tmp_path.glob("e-*.jsonl"))) == 4


def test_a_picture_of_a_sweep_is_over_what_is_swept(ask: Ask, tmp_path: Path) -> None:
    ask("--sweep", "ceiling=1,2,k=2,3", "--policy", "threshold", "--seed", "1", "--plot", tmp_path / "p.svg")
    drawn = (tmp_path / "p.svg").read_text()
    assert "<!-- ceiling -->" in drawn
    assert "offered load" not in drawn
    assert {f"<!-- threshold, k {k} -->" in drawn for k in (2, 3)} == {True}
    assert "<!-- latency of finished requests (ceiling 2, k 3) -->" in drawn


def test_the_bound_alone_is_drawn_over_load(ask: Ask, tmp_path: Path) -> None:
    ask("--sweep", "rate=2,4", "--policy", "bound", "--seed", "1", "--plot", tmp_path / "p.PNG")
    assert (tmp_path / "p.PNG").read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_can_not_be_written_is_a_sentence(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "p.png").mkdir()
    result = ask("--policy", "bound", "--sweep", "rate=2", "--plot", tmp_path / "p.png", status=2)
    assert result.stderr.endswith("p.png: Is a directory\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--policy", "fastest"), "no policy 'fastest'; it has all-standard, all-speculative, threshold, bound"),
        (("--set", "rate"), "--set is name=value"),
        (("--set", "rate=1,rate=2"), "--set has rate twice"),
        (("--set", "rate=fast"), "--set takes numbers, not 'fast'"),
        (("--set", "rate=inf"), "--set takes numbers, not 'inf'"),
        (("--set", "window_s=3", "--window", "3"), "--set has window_s twice"),
        (("--set", "rats=3"), "rats: found a change that can not be made; allowed: one of rate, load"),
        (("--window", "0"), "window_s: found 0.0; allowed: more than 0"),
        (("--sweep", "rate"), "--sweep is name=values"),
        (("--sweep", "rate=1,,2"), "--sweep is name=values"),
        (("--sweep", "rate=1", "--sweep", "rate=2"), "--sweep has rate twice"),
        (("--sweep", "rate=1..9"), "first..last:step"),
        (("--sweep", "rate=9..1:1"), "rises from its first value"),
        (("--sweep", "rate=1..9:0"), "rises from its first value"),
        (("--sweep", "rate=1..9:0.001"), "at most 1,000 values"),
        (("--sweep", "rate=1..100:1,ceiling=1..11:1"), "--sweep has at most 1,000 combinations"),
        (("--sweep", "rate=1,2", "--set", "rate=2"), "--sweep varies rate, which is set"),
        (("--sweep", "rate=1,2", "--events", "e"), "--events is for single runs"),
        (("--seed", "1", "--seeds", "2"), "give one of the two"),
        (("--seed", "x"), "--seed is a whole number"),
        (("--compare", "--policy", "threshold"), "at least two policies"),
        (("--baseline", "bound"), "--baseline is one of the policies simulated"),
        (("--plot", "p.pdf"), "a plot is written as .png or .svg"),
        (("--plot", "no/p.png"), "the plot can not be written to no/p.png"),
        (("--events", "no/e"), "events can not be written to no/e-all-standard-1: No such file"),
        (("--events", "e", "--policy", "bound"), "the bound is computed"),
        (("--events", ""), "--events names a file for each run by this one, and '.' is no file"),
        (("--events", "/dev/full"), "--events names a file for each run by this one, and '/dev/full' is no file"),
        (("--replay", "none.jsonl"), "none.jsonl: No such file"),
        (("--replay", "none.jsonl", "--replay", "./none.jsonl"), "--replay has a file twice"),
        (("--replay", "none.jsonl", "--compare"), "--compare means nothing with --replay"),
        (("--replay", "none.jsonl", "--verbose"), "--verbose means nothing with --replay"),
    ],
)
def test_what_can_not_be_is_a_sentence(
    ask: Ask, arguments: Sequence[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = ask(*arguments, status=2)
    assert sentence in result.stderr
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_what_observe_means_is_said_where_it_is_shown(ask: Ask) -> None:
    note = "observe: to the least loaded node or the next in turn"
    assert note in ask("--policy", "all-standard", "--seed", "1").stdout
    assert note not in ask("--policy", "threshold", "--seed", "1").stdout


def test_events_never_take_the_place_of_the_scenario(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO)
    words = ["simulate", str(path), "--policy", "threshold", "--seed", "1", "--events", str(path)]
    result = CliRunner().invoke(application("simulate"), words)
    assert result.exit_code == 2
    assert "--events would overwrite the scenario" in result.stderr
    assert path.read_text() == SCENARIO


def test_events_that_have_no_room_are_a_sentence(ask: Ask) -> None:
    result = ask("--policy", "threshold", "--seed", "1", "--events", "/dev/full", status=1)
    assert result.stderr == (
        "slipstream simulate: policy threshold, seed 1: events can not be written to /dev/full: "
        "No space left on device\n"
    )


def test_every_problem_of_a_scenario_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        SCENARIO.replace("ttft_ms: 500", "ttft_ms: 0").replace("profile: measured, slots: 16}", "profile: no}")
    )
    result = CliRunner().invoke(application("simulate"), ["simulate", str(path)])
    assert result.exit_code == 2
    places = [line.split(" found ")[0] for line in result.stderr.splitlines()]
    assert places[0] == f"{path}:7: targets.interactive.ttft_ms:"
    assert len(places) >= 2
    assert {place.partition(":")[0] for place in places} == {str(path)}


def test_what_fails_underway_says_which_run_it_was(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: Any, **options: Any) -> Iterator[Trial]:
        yield next(run_trials(*arguments, **options))
        raise TrialFailed("policy threshold, seed 1: it broke")

    monkeypatch.setattr(simulate_runs, "run_trials", failing)
    result = ask("--policy", "threshold", status=1)
    assert result.stderr == "slipstream simulate: policy threshold, seed 1: it broke\n"


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Ctrl-C is pressed when so many runs are finished."""

    def after(runs: int) -> None:
        def some(*arguments: Any, **options: Any) -> Iterator[Trial]:
            trials = run_trials(*arguments, **options)
            for _ in range(runs):
                yield next(trials)
            raise KeyboardInterrupt

        monkeypatch.setattr(simulate_runs, "run_trials", some)

    return after


def test_an_interrupt_prints_what_is_finished_and_says_what_is_missing(
    ask: Ask, interrupted: Callable[[int], None]
) -> None:
    interrupted(3)
    result = ask("--compare", "--json", status=130)
    told = json.loads(result.stdout)
    assert [(policy["name"], policy["seeds"]) for policy in told["policies"]] == [
        ("all-standard", 2),
        ("all-speculative", 1),
    ]
    assert [one["name"] for one in told["comparison"]["differences"]] == ["all-speculative"]
    assert told["missing"][0] == {"values": {}, "policy": "all-speculative", "seed": 2}
    missing = "missing: all-speculative seed 2; threshold seed 1; threshold seed 2"
    assert result.stderr == f"slipstream simulate: interrupted when 3 of 6 runs were finished; {missing}\n"


def test_an_interrupted_sweep_names_some_of_what_is_missing(
    ask: Ask, interrupted: Callable[[int], None], tmp_path: Path
) -> None:
    interrupted(1)
    arguments = ("--sweep", "rate=2,3", "--policy", "threshold", "--seeds", "3", "--plot", tmp_path / "p.svg")
    result = ask(*arguments, "--compare", "--policy", "all-standard", status=130)
    assert "Every point" in result.stdout
    assert "Difference" not in result.stdout
    assert "1 of 12 runs were finished; missing: rate 2, all-standard seed 2" in result.stderr
    assert result.stderr.rstrip().endswith("and 7 more")


def test_an_interrupt_before_anything_was_finished_is_a_sentence(ask: Ask, interrupted: Callable[[int], None]) -> None:
    interrupted(0)
    result = ask(status=130)
    assert result.stdout == ""
    assert result.stderr == "slipstream simulate: interrupted before anything was finished\n"


def test_few_requests_are_simulated_in_one_process_and_many_on_all_cores() -> None:
    few = scenario(plan_of([0.1] * 10), (group(),))
    many = scenario(plan_of([0.1] * 3_000), (group(), group("std", pool=Pool.STANDARD)), policies=POLICIES * 3)
    assert jobs_for([Point({}, few)]) == 1
    assert jobs_for([Point({}, few), Point({}, many)]) == len(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Code on a speculative node, and nothing of chat that drafts."""
    plan = plan_of(
        [index / 20.0 for index in range(100)], categories=("code", "chat"), category=[0, 1] * 50, output_tokens=20
    )
    fleet = scenario(plan, (group(slots=16), group("std", pool=Pool.STANDARD, slots=16)))
    [lists] = [policy for policy in POLICIES if policy.name == "split-lists"]
    known = replace(fleet, categories=(*fleet.categories, replace(fleet.categories[0], name="chat")))
    return write_run(tmp_path_factory.mktemp("recording") / "decisions.jsonl", simulate(known, lists, 1))


def test_recorded_traffic_is_replayed_between_the_ends_of_its_acceptance(ask: Ask, recording: Path) -> None:
    arguments = ("--replay", recording, "--policy", "all-speculative", "--policy", "all-standard", "--seed", "1")
    told = json.loads(ask(*arguments, "--json").stdout)
    assert told["recording"]["requests"] == 100
    assert told["run"]["requests"] == 100 * (2 * 2 + 1)
    assert told["acceptance"]["chat"]["interval"] is None
    speculative, standard = (policy["tpot_ms"] for policy in (told["policies"][1]["low"], told["policies"][0]["low"]))
    assert speculative["mean"] != standard["mean"]
    shown = ask(*arguments).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.startswith("100 recorded requests")
    for title in ("As it was", "As it could have been", "What the recording tells"):
        assert f"\n\n{title}" in shown
    assert re.search(r"^chat +0 .*nothing: 0 to 1", shown, re.MULTILINE)
    low, high = told["policies"][1]["low"]["tpot_ms"]["mean"], told["policies"][1]["high"]["tpot_ms"]["mean"]
    assert low > high
    assert f"{low:.1f} to {high:.1f}" in shown


def test_a_terminal_is_shown_how_long_it_takes_and_ctrl_c_ends_it(file: Path, tmp_path: Path) -> None:
    script = command("simulate", str(file), "--seeds", "1000", "--jobs", "1", "--policy", "all-standard")
    terminal, theirs = pty.openpty()
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(script, stdout=out, stderr=theirs, env={**COMMAND_ENVIRONMENT, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + 60.0
    while b" left" not in shown and time.monotonic() < deadline:
        if select.select([terminal], [], [], 1.0)[0]:
            shown += os.read(terminal, 4096)
    process.send_signal(signal.SIGINT)
    while b"missing" not in shown and time.monotonic() < deadline:
        if select.select([terminal], [], [], 1.0)[0]:
            shown += os.read(terminal, 4096)
    assert process.wait(30) == 130
    os.close(terminal)
    assert re.search(rb"simulating .*% .*left", shown)
    assert b"of 1000 runs were finished" in shown
    assert "Goodput" in (tmp_path / "out").read_text()

"""Recorded traffic simulated: what else could have been done, at both ends of what is known of acceptance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from slipstream.cli.simulate_answer import told_run
from slipstream.cli.simulate_figures import per_cent, plain
from slipstream.cli.simulate_report import run_sentence, titled
from slipstream.cli.simulate_runs import jobs_for, progress_bar
from slipstream.cli.tables import Column, FittingTable, number
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.sim.bound import longest_draft
from slipstream.sim.recorded import read_traffic
from slipstream.sim.replay import replay, replay_as_json
from slipstream.sim.scenario import PolicyKind, Scenario
from slipstream.sim.sweep import Point

__all__ = ["replay_report", "replayed"]

DRAFT_LENGTH = 4
"""Of recorded answers, where nothing of the scenario says how much they drafted."""

_CHECK = "As it was: recorded, and simulated with the same routing; latency in ms"
_FIGURES = (
    ("goodput/s", "goodput", None),
    ("TTFT mean", "ttft_ms", "mean"),
    ("TTFT p95", "ttft_ms", "p95"),
    ("TPOT mean", "tpot_ms", "mean"),
    ("TPOT p95", "tpot_ms", "p95"),
    ("E2E mean", "e2e_ms", "mean"),
    ("E2E p95", "e2e_ms", "p95"),
)


def replayed(scenario: Scenario, files: Sequence[Path], jobs: int | None) -> dict[str, Any]:
    """The document. Raises as `read_traffic` and `replay`, and `ImpossibleInput` for a file that is given twice."""
    if len({file.resolve() for file in files}) < len(files):
        raise ImpossibleInput("--replay has a file twice, which would replay its requests twice at once")
    models = tuple(dict.fromkeys(group.model for group in scenario.groups))
    drafts = longest_draft(scenario.groups, scenario.policies) or DRAFT_LENGTH
    traffic = read_traffic(files, models=models, draft_length=drafts)
    points = [Point({}, replace(scenario, plan_of=lambda _seed: traffic.plan))] * 2
    processes = jobs or jobs_for(points)
    began = perf_counter()
    with progress_bar() as told:
        found = replay(scenario, traffic, jobs=processes, progress=told)
    wall_s = perf_counter() - began
    simulated = sum(policy.kind is not PolicyKind.BOUND for policy in scenario.policies)
    runs = (2 * simulated + 1) * len(scenario.seeds)  # at either end, and as it was
    return {
        "scenario": {"name": scenario.name, "about": scenario.about, "seeds": list(scenario.seeds)},
        **replay_as_json(found, traffic),
        "run": told_run(runs * len(traffic.plan), runs * traffic.plan.duration_s, wall_s, processes),
    }


def replay_report(answer: Mapping[str, Any]) -> RenderableType:
    """What was recorded, whether the simulation gives the same, and what each policy would have given."""
    return Group(
        Text(_recording(answer["recording"]), "bold"),
        Text(""),
        *titled(_CHECK, _check_table(answer["measured"], answer["simulated"])),
        *titled("As it could have been; latency in ms", _policy_table(answer["policies"])),
        *titled("What the recording tells of acceptance", _acceptance_table(answer["acceptance"])),
        Text("from the low to the high end of what the recording tells of acceptance", "dim"),
        Text(run_sentence(answer["run"])),
    )


def _recording(recording: Mapping[str, Any]) -> str:
    notes = [
        f"{recording[key]:,} {words}"
        for key, words in (
            ("passed_over", "passed over"),
            ("prompts_guessed", "with a guessed prompt length"),
            ("outputs_guessed", "with a guessed output length"),
            ("several", "for several answers taken as one"),
        )
        if recording[key]
    ]
    return "; ".join([f"{recording['requests']:,} recorded requests", *notes])


def _check_table(measured: Mapping[str, Any], simulated: Mapping[str, Any]) -> FittingTable:
    table = FittingTable(
        "",
        Column("", 0),
        Column("recorded", 0, right=True),
        Column("simulated", 0, right=True),
        Column("simulated / recorded", 0, right=True),
    )
    for name, key, percentile in _FIGURES:
        was, would_be = (
            policy[key] if percentile is None else policy[key][percentile] for policy in (measured, simulated)
        )
        ratio = would_be / was if was and would_be is not None else None
        table.add_row(name, plain(was), plain(would_be), number(ratio, 2))
    return table


def _policy_table(policies: Sequence[Mapping[str, Any]]) -> FittingTable:
    table = FittingTable(
        "",
        Column("policy", 0, gives=True),
        Column("goodput/s", 0, right=True),
        Column("met", 4, right=True),
        Column("TTFT p95", 3, right=True),
        Column("TPOT mean", 1, right=True),
        Column("E2E p95", 2, right=True),
    )
    for policy in policies:
        ends = (policy["low"], policy["high"])
        table.add_row(
            escape(policy["name"]),
            _range(*policy["goodput"]),
            " to ".join(dict.fromkeys(per_cent(end["attainment"], None) for end in ends)),
            *(
                _range(*(end[key][percentile] for end in ends))
                for key, percentile in (("ttft_ms", "p95"), ("tpot_ms", "mean"), ("e2e_ms", "p95"))
            ),
        )
    return table


def _acceptance_table(acceptance: Mapping[str, Mapping[str, Any]]) -> FittingTable:
    table = FittingTable(
        "",
        Column("category", 0, gives=True),
        Column("requests", 0, right=True),
        Column("K", 2, right=True),
        Column("alpha", 0, right=True),
        Column("95 % interval", 1, right=True),
    )
    for name, known in acceptance.items():
        interval = known["interval"]
        table.add_row(
            escape(name),
            number(known["requests"]),
            number(known["k"], 1),
            number(known["alpha"], 2),
            "nothing: 0 to 1" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}",
        )
    return table


def _range(low: float | None, high: float | None) -> str:
    return " to ".join(dict.fromkeys((plain(low), plain(high))))

"""The answer of ``slipstream simulate`` as tables of 80 columns. Behind ± is half of the 95 % interval over seeds."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from slipstream.cli.simulate_comparison import comparison_table
from slipstream.cli.simulate_figures import figure, per_cent, percentile, plain
from slipstream.cli.tables import Column, FittingTable, number, share
from slipstream.core.reason import Reason

__all__ = ["missing_sentence", "point_name", "run_sentence", "scenario_title", "simulate_report", "titled"]

WIDTH = 80
_LATENCIES = (("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"), ("E2E", "e2e_ms"))
_SHORT = (("ttft_ms", "p95"), ("tpot_ms", "mean"), ("e2e_ms", "p95"))
_SEEDS = "±: half of the 95 % interval of the mean over seeds"
_OBSERVE = "observe: to the least loaded node or the next in turn, whatever its pool and the request"
_ONE_SEED = "one seed tells not how far to trust the figures; --seeds 5 would"


def simulate_report(answer: Mapping[str, Any], *, verbose: bool = False) -> RenderableType:
    """Every policy; of a sweep an overview, and with ``verbose`` every point in full."""
    scenario = answer["scenario"]
    about = [Text(textwrap.fill(scenario["about"], WIDTH), "dim")] if scenario["about"] else []
    parts: list[RenderableType] = [Text(scenario_title(scenario), "bold"), *about, Text("")]
    if "points" in answer:
        parts += titled("Every point of the sweep; latency in ms", _sweep_table(answer["points"]))
        for point in answer["points"]:
            tables = [*(_policy_tables(point["policies"], True) if verbose else ()), *_comparison(point)]
            parts += [Text(point_name(point["values"]), "bold"), Text(""), *tables] if tables else []
    else:
        parts += [*_policy_tables(answer["policies"], verbose), *_comparison(answer)]
    parts += [Text(_SEEDS if len(scenario["seeds"]) > 1 else _ONE_SEED, "dim")]
    return Group(*parts, Text(run_sentence(answer["run"])))


def point_name(values: Mapping[str, float]) -> str:
    """Where a sweep is: rate 80, ceiling 8."""
    return ", ".join(f"{name} {value:g}" for name, value in values.items())


def run_sentence(run: Mapping[str, Any]) -> str:
    """What it took to simulate."""
    took = f"{run['requests']:,} requests simulated in {run['wall_s']:.1f} s"
    if run["requests_per_s"] is None:
        return f"{took}."
    on = "" if run["jobs"] == 1 else f", on {run['jobs']} processes"
    return f"{took}: {run['requests_per_s']:,.0f} a second, {run['times_real_time']:,.0f} times real time{on}."


def missing_sentence(missing: Sequence[Mapping[str, Any]], runs: int) -> str:
    """Which of all ``runs`` were not finished, the first of them by name."""
    named = [
        ", ".join([*([point_name(one["values"])] if one["values"] else []), f"{one['policy']} seed {one['seed']}"])
        for one in missing[:4]
    ]
    rest = f" and {len(missing) - len(named)} more" if len(missing) > len(named) else ""
    return f"interrupted when {runs - len(missing)} of {runs} runs were finished; missing: {'; '.join(named)}{rest}"


def scenario_title(scenario: Mapping[str, Any]) -> str:
    """How large it is, in a line."""
    nodes, gpus, seeds = scenario["nodes"], scenario["gpus"], len(scenario["seeds"])
    return (
        f"{scenario['name']}: {nodes} node{'s' * (nodes != 1)}, {gpus} GPU{'s' * (gpus != 1)}, "
        f"{scenario['window_s']:g} s, {seeds} seed{'s' * (seeds != 1)}"
    )


def _comparison(point: Mapping[str, Any]) -> Iterator[RenderableType]:
    if point.get("comparison") and point["comparison"]["differences"]:
        title = f"Difference to {point['comparison']['baseline']}, seed by seed; latency in ms"
        yield from titled(title, comparison_table(point["policies"], point["comparison"]))


def _policy_tables(policies: Sequence[Mapping[str, Any]], verbose: bool) -> Iterator[RenderableType]:
    simulated = [policy for policy in policies if "running_mean" in policy]
    yield from titled("Goodput: requests a second that met all their targets", _worth_table(policies))
    if not simulated:
        return
    yield from titled("Latency of finished requests, ms", _latency_table(simulated))
    yield from titled("Speculation: what was drafted or verified in vain", _speculation_table(simulated))
    yield from titled("Sequences running on a node, and waiting in ms", _waiting_table(simulated))
    yield from titled("What became of requests, and why they went where they went", _ending_table(simulated))
    if any(Reason.OBSERVE in policy["reasons"] for policy in simulated):
        yield from (Text(_OBSERVE, "dim"), Text(""))
    if verbose:
        yield from titled("By class and category; latency in ms", _kind_table(simulated))
        yield from titled("Nodes", _node_table(simulated))


def titled(title: str, table: FittingTable) -> Iterator[RenderableType]:
    """With its title above, which may be wider than the table."""
    yield from (Text(title, "bold"), table, Text(""))


def _worth_table(policies: Sequence[Mapping[str, Any]]) -> FittingTable:
    """``of bound``: where the bound was asked for, the share of its goodput."""
    bounds = [policy["goodput"] for policy in policies if "running_mean" not in policy]
    table = FittingTable(
        "",
        Column("policy", 0, gives=True),
        Column("goodput/s", 0, right=True),
        Column("met", 1, right=True),
        *([Column("of bound", 2, right=True)] if bounds else []),
        Column("tokens/s", 3, right=True),
        Column("per GPU", 4, right=True),
    )
    for policy in policies:
        table.add_row(
            escape(policy["name"]),
            figure(policy["goodput"], policy["goodput_interval"]),
            per_cent(policy["attainment"], policy["attainment_interval"]),
            *(share(policy["goodput"] / most if most else None) for most in bounds),
            *(figure(policy.get(key), policy.get(f"{key}_interval")) for key in ("tokens_tps", "tokens_per_gpu_tps")),
        )
    return table


def _latency_table(policies: Sequence[Mapping[str, Any]]) -> FittingTable:
    table = FittingTable(
        "",
        Column("policy", 0, gives=True),
        Column("", 0),
        Column("mean", 2, right=True),
        Column("p50", 3, right=True),
        Column("p95", 0, right=True),
        Column("p99", 1, right=True),
    )
    for policy in policies:
        for place, (name, key) in enumerate(_LATENCIES):
            cells = (percentile(policy[key], name) for name in ("mean", "p50", "p95", "p99"))
            table.add_row("" if place else escape(policy["name"]), name, *cells)
    return table


def _speculation_table(policies: Sequence[Mapping[str, Any]]) -> FittingTable:
    table = FittingTable(
        "",
        Column("policy", 0, gives=True),
        Column("drafted", 1, right=True),
        Column("verified", 0, right=True),
        Column("saturated", 0, right=True),
        Column("busy", 2, right=True),
    )
    for policy in policies:
        keys = ("wasted_drafts", "wasted_verification", "saturated_share", "busy_share")
        table.add_row(escape(policy["name"]), *(per_cent(policy[key], policy[f"{key}_interval"]) for key in keys))
    return table


def _waiting_table(policies: Sequence[Mapping[str, Any]]) -> FittingTable:
    table = FittingTable(
        "",
        Column("policy", 0, gives=True),
        Column("run mean", 1, right=True),
        Column("run p95", 2, right=True),
        Column("gateway p95", 0, right=True),
        Column("engine p95", 0, right=True),
    )
    for policy in policies:
        table.add_row(
            escape(policy["name"]),
            *(figure(policy[key], policy[f"{key}_interval"]) for key in ("running_mean", "running_p95")),
            *(percentile(policy[key], "p95") for key in ("queued_ms", "engine_wait_ms")),
        )
    return table


def _ending_table(policies: Sequence[Mapping[str, Any]]) -> FittingTable:
    table = FittingTable(
        "",
        Column("policy", 0, gives=True),
        Column("offered", 5, right=True),
        Column("finished", 4, right=True),
        Column("shed", 1, right=True),
        Column("expired", 2, right=True),
        Column("unfin.", 3, right=True),
        Column("why", 0, gives=True),
    )
    for policy in policies:
        table.add_row(
            escape(policy["name"]),
            *(number(policy[key]) for key in ("offered", "finished", "shed", "expired", "unfinished")),
            _reasons(policy["reasons"]),
        )
    return table


def _kind_table(policies: Sequence[Mapping[str, Any]]) -> FittingTable:
    table = FittingTable(
        "",
        Column("policy", 0, gives=True),
        Column("of", 0, gives=True),
        Column("offered", 6, right=True),
        Column("goodput/s", 1, right=True),
        Column("met", 2, right=True),
        Column("TTFT p95", 4, right=True),
        Column("TPOT", 3, right=True),
        Column("E2E p95", 5, right=True),
    )
    for policy in policies:
        for place, (kind_name, kind) in enumerate([*policy["classes"].items(), *policy["categories"].items()]):
            table.add_row(
                "" if place else escape(policy["name"]),
                escape(kind_name),
                number(kind["offered"]),
                figure(kind["goodput"], kind["goodput_interval"]),
                share(kind["attainment"]),
                *(plain(kind[key][name]) for key, name in _SHORT),
            )
    return table


def _node_table(policies: Sequence[Mapping[str, Any]]) -> FittingTable:
    table = FittingTable(
        "",
        Column("policy", 0, gives=True),
        Column("node", 0, gives=True),
        Column("busy", 1, right=True),
        Column("run mean", 2, right=True),
        Column("run p95", 3, right=True),
        Column("peak", 5, right=True),
        Column("sat.", 4, right=True),
        Column("preempted", 6, right=True),
    )
    for policy in policies:
        for place, (name, node) in enumerate(policy["nodes"].items()):
            table.add_row(
                "" if place else escape(policy["name"]),
                escape(name),
                share(node["busy_share"]),
                *(number(node[key], 1) for key in ("running_mean", "running_p95", "running_peak")),
                share(node["saturated_share"]),
                number(node["preemptions"], 1),
            )
    return table


def _sweep_table(points: Sequence[Mapping[str, Any]]) -> FittingTable:
    names = list(points[0]["values"])
    table = FittingTable(
        "",
        *(Column(name, 0, right=True) for name in names),
        Column("policy", 0, gives=True),
        Column("goodput/s", 0, right=True),
        Column("met", 1, right=True),
        Column("TTFT p95", 3, right=True),
        Column("TPOT", 2, right=True),
        Column("E2E p95", 4, right=True),
        Column("tokens/s", 5, right=True),
    )
    for point in points:
        for place, policy in enumerate(point["policies"]):
            table.add_row(
                *("" if place else f"{point['values'][name]:g}" for name in names),
                escape(policy["name"]),
                figure(policy["goodput"], policy["goodput_interval"]),
                share(policy["attainment"]),
                *(plain(policy[key][name]) for key, name in _SHORT),
                number(policy.get("tokens_tps")),
            )
    return table


def _reasons(reasons: Mapping[str, float]) -> str:
    ranked: Iterable[tuple[str, float]] = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    # Without a space, so that a narrow terminal never parts a reason from its share.
    return ", ".join(f"{reason}:{share(part)}" for reason, part in ranked)

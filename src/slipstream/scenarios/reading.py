"""A scenario's file, read and put together."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from slipstream.config.scenario_loading import LoadedScenario, load_scenario
from slipstream.config.targets import targets_by_class
from slipstream.core.errors import ConfigError
from slipstream.scenarios.fleet import Profile, group_of, longest_draft, profile_of
from slipstream.scenarios.policies import gateway_of, policy_of, prior_of, unequipped
from slipstream.scenarios.problems import Problems
from slipstream.scenarios.traffic import categories_of, mix_of
from slipstream.sim.scenario import NodeGroup, Scenario
from slipstream.workload.errors import ImpossibleWorkload
from slipstream.workload.mix import make_plan
from slipstream.workload.plan import Plan

__all__ = ["read_scenario"]

MOST_POLLS = 1e9
"""What has more would be simulated for hours, whatever little arrives."""


def read_scenario(path: Path, *, changes: Mapping[str, float] | None = None) -> Scenario:
    """The scenario in a file, ready to be simulated, with ``changes`` by the names of `config.scenario_changes`.

    Raises ConfigError with every problem found, before anything is simulated.
    """
    loaded = load_scenario(path, changes)
    problems = Problems(loaded.report)
    scenario = _scenario(path, loaded, problems)
    if scenario is None or problems.found:
        raise ConfigError(tuple(sorted(dict.fromkeys(problems.found), key=lambda one: one.line or 0)))
    return scenario


def _scenario(path: Path, loaded: LoadedScenario, problems: Problems) -> Scenario | None:
    config = loaded.config
    profiles: dict[str, Profile] = {}
    for name, section in config.profiles.items():
        with problems.at("profiles", name):
            profiles[name] = profile_of(section, path.parent)
    groups: list[NodeGroup] = []
    for index, node in enumerate(config.nodes):
        if node.profile in profiles:
            with problems.at("nodes", index):
                groups.append(group_of(node, profiles[node.profile], config, problems, ("nodes", index)))
    mix = None
    with problems.at("workload"):
        mix = mix_of(config, path.parent, problems)
    if problems.found or mix is None:
        return None
    policies = tuple(policy_of(policy, config) for policy in config.policies)
    for index, policy in enumerate(policies):
        problems.found += unequipped(policy, groups, ("policies", index), loaded.report)
    polls = sum(group.count for group in groups) * (config.warm_up_s + config.window_s) / config.control.poll_interval_s
    if polls > MOST_POLLS:
        found = f"{polls:.2g} polls of nodes until its end"
        problems.found.append(loaded.report(("window_s",), found, f"at most {MOST_POLLS:g}"))
    with problems.at("workload"):
        _check_arrivals(make_plan(mix, config.seeds[0]), config.warm_up_s)
    return Scenario(
        name=path.stem,
        groups=tuple(groups),
        categories=categories_of(config, longest_draft(groups, policies), problems),
        plan_of=partial(make_plan, mix),
        policies=policies,
        targets=targets_by_class(config.targets),
        seeds=config.seeds,
        window_s=config.window_s,
        warm_up_s=config.warm_up_s,
        drain_s=config.drain_s,
        gateway=gateway_of(config),
        prior=prior_of(config),
        about=config.about,
    )


def _check_arrivals(plan: Plan, warm_up_s: float) -> None:
    """Raises ImpossibleWorkload where there would be nothing to measure, as of a trace shorter than the warm-up."""
    if plan.duration_s < warm_up_s:
        raise ImpossibleWorkload(
            f"the last request would arrive after {plan.duration_s:g} s, and those of the first {warm_up_s:g} s, "
            "the warm-up, do not count"
        )

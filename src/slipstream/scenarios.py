"""From a scenario's file to what is simulated: step times looked up, memory counted, traces read.

Everything that makes a scenario impossible is found here, before the first event, and is said with its place in the
file. A scenario can be sent to another process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from slipstream.config import acceptance_prior, threshold_settings
from slipstream.config.document import Path as Place
from slipstream.config.document import Report
from slipstream.config.scenario import PolicySection, ScenarioConfig, TargetSection
from slipstream.config.scenario_loading import LoadedScenario, load_scenario
from slipstream.config.scenario_nodes import DraftRange, NodeGroupSection, ProfileSection, ScenarioSpeculator
from slipstream.config.scenario_workload import ArrivalsSection, LengthsSection, TraceSection, WorkloadSection
from slipstream.core.acceptance import DEFAULT_ALPHAS, AcceptancePrior
from slipstream.core.errors import ConfigError, ConfigProblem
from slipstream.core.request import Pool, TrafficClass
from slipstream.costmodel.catalogue import any_model, engine_named, hardware_named
from slipstream.costmodel.costs import RooflineCosts
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.memory import kv_token_capacity
from slipstream.costmodel.model import Model
from slipstream.costmodel.profiles import LinearCosts, article_1, read_profile
from slipstream.costmodel.roofline import Deployment
from slipstream.costmodel.speculator import HEADS, Speculator, draft_model, ngram
from slipstream.costmodel.steps import step_rows
from slipstream.enginemodel.acceptance import RequestAcceptance, survival_of
from slipstream.enginemodel.settings import Account, EngineSettings, ImpossibleEngine, Speculation
from slipstream.enginemodel.step_times import StepRows
from slipstream.sim.scenario import (
    Category,
    Equipment,
    GatewaySettings,
    NodeGroup,
    Policy,
    PolicyKind,
    Scenario,
    Target,
)
from slipstream.workload.arrivals import (
    Arrivals,
    BurstArrivals,
    ConstantArrivals,
    GammaArrivals,
    PoissonArrivals,
    RateArrivals,
)
from slipstream.workload.errors import ImpossibleWorkload, TraceUnreadable
from slipstream.workload.lengths import (
    ExponentialLengths,
    FixedLengths,
    Lengths,
    ListedLengths,
    LognormalLengths,
    UniformLengths,
)
from slipstream.workload.mix import CategoryTraffic, Limit, Mix, TraceArrivals, make_plan
from slipstream.workload.traces import TraceFormat, read_trace

__all__ = ["read_scenario"]

_POSSIBLE: Mapping[str, str] = MappingProxyType(
    {"profiles": "a node that can be built", "nodes": "an engine that can run", "workload": "traffic that can arrive"}
)
"""What is allowed, by the section in which something was found impossible."""

ARTICLE_1 = "article-1"
"""In place of a profile's file: the line through the first article's figures."""


def read_scenario(path: Path, *, changes: Mapping[str, float] | None = None) -> Scenario:
    """The scenario in a file, ready to be simulated, with ``changes`` by the names of `config.scenario_changes`.

    Raises ConfigError with every problem found, before anything is simulated.
    """
    loaded = load_scenario(path, changes)
    problems = _Problems(loaded.report)
    scenario = _scenario(path, loaded, problems)
    if scenario is None or problems.found:
        raise ConfigError(tuple(sorted(dict.fromkeys(problems.found), key=lambda one: one.line or 0)))
    return scenario


@dataclass(slots=True)
class _Problems:
    """What is found impossible while a scenario is built, each with its place."""

    report: Report
    found: list[ConfigProblem] = field(default_factory=list)

    @contextmanager
    def at(self, *place: str | int) -> Iterator[None]:
        """Notes what is raised inside as a problem of ``place``; what is left undone then counts for nothing."""
        try:
            yield
        except (ImpossibleInput, ImpossibleEngine, ImpossibleWorkload) as error:
            self.found.append(self.report(place, f"something that can not be ({error})", _POSSIBLE[str(place[0])]))
        except TraceUnreadable as error:
            what = "a file that is no trace" if error.line is None else "a line that is no request"
            self.found.append(
                ConfigProblem(str(error.file), error.line, "", f"{what} ({error.reason})", "a trace of a known format")
            )


def _scenario(path: Path, loaded: LoadedScenario, problems: _Problems) -> Scenario | None:
    config = loaded.config
    profiles: dict[str, _Profile] = {}
    for name, section in config.profiles.items():
        with problems.at("profiles", name):
            profiles[name] = _profile(section, path.parent)
    groups: list[NodeGroup] = []
    for index, node in enumerate(config.nodes):
        if node.profile in profiles:
            with problems.at("nodes", index):
                groups.append(_group(node, profiles[node.profile], config, problems, ("nodes", index)))
    mix = None
    with problems.at("workload"):
        mix = _mix(config, path.parent, problems)
    if problems.found or mix is None:
        return None
    policies = tuple(_policy(policy, config) for policy in config.policies)
    for index, policy in enumerate(policies):
        problems.found += _unequipped(policy, groups, ("policies", index), loaded.report)
    with problems.at("workload"):
        make_plan(mix, config.seeds[0])
    return Scenario(
        name=path.stem,
        groups=tuple(groups),
        categories=_categories(config, _longest(groups, policies), problems),
        plan_of=partial(make_plan, mix),
        policies=policies,
        targets={
            traffic_class: _target(section)
            for traffic_class, section in (
                (TrafficClass.INTERACTIVE, config.targets.interactive),
                (TrafficClass.BULK, config.targets.bulk),
            )
            if section is not None
        },
        seeds=config.seeds,
        window_s=config.window_s,
        warm_up_s=config.warm_up_s,
        drain_s=config.drain_s,
        gateway=_gateway(config),
        prior=_prior(config),
        about=config.about,
    )


# What nodes are ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Profile:
    """Step times and room of a kind of node. ``drafts``: whether it can be equipped with a speculator."""

    rows: StepRows
    speculative_rows: StepRows | None
    kv_tokens: int | None
    speculative_kv_tokens: int | None
    proposing_share: float
    gpus: int


def _profile(section: ProfileSection, directory: Path) -> _Profile:
    """Raises ImpossibleInput for what no catalogue has, and for what does not fit."""
    if section.file is not None:
        costs = article_1() if section.file == ARTICLE_1 else read_profile(directory / section.file)
        rows = step_rows(costs)
        drafts = isinstance(costs, LinearCosts) or any(k > 0 for k in costs.step_s)
        standard, speculative = section.kv_tokens, section.speculative_kv_tokens or section.kv_tokens
        return _Profile(rows, rows if drafts else None, standard, speculative, costs.proposing_share, 1)
    assert section.model is not None
    assert section.hardware is not None
    model = any_model(_named(section.model, directory))
    if model.heads % section.tensor_parallel:
        raise ImpossibleInput(
            f"{model.name} has {model.heads} attention heads, which {section.tensor_parallel} GPUs can not share: "
            "tensor_parallel divides them"
        )
    deployment = Deployment(
        model,
        hardware_named(_named(section.hardware, directory)),
        engine_named(_named(section.engine, directory)),
        section.tensor_parallel,
        section.weight_dtype,
        section.kv_dtype,
    )
    room = kv_token_capacity(deployment, None, usable_share=section.memory_share)
    standard = section.kv_tokens or room
    if section.speculator is None:
        return _Profile(step_rows(deployment), None, standard, None, 1.0, section.tensor_parallel)
    speculator = _speculator(section.speculator, model, directory)
    beside = kv_token_capacity(deployment, speculator, usable_share=section.memory_share)
    return _Profile(
        step_rows(deployment),
        step_rows(RooflineCosts(deployment, speculator)),
        standard,
        section.speculative_kv_tokens or min(standard, beside),
        speculator.proposing_share,
        section.tensor_parallel,
    )


def _speculator(section: ScenarioSpeculator, target: Model, directory: Path) -> Speculator:
    if section.kind == "ngram":
        return ngram(section.proposing_share or 0.0)
    if section.kind in HEADS:
        made = HEADS[section.kind](target)
    else:
        made = draft_model(any_model(_named(section.model or "", directory)), sharded=section.sharded)
    return made if section.proposing_share is None else replace(made, proposing_share=section.proposing_share)


def _named(name: str, directory: Path) -> str:
    """A file beside the scenario by its path, any other name as it is."""
    return str(directory / name) if (directory / name).exists() else name


def _group(
    section: NodeGroupSection, profile: _Profile, config: ScenarioConfig, problems: _Problems, place: Place
) -> NodeGroup:
    speculating = section.speculation
    speculation = Speculation(
        k=speculating.k,
        proposing_share=profile.proposing_share,
        schedule=_schedule(speculating.schedule),
        drop_below=speculating.drop_below,
        zero_draft_tax=speculating.zero_draft_tax,
        account=Account(speculating.account),
    )
    with problems.at(*place, "slots"):
        for batch in (1, section.slots):
            profile.rows.decode_row(batch, 0, 0)
    standard = Equipment(_engine(section, profile.kv_tokens), profile.rows)
    speculative = None
    if profile.speculative_rows is not None:
        settings = replace(_engine(section, profile.speculative_kv_tokens), speculation=speculation)
        speculative = Equipment(settings, profile.speculative_rows)
        with problems.at(*place, "speculation"):
            _check_drafts(speculative, speculation)
    elif section.pool is Pool.SPECULATIVE:
        found = f"a pool whose nodes speculate, and the profile {section.profile} has no speculator"
        problems.found.append(problems.report((*place, "pool"), found, "standard, or a profile with a speculator"))
    return NodeGroup(
        name=section.name,
        count=section.count,
        pool=section.pool,
        model=section.model,
        standard=standard,
        speculative=speculative,
        gpus=section.gpus or profile.gpus,
        ceiling=section.ceiling or config.pools.speculative.ceiling,
        capacity_changes=tuple((change.at_s, change.count) for change in section.capacity),
    )


def _engine(section: NodeGroupSection, kv_tokens: int | None) -> EngineSettings:
    return EngineSettings(
        slots=section.slots,
        kv_tokens=kv_tokens,
        block_tokens=section.block_tokens,
        step_tokens=section.step_tokens,
        queue_limit=section.queue_limit,
    )


def _check_drafts(equipment: Equipment, speculation: Speculation) -> None:
    """Raises ImpossibleInput for a draft length whose steps the profile does not know."""
    for k in {speculation.k_at(batch) for batch in _batches(speculation, equipment.settings.slots)}:
        equipment.rows.decode_row(1, 1, k)
        equipment.rows.decode_row(equipment.settings.slots, equipment.settings.slots, k)


def _batches(speculation: Speculation, slots: int) -> set[int]:
    """Batch sizes at which every draft length of a schedule occurs that occurs at all."""
    return {1, slots, *(min(size, slots) for size, _ in speculation.schedule)}


def _schedule(ranges: tuple[DraftRange, ...]) -> tuple[tuple[int, int], ...]:
    return tuple((one.up_to, one.k) for one in ranges)


# What arrives --------------------------------------------------------------------------------------------------------


def _mix(config: ScenarioConfig, directory: Path, problems: _Problems) -> Mix:
    """Raises ImpossibleWorkload or TraceUnreadable."""
    workload = config.workload
    arrivals: Arrivals | TraceArrivals
    if workload.trace is not None:
        arrivals = _trace(workload.trace, directory)
    else:
        assert workload.arrivals is not None
        arrivals = _arrivals(workload.arrivals)
    return Mix(
        arrivals=arrivals,
        categories=_traffic(workload, problems),
        models=tuple(workload.models.items()) or ((config.nodes[0].model, 1.0),),
        duration_s=config.warm_up_s + config.window_s,
        context_tokens=workload.context_tokens,
    )


def _trace(section: TraceSection, directory: Path) -> TraceArrivals:
    form = None if section.format is None else TraceFormat(section.format)
    return TraceArrivals(read_trace(directory / section.file, form), section.speed, section.repeat)


def _arrivals(section: ArrivalsSection) -> Arrivals:
    per_s = section.per_s or 0.0
    match section.process:
        case "constant":
            return ConstantArrivals(per_s)
        case "poisson":
            return PoissonArrivals(per_s)
        case "gamma":
            return GammaArrivals(per_s, section.cv or 1.0)
        case "bursts":
            return BurstArrivals(per_s, section.burst_per_s or 0.0, section.burst_s or 0.0, section.every_s or 0.0)
    return RateArrivals(tuple((point.at_s, point.per_s) for point in section.rates))


def _traffic(workload: WorkloadSection, problems: _Problems) -> tuple[CategoryTraffic, ...]:
    traffic: list[CategoryTraffic] = []
    for name, category in workload.categories.items():
        lengths: dict[str, Lengths | None] = {"prompt_tokens": None, "output_tokens": None}
        for key, section in (("prompt_tokens", category.prompt_tokens), ("output_tokens", category.output_tokens)):
            if section is not None:
                lengths[key] = FixedLengths(1)  # lengths that can not be drawn are said once, and traffic has some
                with problems.at("workload", "categories", name, key):
                    lengths[key] = _lengths(section)
        limit = category.output_limit
        traffic.append(
            CategoryTraffic(
                name,
                category.share,
                lengths["prompt_tokens"],
                lengths["output_tokens"],
                category.traffic_class,
                limit if isinstance(limit, int) else Limit(limit),
            )
        )
    return tuple(traffic)


def _lengths(section: LengthsSection) -> Lengths:
    if section.tokens is not None:
        return FixedLengths(section.tokens)
    if section.values:
        return ListedLengths(section.values)
    if section.mean is None:
        assert section.least is not None
        assert section.most is not None
        return UniformLengths(section.least, section.most)
    made = ExponentialLengths(section.mean) if section.p95 is None else LognormalLengths(section.mean, section.p95)
    return made if section.maximum is None else replace(made, maximum=section.maximum)


def _categories(config: ScenarioConfig, longest: int, problems: _Problems) -> tuple[Category, ...]:
    """``longest``: the longest draft of any node under any policy."""
    categories = []
    for name, section in config.workload.categories.items():
        survival = section.survival if section.alpha is None else survival_of(section.alpha, longest)
        with problems.at("workload", "categories", name, "spread"):
            RequestAcceptance(survival, section.spread, longest)
        categories.append(Category(name, survival, section.spread))
    return tuple(categories)


def _longest(groups: list[NodeGroup], policies: tuple[Policy, ...]) -> int:
    of_nodes = [
        group.speculative.settings.speculation.longest
        for group in groups
        if group.speculative is not None and group.speculative.settings.speculation is not None
    ]
    return max([*of_nodes, *(k for policy in policies for _, k in policy.schedule), 1])


# What is asked -------------------------------------------------------------------------------------------------------


def _target(section: TargetSection) -> Target:
    def seconds(milliseconds: float | None) -> float | None:
        return None if milliseconds is None else milliseconds / 1000.0

    return Target(seconds(section.ttft_ms), seconds(section.tpot_ms), seconds(section.e2e_ms))


def _policy(section: PolicySection, config: ScenarioConfig) -> Policy:
    settings = threshold_settings(
        config.pools.speculative, config.routing, affinity_slack=None, rejected_features=_rejects_nothing
    )
    if section.alpha_floor is not None:
        settings = replace(settings, alpha_floor=section.alpha_floor)
    if section.holdback is not None:
        settings = replace(settings, holdback=section.holdback)
    return Policy(
        name=section.name or section.kind,
        kind=PolicyKind(section.kind),
        ceiling=section.ceiling,
        threshold=settings,
        speculative_categories=frozenset(section.categories),
        schedule=_schedule(section.schedule),
    )


def _rejects_nothing(_engine: str | None) -> frozenset[str]:
    """A simulated request has no fields that an engine could refuse."""
    return frozenset()


def _unequipped(policy: Policy, groups: list[NodeGroup], place: Place, report: Report) -> Iterator[ConfigProblem]:
    """Nodes that would speculate under a policy and have nothing to draft with."""
    if policy.kind not in {PolicyKind.ALL_SPECULATIVE, PolicyKind.ALL_SCHEDULED}:
        return
    for group in groups:
        if group.speculative is None:
            found = f"{policy.kind}, and the nodes {group.name} have a profile without speculator"
            yield report(place, found, "a policy that leaves them standard, or a profile with a speculator")
            continue
        speculation = group.speculative.settings.speculation
        assert speculation is not None
        if policy.schedule:
            try:
                _check_drafts(group.speculative, replace(speculation, schedule=policy.schedule))
            except ImpossibleInput as error:
                found = f"draft lengths that {group.name} can not have ({error})"
                yield report((*place, "schedule"), found, "draft lengths that its profile knows")


def _gateway(config: ScenarioConfig) -> GatewaySettings:
    gateway, control = config.gateway, config.control
    return GatewaySettings(
        poll_interval_s=control.poll_interval_s,
        report_delay_s=control.report_delay_ms / 1000.0,
        stale_after_s=control.stale_after_s,
        hysteresis=config.pools.speculative.hysteresis,
        forward_s=gateway.forward_ms / 1000.0,
        queue_size=gateway.queue.size,
        queue_timeout_s=gateway.queue.timeout_s,
        retries=gateway.retries,
        evidence_half_life_s=config.routing.evidence_half_life_s,
        request_statistics=gateway.request_statistics,
    )


def _prior(config: ScenarioConfig) -> AcceptancePrior:
    alphas = {
        name: section.prior_alpha
        for name, section in config.workload.categories.items()
        if section.prior_alpha is not None
    }
    return acceptance_prior(config.pools.speculative, {**DEFAULT_ALPHAS, **alphas})

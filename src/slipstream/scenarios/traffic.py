"""What arrives, and how much of a draft each category accepts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from slipstream.config.scenario import ScenarioConfig
from slipstream.config.scenario_workload import ArrivalsSection, LengthsSection, TraceSection, WorkloadSection
from slipstream.enginemodel.acceptance import RequestAcceptance, survival_of
from slipstream.scenarios.problems import Problems
from slipstream.sim.scenario import Category
from slipstream.workload.arrivals import (
    Arrivals,
    BurstArrivals,
    ConstantArrivals,
    GammaArrivals,
    PoissonArrivals,
    RateArrivals,
)
from slipstream.workload.lengths import (
    ExponentialLengths,
    FixedLengths,
    Lengths,
    ListedLengths,
    LognormalLengths,
    UniformLengths,
)
from slipstream.workload.mix import CategoryTraffic, Limit, Mix, TraceArrivals
from slipstream.workload.traces import TraceFormat, read_trace

__all__ = ["categories_of", "mix_of"]


def mix_of(config: ScenarioConfig, directory: Path, problems: Problems) -> Mix:
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


def _traffic(workload: WorkloadSection, problems: Problems) -> tuple[CategoryTraffic, ...]:
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


def categories_of(config: ScenarioConfig, longest: int, problems: Problems) -> tuple[Category, ...]:
    """``longest``: the longest draft of any node under any policy."""
    categories = []
    for name, section in config.workload.categories.items():
        survival = section.survival if section.alpha is None else survival_of(section.alpha, longest)
        with problems.at("workload", "categories", name, "spread"):
            RequestAcceptance(survival, section.spread, longest)
        categories.append(Category(name, survival, section.spread))
    return tuple(categories)

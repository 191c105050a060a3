"""Small fleets for tests of the core: built by hand, reported on by hand."""

from __future__ import annotations

from slipstream.core.acceptance import AcceptanceBook, AcceptancePrior
from slipstream.core.dispatch import Dispatcher
from slipstream.core.evidence import CategoryEvidence
from slipstream.core.fleet import Fleet
from slipstream.core.node import NodeReport, NodeSpec, SpeculatorKind
from slipstream.core.policy import ThresholdPolicy, ThresholdSettings
from slipstream.core.request import Pool, RequestShape

MODEL = "m"


def speculative(
    name: str, *, ceiling: int = 8, kind: SpeculatorKind | None = None, limit: int | None = None
) -> NodeSpec:
    return NodeSpec(name, f"http://{name}:1", Pool.SPECULATIVE, "vllm", (MODEL,), ceiling, limit, speculator_kind=kind)


def standard(name: str, *, limit: int | None = None) -> NodeSpec:
    return NodeSpec(name, f"http://{name}:1", Pool.STANDARD, "vllm", (MODEL,), max_in_flight=limit)


def report(running: int = 0, *, waiting: int = 0, speculating: bool | None = True, k: int | None = 4) -> NodeReport:
    return NodeReport(running=running, waiting=waiting, speculating=speculating, k=k)


def shape(category: str = "code", **fields: object) -> RequestShape:
    return RequestShape(MODEL, category, **fields)  # type: ignore[arg-type]  # names are RequestShape's, checked at run time


def fleet_of(*specs: NodeSpec, now: float = 0.0, hysteresis: int = 0, report_all: bool = True) -> Fleet:
    fleet = Fleet(specs, now, stale_after_s=1.0, hysteresis=hysteresis)
    if report_all:
        for spec in specs:
            fleet.report(spec.name, now, now, report(speculating=spec.pool is Pool.SPECULATIVE))
    return fleet


def dispatcher_of(fleet: Fleet, settings: ThresholdSettings | None = None, draw: float = 0.5) -> Dispatcher:
    evidence = CategoryEvidence(AcceptanceBook(AcceptancePrior()))
    policy = ThresholdPolicy(settings or ThresholdSettings(), evidence)
    return Dispatcher(fleet, evidence, policy, lambda: draw)

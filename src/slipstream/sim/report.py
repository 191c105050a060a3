"""Results as JSON, with the keys that docs/reference/simulate-json.md promises.

Numbers carry their unit in the key's last part, an interval stands beside its mean, unknown is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from slipstream.sim.bound import BoundResult
from slipstream.sim.intervals import PolicyResult
from slipstream.sim.measures import Distribution, NodeMeasures, Requests
from slipstream.sim.sweep import PointResult

__all__ = ["as_json", "document"]


def document(results: Sequence[PointResult], wall_s: float) -> dict[str, Any]:
    """The whole answer: ``policies`` of a single point at the top, several as ``points`` each with its ``values``.
    ``wall_s`` is what all of it took.
    """
    requests = sum(trial.requests for result in results for trials in result.runs.values() for trial in trials)
    run = {"requests": requests, "wall_s": wall_s, "requests_per_s": requests / wall_s if wall_s > 0.0 else None}
    if len(results) == 1 and not results[0].point.values:
        return {"policies": _policies(results[0]), "run": run}
    points = [{"values": dict(result.point.values), "policies": _policies(result)} for result in results]
    return {"points": points, "run": run}


def _policies(result: PointResult) -> list[dict[str, Any]]:
    return [as_json(policy) for policy in result.policies]


def as_json(result: PolicyResult | BoundResult) -> dict[str, Any]:
    """One entry of ``policies``. The bound has a goodput and an attainment only, and null for the rest."""
    if isinstance(result, BoundResult):
        return {
            "name": result.policy,
            "seeds": result.seeds,
            **_figures_of_bound(result),
            **{key: _distribution(_UNKNOWN, _UNKNOWN, _UNKNOWN) for key in ("ttft_ms", "tpot_ms", "e2e_ms")},
        }
    mean, low, high = result.mean, result.low, result.high
    return {
        "name": result.policy,
        "seeds": result.seeds,
        **_requests(mean.requests, low.requests, high.requests),
        "classes": {
            name: _requests(of, low.classes[name], high.classes[name])
            for name, of in mean.classes.items()
            if of.offered
        },
        "categories": {
            name: _requests(of, low.categories[name], high.categories[name])
            for name, of in mean.categories.items()
            if of.offered
        },
        **_figures(mean, low, high, _FLEET),
        "queued_ms": _distribution(mean.queued, low.queued, high.queued),
        "engine_wait_ms": _distribution(mean.engine_wait, low.engine_wait, high.engine_wait),
        "reasons": {name: share for name, share in mean.reasons.items() if share},
        "nodes": {name: {key: getattr(node, key) for key in _NODE} for name, node in mean.nodes.items()},
    }


_COUNTS = ("offered", "finished", "shed", "expired", "unfinished")
_FLEET = (
    ("tokens_per_s", "tokens_tps"),
    ("tokens_per_s_per_gpu", "tokens_per_gpu_tps"),
    ("wasted_drafts", "wasted_drafts"),
    ("wasted_verification", "wasted_verification"),
    ("running_mean", "running_mean"),
    ("running_p95", "running_p95"),
    ("saturated_share", "saturated_share"),
    ("busy_share", "busy_share"),
)
_NODE = tuple(field.name for field in fields(NodeMeasures))
_UNKNOWN = Distribution(None, None, None, None)
_PERCENTILES = tuple(field.name for field in fields(Distribution))


def _requests(mean: Requests, low: Requests, high: Requests) -> dict[str, Any]:
    return {
        **{name: getattr(mean, name) for name in _COUNTS},
        **_figures(mean, low, high, (("goodput", "goodput"), ("attainment", "attainment"))),
        "ttft_ms": _distribution(mean.ttft, low.ttft, high.ttft),
        "tpot_ms": _distribution(mean.tpot, low.tpot, high.tpot),
        "e2e_ms": _distribution(mean.e2e, low.e2e, high.e2e),
    }


def _figures(mean: object, low: object, high: object, names: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Each figure under its key, and its interval beside."""
    found: dict[str, Any] = {}
    for name, key in names:
        found[key] = getattr(mean, name)
        found[f"{key}_interval"] = _ends(getattr(low, name), getattr(high, name))
    return found


def _distribution(mean: Distribution, low: Distribution, high: Distribution) -> dict[str, Any]:
    """In milliseconds."""
    figures: dict[str, Any] = {name: _milliseconds(getattr(mean, name)) for name in _PERCENTILES}
    figures["intervals"] = {
        name: _ends(_milliseconds(getattr(low, name)), _milliseconds(getattr(high, name))) for name in _PERCENTILES
    }
    return figures


def _ends(low: float | None, high: float | None) -> list[float] | None:
    return None if low is None or high is None else [low, high]


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000.0


def _figures_of_bound(result: BoundResult) -> dict[str, Any]:
    return {
        "goodput": result.goodput,
        "goodput_interval": None if result.goodput_interval is None else list(result.goodput_interval),
        "attainment": result.attainment,
        "attainment_interval": None if result.attainment_interval is None else list(result.attainment_interval),
    }

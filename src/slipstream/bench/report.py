"""Results as JSON, with the keys that docs/reference/bench.md promises.

Numbers carry their unit in the key's last part, an interval stands beside its figure, unknown is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.bench.compare import Comparison
from slipstream.bench.find_max import Search
from slipstream.bench.holdback import Holdback, Latencies, holdback_of
from slipstream.bench.measures import Measures, Requests, measures_of
from slipstream.bench.resampling import Distribution, Figure
from slipstream.bench.samples import Samples

__all__ = ["comparison_document", "search_document", "target_document"]


def target_document(name: str, url: str, model: str, samples: Samples, running: Sequence[int]) -> dict[str, Any]:
    """One entry of ``targets``: what a load on one server was worth."""
    return _target(name, url, model, measures_of(samples), samples, running)


def comparison_document(names: Sequence[tuple[str, str, str]], comparison: Comparison) -> dict[str, Any]:
    """``targets`` and ``comparison`` of two servers, each told by name, URL and model."""
    differences = comparison.differences
    return {
        "targets": [
            _target(*names[side], comparison.measures[side], comparison.samples[side], comparison.running[side])
            for side in (0, 1)
        ],
        "comparison": {
            "parts": comparison.parts,
            **_figure("goodput", differences.goodput),
            **_figure("attainment", differences.attainment),
            **_figure("tokens_tps", differences.tokens_per_s),
            "ttft_ms": _distribution(differences.ttft),
            "tpot_ms": _distribution(differences.tpot),
            "itl_ms": _distribution(differences.itl),
            "e2e_ms": _distribution(differences.e2e),
        },
    }


def search_document(search: Search, attainment: float) -> dict[str, Any]:
    """``find_max``: the answer, and every rate that was measured, in their order."""
    return {
        "rate": search.rate,
        "rate_interval": list(search.interval),
        "attainment": attainment,
        "ended": str(search.ended),
        "points": [
            {
                "rate": point.rate,
                "window_s": point.measures.window_s,
                **_requests(point.measures.requests),
                "fell_behind": point.measures.fell_behind,
            }
            for point in search.points
        ],
    }


def _target(
    name: str, url: str, model: str, measures: Measures, samples: Samples, running: Sequence[int]
) -> dict[str, Any]:
    held = holdback_of(samples)
    return {
        "name": name,
        "url": url,
        "model": model,
        "window_s": measures.window_s,
        **_requests(measures.requests),
        "categories": {category: _requests(of) for category, of in measures.categories.items()},
        **_figure("tokens_tps", measures.tokens_per_s),
        **_figure("requests_per_s", measures.requests_per_s),
        "prompt_tokens": measures.prompt_tokens,
        "output_tokens": measures.output_tokens,
        "running_p95": float(np.percentile(running, 95.0)) if running else None,
        "late_ms": {"p50": measures.late_p50_s * 1000.0, "p99": measures.late_p99_s * 1000.0},
        "fell_behind": measures.fell_behind,
        "errors": dict(samples.errors.most_common()),
        "holdback": None if held is None else _holdback(held),
    }


def _requests(requests: Requests) -> dict[str, Any]:
    return {
        "offered": requests.offered,
        "finished": requests.finished,
        "failed": requests.failed,
        **_figure("goodput", requests.goodput),
        **_figure("attainment", requests.attainment),
        "ttft_ms": _distribution(requests.ttft),
        "tpot_ms": _distribution(requests.tpot),
        "itl_ms": _distribution(requests.itl),
        "e2e_ms": _distribution(requests.e2e),
    }


def _holdback(held: Holdback) -> dict[str, Any]:
    return {
        "speculative": {"requests": held.speculative_requests, **_latencies(held.speculative)},
        "held_back": {"requests": held.held_back_requests, **_latencies(held.held_back)},
        "difference": _latencies(held.difference),
    }


def _latencies(latencies: Latencies) -> dict[str, Any]:
    return {
        "ttft_ms": _distribution(latencies.ttft),
        "tpot_ms": _distribution(latencies.tpot),
        "e2e_ms": _distribution(latencies.e2e),
    }


def _figure(key: str, figure: Figure, factor: float = 1.0) -> dict[str, Any]:
    value, ends = figure.value, figure.interval
    return {
        key: None if value is None else value * factor,
        f"{key}_interval": None if ends is None else [ends[0] * factor, ends[1] * factor],
    }


def _distribution(distribution: Distribution) -> dict[str, Any]:
    """In milliseconds."""
    figures = {
        "mean": distribution.mean,
        "p50": distribution.p50,
        "p95": distribution.p95,
        "p99": distribution.p99,
    }
    told = {name: _figure(name, figure, 1000.0) for name, figure in figures.items()}
    return {
        **{name: one[name] for name, one in told.items()},
        "intervals": {name: one[f"{name}_interval"] for name, one in told.items()},
    }

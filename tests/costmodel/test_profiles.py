"""Profiles: refused without their provenance, honest about where they end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slipstream.costmodel.acceptance import geometric
from slipstream.costmodel.curve import Workload, best_k, curve_of
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.profiles import LinearCosts, TableCosts, article_1, profile_of, read_profile

ORIGIN = {"engine": "vllm", "version": "0.31", "hardware": "H100", "model": "Llama-3.1-8B", "date": "2026-02-01"}
LINEAR: dict[str, Any] = {
    **ORIGIN,
    "form": "linear",
    "coefficients": {
        "step_s": 0.0071,
        "token_s": 21e-6,
        "cached_token_s": 39.3e-9,
        "draft_pass_s": 0.00071,
        "draft_token_s": 0.84e-6,
        "prefill_token_s": 22e-6,
    },
}
TABLE: dict[str, Any] = {
    **ORIGIN,
    "form": "table",
    "context_tokens": 1024,
    "points": [
        {"batch_size": batch, "k": k, "step_ms": 7 + 0.02 * batch * (k + 1) + 0.7 * k}
        for k in (0, 3)
        for batch in (1, 8, 64)
    ],
}


def test_the_first_articles_two_points_are_a_line_and_labelled_so() -> None:
    costs = article_1()
    curve = curve_of("article-1", costs, geometric(0.72), 4, [4, 32], Workload())
    assert [round(row.speedup, 3) for row in curve.rows] == [2.1, 1.0]
    assert curve.crossovers[0] == pytest.approx(32, abs=0.01)
    assert "two figures" in str(costs.provenance)


@pytest.mark.parametrize("missing", ["engine", "version", "hardware", "model", "date"])
def test_a_profile_without_its_provenance_is_refused(missing: str) -> None:
    for value in (None, "", "  "):
        with pytest.raises(ImpossibleInput, match=f"is refused: it does not say its {missing}"):
            profile_of({**LINEAR, missing: value}, "p.json")


def test_a_line_is_read_and_told(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(LINEAR))
    costs = read_profile(path)
    assert isinstance(costs, LinearCosts)
    assert str(costs.provenance) == "Llama-3.1-8B on H100, vllm 0.31, 2026-02-01"
    assert costs.standard_s(16, 1000) == pytest.approx(0.0071 + 16 * 21e-6 + 16_000 * 39.3e-9)
    assert costs.speculative_s(16, 0, 1000) == pytest.approx(1.12 * costs.standard_s(16, 1000))
    assert costs.speculative_s(16, 3, 1000) > costs.standard_s(16, 1000)
    curve = curve_of("line", costs, geometric(0.7), 3, [1, 512], Workload(256, 256))
    assert curve.crossovers


def test_long_context_has_no_crossover_on_that_line() -> None:
    """Above some 800 tokens of context an EAGLE head with tau 2.3 never stops paying in this additive form."""
    costs = profile_of(LINEAR, "p")
    lengths = {
        context: curve_of("l", costs, geometric(0.66), 3, [1], Workload(context)).crossovers for context in (128, 4096)
    }
    assert lengths[128]
    assert not lengths[4096]


def test_a_table_is_interpolated_and_nowhere_extended() -> None:
    costs = profile_of(TABLE, "t.json")
    assert isinstance(costs, TableCosts)
    assert costs.standard_s(8, 1024) == pytest.approx(0.00716)
    between = float(costs.standard_s(20, 1024))
    assert 0.00716 < between < 0.00828
    curve = curve_of("table", costs, geometric(0.7), 3, [1, 20, 64], Workload(1024))
    assert curve.sampled[0][-1] == 64
    assert set(best_k(costs, geometric(0.7), [1, 64], Workload(1024)).tolist()) <= {0, 3}
    assert [float(part) for part in costs.prefill_s(100)] == [0.0, 0.0]
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: costs.standard_s(65, 1024), "from batch size 1 to 64 only"),
        (lambda: costs.speculative_s(8, 2, 1024), "no draft length 2; it has 0, 3"),
        (lambda: costs.speculative_s(8, 1.5, 1024), "no draft length 1.5"),
        (lambda: costs.standard_s(8, 4096), "measured at a context of 1024"),
    ]
    for impossible, sentence in cases:
        with pytest.raises(ImpossibleInput, match=sentence):
            impossible()


def test_a_table_may_say_what_prompts_take() -> None:
    told = {"prefill_base_ms": 4, "prefill_token_ms": 0.03, "drafter_prefill_token_ms": 0.002}
    costs = profile_of({**TABLE, **told}, "t.json")
    assert [float(part) for part in costs.prefill_s(1000)] == pytest.approx([0.034, 0.002])
    with_prompts = curve_of("table", costs, geometric(0.7), 3, [8], Workload(1024, 1000, 100)).rows[0].speedup
    without = curve_of("table", costs, geometric(0.7), 3, [8], Workload(1024)).rows[0].speedup
    assert 1.0 < with_prompts < without


def test_a_table_that_does_not_state_its_context_is_taken_for_any() -> None:
    costs = profile_of({key: value for key, value in TABLE.items() if key != "context_tokens"}, "t")
    assert costs.standard_s(8, 1) == costs.standard_s(8, 100_000)
    assert np.isfinite(costs.speculative_s([1, 8], 3, 10)).all()


POINT = {"batch_size": 1, "k": 0, "step_ms": 5}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"form": "cubic"}, "form must be linear or table"),
        ({"coefficients": None}, "needs coefficients"),
        ({"coefficients": {"step_s": 1}}, "coefficients need token_s"),
        ({"coefficients": {"step_s": 1, "token_s": 1, "speed": 1}}, "unknown coefficients speed"),
        ({"coefficients": {"step_s": "fast", "token_s": 1}}, "step_s must be a number"),
        ({"coefficients": {"step_s": True, "token_s": 1}}, "step_s must be a number"),
        ({"coefficients": {"step_s": float("nan"), "token_s": 1}}, "step_s must be a number"),
        ({"coefficients": {"step_s": -1, "token_s": 1}}, "must not be negative"),
        ({"coefficients": {"step_s": 0, "token_s": 0}}, "above 0"),
        ({"proposing_share": 2}, "proposing_share must be within"),
        ({"form": "table"}, "needs points"),
        ({"form": "table", "points": [3]}, "needs points"),
        ({"form": "table", "points": [{"batch_size": 1, "k": 3, "step_ms": 1}]}, "needs points of k 0"),
        ({"form": "table", "points": [{"batch_size": 0, "k": 0, "step_ms": 1}]}, "batch sizes that rise, above 0"),
        ({"form": "table", "points": [{"batch_size": 1e14, "k": 0, "step_ms": 1}]}, "at most 65,536"),
        ({"form": "table", "points": [{"batch_size": 1, "k": 4.5, "step_ms": 1}]}, "k must be a whole number"),
        ({"form": "table", "points": [POINT, {**POINT, "k": -4}]}, "k must not be negative"),
        ({"form": "table", "points": [POINT, {**POINT, "k": 4, "batch_size": 8}]}, "that all its draft lengths cover"),
        ({"form": "table", "points": [POINT], "context_tokens": 0}, "context_tokens must be above 0"),
        ({"form": "table", "points": [POINT], "prefill_token_ms": -1}, "prefill_token_ms must not be negative, not -1"),
        ({"form": "table", "points": [POINT], "prefill_base_ms": "slow"}, "prefill_base_ms must be a number"),
        ({"coefficients": {"step_s": 1e-300, "token_s": 0}}, "above 0, at least 1e-09"),
        (
            {"form": "table", "points": [{"batch_size": 1, "k": 0, "step_ms": 0}]},
            "need a step_ms of 1e-06 or more, not 0",
        ),
        ({"form": "table", "points": [{"batch_size": 1, "k": 0, "step_ms": 1e-7}]}, "1e-06 or more, not 1e-07"),
        ({"form": "table", "points": [{"batch_size": 1, "step_ms": 0}]}, "k must be a number"),
    ],
)
def test_a_profile_that_can_not_be_used_says_why(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ImpossibleInput, match=sentence):
        profile_of({**LINEAR, **change}, "p.json")

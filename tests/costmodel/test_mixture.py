"""Requests that differ: what an average hides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments import costs_of, deployed
from slipstream.costmodel.acceptance import geometric
from slipstream.costmodel.curve import Workload, curve_of
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.mixture import best_speculators, exclusions, heterogeneous
from slipstream.costmodel.profiles import article_1
from slipstream.costmodel.speculator import draft_model, eagle_head

CATEGORIES = {"code": geometric(0.85), "chat": geometric(0.40)}
SHARES = {"code": 5.0, "chat": 4.0}
"""0.65 on average."""


def test_an_average_of_65_hides_85_and_40() -> None:
    assert sum(SHARES[name] * curve.alpha for name, curve in CATEGORIES.items()) / 9 == pytest.approx(0.65)
    few, many = exclusions(article_1(), CATEGORIES, SHARES, 4, [8, 24], Workload())
    assert few.excluded == ("chat",) or few.speedup["chat"] > 1.0
    assert many.excluded == ("chat",)
    assert many.speedup["code"] > 1.0 > many.speedup["chat"]
    assert many.remaining_speedup is not None
    assert many.remaining_speedup > many.mixed_speedup
    assert many.mixed_speedup > many.speedup["chat"]


def test_where_nothing_pays_nothing_remains() -> None:
    (found,) = exclusions(article_1(), CATEGORIES, SHARES, 4, [400], Workload())
    assert found.excluded == ("chat", "code")
    assert found.remaining_speedup is None


def test_several_speculators_are_told_apart_by_batch() -> None:
    deployment = deployed("Qwen3-8B", "H100")
    draft = draft_model(deployed("Qwen3-1.7B").model)
    workload, batches = Workload(256), [1, 64, 512]
    curves = [
        curve_of("head", costs_of(deployment, eagle_head(deployment.model)), geometric(0.5), 3, batches, workload),
        curve_of("draft", costs_of(deployment, draft), geometric(0.8), 3, batches, workload),
    ]
    best = best_speculators(curves)
    assert [found.batch_size for found in best] == batches
    for index, found in enumerate(best):
        gains = {curve.name: curve.rows[index].speedup for curve in curves}
        assert found.speedup == max(gains.values())
        assert found.name == (max(gains, key=gains.__getitem__) if found.speedup > 1 else None)
    with pytest.raises(ImpossibleInput, match="same batch sizes"):
        best_speculators([curves[0], curve_of("o", costs_of(deployment), geometric(0.5), 3, [2], workload)])
    with pytest.raises(ImpossibleInput, match="at least one curve"):
        best_speculators([])


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=32), st.integers(1, 8))
def test_padding_never_keeps_more_than_ragged_kernels(alphas: list[float], k: int) -> None:
    found = heterogeneous(costs_of(deployed()), alphas, k, Workload())
    assert 1.0 <= found.padded_tau <= found.ragged_tau + 1e-9
    assert found.padded_speedup <= found.ragged_speedup + 1e-9
    assert found.ragged_wasted is not None
    assert found.padded_wasted is not None
    assert -1e-9 <= found.ragged_wasted <= found.padded_wasted + 1e-9 <= 1.0 + 2e-9


def test_one_request_is_padded_by_nobody_and_no_draft_wastes_nothing() -> None:
    alone = heterogeneous(costs_of(deployed()), [0.7], 4, Workload())
    assert alone.padded_tau == pytest.approx(alone.ragged_tau)
    none = heterogeneous(costs_of(deployed()), [0.7, 0.2], 0, Workload())
    assert none.ragged_wasted is None
    assert none.padded_wasted is None


@pytest.mark.parametrize(
    ("impossible", "sentence"),
    [
        (lambda: exclusions(article_1(), {}, {}, 4, [1], Workload()), "at least one category"),
        (lambda: exclusions(article_1(), CATEGORIES, {"code": 1.0}, 4, [1], Workload()), "chat needs a share"),
        (lambda: heterogeneous(article_1(), [], 4, Workload()), "at least one request"),
        (lambda: heterogeneous(article_1(), [1.5], 4, Workload()), "must be within"),
    ],
)
def test_impossible_mixtures_are_told(impossible: object, sentence: str) -> None:
    assert callable(impossible)
    with pytest.raises(ImpossibleInput, match=sentence):
        impossible()

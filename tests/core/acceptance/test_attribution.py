from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.acceptance.drafting_model import Beta, K, NodeWindow, node_windows, true_tau
from slipstream.core.acceptance import Attribution, AttributionWindow, alpha_of, mean_acceptance_length_of
from slipstream.core.acceptance.student import t_quantile_97_5

ALIKE = 1e6  # requests of a category that do not differ


def believed(*categories: str, alpha: float = 0.6) -> dict[str, float]:
    return dict.fromkeys(categories, mean_acceptance_length_of(alpha, K) - 1.0)


def attribution_of(windows: Iterable[NodeWindow], half_life: float = 600.0) -> Attribution:
    attribution = Attribution(half_life=half_life)
    for i, window in enumerate(windows, start=1):
        counted = AttributionWindow(window.drafted, window.accepted, window.steps, window.sequence_seconds)
        attribution.add("node", counted, 1.0, float(i))
    return attribution


def alpha_by_category(attribution: Attribution) -> dict[str, float]:
    return {
        category: alpha_of(1.0 + ratio.value, K)
        for category, ratio in attribution.solve(believed(*attribution.categories)).items()
        if ratio is not None
    }


@pytest.mark.parametrize("concentration", [ALIKE, 20.0])
def test_a_mixture_is_taken_apart(concentration: float) -> None:
    acceptance = {"code": Beta(0.85, concentration), "chat": Beta(0.40, concentration)}
    windows = node_windows(np.random.default_rng(11), acceptance, windows=900)
    found = alpha_by_category(attribution_of(windows))
    for category, of in acceptance.items():
        assert found[category] == pytest.approx(alpha_of(true_tau(of), K), abs=0.05)


def test_crediting_the_mixture_to_all_in_flight_would_not() -> None:
    acceptance = {"code": Beta(0.85, ALIKE), "chat": Beta(0.40, ALIKE)}
    windows = node_windows(np.random.default_rng(11), acceptance, windows=900)
    naive = {}
    for category in acceptance:
        weights = [w.steps * w.sequence_seconds.get(category, 0.0) / sum(w.sequence_seconds.values()) for w in windows]
        accepted = sum(weight * w.accepted / w.steps for weight, w in zip(weights, windows, strict=True))
        naive[category] = alpha_of(1.0 + accepted / sum(weights), K)
    assert naive["code"] < 0.80
    assert naive["chat"] > 0.45


def test_many_categories_are_taken_apart() -> None:
    acceptance = {f"c{i}": Beta(0.3 + 0.1 * i, ALIKE) for i in range(6)}
    windows = node_windows(np.random.default_rng(12), acceptance, windows=1800)
    found = alpha_by_category(attribution_of(windows, half_life=1e6))
    assert found.keys() == acceptance.keys()
    for category, of in acceptance.items():
        assert found[category] == pytest.approx(of.mean, abs=0.05)


def test_shares_that_never_change_tell_nothing() -> None:
    acceptance = {"code": Beta(0.85, 20.0), "chat": Beta(0.40, 20.0)}
    windows = node_windows(np.random.default_rng(13), acceptance, windows=600, mixed=False)
    assert attribution_of(windows).solve(believed("code", "chat")) == {"code": None, "chat": None}


def test_a_category_alone_is_known_whatever_else_there_is() -> None:
    windows = node_windows(np.random.default_rng(14), {"code": Beta(0.7, ALIKE)}, windows=120)
    assert alpha_by_category(attribution_of(windows)) == {"code": pytest.approx(0.7, abs=0.03)}


def test_too_few_windows_give_no_figure() -> None:
    windows = node_windows(np.random.default_rng(15), {"code": Beta(0.7, 20.0)}, windows=25)
    assert attribution_of(windows).solve(believed("code")) == {"code": None}


def test_nothing_counted_gives_nothing() -> None:
    attribution = Attribution()
    assert attribution.solve({}) == {}
    assert attribution.drafted_per_step is None
    idle = AttributionWindow(0.0, 0.0, 0.0, {"code": 10.0})
    nobody = AttributionWindow(40.0, 20.0, 10.0, {})
    assert not attribution.add("a", idle, 10.0, 10.0)
    assert not attribution.add("a", nobody, 10.0, 20.0)
    assert attribution.categories == ()


def test_windows_are_joined_by_node_until_they_are_long_enough() -> None:
    attribution = Attribution(window=10.0)
    window = AttributionWindow(40.0, 20.0, 10.0, {"code": 4.0})
    assert not attribution.add("a", window, 6.0, 6.0)
    assert not attribution.add("b", window, 6.0, 6.0)
    attribution.forget_node("b")
    assert not attribution.add("b", window, 6.0, 12.0)
    assert attribution.add("a", window, 6.0, 12.0)
    assert attribution.drafted_per_step == 4.0


@pytest.mark.no_cover
def test_intervals_keep_their_promise() -> None:
    acceptance = {"code": Beta(0.8, 20.0), "chat": Beta(0.45, 20.0)}
    truth = {name: true_tau(of) - 1.0 for name, of in acceptance.items()}
    rng = np.random.default_rng(16)
    covered = 0
    for _ in range(60):
        solution = attribution_of(node_windows(rng, acceptance, windows=600)).solve(believed(*acceptance))
        for name, ratio in solution.items():
            assert ratio is not None
            assert ratio.error is not None
            half_width = t_quantile_97_5(ratio.effective_requests - 1.0) * ratio.error
            covered += abs(ratio.value - truth[name]) <= half_width
    assert covered >= 0.9 * 120


windows_of_anything = st.lists(
    st.tuples(
        st.integers(0, 500),
        st.floats(0.0, 1.0),
        st.dictionaries(st.sampled_from("abcd"), st.floats(0.0, 60.0), max_size=4),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(windows_of_anything)
def test_no_figure_is_ever_negative_or_above_the_draft_length(
    windows: list[tuple[int, float, dict[str, float]]],
) -> None:
    attribution = Attribution()
    for i, (steps, acceptance, seconds) in enumerate(windows):
        window = AttributionWindow(steps * K, steps * K * acceptance, steps, seconds)
        attribution.add("n", window, 10.0, i * 10.0)
    for ratio in attribution.solve(believed("a", "b", "c", "d")).values():
        if ratio is not None:
            assert 0.0 <= ratio.value <= K + 1e-9
            assert ratio.error is not None
            assert ratio.error >= 0.0


def test_a_figure_that_would_leave_its_bounds_stays_on_them() -> None:
    # Windows of "silent" alone accept less than nothing once the others have explained theirs.
    attribution = Attribution(window=1.0)
    for i in range(60):
        share = i / 60
        accepted = max(0.0, 4000.0 * (1.0 - share) * 0.9 - 600.0 * share)
        window = AttributionWindow(4000.0, accepted, 1000.0, {"code": 1.0 - share, "silent": share})
        attribution.add("n", window, 1.0, float(i))
    solution = attribution.solve(believed("code", "silent"))
    silent = solution["silent"]
    assert silent is not None
    assert silent.value == 0.0

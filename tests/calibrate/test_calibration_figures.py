"""From the chunks of answers to speedups, their intervals and a ceiling; and the plan that they come from."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.calibrate.acceptance import acceptance_of
from slipstream.calibrate.curve import ceiling_of, measured_curve
from slipstream.calibrate.figures import Figures, Gain, figures_of, gain_of, unrest_of
from slipstream.calibrate.plan import CalibrationPlan, Point, batch_sizes, visits
from slipstream.calibrate.steady import Decoded, steady_part
from slipstream.calibrate.waves import Wave
from slipstream.core.acceptance import SpeculationSample
from slipstream.core.latency import latency_of
from slipstream.core.node import Speculator, SpeculatorKind
from slipstream.load import LoadResult, PlannedRequest

POINT = Point(100, 4)


def answer(
    first_s: float, steps: list[int], step_s: float = 0.01, *, burst_s: float = 0.0, timings: bool = False
) -> LoadResult:
    """One token at first, then a step of so many tokens every ``step_s`` seconds; each token is a chunk."""
    gaps = [gap for tokens in steps for gap in [step_s - (tokens - 1) * burst_s, *[burst_s] * (tokens - 1)]]
    tokens = 1 + sum(steps)
    accepted = sum(steps) - len(steps)
    usage = {"prompt_tokens": 100, "completion_tokens": tokens}
    told = {"predicted_n": tokens, "draft_n": 4 * len(steps), "draft_n_accepted": accepted}
    closing = (json.dumps({"usage": usage, "timings": told}).encode(),) if timings else ()
    return LoadResult(
        PlannedRequest("m", (), tokens, "code"),
        4,
        latency=latency_of(0.0, first_s, first_s + sum(gaps), tokens),
        chunk_gaps=gaps,
        prompt_tokens=100,
        output_tokens=tokens,
        closing=closing,
    )


def test_only_what_decodes_together_counts() -> None:
    early, late = answer(0.1, [1] * 20), answer(0.15, [1] * 20)
    first, second = steady_part([early, late], "vllm", drafts=False, k=None)
    for one in (first, second):
        assert one.elapsed_s / one.steps == pytest.approx(0.01, rel=1e-3)
        assert one.tokens == pytest.approx(one.steps)
        assert 0.1 <= one.elapsed_s <= 0.15 + 1e-6
    assert first.cached_tokens > second.cached_tokens > 100.0


@pytest.mark.parametrize("burst_s", [0.0, 0.0005], ids=["at once", "one by one"])
@pytest.mark.parametrize("timings", [True, False], ids=["told", "not told"])
def test_the_chunks_of_a_step_are_one_step(burst_s: float, timings: bool) -> None:
    result = answer(0.1, [4, 2, 3, 3] * 4, burst_s=burst_s, timings=timings)
    (one,) = steady_part([result], "llamacpp", drafts=True, k=4)
    assert one.elapsed_s / one.steps == pytest.approx(0.01, rel=0.02)
    assert one.tokens / one.steps == pytest.approx(3.0, rel=0.05)
    assert (one.sample is not None) is timings


def test_several_steps_in_one_chunk_are_told_by_the_counts() -> None:
    """An engine that sends every fourth step only: 8 chunks of 4 tokens each, of a node that does not draft."""
    gaps = [0.04] * 8
    result = LoadResult(
        PlannedRequest("m", (), 33, "code"),
        1,
        latency=latency_of(0.0, 0.1, 0.42, 33),
        chunk_gaps=gaps,
        output_tokens=33,
    )
    (one,) = steady_part([result], None, drafts=False, k=None)
    assert one.elapsed_s / one.steps == pytest.approx(0.01)
    assert one.tokens == pytest.approx(one.steps)


def test_steps_whose_chunks_came_together_are_told_by_the_drafts() -> None:
    """The client was busy: it read two steps of three tokens at a time. 25 tokens, 16 of them drafted: 8 steps."""
    told = {"predicted_n": 25, "draft_n": 32, "draft_n_accepted": 16}
    usage = {"prompt_tokens": 100, "completion_tokens": 25}
    result = LoadResult(
        PlannedRequest("m", (), 25, "code"),
        1,
        latency=latency_of(0.0, 0.1, 0.18, 25),
        chunk_gaps=[0.02, *[0.0] * 5] * 4,
        prompt_tokens=100,
        output_tokens=25,
        closing=(json.dumps({"usage": usage, "timings": told}).encode(),),
    )
    (one,) = steady_part([result], "llamacpp", drafts=True, k=4)
    assert one.elapsed_s / one.steps == pytest.approx(0.01)
    assert one.tokens / one.steps == pytest.approx(3.0)


@pytest.mark.parametrize(
    "results",
    [
        [],
        [answer(0.1, [1] * 20), answer(0.5, [1] * 20)],
        [answer(0.1, [1] * 20), answer(0.28, [1] * 20)],
        [answer(0.1, [1] * 20), LoadResult(PlannedRequest("m", (), 4), 1, error="lost")],
        [answer(0.1, [1])],
    ],
    ids=["nothing", "one after the other", "two steps together", "one failed", "too short"],
)
def test_what_did_not_run_at_once_tells_nothing(results: list[LoadResult]) -> None:
    assert steady_part(results, "vllm", drafts=False, k=None) == ()


def wave(seconds: list[float], tokens: float = 40.0) -> Wave:
    decoded = tuple(Decoded("code", elapsed, tokens, tokens / 2.0, 120.0, None) for elapsed in seconds)
    return Wave(POINT, ("code",) * len(seconds), decoded, (), None, 1.0, None)


def test_figures_are_sums_over_sums() -> None:
    found = figures_of(POINT, [wave([1.0, 3.0]), wave([])])
    assert found is not None
    assert (found.requests, found.waves, found.token_s, found.step_s) == (2, 1, 0.05, 0.1)
    assert found.tokens_per_step == 2.0
    assert figures_of(POINT, [wave([])]) is None


def test_whole_waves_that_differ_widen_the_interval() -> None:
    apart = figures_of(POINT, [wave([1.0] * 8), wave([1.2] * 8)] * 2)
    mixed = figures_of(POINT, [wave([1.0, 1.2] * 4)] * 4)
    assert apart is not None
    assert mixed is not None
    assert apart.error is not None
    assert mixed.error is not None
    assert apart.error > 2.0 * mixed.error


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(200):
        standard = figures_of(POINT, [wave(rng.normal(2.0, 0.2, 4).tolist()) for _ in range(3)])
        speculative = figures_of(POINT, [wave(rng.normal(1.0, 0.2, 4).tolist()) for _ in range(3)])
        assert standard is not None
        assert speculative is not None
        ends = gain_of(standard, speculative).interval
        held += ends is not None and ends[0] <= 2.0 <= ends[1]
    assert held / 200 >= 0.9


def test_a_machine_that_is_not_at_rest_widens_the_interval_of_a_single_wave() -> None:
    """Its requests all agree, and yet the next wave would be another."""
    unrest = unrest_of([[wave([1.0, 1.0]), wave([1.2, 1.2])], [wave([2.0])], [wave([])]])
    assert unrest == pytest.approx(np.std(np.log([1.0, 1.2]), ddof=1))
    assert unrest_of([[wave([1.0])]]) == 0.0
    calm, moved = figures_of(POINT, [wave([1.0] * 4)]), figures_of(POINT, [wave([1.0] * 4)], unrest)
    alone = figures_of(Point(100, 1), [wave([1.0]), wave([1.0])], unrest)
    assert calm is not None
    assert moved is not None
    assert alone is not None
    assert calm.error == alone.error == 0.0
    assert moved.error == pytest.approx(unrest)


def test_one_request_tells_no_interval() -> None:
    one, two = figures_of(POINT, [wave([1.0])]), figures_of(POINT, [wave([1.0, 1.1])])
    assert one is not None
    assert two is not None
    assert gain_of(two, one).interval is None
    curve = measured_curve(100, {POINT: two}, {POINT: one})
    assert (curve.untold, curve.ceiling) == ((4,), None)


def figures(point: Point) -> Figures:
    return Figures(point, 4, 1, 0.01, 0.01, 1.0, 120.0, 0.0)


def test_a_curve_is_of_one_context_and_of_points_that_both_have() -> None:
    standard = {Point(100, size): figures(Point(100, size)) for size in (4, 1, 2)}
    speculative = {Point(context, size): figures(Point(context, size)) for context in (100, 900) for size in (4, 1)}
    assert measured_curve(100, standard, speculative).batch_sizes == (1, 4)
    empty = measured_curve(900, standard, speculative)
    assert (empty.batch_sizes, empty.shape, empty.ceiling) == ((), None, None)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.none(), st.floats(0.5, 2.0)), max_size=8))
def test_there_is_no_gap_below_the_ceiling(lowers: list[float | None]) -> None:
    sizes = [2**place for place in range(len(lowers))]
    ceiling = ceiling_of(sizes, [Gain(2.0, None if low is None else (low, 3.0)) for low in lowers])
    sure = [low is not None and low >= 1.05 for low in lowers]
    if ceiling is None:
        assert not sure or not sure[0]
    else:
        place = sizes.index(ceiling)
        assert all(sure[: place + 1])
        assert place + 1 == len(sizes) or not sure[place + 1]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300))
def test_batch_sizes_double_up_to_the_largest_and_each_is_visited_once_a_round(largest: int) -> None:
    sizes = batch_sizes(largest)
    assert (sizes[0], sizes[-1]) == (1, largest)
    assert all(high <= 2 * low for low, high in pairwise(sizes))
    plan = CalibrationPlan(sizes, (100, 900), ("code",), 64, 2, 1)
    seen = list(visits(plan))
    assert len(seen) == len(set(seen)) == 4 * len(sizes)
    assert [point.batch_size for _, point in seen[:2]] == [1, largest]


def test_a_plan_is_known_by_its_fingerprint() -> None:
    plan = CalibrationPlan((1, 2), (100,), ("code",), 64, 2, 1)
    assert plan.fingerprint == CalibrationPlan((1, 2), (100,), ("code",), 64, 2, 1).fingerprint
    assert plan.fingerprint != CalibrationPlan((1, 2), (100,), ("code",), 64, 2, 2).fingerprint


def test_counters_around_a_mixed_wave_tell_no_category() -> None:
    counted = SpeculationSample(400, 200, 100, 304)
    mixed = Wave(POINT, ("code", "chat"), (), (), counted, 1.0, None)
    alone = Wave(POINT, ("code", "code"), (), (), counted, 1.0, None)
    drafter = Speculator(SpeculatorKind.DRAFT, 4)
    assert acceptance_of([mixed], drafter) == {}
    assert acceptance_of([alone, alone], drafter)["code"].tau == pytest.approx(3.0)

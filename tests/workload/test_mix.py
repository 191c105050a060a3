"""Plans: the same from the same seed, and a change to one thing leaves the rest as it is."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slipstream.core.request import TrafficClass
from slipstream.workload.arrivals import ConstantArrivals, GammaArrivals, PoissonArrivals, RateArrivals
from slipstream.workload.errors import ImpossibleWorkload
from slipstream.workload.lengths import ExponentialLengths, FixedLengths, LognormalLengths, UniformLengths
from slipstream.workload.mix import CategoryTraffic, Limit, Mix, TraceArrivals, make_plan
from slipstream.workload.plan import CLASSES, NO_LIMIT, Plan
from slipstream.workload.traces import Trace, TraceFormat, read_trace

EXCERPTS = Path(__file__).parents[2] / "examples" / "traces"

CODE = CategoryTraffic("code", 3.0, LognormalLengths(900.0, 2500.0), ExponentialLengths(200.0))
CHAT = CategoryTraffic("chat", 6.0, ExponentialLengths(400.0), LognormalLengths(250.0, 700.0), limit=Limit.EXACT)
NIGHT = CategoryTraffic("night", 1.0, FixedLengths(2000), UniformLengths(100, 900), TrafficClass.BULK, limit=500)
MIX = Mix(PoissonArrivals(50.0), (CODE, CHAT, NIGHT), (("large", 3.0), ("small", 1.0)), duration_s=120.0)
COLUMNS = (
    "arrival_s",
    "prompt_tokens",
    "output_tokens",
    "category",
    "traffic_class",
    "quantile",
    "output_limit",
    "model",
)


def trace_of(at_s: list[float], session: list[int] | None = None) -> Trace:
    count = len(at_s)
    return Trace(
        TraceFormat.BURSTGPT,
        np.array(at_s),
        np.arange(1, count + 1),
        np.arange(101, count + 101),
        np.array(session or [NO_LIMIT] * count),
        0,
    )


def same(left: Plan, right: Plan, *, but: tuple[str, ...] = ()) -> bool:
    return all(np.array_equal(getattr(left, name), getattr(right, name)) == (name not in but) for name in COLUMNS)


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    assert same(make_plan(MIX, 5), make_plan(MIX, 5))
    assert same(make_plan(MIX, 5), make_plan(MIX, 6), but=COLUMNS)


def test_shares_are_those_asked_for_and_independent_of_each_other() -> None:
    plan = make_plan(replace(MIX, duration_s=600.0), 1)
    count = len(plan)
    assert plan.categories == ("code", "chat", "night")
    assert plan.models == ("large", "small")
    for index, share in enumerate((0.3, 0.6, 0.1)):
        of_category = plan.category == index
        assert abs(of_category.sum() - share * count) < 4.0 * math.sqrt(share * (1 - share) * count)
        small = (plan.model[of_category] == 1).mean()
        assert abs(small - 0.25) < 4.0 * math.sqrt(0.25 * 0.75 / of_category.sum())
        assert abs(plan.quantile[of_category].mean() - 0.5) < 4.0 * math.sqrt(1 / 12 / of_category.sum())
    assert {CLASSES[index] for index in plan.traffic_class[plan.category == 2]} == {TrafficClass.BULK}
    assert {CLASSES[index] for index in plan.traffic_class[plan.category != 2]} == {TrafficClass.INTERACTIVE}
    assert set(plan.session) == {NO_LIMIT}


def test_prompts_and_answers_of_a_category_are_independent() -> None:
    alike = CategoryTraffic("chat", 1.0, ExponentialLengths(300.0), ExponentialLengths(300.0))
    plan = make_plan(replace(MIX, categories=(alike,), duration_s=600.0), 1)
    columns = plan.prompt_tokens, plan.output_tokens, plan.quantile, np.diff(plan.arrival_s, prepend=0.0)
    correlations = np.corrcoef(columns)[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 4.0 / math.sqrt(len(plan))


def test_clients_send_no_limit_the_exact_one_or_a_number_that_also_cuts() -> None:
    plan = make_plan(MIX, 1)
    code, chat, night = (plan.category == index for index in range(3))
    assert set(plan.output_limit[code]) == {NO_LIMIT}
    assert np.array_equal(plan.output_limit[chat], plan.output_tokens[chat])
    assert set(plan.output_limit[night]) == {500}
    assert plan.output_tokens[night].max() == 500
    assert plan.output_tokens[night].min() < 500


def test_other_lengths_of_a_category_leave_arrivals_and_the_other_categories_as_they_are() -> None:
    plan = make_plan(MIX, 5)
    other = make_plan(replace(MIX, categories=(replace(CODE, prompt=FixedLengths(7)), CHAT, NIGHT)), 5)
    assert same(plan, other, but=("prompt_tokens",))
    changed = plan.prompt_tokens != other.prompt_tokens
    assert set(plan.category[changed]) == {0}
    assert set(other.prompt_tokens[plan.category == 0]) == {7}


def test_other_arrivals_leave_everything_else_as_it_is() -> None:
    plan = make_plan(replace(MIX, duration_s=None, requests=3000), 5)
    other = make_plan(replace(MIX, arrivals=GammaArrivals(20.0, 3.0), duration_s=None, requests=3000), 5)
    assert same(plan, other, but=("arrival_s",))


def test_a_category_that_is_added_leaves_the_lengths_of_the_others_as_they_are() -> None:
    plan = make_plan(replace(MIX, categories=(CHAT,)), 5)
    other = make_plan(replace(MIX, categories=(replace(CODE, share=0.0), CHAT)), 5)
    assert np.array_equal(plan.prompt_tokens, other.prompt_tokens)
    assert np.array_equal(plan.output_tokens, other.output_tokens)
    assert set(other.category) == {1}


def test_a_share_that_hardly_changes_moves_few_requests() -> None:
    plan = make_plan(MIX, 5)
    other = make_plan(replace(MIX, categories=(replace(CODE, share=3.1), CHAT, NIGHT)), 5)
    assert 0 < (plan.category != other.category).mean() < 0.03
    assert np.array_equal(plan.arrival_s, other.arrival_s)


def test_a_longer_plan_begins_like_a_shorter_one() -> None:
    short, long = make_plan(MIX, 5), make_plan(replace(MIX, duration_s=500.0), 5)
    for name in COLUMNS:
        assert np.array_equal(getattr(long, name)[: len(short)], getattr(short, name)), name


def test_a_plan_ends_by_whichever_comes_first() -> None:
    assert len(make_plan(replace(MIX, requests=100), 5)) == 100
    assert make_plan(replace(MIX, requests=100_000), 5).duration_s < 120.0


def test_contexts_that_would_be_too_long_are_cut_prompt_first() -> None:
    plan = make_plan(replace(MIX, context_tokens=1000), 5)
    whole = make_plan(MIX, 5)
    assert (plan.prompt_tokens + plan.output_tokens).max() == 1000
    assert np.array_equal(plan.prompt_tokens, np.minimum(whole.prompt_tokens, 999))
    assert plan.output_tokens.min() == 1
    exact = plan.category == 1
    assert np.array_equal(plan.output_limit[exact], plan.output_tokens[exact])


def test_a_trace_gives_arrivals_and_lengths_and_the_mix_gives_categories() -> None:
    trace = read_trace(EXCERPTS / "azure-2023-conversation.csv")
    plan = make_plan(
        Mix(TraceArrivals(trace), (CategoryTraffic("code", 1.0), CategoryTraffic("chat", 2.0)), (("m", 1.0),)), 3
    )
    assert np.array_equal(plan.arrival_s, trace.arrival_s)
    assert np.array_equal(plan.prompt_tokens, trace.prompt_tokens)
    assert np.array_equal(plan.output_tokens, trace.output_tokens)
    assert 0.2 < (plan.category == 0).mean() < 0.45


def test_lengths_of_a_category_take_the_place_of_the_traces() -> None:
    trace = read_trace(EXCERPTS / "azure-2023-code.csv")
    categories = (CategoryTraffic("code", 1.0, output=FixedLengths(9)), CategoryTraffic("chat", 1.0))
    plan = make_plan(Mix(TraceArrivals(trace), categories, (("m", 1.0),)), 3)
    code = plan.category == 0
    assert set(plan.output_tokens[code]) == {9}
    assert np.array_equal(plan.output_tokens[~code], trace.output_tokens[~code])
    assert np.array_equal(plan.prompt_tokens, trace.prompt_tokens)


def played(
    trace: Trace,
    *,
    speed: float = 1.0,
    repeat: bool = False,
    duration_s: float | None = None,
    requests: int | None = None,
) -> Plan:
    arrivals = TraceArrivals(trace, speed, repeat)
    return make_plan(Mix(arrivals, (CategoryTraffic("chat", 1.0),), (("m", 1.0),), duration_s, requests), 1)


def test_a_trace_is_played_faster_and_cut() -> None:
    trace = trace_of([0.0, 1.0, 4.0, 9.0])
    assert played(trace, speed=2.0).arrival_s.tolist() == [0.0, 0.5, 2.0, 4.5]
    assert played(trace, duration_s=4.0).arrival_s.tolist() == [0.0, 1.0]
    assert played(trace, requests=3).prompt_tokens.tolist() == [1, 2, 3]
    assert len(played(trace, duration_s=1000.0, requests=1000)) == 4


def test_a_repeated_trace_begins_anew_a_mean_gap_later_with_other_conversations() -> None:
    trace = trace_of([0.0, 1.0, 4.0, 9.0], [0, NO_LIMIT, 1, 0])
    plan = played(trace, repeat=True, duration_s=25.0)
    assert plan.arrival_s.tolist() == [0.0, 1.0, 4.0, 9.0, 12.0, 13.0, 16.0, 21.0, 24.0]
    assert plan.output_tokens.tolist() == [101, 102, 103, 104, 101, 102, 103, 104, 101]
    assert plan.session.tolist() == [0, NO_LIMIT, 1, 0, 2, NO_LIMIT, 3, 2, 4]
    assert len(played(trace, repeat=True, requests=11)) == 11
    assert len(played(trace, repeat=True, requests=11, duration_s=13.5)) == 6


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: replace(MIX, duration_s=None), "neither is given"),
        (lambda: replace(MIX, duration_s=0.0), "traffic lasts longer than 0 s, not 0"),
        (lambda: replace(MIX, duration_s=math.inf), "not inf"),
        (lambda: replace(MIX, requests=0), "a plan has 1 to 20,000,000 requests, not 0"),
        (lambda: replace(MIX, context_tokens=1), "a context has at least 2 tokens, not 1"),
        (lambda: replace(MIX, categories=()), "the shares of a category"),
        (lambda: replace(MIX, categories=(replace(CODE, share=0.0),)), "one of them is above 0"),
        (lambda: replace(MIX, categories=(CODE, CODE)), "every category of a mix has a name of its own"),
        (lambda: replace(MIX, models=(("m", 1.0), ("m", 2.0))), "every model of a mix has a name of its own"),
        (lambda: replace(MIX, models=(("m", -1.0), ("n", 2.0))), "the shares of a model"),
        (lambda: replace(MIX, categories=(replace(CODE, prompt=None),)), "code: without a trace, lengths"),
        (lambda: replace(CODE, share=math.nan), "code: a share is a number from 0 on, not nan"),
        (lambda: replace(CODE, limit=0), "code: a token limit is at least 1, not 0"),
        (lambda: TraceArrivals(trace_of([0.0]), speed=0.0), "a speed above 0, not 0"),
        (lambda: make_plan(MIX, -1), "a seed is a whole number from 0 on, not -1"),
        (
            lambda: make_plan(replace(MIX, arrivals=RateArrivals(((0.0, 0.0), (500.0, 0.0), (600.0, 9.0)))), 1),
            "no request would arrive",
        ),
        (lambda: played(trace_of([0.0, 1.0]), repeat=True), "neither is given"),
        (
            lambda: played(trace_of([0.0]), repeat=True, duration_s=5.0),
            "a trace of 1 requests in 0 s, repeated, is more",
        ),
        (lambda: played(trace_of([0.0, 1e-9]), repeat=True, duration_s=1e6), "is more than 20,000,000 requests"),
    ],
)
def test_traffic_that_can_not_be_is_a_sentence(make: object, sentence: str) -> None:
    assert callable(make)
    with pytest.raises(ImpossibleWorkload) as refused:
        make()
    assert sentence in str(refused.value)


def test_a_trace_of_one_request_can_be_repeated_by_count() -> None:
    assert played(trace_of([0.0]), repeat=True, requests=3).arrival_s.tolist() == [0.0, 0.0, 0.0]


def test_a_plan_of_constant_arrivals_and_one_category_is_what_can_be_written_down() -> None:
    category = CategoryTraffic("chat", 1.0, FixedLengths(10), FixedLengths(20), limit=15)
    plan = make_plan(Mix(ConstantArrivals(2.0), (category,), (("m", 1.0),), duration_s=2.0), 1)
    assert plan.arrival_s.tolist() == [0.0, 0.5, 1.0, 1.5]
    assert plan.prompt_tokens.tolist() == [10] * 4
    assert plan.output_tokens.tolist() == [15] * 4
    assert plan.output_limit.tolist() == [15] * 4
    assert len(set(plan.quantile.tolist())) == 4

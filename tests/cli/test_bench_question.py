"""What `slipstream bench` may be asked, and the sentence for what it may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slipstream.cli.bench_asked import Asked, asked_of
from slipstream.cli.bench_options import Question
from slipstream.cli.bench_question import lengths_of, process_of, seconds_of, shares_of, target_of
from slipstream.core.errors import SlipstreamError
from slipstream.core.goodput import Target
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.workload.arrivals import BurstArrivals, ConstantArrivals, GammaArrivals, PoissonArrivals
from slipstream.workload.lengths import ExponentialLengths, FixedLengths, LognormalLengths, UniformLengths

URL = "http://127.0.0.1:8000"
TRACE = Path(__file__).parents[2] / "examples" / "traces" / "azure-2023-code.csv"
DEFAULTS = Question(
    words=(URL,),
    goodput=(),
    compare=(),
    find_max=False,
    rate=None,
    arrivals=None,
    trace=None,
    concurrency=None,
    requests=None,
    duration=None,
    warm_up=None,
    prompt_tokens=None,
    output_tokens=None,
    categories="chat",
    attainment=0.9,
    points=16,
    parts=None,
    model=None,
    ignore_eos=True,
    api_key_variable=None,
    admin=(),
    timeout="10m",
    seed=1,
    plot=None,
    as_json=False,
)


def asked(**options: Any) -> Asked:
    return asked_of(DEFAULTS._replace(**options))


@pytest.mark.parametrize(
    ("words", "goodput"),
    [
        ((URL, "tpot:50", "e2el:5s"), ("ttft:1000",)),
        ((URL,), ("ttft:1s,tpot:50ms,e2e:5000",)),
        ((URL, "ttft:1000ms", "tpot:50", "e2e:5s"), ()),
    ],
)
def test_targets_stand_where_people_write_them(words: tuple[str, ...], goodput: tuple[str, ...]) -> None:
    assert asked(words=words, goodput=goodput, rate=1.0).target == Target(1.0, 0.05, 5.0)


def test_two_servers_keep_their_order_and_names() -> None:
    expected = (("A", URL), ("B", "https://b:1/v1"))
    assert asked(words=("B=https://b:1/v1",), compare=(f"A={URL}",), rate=1.0).servers == expected
    assert asked(words=(), compare=(f"A={URL}", "B=https://b:1/v1"), rate=1.0).servers == expected
    assert asked(rate=1.0).servers == (("127.0.0.1:8000", URL),)


def test_arrivals_have_the_mean_rate_that_is_asked_for() -> None:
    assert process_of("constant")(3.0) == ConstantArrivals(3.0)
    assert process_of("poisson")(3.0) == PoissonArrivals(3.0)
    assert process_of("gamma:cv=0.5")(3.0) == GammaArrivals(3.0, 0.5)
    assert process_of("gamma")(3.0) == GammaArrivals(3.0, 2.0)
    bursts = process_of("bursts:times=9,burst=2,every=10")(4.5)
    assert isinstance(bursts, BurstArrivals)
    assert bursts.burst_per_s == pytest.approx(9.0 * bursts.per_s)
    assert (8.0 * bursts.per_s + 2.0 * bursts.burst_per_s) / 10.0 == pytest.approx(4.5)


def test_lengths_of_every_form() -> None:
    assert lengths_of("--prompt-tokens", "512") == FixedLengths(512)
    assert lengths_of("--prompt-tokens", "100-900") == UniformLengths(100, 900)
    assert lengths_of("--prompt-tokens", "exponential:mean=200") == ExponentialLengths(200.0)
    assert lengths_of("--prompt-tokens", "lognormal:mean=350,p95=900,maximum=4000") == LognormalLengths(
        350.0, 900.0, 4000
    )


def test_times_and_shares() -> None:
    assert [seconds_of("--x", text) for text in ("90", "90s", "1.5m", "500ms", "2h")] == [90.0, 90.0, 90.0, 0.5, 7200.0]
    assert seconds_of("--x", "50", bare="ms") == 0.05
    assert shares_of("code=2, chat") == (("code", 2.0), ("chat", 1.0))
    assert target_of([]) == Target()


def test_a_trace_is_played_at_its_own_rate_or_a_given_one() -> None:
    own = asked(trace=TRACE)
    plan = own.traffic.plan(own.rate)
    assert len(plan) == 400
    rate = 399 / plan.duration_s
    faster = asked(trace=TRACE, rate=2.0 * rate, requests=1000)
    twice = faster.traffic.plan(faster.rate)
    assert len(twice) == 1000  # it begins again when it is over
    assert twice.arrival_s[:400] == pytest.approx(plan.arrival_s / 2.0)


def test_plans_scale_with_the_rate() -> None:
    traffic = asked(rate=1.0).traffic
    assert traffic.plan(4.0).arrival_s == pytest.approx(traffic.plan(1.0).arrival_s / 4.0)
    assert len(traffic.plan(1.0)) == 100
    assert len(asked(concurrency=4, requests=7).traffic.plan(None)) == 7


def test_the_warm_up_is_a_tenth_and_there_are_ten_parts() -> None:
    found = asked(rate=1.0)
    assert (found.warm_up_of(200), found.warm_up_of(1)) == (20, 0)
    assert (found.parts_of(300), found.parts_of(50), found.parts_of(3)) == (10, 5, 2)
    assert asked(rate=1.0, warm_up=7).warm_up_of(100) == 7


def test_a_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_KEY", "k")
    assert asked(rate=1.0, api_key_variable="BENCH_KEY").headers == {"authorization": "Bearer k"}
    assert asked(rate=1.0).headers == {}


def test_admin_apis_belong_to_servers() -> None:
    assert asked(rate=1.0, admin=("http://a:1",)).admins == {"127.0.0.1:8000": "http://a:1"}
    two = asked(words=(), compare=(f"A={URL}", f"B={URL}"), rate=1.0, admin=("B=http://b:1",))
    assert two.admins == {"B": "http://b:1"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "say how requests come: --rate, --concurrency, --trace or --find-max"),
        ({"words": ("localhost:8000",), "rate": 1.0}, "'localhost:8000' is neither an address"),
        ({"words": ("ttft:5",), "rate": 1.0}, "give one server as http://HOST:PORT"),
        ({"words": (URL, URL), "rate": 1.0}, "give one server as http://HOST:PORT"),
        ({"words": (), "compare": (f"A={URL}",), "rate": 1.0}, "two servers with names of their own"),
        ({"words": (), "compare": (f"A={URL}", f"A={URL}"), "rate": 1.0}, "two servers with names of their own"),
        ({"compare": (f"A={URL}", f"B={URL}"), "rate": 1.0}, "two servers with names of their own"),
        (
            {"words": (), "compare": (f"A={URL}", f"B={URL}"), "find_max": True, "goodput": ("ttft:5",)},
            "--find-max looks at one server, and --compare at two",
        ),
        ({"compare": (URL,), "words": (), "rate": 1.0}, "two with --compare A=URL B=URL"),
        ({"parts": 4, "rate": 1.0}, "--parts only counts beside --compare"),
        ({"find_max": True}, "--find-max needs targets"),
        ({"concurrency": 4, "rate": 1.0}, "--rate means nothing with --concurrency"),
        ({"concurrency": 4, "find_max": True}, "--find-max means nothing with --concurrency"),
        ({"trace": TRACE, "output_tokens": "5"}, "--output-tokens means nothing with --trace"),
        ({"rate": 0.0}, "--rate is above 0"),
        ({"rate": float("nan")}, "--rate is above 0"),
        ({"rate": 1.0, "arrivals": "uniform"}, "--arrivals is constant, poisson, gamma"),
        ({"rate": 1.0, "arrivals": "poisson:cv=2"}, "--arrivals is constant, poisson, gamma"),
        ({"rate": 1.0, "arrivals": "gamma:cv=-2"}, "'-2' is no number above 0"),
        ({"rate": 1.0, "arrivals": "gamma:cv=x"}, "'x' is no number above 0"),
        ({"rate": 1.0, "prompt_tokens": "many"}, "--prompt-tokens"),
        ({"rate": 1.0, "prompt_tokens": "normal:mean=4"}, "--prompt-tokens is a number, a range"),
        ({"rate": 1.0, "prompt_tokens": "lognormal:mean=4"}, "--prompt-tokens is a number, a range"),
        ({"rate": 1.0, "output_tokens": "0"}, "a fixed length is 1 to"),
        ({"rate": 1.0, "categories": "code=2,,chat"}, "--categories are names with shares"),
        ({"rate": 1.0, "categories": "code=0"}, "'0' is no number above 0"),
        ({"rate": 1.0, "goodput": ("ttfb:5",)}, "--goodput knows ttft, tpot and e2el"),
        ({"rate": 1.0, "goodput": ("ttft:5", "ttft:6")}, "--goodput gives ttft twice"),
        ({"rate": 1.0, "goodput": ("ttft:soon",)}, "--goodput takes a time above 0"),
        ({"rate": 1.0, "duration": "0s"}, "--duration takes a time above 0"),
        ({"rate": 1.0, "timeout": "-1"}, "--timeout takes a time above 0"),
        ({"rate": 1.0, "plot": Path("x.pdf")}, "a plot is written as .png or .svg"),
        ({"rate": 1.0, "api_key_variable": "NO_SUCH_VARIABLE"}, "NO_SUCH_VARIABLE with the API key is not set"),
        ({"rate": 1.0, "admin": ("B=http://b:1",)}, "--admin is the URL of an admin API"),
        ({"rate": 1.0, "admin": ("8081",)}, "--admin is the URL of an admin API"),
        ({"trace": Path("no-such-trace.csv")}, "no-such-trace.csv: can not be read"),
    ],
)
def test_what_can_not_be_asked_is_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises((SlipstreamError, ImpossibleInput)) as told:
        asked(**options)
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)


def test_what_does_not_fit_the_plan_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises((SlipstreamError, ImpossibleInput), match="a warm-up of 100 leaves nothing of 100 requests"):
        asked(rate=1.0, warm_up=100).warm_up_of(100)
    with pytest.raises((SlipstreamError, ImpossibleInput), match="3 requests can not be sent in 4 parts"):
        asked(words=(), compare=(f"A={URL}", f"B={URL}"), rate=1.0, parts=4).parts_of(3)
    with pytest.raises((SlipstreamError, ImpossibleInput), match="bursts last at least"):
        asked(rate=1.0, arrivals="bursts:burst=50,every=20").traffic.plan(1.0)
    at_once = tmp_path / "trace.jsonl"
    at_once.write_text('{"timestamp": 0, "input_length": 5, "output_length": 5}\n' * 3)
    with pytest.raises((SlipstreamError, ImpossibleInput), match="all requests of the trace come at once"):
        asked(trace=at_once, rate=2.0).traffic.plan(2.0)

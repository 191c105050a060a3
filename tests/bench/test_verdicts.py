"""Whether figures can be believed, as sentences and statuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from made_loads import load_of, result_of
from slipstream.bench.find_max import Ended, Point, Search
from slipstream.bench.holdback import holdback_of
from slipstream.bench.measures import Measures, measures_of
from slipstream.bench.report import search_document, target_document
from slipstream.bench.resampling import Figure
from slipstream.bench.samples import samples_of
from slipstream.bench.verdict import Status, Verdict, is_out_of_reach, out_of_reach, verdict_of, verdict_of_search
from slipstream.cli.bench_report import bench_report
from slipstream.core.goodput import Target
from slipstream.core.latency import Latency
from slipstream.core.reason import Reason

TARGET = Target(tpot_s=0.15)
RUN = {"requests": 40, "wall_s": 1.0}


def measures(tpot_s: float = 0.1, requests: int = 20) -> Measures:
    results = [result_of(place, float(place), e2e_s=0.1 + 10 * tpot_s) for place in range(requests)]
    return measures_of(samples_of(load_of(results), TARGET))


def verdict(*of: Measures) -> Verdict:
    return verdict_of(of, [], interrupted=False, in_flight=0)


def search(ended: Ended, rate: float | None = 4.0) -> Search:
    return Search(rate, (rate, None), (Point(2.0, measures()), Point(4.0, replace(measures(), late_p99_s=0.5))), ended)


def test_a_good_measurement_needs_no_words() -> None:
    assert verdict(measures()) == Verdict(Status.MEASURED, ())
    assert verdict_of_search(search(Ended.NARROW), 0.9) == Verdict(Status.MEASURED, ())


def test_targets_are_out_of_reach_when_no_server_meets_them() -> None:
    assert verdict(measures(), measures(0.3)).status is Status.MEASURED
    both = verdict(measures(0.3), measures(0.2))
    assert both == Verdict(Status.OUT_OF_REACH, ("none of 40 requests met all its targets",))


def test_the_gravest_comes_first() -> None:
    late = replace(measures(requests=5), fell_behind=True, late_p99_s=0.03)
    found = verdict_of([late], [], interrupted=True, in_flight=3)
    assert found.status is Status.INTERRUPTED
    assert [sentence.split()[0] for sentence in found.sentences] == ["interrupted:", "the", "5"]
    assert "3 requests were under way" in found.sentences[0]
    assert "more than 30 ms late" in found.sentences[1]


@pytest.mark.parametrize(
    ("ended", "rate", "status", "words"),
    [
        (Ended.NEVER, None, Status.OUT_OF_REACH, "not even at 2 requests a second did 90% of them meet their targets"),
        (Ended.GENERATOR, 2.0, Status.FELL_BEHIND, "more than 500 ms late"),
        (Ended.BUDGET, 4.0, Status.TOO_FEW, "after 2 rates the search is not at its end"),
        (Ended.INTERRUPTED, 2.0, Status.INTERRUPTED, "the search was not at its end"),
    ],
)
def test_a_search_that_found_nothing_says_why(ended: Ended, rate: float | None, status: Status, words: str) -> None:
    found = verdict_of_search(search(ended, rate), 0.9)
    assert found.status is status
    assert words in found.sentences[0]


def test_a_request_that_is_alone_tells_what_can_be_reached() -> None:
    alone = [
        result_of(0, 0.0),
        replace(result_of(1, 1.0), latency=Latency(None, None, 2.0)),
        result_of(2, 2.0, error="x"),
    ]
    assert not is_out_of_reach(alone, TARGET)
    assert is_out_of_reach(alone, Target(tpot_s=0.05))
    assert out_of_reach(alone, Target(tpot_s=0.05, e2e_s=1.0)).endswith("TPOT 100 ms of 50, E2E 1.1e+03 ms of 1e+03")


def test_held_back_requests_are_compared_with_those_that_speculated() -> None:
    """Of those that count and ended well: the first is warm-up, and one failed."""
    reasons = [Reason.SPECULATIVE, Reason.HOLDBACK, Reason.SATURATED, Reason.SPECULATIVE]
    results = [
        result_of(
            place,
            float(place),
            reason=str(reasons[place % 4]),
            e2e_s=0.6 if reasons[place % 4] is Reason.SPECULATIVE else 1.1,
            error="lost" if place == 5 else None,
        )
        for place in range(80)
    ]
    samples = samples_of(load_of(results, warm_up=1), TARGET)
    held = holdback_of(samples)
    assert held is not None
    assert (held.speculative_requests, held.held_back_requests) == (39, 19)
    assert held.difference.tpot.mean.value == pytest.approx(-0.05)
    assert held.difference.tpot.mean.interval == pytest.approx((-0.05, -0.05))
    assert held.difference.ttft.p95.value == 0.0

    document = target_document("n", "http://n", "m", samples, [1, 2, 3])
    assert document["running_p95"] == pytest.approx(2.9)
    assert document["holdback"]["difference"]["tpot_ms"]["mean"] == pytest.approx(-50.0)
    assert document["holdback"]["held_back"]["requests"] == 19
    shown = printed({"title": "n", "targets": [document], "run": RUN})
    assert "39 speculated and 19 were held back, chosen at random" in shown
    assert "-50.0 (-50.0…-50.0)*" in shown
    assert "1 failed: lost" in shown


def test_a_search_without_an_answer_is_shown() -> None:
    document = search_document(search(Ended.NEVER, None), 0.9)
    assert document["rate"] is None
    assert "No rate at which enough requests met their targets." in printed(
        {"title": "n", "find_max": document, "run": RUN}
    )
    unknown = replace(measures(), requests=replace(measures().requests, attainment=Figure(), goodput=Figure()))
    document = search_document(Search(None, (None, None), (Point(1.0, unknown),), Ended.INTERRUPTED), 0.9)
    assert document["points"][0]["attainment"] is None
    assert "–" in printed({"title": "n", "find_max": document, "run": RUN})
    found = printed({"title": "n", "find_max": search_document(search(Ended.NARROW), 0.9), "run": RUN})
    assert "Up to 4 requests a second, 90% of them meet their targets; beyond doubt at 4" in " ".join(found.split())


def printed(answer: dict[str, object]) -> str:
    console = Console(width=80, no_color=True)
    with console.capture() as capture:
        console.print(bench_report(answer))
    return capture.get()

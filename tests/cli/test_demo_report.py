"""The demo's report fits its width, claims no more than was measured, and says what went wrong."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console, RenderableType

from slipstream.cli.demo_report import DemoRun, document, introduction, problem_of, report
from slipstream.core.latency import Latency
from slipstream.load import LoadResult, PlannedRequest

NODE: dict[str, Any] = {
    "name": "speculative-node-0",
    "pool": "speculative",
    "state": "saturated",
    "occupancy": 4,
    "ceiling": 4,
    "limit": 8,
    "capacity_left": 0,
    "alpha": 0.712,
    "k": 3.96,
    "tau": 2.8312,
    "drafted": 67_312,
    "accepted": 31_812,
    "saturated_share": 0.0812,
    "error": None,
    "fresh": True,
}
CATEGORY: dict[str, Any] = {
    "name": "summarization",
    "alpha": 0.66,
    "interval": (0.41, 0.82),
    "tau": 2.57,
    "tokens_per_step": 1.52,
    "drafted": 179,
    "accepted": 71,
    "evidence_requests": 9,
    "requests": {
        "by_pool": {"speculative": 9, "standard": 3},
        "by_reason": {"speculative": 9, "holdback": 2, "saturated": 1, "short_output": 1, "below_floor": 6},
    },
}
REQUEST = PlannedRequest("m", (), 64)


def done(pool: str, tpot: float) -> LoadResult:
    latency = Latency(12.345, tpot, 20.0)
    return LoadResult(REQUEST, 8, 200, category="summarization", pool=pool, latency=latency, output_tokens=64)


def run_of(speculative_tpot: float, standard_tpot: float, advice: list[Mapping[str, Any]] | None = None) -> DemoRun:
    results = [
        done(pool, tpot + index / 1000)
        for index in range(6)
        for pool, tpot in (("speculative", speculative_tpot), ("standard", standard_tpot))
    ]
    fleet = {"blind": False, "nodes": [NODE, {**NODE, "name": "std-0"}], "categories": [CATEGORY]}
    return DemoRun(results, fleet, advice or [], {"speculative-node-0": 4, "std-0": 8}, 56.0)


def shown(renderable: RenderableType, width: int = 80) -> str:
    file = io.StringIO()
    Console(file=file, width=width, highlight=False).print(renderable)
    return file.getvalue()


ADVICE = {"code": "raise_ceiling", "subject": "x", "sentence": "Raise the ceiling to 12 " + "and look again " * 9}


def test_no_line_is_wider_than_80_columns() -> None:
    for renderable in (report(run_of(1.0, 2.0, [ADVICE])), introduction("draft:a.gguf", 4, 8, 1 / 3, 0.25)):
        assert max(map(len, shown(renderable).splitlines())) <= 80


@pytest.mark.parametrize(
    ("speculative", "standard", "claim"),
    [
        (1.0, 2.0, "In time per output token, speculative was faster on this machine: ahead in 100% of 36 pairs"),
        (2.0, 1.0, "In time per output token, speculative was slower on this machine: ahead in 0% of 36 pairs"),
        (1.0, 1.0, "In time per output token, speculative was neither clearly faster nor slower on this machine"),
    ],
)
def test_it_says_what_was_measured_and_no_more(speculative: float, standard: float, claim: str) -> None:
    text = " ".join(shown(report(run_of(speculative, standard))).split())
    assert claim in text
    assert "These times say little of other machines" in text
    assert "Advice: none" in text


def test_it_shows_every_figure_it_promises() -> None:
    text = shown(report(run_of(1.0, 2.0, [ADVICE])))
    for figure in ("0.66", "2.57", "179", "71", "holdback:2", "Most sequences at once", "8%", "12.3k", "Raise the"):
        assert figure in text


def test_nothing_to_compare_is_said() -> None:
    run = run_of(1.0, 2.0)
    only = replace(run, results=[done("standard", 1.0)])
    assert "there is nothing to compare" in " ".join(shown(report(only)).split())


def test_a_good_run_has_no_problem() -> None:
    assert problem_of(run_of(1.0, 2.0)) is None


def test_each_way_to_show_nothing_has_its_sentence() -> None:
    run = run_of(1.0, 2.0)
    failed = LoadResult(REQUEST, 1, 429, "status 429: all full")
    assert problem_of(replace(run, results=[*run.results, failed])) == (
        "1 of 13 requests failed, the first because: status 429: all full"
    )
    assert problem_of(replace(run, results=[done("standard", 1.0)])) == "no request went to the speculative pool"
    assert problem_of(replace(run, results=[done("speculative", 1.0)])) == "no request went to the standard pool"
    for drafted in (0, None):
        fleet = {**run.fleet, "categories": [{**CATEGORY, "drafted": drafted}]}
        assert problem_of(replace(run, fleet=fleet)) == "nothing was drafted, so no acceptance was measured"


def test_the_json_has_the_keys_of_status_and_the_demos_own() -> None:
    run = run_of(1.0, 2.0, [ADVICE])
    found = document(run)
    assert set(found) == {"blind", "nodes", "categories", "latency", "advice", "verdict"}
    assert [node["peak_occupancy"] for node in found["nodes"]] == [4, 8]
    assert found["categories"] == run.fleet["categories"]
    assert found["verdict"]["ok"] is True
    assert found["verdict"]["tpot"]["speculative_was"] == "faster"
    assert found["verdict"]["ttft"]["speculative_was"] == "no clear difference"
    assert found["latency"][0]["tpot_ms"] == pytest.approx(1002.5)

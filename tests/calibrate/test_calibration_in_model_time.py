"""Waves of the engine model in its own time: what is found is what was set, however busy this machine is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from calibrated_nodes import COSTS, K
from slipstream.calibrate.findings import Findings, findings_of
from slipstream.calibrate.measured_profile import Form, profile_document
from slipstream.calibrate.node import CalibratedNode
from slipstream.calibrate.plan import CalibrationPlan, Point
from slipstream.calibrate.promises import promises_document
from slipstream.calibrate.report import Status, calibration_document, recommendation, verdict_of
from slipstream.calibrate.run import Arm, Observed
from slipstream.calibrate.steady import steady_part
from slipstream.calibrate.waves import Wave
from slipstream.cli.calibrate_plot import draw
from slipstream.config.calibration import calibration_from_file
from slipstream.core.calibration import expected_time
from slipstream.core.latency import latency_of
from slipstream.core.node import NodeReport
from slipstream.core.speedup import CurveShape, crossovers_of
from slipstream.costmodel.profiles import LinearCosts, Provenance, profile_of
from slipstream.costmodel.steps import step_rows
from slipstream.enginemodel.acceptance import survival_of
from slipstream.enginemodel.engine import Engine
from slipstream.enginemodel.sequence import Sequence as Running
from slipstream.enginemodel.settings import EngineSettings, Speculation
from slipstream.enginemodel.step_times import StepTimes
from slipstream.engines.llamacpp import LLAMACPP
from slipstream.engines.scrape import Scraper
from slipstream.load import LoadResult, PlannedRequest

BATCHES = (1, 2, 4, 8)
PLAN = CalibrationPlan(BATCHES, (64,), ("code", "chat"), 81, 6, 1)
DEAR = LinearCosts(Provenance("made", "1", "none", "m", "2026"), step_s=0.006, token_s=1e-4, draft_pass_s=0.02)
CHEAP = LinearCosts(Provenance("made", "1", "none", "m", "2026"), step_s=0.006, token_s=1e-5, draft_pass_s=1e-4)


def answers(costs: LinearCosts, point: Point, alpha: float, seed: int, *, drafts: bool) -> list[LoadResult]:
    """So many requests at once; a chunk for each token, those of a step together."""
    settings = EngineSettings(slots=64, speculation=Speculation(k=K) if drafts else None)
    engine = Engine(settings, StepTimes(step_rows(costs)), Random(seed).random)
    survival = survival_of(alpha, K) if drafts else ()
    running = [Running(place, point.context_tokens, PLAN.output_tokens, survival) for place in range(point.batch_size)]
    for sequence in running:
        assert engine.submit(sequence, 0.0)
    times: list[list[float]] = [[] for _ in running]
    now = 0.0
    while any(sequence.emitted < PLAN.output_tokens for sequence in running):
        now = engine.begin_step(now)
        engine.end_step(now)
        for place, sequence in enumerate(running):
            times[place] += [now] * (sequence.emitted - len(times[place]))
    return [
        _answer(PLAN.categories[place % 2], sequence, seen)
        for place, (sequence, seen) in enumerate(zip(running, times, strict=True))
    ]


def _answer(category: str, sequence: Running, seen: Sequence[float]) -> LoadResult:
    told = {"predicted_n": len(seen), "draft_n": sequence.drafted, "draft_n_accepted": sequence.accepted}
    usage = {"prompt_tokens": sequence.prompt_tokens, "completion_tokens": len(seen)}
    return LoadResult(
        PlannedRequest("m", (), len(seen), category),
        1,
        latency=latency_of(0.0, seen[0], seen[-1], len(seen)),
        chunk_gaps=[after - before for before, after in pairwise(seen)],
        prompt_tokens=sequence.prompt_tokens,
        output_tokens=len(seen),
        closing=(json.dumps({"usage": usage, "timings": told}).encode(),),
    )


def arm(costs: LinearCosts, alpha: float, *, drafts: bool) -> Arm:
    facts = NodeReport(version="b1", k=K if drafts else None, speculating=drafts, models=("m",))
    node = CalibratedNode("http://n:1", LLAMACPP, facts, "m", None, None, Scraper("http://n:1"), None)
    found = Arm(node, drafts, prefill=(0.006, 2e-5))
    for size in BATCHES:
        point = Point(64, size)
        for seed in range(100 * size, 100 * size + max(4, 24 // size)):
            results = answers(costs, point, alpha, seed, drafts=drafts)
            decoded = steady_part(results, "llamacpp", drafts=drafts, k=K)
            found.waves.setdefault(point, []).append(
                Wave(point, tuple(result.request.label for result in results), decoded, (size,), None, 1.0, None)
            )
    return found


@cache
def calibration(costs: LinearCosts = COSTS, alpha: float = 1.0) -> Findings:
    arms = arm(costs, alpha, drafts=False), arm(costs, alpha, drafts=True)
    return findings_of(Observed(PLAN, arms[0], arms[1:], 1.0, "", interrupted=False, busy=False))


@pytest.mark.parametrize("alpha", [1.0, 0.7])
@pytest.mark.parametrize("form", ["table", "linear"])
def test_the_profile_has_the_step_times_that_were_set(form: Form, alpha: float) -> None:
    document = profile_document(calibration(alpha=alpha), form, hardware="none", date="2026-11-30")
    costs = profile_of(document, "made")
    assert costs.standard_s(BATCHES, 100).tolist() == pytest.approx(COSTS.standard_s(BATCHES, 0).tolist(), rel=0.005)
    expected = COSTS.speculative_s(BATCHES, K, 0).tolist()
    assert costs.speculative_s(BATCHES, K, 100).tolist() == pytest.approx(expected, rel=0.02)
    assert costs.proposing_share == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(("alpha", "near"), [(1.0, 0.01), (0.7, 0.05)])
def test_the_crossover_is_the_one_that_was_set(alpha: float, near: float) -> None:
    tau = 1.0 + sum(survival_of(alpha, K))
    exact = (tau * COSTS.standard_s(BATCHES, 0) / COSTS.speculative_s(BATCHES, K, 0)).tolist()
    (curve,) = calibration(alpha=alpha).speculative[0].curves
    assert curve.shape is CurveShape.FALLS_BELOW
    assert curve.crossovers == pytest.approx(crossovers_of(BATCHES, exact), rel=near)
    for gain, speedup in zip(curve.gains, exact, strict=True):
        assert gain.speedup == pytest.approx(speedup, rel=near)
        assert gain.interval is not None
        assert gain.interval[0] <= gain.speedup <= gain.interval[1]


def test_the_ceiling_is_the_largest_batch_that_surely_gains() -> None:
    """2.2, 1.7 and 1.15 times as fast, and then slower."""
    assert calibration().ceiling == 4
    assert recommendation(calibration()) == "Ceiling 4: up to there speculation is surely at least 5% faster."


def test_acceptance_is_the_one_that_was_set() -> None:
    for estimate in calibration(alpha=0.7).speculative[0].acceptance.values():
        assert estimate.alpha == pytest.approx(0.7, abs=0.03)


def test_a_draft_too_dear_does_not_pay_from_the_first_batch_on() -> None:
    found = calibration(DEAR, 0.5)
    assert found.ceiling is None
    assert calibration_document(found)["curves"][0]["shape"] == "below 1 from the first point on"
    assert recommendation(found).startswith("Speculation does not pay here: it is slower from the first batch size on")


def test_a_gain_too_small_does_not_pay_either() -> None:
    costs = LinearCosts(Provenance("made", "1", "none", "m", "2026"), step_s=0.006, token_s=1e-6, draft_pass_s=0.006)
    found = calibration(costs, 0.999)  # five tokens for five steps' time, less what is never drafted
    assert found.ceiling is None
    assert recommendation(found).startswith("Speculation does not pay here: ")


def test_where_it_always_pays_the_ceiling_is_as_far_as_was_looked() -> None:
    found = calibration(CHEAP, 0.9)
    assert found.speculative[0].curves[0].shape is CurveShape.NEVER_BELOW
    assert recommendation(found).startswith("Ceiling 8, the largest that was tested: ")


def rushed(waves: int) -> Findings:
    """So many waves of one request, and nothing else."""
    arms = [arm(COSTS, 1.0, drafts=drafts) for drafts in (False, True)]
    for one in arms:
        one.waves = {point: told[:waves] for point, told in one.waves.items() if point.batch_size == 1}
    return findings_of(Observed(PLAN, arms[0], (arms[1],), 1.0, "", interrupted=False, busy=False))


def test_one_request_is_too_few_and_a_table_all_the_same() -> None:
    found = rushed(1)
    assert recommendation(found) == "Too few requests to propose a ceiling."
    assert verdict_of(found).status is Status.TOO_FEW
    assert verdict_of(found).sentences == ("too few requests to tell at 1 at once: give more time (--budget)",)
    assert recommendation(rushed(4)).startswith("Ceiling 1, the largest that was tested")


def test_a_profile_says_what_engine_in_which_version() -> None:
    found = calibration()
    standard, speculative = found.observed.standard, found.observed.speculative[0]
    nameless = replace(speculative.node, facts=NodeReport(k=K)), replace(standard.node, facts=NodeReport())
    arms = [replace(one, node=node) for one, node in zip((speculative, standard), nameless, strict=True)]
    unknown = findings_of(replace(found.observed, standard=arms[1], speculative=(arms[0],)))
    with pytest.raises(ValueError, match="--engine-version"):
        profile_document(unknown, "table", hardware="none", date="2026")
    told = profile_document(unknown, "table", hardware="none", date="2026", engine_version="b2")
    assert (told["engine"], told["version"]) == ("llamacpp", "b2")


@pytest.mark.parametrize("alpha", [1.0, 0.7])
def test_the_profile_promises_what_a_gateway_will_see(tmp_path: Path, alpha: float) -> None:
    found = calibration(alpha=alpha)
    document = profile_document(found, "table", hardware="none", date="2026-11-30")
    (tmp_path / "p.json").write_text(json.dumps(document))
    promised = calibration_from_file(str(tmp_path / "p.json"))
    tau = 1.0 + sum(survival_of(alpha, K))
    for k, step_s, tokens in ((0, COSTS.standard_s(BATCHES, 0), 1.0), (K, COSTS.speculative_s(BATCHES, K, 0), tau)):
        for batch_size, expected in zip(BATCHES, (step_s / tokens).tolist(), strict=True):
            time = expected_time(promised.times, k, batch_size, batch_size)
            assert time is not None
            assert time.tpot_s == pytest.approx(expected, rel=0.1)
            assert time.low_s <= time.tpot_s <= time.high_s
    assert {one.category for one in promised.acceptance} == set(found.observed.plan.categories)
    for one in promised.acceptance:
        assert one.speculator == promised.speculators[0]
        assert one.tokens_per_step == pytest.approx(tau, rel=0.1)
    traffic = promised.traffic
    assert traffic is not None
    assert sum(share for _, share in traffic.shares) == pytest.approx(1.0)
    assert found.observed.plan.context_tokens[0] < traffic.least_context <= traffic.most_context
    assert promised.hardware == "none"


def test_what_was_not_measured_is_not_promised() -> None:
    found = calibration()
    observed = found.observed
    empty = replace(
        found,
        observed=replace(observed, standard=replace(observed.standard, waves={})),
        speculative=tuple(replace(one, arm=replace(one.arm, waves={}), acceptance={}) for one in found.speculative),
    )
    nothing = promises_document(empty)
    assert (nothing["times"], nothing["acceptance"], nothing["traffic"]) == ([], [], None)
    few = promises_document(rushed(1))
    assert {row["interval_ms"] is None for row in few["times"] if row["batch_size"] == 1} == {True}


def test_nodes_that_differ_in_ranks_have_no_one_number_of_them_and_each_has_its_fingerprint() -> None:
    found = calibration()
    observed = found.observed
    arm = observed.standard
    other = replace(arm, node=replace(arm.node, facts=replace(arm.node.facts, replicas=2)), system_fingerprint="a")
    document = promises_document(replace(found, observed=replace(observed, standard=other)))
    assert (document["replicas"], document["system_fingerprints"]) == (None, ["a"])


def test_a_picture_of_curves_with_and_without_intervals(tmp_path: Path) -> None:
    for place, found in enumerate((calibration(), rushed(1))):
        file = tmp_path / f"{place}.svg"
        draw({"title": "a against b", **calibration_document(found)}, file)
        assert ("ceiling 4" in file.read_text()) is (place == 0)

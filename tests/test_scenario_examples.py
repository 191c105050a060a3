"""Every scenario under examples/ shows what its ``about`` states, with these figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

from slipstream.costmodel.speculator import draft_s
from slipstream.costmodel.steps import RooflineRows
from slipstream.scenarios import read_scenario
from slipstream.sim.measures import Measures, measure
from slipstream.sim.run import Run
from slipstream.sim.scenario import Scenario
from slipstream.sim.simulate import simulate

EXAMPLES = Path(__file__).parents[1] / "examples"
SCENARIOS = sorted(file.stem for file in EXAMPLES.glob("*.yaml") if "\nworkload:" in file.read_text())

SHORTER: Mapping[str, Mapping[str, float]] = {
    "fleet-16": {"window_s": 20, "warm_up_s": 5},
    "first-article": {"window_s": 240},
    "interactive-and-bulk": {"window_s": 150},
    "wrong-draft": {"window_s": 150},
    "hidden-average": {"window_s": 150},
}
"""Windows that are enough for one seed to show it."""


@cache
def scenario(name: str) -> Scenario:
    return read_scenario(EXAMPLES / f"{name}.yaml", changes=SHORTER.get(name))


@cache
def run(name: str, policy: str) -> Run:
    one = scenario(name)
    return simulate(one, next(each for each in one.policies if each.name == policy), one.seeds[0])


def measured(name: str, policy: str, window: tuple[float, float] | None = None) -> Measures:
    one = scenario(name)
    whole = (one.warm_up_s, one.warm_up_s + one.window_s)
    return measure(run(name, policy), one.targets, window=window or whole)


def compared(
    name: str, of: Callable[[Measures], float | None], *policies: str, window: tuple[float, float] | None = None
) -> list[float]:
    found = [of(measured(name, policy, window)) for policy in policies]
    assert None not in found
    return [figure for figure in found if figure is not None]


def tpot_ms(measures: Measures) -> float | None:
    mean = measures.requests.tpot.mean
    return None if mean is None else mean * 1000.0


def code_tpot_ms(measures: Measures) -> float | None:
    mean = measures.categories["code"].tpot.mean
    return None if mean is None else mean * 1000.0


def attainment(measures: Measures) -> float | None:
    return measures.requests.attainment


def close(*figures: float, by: float = 0.08) -> object:
    return pytest.approx(list(figures), rel=by)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_says_what_it_shows(name: str) -> None:
    about = (EXAMPLES / f"{name}.yaml").read_text().split("seeds:")[0]
    assert f"slipstream simulate examples/{name}.yaml" in about
    assert any(character.isdigit() for character in about.split("about:")[1])


def test_every_scenario_is_tried() -> None:
    source = Path(__file__).read_text()
    assert [name for name in SCENARIOS if f'"{name}",' not in source.split("SHORTER")[-1]] == []


def test_code_is_as_fast_on_six_speculative_nodes_of_sixteen_as_on_sixteen() -> None:
    fast = compared("fleet-16", code_tpot_ms, "all-standard", "all-speculative", "threshold")
    assert fast == close(8.0, 3.3, 3.3)
    assert compared("fleet-16", attainment, "all-standard", "all-speculative", "threshold") == [1.0, 1.0, 1.0]


def test_a_ceiling_of_12_is_better_than_8_and_16_too_far() -> None:
    ceilings = ("ceiling-8", "ceiling-12", "ceiling-16")
    saturated = compared("first-article", lambda found: found.reasons["saturated"], *ceilings)
    assert saturated == [pytest.approx(stated, abs=0.03) for stated in (0.29, 0.18, 0.11)]
    lowest, best, too_far = compared("first-article", lambda found: found.requests.goodput, *ceilings)
    assert [lowest, best, too_far] == close(6.1, 6.3, 5.8, by=0.05)
    assert best > 1.02 * lowest
    assert best > 1.05 * too_far
    assert compared("first-article", lambda found: found.requests.goodput, "all-standard") == close(3.5)


def test_draft_steps_grow_with_the_batch() -> None:
    equipment = scenario("first-article").groups[0].speculative
    assert equipment is not None
    rows = equipment.rows
    assert isinstance(rows, RooflineRows)
    assert rows.speculator is not None
    drafting_ms = (draft_s(rows.deployment, rows.speculator, [8, 64], 4, 700) * 1000.0).tolist()
    assert drafting_ms == close(20, 25, by=0.05)


NIGHT, BURST = (30.0, 240.0), (240.0, 300.0)


def test_at_night_speculation_is_faster() -> None:
    night = compared("night-and-burst", tpot_ms, "all-speculative", "threshold", "all-standard", window=NIGHT)
    assert night == close(19.5, 22, 28.5)


def test_throughput_falls_when_speculation_stays_on_at_saturation() -> None:
    def tokens(found: Measures) -> float:
        return found.tokens_per_s

    standard, speculative = compared("night-and-burst", tokens, "all-standard", "all-speculative", window=BURST)
    assert speculative / standard == pytest.approx(0.88, abs=0.04)
    policies = ("all-standard", "all-scheduled", "threshold", "all-speculative")
    assert compared("night-and-burst", tpot_ms, *policies, window=BURST) == close(50, 64, 66, 80, by=0.1)
    met = compared("night-and-burst", attainment, *policies, window=BURST)
    assert met == sorted(met, reverse=True)
    assert met[0] > 0.99
    assert met[-1] < 0.75


def test_pools_for_people_and_for_jobs_serve_both() -> None:
    policies = ("threshold", "all-speculative", "all-standard")
    met = compared("interactive-and-bulk", attainment, *policies)
    assert met == [pytest.approx(stated, abs=0.03) for stated in (0.97, 0.79, 0.60)]
    assert compared("interactive-and-bulk", code_tpot_ms, *policies) == close(8, 13, 35)
    jobs = compared("interactive-and-bulk", lambda found: found.categories["summarization"].e2e.mean, *policies)
    assert jobs == close(25, 7, 14, by=0.25)


def test_a_draft_takes_room_so_that_answers_come_later_though_tokens_come_faster() -> None:
    group = scenario("long-context").groups[0]
    assert group.speculative is not None
    room = [group.standard.settings.kv_tokens, group.speculative.settings.kv_tokens]
    assert room == close(218_000, 121_000, by=0.01)
    policies = ("all-standard", "all-speculative")
    assert compared("long-context", tpot_ms, *policies) == close(74, 50)
    assert compared("long-context", lambda found: found.running_p95, *policies) == close(17, 11.7, by=0.05)
    assert compared("long-context", lambda found: found.engine_wait.mean, *policies) == close(3.8, 24, by=0.15)
    assert compared("long-context", lambda found: found.requests.e2e.p95, *policies) == close(57, 73)


def test_a_wrong_draft_is_found_out() -> None:
    policies = ("all-standard", "all-speculative", "threshold")
    standard, speculative, threshold = compared("wrong-draft", tpot_ms, *policies)
    assert [standard, threshold, speculative] == close(32.4, 34.6, 37.2, by=0.03)
    assert speculative > threshold > standard
    met = compared("wrong-draft", attainment, *policies)
    assert met == [pytest.approx(stated, abs=0.11) for stated in (0.97, 0.42, 0.78)]
    assert measured("wrong-draft", "all-speculative").wasted_drafts == pytest.approx(0.81, abs=0.01)
    assert measured("wrong-draft", "threshold").reasons["below_floor"] == pytest.approx(0.98, abs=0.01)


def test_an_average_hides_who_wastes_the_width_of_the_batch() -> None:
    policies = ("by-average", "by-category")
    wasted = compared("hidden-average", lambda found: found.wasted_verification, *policies)
    assert wasted == [pytest.approx(0.55, abs=0.02), pytest.approx(0.28, abs=0.02)]
    met = compared("hidden-average", attainment, *policies)
    assert met == [pytest.approx(0.70, abs=0.07), pytest.approx(0.93, abs=0.04)]
    assert compared("hidden-average", code_tpot_ms, *policies) == close(32, 20)


MORNING, AFTERNOON = (150.0, 300.0), (330.0, 480.0)


def test_a_change_of_capacity_moves_the_crossover() -> None:
    policies = ("all-speculative", "all-standard")
    assert compared("capacity-change", tpot_ms, *policies, window=MORNING) == close(25, 33)
    assert compared("capacity-change", tpot_ms, *policies, window=AFTERNOON) == close(59, 44)
    ceilings = ("ceiling-8", "ceiling-24")
    assert compared("capacity-change", attainment, *ceilings, window=MORNING) == close(1, 1, by=0.01)
    met = compared("capacity-change", attainment, *ceilings, window=AFTERNOON)
    assert met == [pytest.approx(0.17, abs=0.03), pytest.approx(0.74, abs=0.06)]


QUIET, SURGE, QUIET_AGAIN = (60.0, 300.0), (400.0, 660.0), (900.0, 1200.0)


def test_roles_follow_the_load_where_a_change_pays() -> None:
    policies = ("all-standard", "split", "roles", "roles-70b")
    for window in (QUIET, QUIET_AGAIN):
        assert compared("roles-by-day", tpot_ms, *policies, window=window) == close(28, 19.5, 19.5, 19.5)
    in_time = compared("roles-by-day", lambda found: found.requests.goodput, *policies, window=SURGE)
    assert in_time == [pytest.approx(stated, abs=1.5) for stated in (19, 0.6, 13, 0.6)]
    assert [node.seconds for node in run("roles-by-day", "roles-70b").nodes[4:]] == [0.0] * 4

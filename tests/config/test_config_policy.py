"""The policy that decides, and what it needs: targets and profiles."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slipstream.config import parse, warnings
from slipstream.config.targets import targets_by_class
from slipstream.core.errors import ConfigError
from slipstream.core.goodput import Target
from slipstream.core.request import TrafficClass

PROFILE = {"engine": "vllm", "version": "0.32.0", "hardware": "1x H100", "model": "m", "date": "2026-11-30"}
NODES = """
nodes:
  - {name: a, url: "http://10.0.0.1:8000", pool: speculative}
  - {name: b, url: "http://10.0.0.2:8000", pool: standard}
"""


def problems(text: str, folder: Path) -> list[str]:
    with pytest.raises(ConfigError) as error:
        parse(text + NODES, "fleet.yaml", folder)
    return [str(problem) for problem in error.value.problems]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.json").write_text(json.dumps(PROFILE))
    return tmp_path


def test_targets_are_a_second_and_fifty_milliseconds_unless_told(folder: Path) -> None:
    assert targets_by_class(parse(NODES, "fleet.yaml", folder).routing.targets) == {
        TrafficClass.INTERACTIVE: Target(ttft_s=1.0, tpot_s=0.05)
    }
    text = (
        "routing: {policy: predictive, targets: {interactive: {e2e_ms: 5000}, bulk: {tpot_ms: 200}}}\nprofile: p.json"
    )
    assert targets_by_class(parse(text + NODES, "fleet.yaml", folder).routing.targets) == {
        TrafficClass.INTERACTIVE: Target(e2e_s=5.0),
        TrafficClass.BULK: Target(tpot_s=0.2),
    }


def test_policy_predictive_without_any_profile_is_refused_with_what_to_write(folder: Path) -> None:
    (found,) = problems("routing: {policy: predictive}", folder)
    assert found == (
        "fleet.yaml:1: routing.policy: found predictive, and no profile to foretell from; allowed: threshold, or a "
        "`profile` of the fleet or of a node besides: the file that `slipstream calibrate --output` writes"
    )


@pytest.mark.parametrize("given", ["{}", ""])
def test_a_class_without_any_target_is_to_be_left_out(folder: Path, given: str) -> None:
    (found,) = problems(f"routing:\n  targets:\n    bulk: {given}", folder)
    assert found.startswith("fleet.yaml:3: routing.targets.bulk: found no latency; allowed: at least one of ttft_ms")


def test_nonsense_in_place_of_targets_is_told_once(folder: Path) -> None:
    assert len(problems("routing: {targets: 3}", folder)) == 1
    assert "one of threshold, predictive, round-robin" in problems("routing: {policy: fastest}", folder)[0]


def test_what_has_no_effect_is_warned_of(folder: Path) -> None:
    def told(text: str) -> tuple[str, ...]:
        return warnings(parse(text, "fleet.yaml", folder))

    assert told(f"routing: {{targets: {{bulk: {{tpot_ms: 9}}}}}}{NODES}") == (
        "routing.targets does nothing while routing.policy is threshold",
    )
    policy = "routing: {policy: predictive}"
    assert told(f"profile: p.json\n{policy}{NODES}") == ()
    one = NODES.replace("pool: standard}", "pool: standard, profile: p.json}")
    assert told(policy + one) == (
        "a has no profile, so requests are placed there by threshold, not by routing.policy predictive",
    )
    more = "".join(f'\n  - {{name: c{n}, url: "http://10.0.1.{n}:8000", pool: standard}}' for n in range(4))
    assert told(policy + one.rstrip() + more)[0].startswith("a, c0, c1 and 2 more have no profile, so requests")


def test_who_names_targets_is_asked_what_becomes_of_requests_that_can_not_meet_them(folder: Path) -> None:
    def told(routing: str) -> tuple[str, ...]:
        return warnings(parse(f"profile: p.json\nrouting: {{{routing}}}{NODES}", "fleet.yaml", folder))

    targets = "targets: {interactive: {ttft_ms: 500}}"
    (found,) = told(f"policy: predictive, {targets}")
    assert found.startswith("routing.fallback is not set, so a request that can not meet its targets is answered late")
    assert told(f"policy: predictive, {targets}, fallback: false") == ()
    assert told(f"policy: predictive, {targets}, fallback: true") == ()
    assert told("policy: predictive") == ()

"""A profile in a configuration: whose it is, and what is refused of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slipstream.config import node_specs, parse
from slipstream.config.sources import files_of
from slipstream.core.calibration import Calibration, MeasuredAcceptance, MeasuredTime, MeasuredTraffic
from slipstream.core.errors import ConfigError

PROFILE = {"engine": "vllm", "version": "0.32.0", "hardware": "1x H100", "model": "m", "date": "2026-11-30"}
FLEET = """
profile: fleet.json
nodes:
  - {name: spec-0, url: "http://10.0.0.1:8000", pool: speculative}
  - {name: std-0, url: "http://10.0.0.2:8000", pool: standard, profile: own.json}
"""


def written(folder: Path, fleet: object = PROFILE, own: object = PROFILE | {"speculators": ["draft-k4"]}) -> None:
    for name, document in (("fleet.json", fleet), ("own.json", own)):
        (folder / name).write_text(document if isinstance(document, str) else json.dumps(document))


def test_a_node_has_its_own_profile_or_that_of_the_fleet(tmp_path: Path) -> None:
    written(tmp_path)
    config = parse(FLEET, "fleet.yaml", tmp_path)
    first, second = node_specs(config)
    known = ("2026-11-30", "vllm", "0.32.0", "m")
    assert first.calibration == Calibration(str(tmp_path / "fleet.json"), *known, hardware="1x H100")
    assert second.calibration == Calibration(str(tmp_path / "own.json"), *known, ("draft-k4",), "1x H100")
    assert {tmp_path / "fleet.json", tmp_path / "own.json"} <= set(files_of(tmp_path / "fleet.yaml", config))


def test_a_fleet_without_a_profile_has_no_calibration(tmp_path: Path) -> None:
    text = FLEET.replace("profile: fleet.json", "").replace(", profile: own.json", "")
    assert [spec.calibration for spec in node_specs(parse(text, "fleet.yaml", tmp_path))] == [None, None]


@pytest.mark.parametrize(
    ("document", "allowed"),
    [
        ("{", "a profile in JSON"),
        ("[]", "a JSON object"),
        (PROFILE | {"model": " ", "date": None}, "a profile that says its model, date"),
        (PROFILE | {"speculators": "draft-k4"}, "(Expected `array`, got `str` - at `$.speculators`)"),
        (PROFILE | {"times": [{"k": 0, "batch_size": 1, "tpot_ms": 0}]}, "a profile whose figures are as"),
        (None, "a file that can be read (No such file or directory)"),
    ],
)
def test_what_is_no_profile_is_refused_where_it_stands(tmp_path: Path, document: object, allowed: str) -> None:
    written(tmp_path, fleet="{" if document is None else document)
    if document is None:
        (tmp_path / "fleet.json").unlink()
    with pytest.raises(ConfigError) as error:
        parse(FLEET, "fleet.yaml", tmp_path)
    (problem,) = error.value.problems
    assert (problem.key, problem.line) == ("profile", 2)
    assert allowed in problem.allowed


def test_what_a_profile_promises_is_read_with_it(tmp_path: Path) -> None:
    figures = {
        "replicas": 2,
        "system_fingerprints": ["a", "b"],
        "times": [
            {"k": 4, "batch_size": 8, "tpot_ms": 20, "interval_ms": [18, 22]},
            {"k": 4, "batch_size": 1, "tpot_ms": 10, "interval_ms": None},
        ],
        "acceptance": [
            {"speculator": "draft-k4", "category": "code", "tokens_per_step": 3.0, "interval": [2.8, 3.2]},
            {"speculator": "draft-k4", "category": "chat", "tokens_per_step": 2.0, "interval": None},
        ],
        "traffic": {"categories": {"code": 0.5, "chat": 0.5}, "context_tokens": [400.0, 600.0]},
        "prefill_base_ms": 2.0,
        "coefficients": {"prefill_token_s": 0.001},
    }
    written(tmp_path, fleet=PROFILE | figures)
    section = "nodes:\n  - {name: spec-0, hardware: 1x H200, replicas: 3, "
    (spec, _) = node_specs(parse(FLEET.replace("nodes:\n  - {name: spec-0, ", section), "fleet.yaml", tmp_path))
    calibration = spec.calibration
    assert calibration is not None
    assert calibration.times == (MeasuredTime(4, 1, 0.01, 0.01, 0.01), MeasuredTime(4, 8, 0.02, 0.018, 0.022))
    assert calibration.acceptance == (MeasuredAcceptance("draft-k4", "code", 3.0, (2.8, 3.2)),)
    assert calibration.traffic == MeasuredTraffic((("chat", 0.5), ("code", 0.5)), 400.0, 600.0)
    assert (calibration.replicas, calibration.system_fingerprints) == (2, ("a", "b"))
    assert calibration.prefill == (0.002, 0.001)
    assert (spec.hardware, spec.replicas) == ("1x H200", 3)

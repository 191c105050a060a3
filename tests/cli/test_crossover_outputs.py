"""What `slipstream crossover` draws, emits and asks of a live engine."""

from __future__ import annotations

import asyncio
import json
import struct
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from typer.testing import CliRunner, Result

from emulated_client import ask, draft
from slipstream.cli import application
from slipstream.cli.node_counters import counted_in
from slipstream.config import load
from slipstream.core.node import NodeReport, SpeculativeCounters, SpeculatorKind
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.emulate import NodeSettings, emulated
from slipstream.emulate.alphas import parse_alphas

LLAMA = ("--target", "Llama-3.3-70B", "--hardware", "H100", "--tp", "4")
FALLING = ("--model", "published", "--verify-width", "--alpha", "0.72,0.5")


def run(*arguments: str, status: int = 0) -> Result:
    runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
    result = runner.invoke(application("crossover"), ["crossover", *arguments], catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result


def test_a_plot_is_a_picture_that_is_not_blank(tmp_path: Path) -> None:
    file = tmp_path / "speedup.png"
    run(*FALLING, "--plot", str(file))
    content = file.read_bytes()
    assert content.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", content[16:24])
    assert (width, height) == (1200, 720)
    from matplotlib.image import imread

    pixels = imread(file)
    assert len({tuple(pixel) for row in pixels for pixel in row.round(2)}) > 20


def test_a_plot_marks_each_curves_crossover(tmp_path: Path) -> None:
    file = tmp_path / "speedup.svg"
    run(*FALLING, "--plot", str(file))
    text = file.read_text()
    ET.fromstring(text)
    for word in ("<!-- 29.2 -->", "<!-- 4.7 -->", "alpha 0.72, K = 4", "alpha 0.50, K = 4", "batch size"):
        assert word in text


def test_without_matplotlib_a_plot_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.cli.picture.find_spec", lambda _: None)
    said = run(*FALLING, "--plot", str(tmp_path / "x.png"), status=2).stderr
    assert "--plot needs matplotlib: pip install 'slipstream[plot]'" in said


def emitted(engine: str, *arguments: str) -> tuple[dict[str, Any], str]:
    """The document's `emitted`, and what is printed without --json."""
    document = json.loads(run(*arguments, "--emit", engine, "--json").stdout)["emitted"]
    shown = run(*arguments, "--emit", engine).stdout
    assert shown == document["text"] + "\n"
    return document, shown


def test_vllm_is_told_to_stop_where_the_curve_falls_below_1() -> None:
    document, shown = emitted("vllm", *FALLING)
    schedule = document["schedule"]
    assert schedule[0][:1] == [1]
    assert schedule[-1][1:] == [512, 0]
    assert "# put your own for MODEL and DRAFT" in shown
    assert "# how many requests fit is not known; 512 stands for it" in shown
    best = json.loads(run(*FALLING, "--k", "1,2,3,4", "--json").stdout)["curves"][0]["rows"]
    for row in best:
        assert [k for first, last, k in schedule if first <= row["batch_size"] <= last] == [row["best_k"]]


def test_k_is_never_more_than_was_asked_for() -> None:
    document, _ = emitted("vllm", *LLAMA, "--speculator", "eagle3:alpha=0.9", "--k", "2")
    assert max(k for _, _, k in document["schedule"]) == 2


def test_the_target_is_named_as_on_the_hub_and_what_fits_is_counted() -> None:
    words = (*LLAMA, "--speculator", "eagle3:alpha=0.7", "--draft-weights", "me/head", "--context", "8192")
    document, shown = emitted("trtllm", *words)
    fits = json.loads(run(*words, "--emit", "trtllm", "--json").stdout)["admitted"]
    whole = yaml.safe_load(document["settings"][0]["text"])
    assert whole["max_batch_size"] == fits["speculative"]
    assert whole["speculative_config"]["speculative_model_dir"] == "me/head"
    assert yaml.safe_load(document["settings"][-1]["text"])["max_batch_size"] == fits["standard"]
    assert "put your own" not in shown
    assert "meta-llama/Llama-3.3-70B-Instruct" in emitted("sglang", *words)[1]
    drafted = emitted("vllm", *LLAMA, "--speculator", "Llama-3.2-3B:alpha=0.8")[1]
    assert '"model": "meta-llama/Llama-3.2-3B"' in drafted
    assert "put your own" not in drafted


def test_what_has_no_weights_needs_no_name_for_them() -> None:
    shown = emitted("vllm", *LLAMA, "--speculator", "ngram:alpha=0.8,p=0.3")[1]
    assert "put your own" not in shown
    assert '"method": "ngram", "num_speculative_tokens"' in shown


def test_our_own_configuration_gets_the_ceiling_and_pins_what_never_pays(tmp_path: Path) -> None:
    words = ("--speculator", "Llama-3.2-3B", "--category", "code:alpha=0.6", "--category", "chat:alpha=0.01")
    _, shown = emitted("slipstream", *LLAMA, *words)
    nodes = [{"name": "s", "url": "http://10.0.0.1:8000", "pool": "speculative"}]
    file = tmp_path / "fleet.yaml"
    file.write_text(shown + yaml.safe_dump({"nodes": nodes}))
    config = load(file)
    assert config.routing.pins == {"chat": "standard"}
    assert config.pools.speculative.ceiling > 1


def test_a_speculator_that_never_pays_leaves_standard_nodes_only() -> None:
    document, shown = emitted("vllm", *LLAMA, "--speculator", "Llama-3.2-3B:alpha=0.01")
    assert [k for _, _, k in document["schedule"]] == [0]
    assert "does not pay even for one sequence" in shown
    assert "speculative-config" not in shown


def test_where_nothing_fits_there_is_nothing_to_set_up() -> None:
    words = (*LLAMA, "--speculator", "eagle3:alpha=0.7", "--emit", "vllm")
    assert "not one request of that context fits" in run(*words, "--context", "9000000", status=2).stderr
    replicated = (
        *LLAMA[:4],
        "--tp",
        "4",
        "--speculator",
        "Llama-2-13B:alpha=0.9",
        "--replicated",
        "--context",
        "100000",
    )
    document = json.loads(run(*replicated, "--emit", "vllm", "--json").stdout)
    assert document["admitted"]["speculative"] == 0
    assert "does not pay even for one sequence" in document["emitted"]["text"]


async def test_a_live_engine_tells_acceptance_draft_length_and_share() -> None:
    settings = draft(alphas=parse_alphas("0.8", 0.0), k=3, proposing_share=0.5)
    async with emulated("vllm", settings) as node:
        await asyncio.gather(*(ask(node, max_tokens=400) for _ in range(8)))
        result = await asyncio.to_thread(run, *LLAMA, "--speculator", "eagle3", "--node", node.url, "--json")
    curve = json.loads(result.stdout)["curves"][0]
    assert curve["k"] == 3
    assert curve["alpha"] == pytest.approx(0.8, abs=0.1)
    assert curve["proposing_share"] == pytest.approx(0.5, abs=0.15)
    assert len(curve["survival"]) == 3
    assert curve["acceptance_source"].startswith(f"counters of {node.url}: ")


async def test_lookup_tells_its_mean_draft_length() -> None:
    settings = draft(speculator=SpeculatorKind.NGRAM, k=4)
    async with emulated("llamacpp", settings) as node:
        await asyncio.gather(*(ask(node, max_tokens=400) for _ in range(8)))
        result = await asyncio.to_thread(run, *LLAMA, "--speculator", "ngram", "--node", node.url, "--json")
    curve = json.loads(result.stdout)["curves"][0]
    assert 1 <= curve["k"] <= 4
    assert 0.0 < curve["proposing_share"] < 1.0


@pytest.mark.parametrize(
    ("dialect", "settings", "sentence"),
    [
        ("vllm", NodeSettings(), "counts no drafted tokens"),
        ("vllm", draft(), "has drafted nothing yet"),
        ("vllm", draft(metrics=False), "counts no drafted tokens"),
        ("sglang", draft(), "has drafted nothing yet"),
    ],
)
async def test_an_engine_that_can_not_tell_is_one_sentence(dialect: str, settings: NodeSettings, sentence: str) -> None:
    async with emulated(dialect, settings) as node:
        words = ("--model", "published", "--node", node.url)
        result = await asyncio.to_thread(run, *words, status=2)
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("report", "alpha", "sentence"),
    [
        (NodeReport(counters=SpeculativeCounters(100, 51), k=4), 0.75, None),
        (NodeReport(counters=SpeculativeCounters(100, 51, 25, (20, 15, 10, 6), 76), k=4), 0.75, None),
        (NodeReport(counters=SpeculativeCounters(100, 51, 25)), 0.75, None),
        (NodeReport(counters=SpeculativeCounters(100, 51)), None, "does not tell how many tokens it drafts"),
        (NodeReport(counters=SpeculativeCounters(100), k=4), None, "drafted nothing yet, or does not count it"),
        (NodeReport(k=4), None, "counts no drafted tokens"),
    ],
)
def test_counters_are_read_as_far_as_they_go(report: NodeReport, alpha: float | None, sentence: str | None) -> None:
    if sentence is not None:
        with pytest.raises(ImpossibleInput, match=sentence):
            counted_in(report, "http://n")
        return
    counted = counted_in(report, "http://n")
    assert counted.alpha == pytest.approx(alpha, abs=0.01)
    assert counted.k == 4
    assert (counted.survival is None) is (counted.proposing_share is None)
    assert counted.proposing_share in (None, 1.0)


async def test_something_else_that_answers_is_told() -> None:
    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (await reader.readline()).strip():
            pass
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")
        writer.close()

    server = await asyncio.start_server(hello, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        words = ("--model", "published", "--node", f"http://127.0.0.1:{port}")
        result = await asyncio.to_thread(run, *words, status=2)
    assert "answers, but as none of the engines that are known" in result.stderr


async def test_qualifying_takes_alpha_from_a_live_engine(tmp_path: Path) -> None:
    for name in ("target", "draft"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0}}}))
    settings = draft(alphas=parse_alphas("0.9", 0.0), speculator=SpeculatorKind.DRAFT)
    async with emulated("vllm", settings) as node:
        await asyncio.gather(*(ask(node, max_tokens=200) for _ in range(4)))
        words = ("qualify", str(tmp_path / "target"), str(tmp_path / "draft"), "--node", node.url, "--json")
        result = await asyncio.to_thread(run, *words)
    findings = {one["check"]: one for one in json.loads(result.stdout)["findings"]}
    assert findings["alpha"]["passed"] is True
    assert f"counters of {node.url}" in findings["alpha"]["reason"]
    assert findings["speed"]["passed"] is None

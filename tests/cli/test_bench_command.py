"""`slipstream bench` from its words to its table, its JSON, its picture and its exit status."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from node_thread import in_thread
from scripted_node import Behaviour, Call, answer, scripted_node, stream
from slipstream.cli import application
from slipstream.emulate import NodeSettings, emulated

SETTINGS = NodeSettings(ttft_s=0.004, step_s=0.001, output_tokens=1000, slots=32)
SHORT = ("--output-tokens", "5", "--prompt-tokens", "80-120")
LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the generator shares its process with the server, on a machine with other work."""
    monkeypatch.setattr("slipstream.bench.measures.LATE_S", 60.0)


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    with in_thread(lambda: emulated("vllm", SETTINGS)) as one:
        yield one.url


def bench(*arguments: str, status: int = 0) -> Result:
    runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
    result = runner.invoke(application("bench"), ["bench", *arguments], catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result


def told(*arguments: str, status: int = 0) -> Any:
    return json.loads(bench(*arguments, "--json", status=status).stdout)


def test_a_load_is_measured_and_shown_in_eighty_columns(node: str) -> None:
    shown = bench(
        node,
        "--rate",
        "300",
        "--requests",
        "60",
        *SHORT,
        "--categories",
        "code=2,chat",
        "--goodput",
        "ttft:60s",
        "e2el:60s",
    ).stdout
    assert f"{node}: poisson arrivals, 300 requests a second" in shown
    assert "100.0 %" in shown
    for word in ("goodput/s", "TTFT", "TPOT", "ITL", "E2E", "p99", "code", "chat", "60 requests in"):
        assert word in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_json_has_the_keys_that_are_promised(node: str) -> None:
    document = told(
        node, "--rate", "300", "--requests", "60", "--arrivals", "constant", *SHORT, "--goodput", "ttft:60s"
    )
    [target] = document["targets"]
    assert (target["url"], target["model"], target["offered"], target["finished"]) == (node, "emulated", 54, 54)
    assert target["goodput"] == pytest.approx(300.0)
    assert target["attainment"] == 1.0
    assert target["attainment_interval"][0] < 1.0
    for key in LATENCIES:
        assert target[key].keys() == {"mean", "p50", "p95", "p99", "intervals"}
        low, high = target[key]["intervals"]["mean"]
        assert low <= target[key]["mean"] <= high
    assert (target["errors"], target["holdback"], target["fell_behind"], target["failed"]) == ({}, None, False, 0)
    assert target["output_tokens"] == 5.0
    assert document["run"]["requests"] == 60
    assert document["verdict"] == {"status": 0, "sentences": []}


def test_at_fixed_concurrency(node: str) -> None:
    document = told(node, "--concurrency", "4", "--requests", "40", *SHORT)
    assert document["title"].endswith(": 4 at once")
    assert document["targets"][0]["finished"] == 36
    assert document["targets"][0]["late_ms"]["p99"] == 0.0


def test_the_highest_rate_is_searched_for(node: str, tmp_path: Path) -> None:
    picture = tmp_path / "search.svg"
    arguments = (node, "--find-max", "--requests", "24", "--points", "3", *SHORT, "--goodput", "e2el:60s")
    document = told(*arguments, "--rate", "100", "--plot", str(picture), status=5)
    found = document["find_max"]
    assert [point["rate"] for point in found["points"]] == [100.0, 200.0, 400.0]
    assert (found["rate"], found["ended"], found["rate_interval"][1]) == (400.0, "budget", None)
    assert picture.read_bytes().startswith(b"<?xml")
    shown = bench(*arguments, status=5)
    assert "Rates, in the order in which they were measured" in shown.stdout
    assert "after 3 rates the search is not at its end" in shown.stderr


def test_two_servers_are_compared(node: str, tmp_path: Path) -> None:
    picture = tmp_path / "compared.png"
    with in_thread(lambda: emulated("vllm", replace(SETTINGS, step_s=0.01))) as slow:
        arguments = ("--compare", f"A={node}", f"B={slow.url}", "--rate", "200", "--requests", "40", *SHORT)
        document = told(*arguments, "tpot:5ms", "--plot", str(picture))
        shown = bench(*arguments, "--parts", "2").stdout
    assert [target["name"] for target in document["targets"]] == ["A", "B"]
    comparison = document["comparison"]
    assert comparison["parts"] == 4
    assert comparison["tpot_ms"]["mean"] > 3.0
    assert comparison["attainment"] < 0.0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "B minus A over 2 parts" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_picture_of_one_load(node: str, tmp_path: Path) -> None:
    picture = tmp_path / "load.svg"
    bench(node, "--concurrency", "8", "--requests", "30", *SHORT, "--plot", str(picture))
    assert b"time to first token" in picture.read_bytes()


def test_bad_options_have_a_status_of_their_own(node: str) -> None:
    assert "say how requests come" in bench(node, status=2).stderr
    assert (
        "leaves nothing of 10 requests"
        in bench(node, "--rate", "9", "--requests", "10", "--warm-up", "10", status=2).stderr
    )
    assert "can not be read" in bench(node, "--trace", "none.csv", status=2).stderr
    unanswered = bench(node, "--rate", "9", "--admin", "http://127.0.0.1:1", status=2)
    assert "no admin API answers at http://127.0.0.1:1" in unanswered.stderr


def test_a_server_that_is_not_there_has_a_status_of_its_own(unused_tcp_port: int) -> None:
    gone = bench(f"http://127.0.0.1:{unused_tcp_port}", "--rate", "9", status=1)
    assert "nothing answers at" in gone.stderr
    assert gone.stdout == ""


def test_targets_that_no_request_meets_have_a_status_of_their_own(node: str) -> None:
    missed = bench(node, "--rate", "300", "--requests", "20", *SHORT, "--goodput", "ttft:0.001ms", status=4)
    assert "none of 18 requests met all its targets" in missed.stderr
    alone = bench(node, "--find-max", *SHORT, "ttft:0.001ms", "tpot:0.001ms", "e2el:1h", status=4)
    assert "not even requests that are alone on the server meet all their targets; the best were TTFT" in alone.stderr
    assert "TPOT" in alone.stderr


def test_too_few_requests_have_a_status_of_their_own(node: str) -> None:
    few = bench(node, "--rate", "300", "--requests", "5", *SHORT, status=5)
    assert "5 requests that ended well are too few to tell" in few.stderr
    assert "TTFT" in few.stdout


def test_a_generator_that_falls_behind_has_a_status_of_its_own(node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.bench.measures.LATE_S", 0.0)
    behind = bench(node, "--rate", "2000", "--requests", "100", *SHORT, status=3)
    assert "the load generator fell behind" in behind.stderr
    searched = bench(node, "--find-max", "--requests", "100", "--rate", "2000", *SHORT, "e2el:20s", status=3)
    assert "the load generator fell behind" in searched.stderr


MODELS = answer(200, b'{"data": [{"id": "m"}]}')
CONTENT = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 1}}\n\n'
DONE = b"data: [DONE]\n\n"
WHOLE = stream([CONTENT, USAGE, DONE])


def in_order(*completions: Behaviour) -> Behaviour:
    """The last of them stays."""
    left = list(completions)

    async def behave(call: Call) -> None:
        if call.target == "/v1/models":
            await MODELS(call)
        elif call.method == "GET":
            await answer(404)(call)
        else:
            await (left.pop(0) if len(left) > 1 else left[0])(call)

    return behave


def test_a_server_that_says_no_usage_has_no_tpot_to_hold_to_a_target() -> None:
    with in_thread(lambda: scripted_node(in_order(stream([CONTENT, DONE])))) as silent:
        refused = bench(silent.url, "--rate", "50", "--goodput", "tpot:50", status=1)
        assert "sends no usage with its streams" in refused.stderr
        document = told(silent.url, "--rate", "200", "--requests", "20")
    assert document["targets"][0]["tpot_ms"]["mean"] is None
    assert document["targets"][0]["tokens_tps"] is None
    assert document["targets"][0]["ttft_ms"]["mean"] is not None


def test_requests_that_fail_are_counted_by_why() -> None:
    busy = answer(503, b'{"error": {"message": "all full"}}')
    with in_thread(lambda: scripted_node(in_order(*[WHOLE] * 4, busy))) as node:
        failed = bench(node.url, "--rate", "200", "--requests", "20", status=1)
    assert "all 18 requests failed, the most often because: status 503: all full" in failed.stderr
    assert "18 failed: status 503: all full" in failed.stdout


def test_a_gateways_admin_api_tells_what_runs(node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.bench.running.EVERY_S", 0.01)
    fleet = answer(200, b'{"nodes": [{"occupancy": 3}, {"occupancy": 4}]}')
    with in_thread(lambda: scripted_node(fleet)) as admin:
        document = told(node, "--concurrency", "2", "--requests", "20", *SHORT, "--admin", admin.url)
        assert {call.target for call in admin.calls} == {"/fleet"}
    assert document["targets"][0]["running_p95"] == 7.0


def interrupting(after: int) -> Behaviour:
    """Ctrl-C when so many completions were asked for; from then on none is answered."""
    asked = 0

    async def behave(call: Call) -> None:
        nonlocal asked
        if call.method == "POST":
            asked += 1
        if asked == after:
            os.kill(os.getpid(), signal.SIGINT)
        if asked >= after:
            await call.gone.wait()
        else:
            await in_order(WHOLE)(call)

    return behave


@pytest.mark.parametrize(
    ("after", "arguments", "sentence"),
    [
        (2, ("--rate", "100"), "interrupted before anything was measured"),
        (20, ("--rate", "100"), "interrupted: the figures are of what had ended; "),
        (20, ("--concurrency", "2"), "2 requests were under way and are not counted"),
        (6, ("--find-max", "e2el:60s", "--rate", "50"), "interrupted before anything was measured"),
        (20, ("--find-max", "e2el:60s", "--rate", "50", "--requests", "12"), "the search was not at its end"),
    ],
    ids=["looking", "rate", "concurrency", "first point", "second point"],
)
def test_ctrl_c_prints_what_there_is(after: int, arguments: tuple[str, ...], sentence: str) -> None:
    with in_thread(lambda: scripted_node(interrupting(after))) as node:
        stopped = bench(node.url, *arguments, status=130)
    assert sentence in stopped.stderr
    assert ("requests in" in stopped.stdout) == ("before" not in sentence)


def test_ctrl_c_leaves_of_a_comparison_the_parts_that_both_were_sent() -> None:
    """Four requests each before it begins, then two parts of ten, of which the second is cut short."""
    with (
        in_thread(lambda: scripted_node(interrupting(20))) as one,
        in_thread(lambda: scripted_node(interrupting(10**6))) as other,
    ):
        arguments = ("--compare", f"A={one.url}", f"B={other.url}", "--rate", "200", "--requests", "20", "--parts", "2")
        stopped = bench(*arguments, "--warm-up", "0", status=130)
    assert "B minus A over 1 parts" in stopped.stdout


def test_a_comparison_without_a_part_that_both_were_sent_is_none() -> None:
    with in_thread(lambda: scripted_node(interrupting(11))) as node:
        servers = ("--compare", f"A={node.url}", f"B={node.url}")
        stopped = bench(*servers, "--concurrency", "1", "--requests", "20", status=130)
    assert "interrupted before anything was measured" in stopped.stderr

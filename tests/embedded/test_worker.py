"""The worker alone, as a process of the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from process_life import is_alive, wait_until_gone
from slipstream.embedded.model import find_model
from slipstream.embedded.speculator import parse_speculator
from slipstream.embedded.worker import DRAFT_K, server_parameters

COMMAND = [sys.executable, "-P", "-m", "slipstream.embedded.worker", "--name=tiny", "--slots=2"]

ORPHAN_MAKER = """
import subprocess, sys
worker = subprocess.Popen(sys.argv[1:], stdin=sys.stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
sys.stdout.buffer.write(worker.stdout.readline())
sys.stdout.flush()
worker.wait()
"""


@contextmanager
def worker(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [*COMMAND, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def report_of(process: subprocess.Popen[bytes]) -> dict[str, float]:
    assert process.stdout is not None
    report: dict[str, float] = json.loads(process.stdout.readline())
    return report


@pytest.mark.engine
def test_it_chooses_a_port_and_reports_it_once_it_serves_and_its_parent_closing_the_pipe_ends_it() -> None:
    with worker(f"--model={find_model()}") as process:
        report = report_of(process)
        assert report["pid"] == process.pid
        assert report["ready_s"] < 5
        with urllib.request.urlopen(f"http://127.0.0.1:{report['port']}/props") as response:
            assert json.load(response)["total_slots"] == 2
        assert process.poll() is None
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=10) == 0


@pytest.mark.engine
def test_killed_parent_takes_it_along_even_while_somebody_else_holds_the_pipe() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN_MAKER, *COMMAND, f"--model={find_model()}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        pid = int(report_of(parent)["pid"])
        assert is_alive(pid)
        parent.kill()
        parent.wait()
        assert wait_until_gone(pid)


@pytest.mark.engine
def test_nothing_but_the_report_comes_out_of_standard_output() -> None:
    with worker(f"--model={find_model()}") as process:
        report_of(process)
        assert process.stdout is not None
        assert process.stdout.read() == b""  # closed after the report, though the server goes on
        assert process.poll() is None


@pytest.mark.parametrize("speculator", ["none", "draft:/nowhere.gguf", "eagle"])
def test_what_can_not_start_ends_with_status_one_and_a_sentence(bad_model: Path, speculator: str) -> None:
    finished = subprocess.run(
        [*COMMAND, f"--model={bad_model}", f"--speculator={speculator}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 1
    assert finished.stdout == ""
    assert finished.stderr != ""
    assert "Traceback" not in finished.stderr


def test_one_thread_computes_and_many_may_wait_for_connections() -> None:
    parameters = server_parameters(Path("m.gguf"), "m", slots=8, speculator=parse_speculator("none"))
    assert parameters.cpuparams.n_threads == parameters.cpuparams_batch.n_threads == 1
    assert parameters.n_threads_http >= 4 * parameters.n_parallel
    assert parameters.n_ctx == 8 * 1024
    assert parameters.kv_unified
    assert parameters.endpoint_metrics
    assert parameters.endpoint_slots


def test_drafts_are_never_longer_than_k() -> None:
    ngram = server_parameters(Path("m.gguf"), "m", speculator=parse_speculator("ngram")).speculative
    assert [kind.name for kind in ngram.types] == ["COMMON_SPECULATIVE_TYPE_NGRAM_MOD"]
    assert ngram.ngram_mod.n_max == DRAFT_K
    draft = server_parameters(Path("m.gguf"), "m", speculator=parse_speculator(f"draft:{find_model()}")).speculative
    assert [kind.name for kind in draft.types] == ["COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE"]
    assert draft.draft.n_max == DRAFT_K
    assert draft.draft.mparams.path == str(find_model())
    assert draft.draft.cpuparams.n_threads == 1


@pytest.mark.engine
def test_a_worker_whose_parent_went_while_it_loaded_ends() -> None:
    nobody, told = os.pipe()
    os.close(nobody)  # the line that says that it serves can not be written
    command = [*COMMAND, f"--model={find_model()}"]
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=told, stderr=subprocess.PIPE, check=False, timeout=15
        )
    finally:
        os.close(told)
    assert ended.returncode == 0
    assert b"Traceback" not in ended.stderr

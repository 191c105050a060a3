"""What is configured is written, what is not costs nothing, and a change is taken whole or not at all."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from histories import attempt, history
from slipstream.telemetry.line_file import CanNotWrite
from slipstream.telemetry.recording import read_recording
from slipstream.telemetry.sinks import Sinks, SinkSettings, TracingNotInstalled


@contextmanager
def sinks(settings: SinkSettings) -> Iterator[Sinks]:
    opened = Sinks(settings, version="1.2.3", draw=lambda: 0.5, clock=lambda: 1.0, wall_clock=lambda: 1_790_000_002.5)
    try:
        yield opened
    finally:
        opened.close()


def change(told: Sinks, settings: SinkSettings) -> None:
    told.open(settings)
    told.configure(settings)


def tell(told: Sinks, request_id: str) -> None:
    assert told.answered is not None
    told.answered(history(attempt(), request_id=request_id))


def logged(path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


def test_nobody_is_told_where_nothing_is_configured() -> None:
    with sinks(SinkSettings()) as none:
        assert none.answered is None
        assert none.tracer is None
        assert none.lost_lines == {"access": 0, "recording": 0}


@pytest.mark.parametrize("both", [False, True])
def test_access_log_and_recording_are_written(tmp_path: Path, both: bool) -> None:
    access, recording = tmp_path / "access", tmp_path / "recording"
    with sinks(SinkSettings(str(access) if both else None, str(recording))) as told:
        tell(told, "one")
        tell(told, "two")
    assert [request.id for request in read_recording(recording)] == ["one", "two"]
    assert (logged(access) if access.exists() else []) == (["one", "two"] if both else [])


def test_a_change_moves_what_begins_after_it_and_loses_nothing_that_began_before(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    with sinks(SinkSettings(str(old))) as told:
        before = told.answered
        assert before is not None
        change(told, SinkSettings(str(new)))
        tell(told, "after")
        before(history(attempt(), request_id="before"))
        change(told, SinkSettings())
        assert told.answered is None
    assert (logged(old), logged(new)) == (["before"], ["after"])


def test_a_change_that_can_not_be_made_changes_nothing(tmp_path: Path) -> None:
    with sinks(SinkSettings(str(tmp_path / "log"))) as told:
        before = told.answered
        with pytest.raises(CanNotWrite):
            change(told, SinkSettings(None, str(tmp_path / "missing" / "recording")))
        assert told.answered is before


def test_a_recording_is_rotated_as_configured(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    for number in range(3):
        with sinks(SinkSettings(None, str(path), recording_max_bytes=1, recording_keep=1)) as told:
            tell(told, str(number))
    assert [request.id for request in read_recording(path)] == ["2"]
    assert [request.id for request in read_recording(f"{path}.1")] == ["1"]


def test_reopening_reopens_every_file(tmp_path: Path) -> None:
    paths = [tmp_path / "access", tmp_path / "recording"]
    with sinks(SinkSettings(str(paths[0]), str(paths[1]))) as told:
        for path in paths:
            path.rename(path.with_suffix(".old"))
        told.reopen()
        tell(told, "one")
    assert all(path.read_bytes() for path in paths)


def test_tracing_begins_and_its_share_can_change() -> None:
    endpoint = "http://127.0.0.1:9"
    with sinks(SinkSettings(trace_endpoint=endpoint, trace_sample=0.0)) as told:
        tracer = told.tracer
        assert tracer is not None
        assert tracer.begin(b"", 0.0) is None
        change(told, SinkSettings(trace_endpoint=endpoint, trace_sample=1.0))
        assert told.tracer is tracer
        assert tracer.begin(b"", 0.0) is not None
        assert told.answered is None


def test_tracing_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "slipstream.telemetry.tracing", None)
    with (
        pytest.raises(TracingNotInstalled, match=r"slipstream\[otel\]"),
        sinks(SinkSettings(trace_endpoint="http://c")),
    ):
        pass

"""What is recorded can be read back, whole, whatever became of the process that wrote it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from histories import ANSWERED, HISTORIES, attempt, history
from slipstream.core.history import Attempt, History
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.policy import Reason
from slipstream.core.request import Pool, RequestShape, TrafficClass
from slipstream.telemetry.recorder import Recorder
from slipstream.telemetry.recording import (
    FORMAT,
    RecordedAttempt,
    RecordedRequest,
    RecordedShape,
    RecordingUnreadable,
    read_recording,
)


def recorded(path: Path, *histories: History) -> list[RecordedRequest]:
    recorder = Recorder(4.0)
    with path.open("ab") as file:
        file.writelines(recorder.line(ended, 1_790_000_002.5) for ended in histories)
    return list(read_recording(path))


def vars_of(shape: RequestShape) -> dict[str, Any]:
    return {field: getattr(shape, field) for field in RecordedShape.__struct_fields__}


def fields_of(request: RecordedRequest) -> dict[str, Any]:
    assert request.shape is not None
    return vars_of(request.shape.shape())


def test_a_shape_is_recorded_field_for_field() -> None:
    shape = RequestShape("m", "code")
    seen = {name for name in dir(shape) if not name.startswith("_") and not callable(getattr(shape, name))}
    of_its_placing = {"queued_s", "may_wait"}  # what is worth telling of it stands with the attempts
    assert set(RecordedShape.__struct_fields__) == seen - of_its_placing


def test_a_request_comes_back_with_arrival_shape_decision_and_outcome(tmp_path: Path) -> None:
    shape = RequestShape("m", "code", TrafficClass.BULK, 3, 100, True, 500, frozenset({"min_p"}), Pool.STANDARD)
    (request,) = recorded(tmp_path / "r", history(attempt(), key_id="team-a", shape=shape))
    assert fields_of(request) == vars_of(shape)
    assert (request.format, request.id, request.key, request.status, request.error) == (
        FORMAT,
        "r-1",
        "team-a",
        200,
        None,
    )
    assert (request.time, request.arrival_s, request.duration_s) == (1_790_000_000.0, 6.0, 2.5)
    (placed,) = request.attempts
    assert (placed.node, placed.pool, placed.reason) == ("spec-0", Pool.SPECULATIVE, Reason.SPECULATIVE)
    assert (placed.at_s, placed.fleet_version, placed.draw) == (0.001, 17, 0.25)
    assert (placed.occupancy, placed.ceiling, placed.limit) == (2, 8, 256)
    assert (placed.ending, placed.status, placed.prompt_tokens, placed.output_tokens) == (
        Ending.COMPLETED,
        200,
        120,
        76,
    )
    assert (placed.drafted, placed.accepted, placed.verify_steps) == (100, 60, 25)
    assert (placed.ttft_ms, placed.tpot_ms, placed.e2e_ms) == (123.456, 21.346, 1712.345)


def test_every_attempt_is_recorded_and_so_is_a_refusal(tmp_path: Path) -> None:
    retried = history(attempt(Outcome(Ending.FULL, 503)), attempt(ANSWERED, "std-0", 2, at=10.25))
    refused = history(status=429, error="all_full")
    unread = History("", "", "", None, 10.0, 10.0, None, (), 400, "malformed_request")
    first, second, third = recorded(tmp_path / "r", retried, refused, unread)
    assert [(one.node, one.ending, one.at_s) for one in first.attempts] == [
        ("spec-0", Ending.FULL, 0.001),
        ("std-0", Ending.COMPLETED, 0.25),
    ]
    assert (second.attempts, second.status, second.error) == ((), 429, "all_full")
    assert fields_of(second) == vars_of(RequestShape("m", "code"))
    assert third.shape is None


def test_a_last_line_that_was_cut_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "r"
    recorded(path, history(attempt()), history(attempt()))
    whole = path.read_bytes()
    for length in range(whole.index(b"\n") + 1, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert len(list(read_recording(path))) == 1


def test_a_broken_line_in_the_middle_is_said_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "r"
    recorded(path, history())
    path.write_bytes(path.read_bytes() + b'{"format": 1}\n')
    with pytest.raises(RecordingUnreadable, match=r"r:2: no line of a recording: .*id"):
        list(read_recording(path))


@given(st.binary(max_size=40))
def test_bytes_that_are_no_recording_are_said_to_be_none(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    path = tmp_path_factory.mktemp("junk") / "r"
    path.write_bytes(junk + b"\n")
    with pytest.raises(RecordingUnreadable, match="no line of a recording"):
        list(read_recording(path))


def test_a_later_format_is_refused_and_later_keys_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "r"
    recorded(path, history(attempt()))
    line = json.loads(path.read_bytes())
    path.write_text(json.dumps(line | {"news": 1, "shape": line["shape"] | {"news": 2}}) + "\n")
    (request,) = read_recording(path)
    assert fields_of(request) == vars_of(RequestShape("m", "code"))
    path.write_text(json.dumps(line | {"format": FORMAT + 1}) + "\n")
    with pytest.raises(RecordingUnreadable, match="later Slipstream"):
        list(read_recording(path))


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecordingUnreadable, match="No such file"):
        list(read_recording(tmp_path / "none"))


def rounded(seconds: float) -> float:
    """To the microsecond."""
    return max(0, int(seconds * 1e6 + 0.5)) / 1e6


def milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else int(seconds * 1e6 + 0.5) / 1e3


def placed(one: Attempt, received_at: float) -> RecordedAttempt:
    decision, outcome = one.placement.decision, one.placement.outcome
    latency, sample = (None, None) if outcome is None else (outcome.latency, outcome.sample)
    return RecordedAttempt(
        rounded(decision.at - received_at),
        decision.node,
        decision.pool,
        decision.reason,
        decision.fleet_version,
        decision.draw,
        one.occupancy,
        one.ceiling,
        one.limit,
        None if outcome is None else outcome.ending,
        None if outcome is None else outcome.status,
        None if outcome is None else outcome.prompt_tokens,
        None if outcome is None else outcome.output_tokens,
        None if sample is None else sample.drafted,
        None if sample is None else sample.accepted,
        None if sample is None else sample.verify_steps,
        None if latency is None else milliseconds(latency.ttft_s),
        None if latency is None else milliseconds(latency.tpot_s),
        None if latency is None else milliseconds(latency.e2e_s),
    )


def whole_request(ended: History, began_at: float, wall_clock: float) -> RecordedRequest:
    took = ended.ended_at - ended.received_at
    shape = None
    if ended.shape is not None:
        fields = vars_of(ended.shape)
        previous = fields["previous_response"]
        fields |= {"model": fields["model"][:128], "previous_response": None if previous is None else previous[:128]}
        shape = RecordedShape(**fields)
    return RecordedRequest(
        FORMAT,
        ended.request_id,
        rounded(wall_clock - took),
        rounded(ended.received_at - began_at),
        rounded(took),
        ended.key_id,
        ended.method,
        ended.path[:256],
        shape,
        tuple([placed(one, ended.received_at) for one in ended.attempts]),
        ended.status,
        ended.error,
    )


def names(document: dict[str, Any]) -> list[list[str]]:
    return [sorted(part) for part in (document, document["shape"] or (), *document["attempts"])]


@settings(max_examples=40)
@given(st.lists(HISTORIES, min_size=1, max_size=2), st.floats(0.0, 4e9))
def test_a_recording_reads_as_if_an_encoder_of_json_had_written_it(
    tmp_path_factory: pytest.TempPathFactory, ended: list[History], wall_clock: float
) -> None:
    path = tmp_path_factory.mktemp("law") / "r"
    recorder = Recorder(4.0)
    path.write_bytes(b"".join([recorder.line(one, wall_clock) for one in ended]))
    meant = [whole_request(one, 4.0, wall_clock) for one in ended]
    assert list(read_recording(path)) == meant
    # Readers pass over what they do not know and fill in what is missing, so that has to be looked at too.
    lines = [names(json.loads(line)) for line in path.read_bytes().splitlines()]
    assert lines == [names(json.loads(msgspec.json.encode(one))) for one in meant]

"""One line a request, with what is known of it and nothing that is not."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from histories import ANSWERED, HISTORIES, attempt, history
from slipstream.core.acceptance import SpeculationSample
from slipstream.core.history import History
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.request import RequestShape
from slipstream.telemetry.access_log import AccessLog


def line_of(ended: History) -> dict[str, Any]:
    line = AccessLog().line(ended, 1_790_000_002.5)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    fields: dict[str, Any] = json.loads(line)
    return fields


def test_a_line_tells_who_asked_where_it_went_why_and_how_it_went() -> None:
    assert line_of(history(attempt(), key_id="team-a")) == {
        "time": "2026-09-21T14:13:20.000000Z",
        "id": "r-1",
        "key": "team-a",
        "method": "POST",
        "path": "/v1/chat/completions",
        "status": 200,
        "error": None,
        "model": "m",
        "category": "code",
        "traffic_class": "interactive",
        "streamed": False,
        "node": "spec-0",
        "pool": "speculative",
        "reason": "speculative",
        "attempts": 1,
        "ending": "completed",
        "prompt_tokens": 120,
        "output_tokens": 76,
        "drafted": 100,
        "accepted": 60,
        "tau": 3.4,
        "ttft_ms": 123.456,
        "tpot_ms": 21.346,
        "e2e_ms": 2500.0,
        "queued_ms": None,
    }


def test_a_line_tells_how_long_a_request_waited_for_a_node() -> None:
    waited = history(attempt())
    waited.queued_s = 1.5
    assert line_of(waited)["queued_ms"] == 1500.0


def test_the_time_goes_on_from_second_to_second() -> None:
    log, times = AccessLog(), (1_790_000_002.5, 1_790_000_002.75, 1_790_000_003.5)
    told = [json.loads(log.line(history(attempt()), now))["time"] for now in times]
    assert told == [f"2026-09-21T14:13:{second}Z" for second in ("20.000000", "20.250000", "21.000000")]


def test_time_is_that_of_the_arrival() -> None:
    assert line_of(history(attempt()))["time"] == "2026-09-21T14:13:20.000000Z"  # it ended 2.5 s later


def test_a_request_that_no_node_took_has_its_category_and_the_error() -> None:
    line = line_of(history(status=429, error="all_full"))
    assert (line["status"], line["error"], line["category"], line["attempts"]) == (429, "all_full", "code", 0)
    assert {line[key] for key in ("node", "pool", "reason", "ending", "output_tokens", "ttft_ms")} == {None}


def test_a_request_that_could_not_be_read_has_neither_shape_nor_node() -> None:
    line = line_of(History("", "", "", None, 10.0, 10.0, None, (), 400, "malformed_request"))
    assert line["status"] == 400
    assert {line[key] for key in ("model", "category", "traffic_class", "streamed", "node")} == {None}
    assert line["e2e_ms"] == 0


def test_the_last_attempt_is_the_one_that_is_told() -> None:
    first, last = attempt(Outcome(Ending.UNREACHABLE), "spec-0"), attempt(ANSWERED, "std-0", 2)
    line = line_of(history(first, last))
    assert (line["node"], line["ending"], line["attempts"]) == ("std-0", "completed", 2)


def test_a_client_that_left_before_the_answer_has_no_status() -> None:
    line = line_of(history(attempt(Outcome(Ending.CLIENT_GONE)), status=None))
    assert (line["status"], line["ending"], line["ttft_ms"], line["e2e_ms"]) == (None, "client_gone", None, 2500.0)


def test_tau_is_short_and_a_body_without_a_model_names_none() -> None:
    outcome = Outcome(Ending.COMPLETED, 200, None, None, 9, SpeculationSample(7, 2, 3, 9))
    line = line_of(history(attempt(outcome), shape=RequestShape("", "code")))
    assert (line["tau"], line["model"]) == (1.6667, None)


@pytest.mark.parametrize("steps", [None, 0])
def test_tau_is_unknown_without_verify_steps(steps: int | None) -> None:
    outcome = Outcome(Ending.COMPLETED, 200, None, None, 9, SpeculationSample(0, 0, steps, 9))
    line = line_of(history(attempt(outcome)))
    assert (line["tau"], line["drafted"], line["accepted"]) == (None, 0, 0)


@given(st.text(max_size=600), st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=128))
def test_the_words_of_a_client_can_not_break_a_line_and_are_bounded(words: str, request_id: str) -> None:
    line = line_of(history(path=words, request_id=request_id, shape=RequestShape(words, "code")))
    assert line["path"] == words[:256]
    assert line["model"] == (words[:128] or None)
    assert line["id"] == request_id


def rounded(seconds: float | None) -> float | None:
    """In milliseconds, to the microsecond."""
    return None if seconds is None else int(seconds * 1e6 + 0.5) / 1e3


def whole_line(ended: History, wall_clock: float) -> dict[str, Any]:
    """What a line says, key by key."""
    shape, placement = ended.shape, ended.attempts[-1].placement if ended.attempts else None
    outcome = None if placement is None else placement.outcome
    latency, sample = (None, None) if outcome is None else (outcome.latency, outcome.sample)
    steps = None if sample is None else sample.verify_steps
    micros = max(0, int((wall_clock - (ended.ended_at - ended.received_at)) * 1e6 + 0.5))
    arrival = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    return {
        "time": arrival.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "id": ended.request_id,
        "key": ended.key_id,
        "method": ended.method,
        "path": ended.path[:256],
        "status": ended.status,
        "error": ended.error,
        "model": None if shape is None else shape.model[:128] or None,
        "category": None if shape is None else shape.category,
        "traffic_class": None if shape is None else shape.traffic_class,
        "streamed": None if shape is None else shape.streamed,
        "node": None if placement is None else placement.decision.node,
        "pool": None if placement is None else placement.decision.pool,
        "reason": None if placement is None else placement.decision.reason,
        "attempts": len(ended.attempts),
        "ending": None if outcome is None else outcome.ending,
        "prompt_tokens": None if outcome is None else outcome.prompt_tokens,
        "output_tokens": None if outcome is None else outcome.output_tokens,
        "drafted": None if sample is None else sample.drafted,
        "accepted": None if sample is None else sample.accepted,
        "tau": None if sample is None or not steps else int((1 + sample.accepted / steps) * 1e4 + 0.5) / 1e4,
        "ttft_ms": None if latency is None else rounded(latency.ttft_s),
        "tpot_ms": None if latency is None else rounded(latency.tpot_s),
        "e2e_ms": rounded(ended.ended_at - ended.received_at),
        "queued_ms": rounded(ended.queued_s),
    }


@settings(max_examples=40)
@given(HISTORIES, st.floats(0.0, 4e9))
def test_a_line_is_what_an_encoder_of_json_would_have_written(ended: History, wall_clock: float) -> None:
    written = json.loads(AccessLog().line(ended, wall_clock))
    assert written == json.loads(msgspec.json.encode(whole_line(ended, wall_clock)))

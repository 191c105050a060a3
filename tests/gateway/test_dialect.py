"""Every path that is read has its dialect, and errors are written as its clients expect them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slipstream.core import errors
from slipstream.core.errors import SlipstreamError
from slipstream.gateway.dialect import DIALECTS, errors_of
from slipstream.gateway.error_shape import ANTHROPIC, OPENAI, RESPONSES


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/v1/chat/completions", OPENAI),
        ("/v1/embeddings", OPENAI),
        ("/v1/responses", RESPONSES),
        ("/v1/responses/resp_1/cancel", RESPONSES),
        ("/v1/messages", ANTHROPIC),
        ("/v1/messages/count_tokens", ANTHROPIC),
        ("/v1/messages/batches/x", ANTHROPIC),
        ("/v1/messagesx", OPENAI),
        ("/v1/rerank", OPENAI),
        ("/nothing", OPENAI),
        ("", OPENAI),
        ("/" * 10_000, OPENAI),
    ],
)
def test_a_path_and_what_lies_under_it_speak_one_dialect(path: str, shape: object) -> None:
    assert errors_of(path) is shape


def data_of(event: bytes) -> Any:
    assert event.endswith(b"\n\n")
    assert event.count(b"\n\n") == 1
    return json.loads(event.rpartition(b"data: ")[2])


@pytest.mark.parametrize("path", sorted(DIALECTS))
def test_an_error_event_is_one_whole_event_that_says_the_sentence(path: str) -> None:
    data = data_of(errors_of(path).event(errors.UpstreamFailed("line one\nline two"), b""))
    assert data.get("error", data)["message"] == "line one\nline two"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.InvalidField("x", "n"), "invalid_request_error"),
        (errors.WrongMethod("x", ("POST",)), "invalid_request_error"),
        (errors.UnknownModel("x"), "not_found_error"),
        (errors.BodyTooLarge("x"), "request_too_large"),
        (errors.AllFull("x"), "rate_limit_error"),
        (errors.UpstreamFailed("x"), "api_error"),
        (errors.NothingUsable("x"), "overloaded_error"),
        (errors.UpstreamTimeout("x"), "timeout_error"),
    ],
)
def test_anthropics_errors_have_its_words_for_each_status(error: SlipstreamError, kind: str) -> None:
    assert json.loads(ANTHROPIC.body(error)) == {"type": "error", "error": {"type": kind, "message": "x"}}
    event = ANTHROPIC.event(error, b"")
    assert event.startswith(b"event: error\n")
    assert data_of(event) == json.loads(ANTHROPIC.body(error))


@pytest.mark.parametrize(
    ("last", "number"),
    [
        (b'{"type":"response.output_text.delta","sequence_number":6}', 7),
        (b'{"type":"response.output_text.delta"}', 0),
        (b'{"sequence_number":"6"}', 0),
        (b'{"sequence_number":-9}', 0),
        (b'{"sequence_number":%b}' % (b"9" * 4300), 0),
        (b"[1]", 0),
        (b"\xff", 0),
        (b"", 0),
    ],
)
def test_an_error_of_responses_is_numbered_behind_the_last_event(last: bytes, number: int) -> None:
    event = RESPONSES.event(errors.UpstreamFailed("x"), last)
    assert event.startswith(b"event: error\n")
    assert data_of(event) == {
        "type": "error",
        "code": "upstream_failed",
        "message": "x",
        "param": None,
        "sequence_number": number,
    }

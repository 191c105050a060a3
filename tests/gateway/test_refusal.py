"""What a node's refusal becomes for the client: its words, and when to come back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.gateway.headers import read_answer
from slipstream.gateway.problems import problem_body
from slipstream.gateway.refusal import MESSAGE_CHARACTERS, all_full

BARE = "No node can take the request now; the last to refuse it was 'a', with 503"
FULL = read_answer(503, [])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"message":"full","type":"x","code":503}}', "full"),
        (b'{"object":"error","message":"full","code":503}', "full"),
        (b'{"error":"full"}', "full"),
        (b'{"error":{"message":" two\\n lines\\u0000 "}}', "two lines\0"),
        (b'{"error":{"message":"' + b"x" * 300 + b'"}}', "x" * MESSAGE_CHARACTERS),
        ('{"message":"' + "\u00e9" * 300 + '"}', "\u00e9" * MESSAGE_CHARACTERS),
    ],
)
def test_the_engines_message_is_repeated_on_one_line_up_to_a_length(body: bytes | str, message: str) -> None:
    data = body.encode() if isinstance(body, str) else body
    assert str(all_full("a", FULL, data)) == f"{BARE}: {message}"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"full",
        b"<html></html>",
        b'{"error":{"message":"fu',
        b"[1]",
        b'"full"',
        b"{}",
        b'{"error":null}',
        b'{"error":{"message":null}}',
        b'{"error":{"message":{"a":1}}}',
        b'{"error":{"message":" "}}',
        b'{"error":{"message":"\xff"}}',
        b"[" * 60_000,
    ],
)
def test_without_a_message_the_sentence_ends_with_the_status(body: bytes) -> None:
    assert str(all_full("a", FULL, body)) == f"{BARE}."


@given(st.binary(max_size=60) | st.text().map(lambda text: json.dumps({"error": {"message": text}}).encode()))
def test_any_refusal_becomes_a_whole_error_object(body: bytes) -> None:
    message = json.loads(problem_body(all_full("a", FULL, body)))["error"]["message"]
    assert message.startswith(BARE)
    assert len(message) <= len(BARE) + 2 + MESSAGE_CHARACTERS


@pytest.mark.parametrize(
    ("name", "value", "seconds"),
    [
        (b"Retry-After", b"7", 7),
        (b"retry-after", b"120 ", 120),
        (b"RETRY-AFTER", b"0", 0),
        (b"Retry-After", b"Fri, 31 Dec 1999 23:59:59 GMT", 1),
        (b"Retry-After", b"-7", 1),
        (b"Retry-After", b"1.5", 1),
        (b"Retry-After", b"", 1),
        (b"Retry-After", b"9" * 5000, 1),
        (b"X-Retry-After", b"7", 1),
    ],
)
def test_the_nodes_retry_after_is_kept_when_it_is_a_number_of_seconds(name: bytes, value: bytes, seconds: int) -> None:
    refusal = read_answer(429, [(b"Server", b"x"), (name, value), (b"Date", b"now")])
    assert all_full("a", refusal, b"").retry_after_s == seconds

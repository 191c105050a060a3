"""What made an answer, in one word of its engine's."""

from __future__ import annotations

import pytest

from slipstream.engines.fingerprint import system_fingerprint


@pytest.mark.parametrize(
    ("payloads", "found"),
    [
        ([b'{"id":"1","system_fingerprint":"vllm-0.32.0-tp2-1a2b3c4d"}'], "vllm-0.32.0-tp2-1a2b3c4d"),
        ([b'{"system_fingerprint" : "a"}', b'{"system_fingerprint":"b"}', b"{}"], "b"),
        ([b'{"system_fingerprint":null}'], None),
        ([b'{"system_fingerprint":""}'], None),
        ([b'{"system_fingerprint":"%s"}' % (b"x" * 129)], None),
        ([b'{"system_fingerprint":"\\u0000"}'], None),
        ([b'{"content":"\\"system_fingerprint\\":\\"forged\\""}'], None),
        ([b"no JSON at all"], None),
        ([], None),
    ],
)
def test_it_is_that_of_the_last_text_that_bears_one(payloads: list[bytes], found: str | None) -> None:
    assert system_fingerprint(payloads) == found

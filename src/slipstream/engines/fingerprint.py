"""The ``system_fingerprint`` of OpenAI's API: what made an answer, in one word of its engine's.

vLLM's has version, parallelism and a hash of its settings, llama.cpp's its build.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["system_fingerprint"]

_MEMBER = re.compile(rb'"system_fingerprint"\s*:\s*"([!#-\[\]-~]{1,128})"')
"""Printable, without quotes and escapes: inside a text of the answer, the name's quotes would be escaped."""


def system_fingerprint(payloads: Iterable[bytes]) -> str | None:
    """That of the last of an answer's JSON texts which bears one; ``None`` when none does."""
    found: str | None = None
    for payload in payloads:
        match = _MEMBER.search(payload)
        if match is not None:
            found = match[1].decode("ascii")
    return found

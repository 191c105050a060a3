"""How commands ask a running gateway's admin API."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from slipstream.core.errors import SlipstreamError

__all__ = ["DEFAULT_URL", "AdminUnreachable", "fetch"]

DEFAULT_URL = "http://127.0.0.1:8081"
TIMEOUT_S = 5.0


class AdminUnreachable(SlipstreamError):
    """The admin API did not answer, or not as one."""


def fetch(url: str, path: str) -> dict[str, Any]:
    """The JSON object at ``path``. Raises ``AdminUnreachable`` with one sentence for a person."""
    if not url.startswith(("http://", "https://")):
        raise AdminUnreachable(f"{url!r} is no address of an admin API; it looks like {DEFAULT_URL}")
    try:
        with urlopen(url.rstrip("/") + path, timeout=TIMEOUT_S) as response:
            answer = json.load(response)
    except HTTPError as error:
        raise AdminUnreachable(_sentence_of(error)) from error
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise AdminUnreachable(
            f"no admin API answers at {url} ({reason}): is `slipstream serve` or `slipstream up` running?"
        ) from error
    except ValueError as error:
        raise AdminUnreachable(
            f"{url} answers, but not as an admin API of slipstream: is it the right port?"
        ) from error
    if not isinstance(answer, dict):
        raise AdminUnreachable(f"{url} answers, but not as an admin API of slipstream: is it the right port?")
    return answer


def _sentence_of(error: HTTPError) -> str:
    try:
        return str(json.load(error)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"{error.url} answers with status {error.code}: is it the admin API's port?"

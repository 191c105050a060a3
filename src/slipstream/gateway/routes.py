"""Which paths the gateway serves, and with which methods."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from slipstream.core.errors import UnknownPath, WrongMethod
from slipstream.gateway.dialect import DIALECTS

__all__ = ["Endpoint", "allowed_methods", "endpoint_of"]


class Endpoint(Enum):
    """What a request is for."""

    READ = auto()
    """A dialect that is known: read, categorised, placed."""
    PASSED_THROUGH = auto()
    """Any other path of the engines' API: forwarded to a node that serves the body's model, or to any."""
    MODELS = auto()
    MODEL = auto()
    HEALTH = auto()
    READY = auto()


_GET: Final = ("GET", "HEAD", "OPTIONS")
_POST: Final = ("POST", "OPTIONS")
_ANY: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

_EXACT: Final[dict[str, tuple[Endpoint, tuple[str, ...]]]] = {
    **dict.fromkeys(DIALECTS, (Endpoint.READ, _POST)),
    "/v1/models": (Endpoint.MODELS, _GET),
    "/health": (Endpoint.HEALTH, _GET),
    "/ready": (Endpoint.READY, _GET),
}
_WAYS_OUT: Final = re.compile(
    r"/\.{0,2}(?:;[^/]*)?/"  # a segment of dots, or an empty one, with parameters or without
    r"|%(?:2[ef]|3b|5c|[01][0-9a-f]|7f)"  # an escaped dot, slash, semicolon, backslash or control character
    r"|[\\\x00-\x1f\x7f]",
    re.IGNORECASE,
)
"""What a node may resolve, and then a path under ``/v1/`` would lead out of it, to the engine's switches."""


def _find(path: str) -> tuple[Endpoint, tuple[str, ...]] | None:
    row = _EXACT.get(path)
    if row is not None:
        return row
    if path.startswith("/v1/models/"):
        return Endpoint.MODEL, _GET
    if path.startswith("/v1/") and not _WAYS_OUT.search(f"{path}/"):
        return Endpoint.PASSED_THROUGH, _ANY
    return None


def allowed_methods(path: str) -> tuple[str, ...]:
    """The methods that a path takes. Raises UnknownPath."""
    row = _find(path)
    if row is None:
        raise UnknownPath(f"There is no endpoint {path[:200]}. The API lives under /v1/; see also /health and /ready.")
    return row[1]


def endpoint_of(method: str, path: str) -> Endpoint:
    """What a request is for, by its method and its path without query. Raises UnknownPath or WrongMethod."""
    row = _EXACT.get(path) or _find(path)
    if row is None or method not in row[1]:
        allowed = allowed_methods(path)
        raise WrongMethod(f"{path[:200]} does not take {method}; use {' or '.join(allowed[:-1])}.", allowed)
    return row[0]

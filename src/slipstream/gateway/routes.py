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

_Methods = dict[str, Endpoint]
"""What a path's requests are for, by their method."""

_EXACT: Final[dict[str, _Methods]] = {
    **dict.fromkeys(DIALECTS, dict.fromkeys(_POST, Endpoint.READ)),
    "/v1/models": dict.fromkeys(_GET, Endpoint.MODELS),
    "/health": dict.fromkeys(_GET, Endpoint.HEALTH),
    "/ready": dict.fromkeys(_GET, Endpoint.READY),
}
_MODEL: Final = dict.fromkeys(_GET, Endpoint.MODEL)
_PASSED_THROUGH: Final = dict.fromkeys(_ANY, Endpoint.PASSED_THROUGH)
_WAYS_OUT: Final = re.compile(
    r"/\.{0,2}(?:;[^/]*)?/"  # a segment of dots, or an empty one, with parameters or without
    r"|%(?:2[ef]|3b|5c|[01][0-9a-f]|7f)"  # an escaped dot, slash, semicolon, backslash or control character
    r"|[\\\x00-\x1f\x7f]",
    re.IGNORECASE,
)
"""What a node may resolve, and then a path under ``/v1/`` would lead out of it, to the engine's switches."""


def _methods_of(path: str) -> _Methods:
    methods = _EXACT.get(path)
    if methods is not None:
        return methods
    if path.startswith("/v1/models/"):
        return _MODEL
    if path.startswith("/v1/") and not _WAYS_OUT.search(f"{path}/"):
        return _PASSED_THROUGH
    raise UnknownPath(f"There is no endpoint {path[:200]}. The API lives under /v1/; see also /health and /ready.")


def allowed_methods(path: str) -> tuple[str, ...]:
    """The methods that a path takes. Raises UnknownPath."""
    return tuple(_methods_of(path))


def endpoint_of(method: str, path: str) -> Endpoint:
    """What a request is for, by its method and its path without query. Raises UnknownPath or WrongMethod."""
    methods = _methods_of(path)
    endpoint = methods.get(method)
    if endpoint is None:
        allowed = tuple(methods)
        raise WrongMethod(f"{path[:200]} does not take {method}; use {' or '.join(allowed[:-1])}.", allowed)
    return endpoint

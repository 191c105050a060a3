"""The exception tree. Every leaf has an entry in docs/reference/errors.md, and gateway/problems.py gives it a status.

SlipstreamError
├── ConfigError                 a configuration file that can not be used
├── EngineError                 an engine that answered with something unusable
│   ├── EngineUnreachable       no connection, no answer in time
│   ├── EngineDown              who watches the engine says that it does not run
│   └── EngineGarbage           an answer that can not be read as what was asked for
├── RequestError                the client's request can not be served as sent (4xx)
│   ├── InvalidBody             not JSON, or not an object
│   ├── InvalidField            a field is missing or has an impossible value; ``param`` names it
│   ├── UnknownModel            no node serves this model
│   ├── UnknownPath             no such endpoint
│   ├── ResponseNotFound        the response referred to is not known, or its node is out
│   ├── WrongMethod             the endpoint exists, with another method
│   ├── BodyTooLarge            over the configured limit
│   ├── HeadersTooLarge         likewise, with trailers and chunk extensions
│   ├── MalformedRequest        not HTTP/1.1, or HTTP/1.1 that two could read differently
│   ├── RequestTimedOut         it began to come, and did not come whole in time
│   ├── Unauthenticated         no API key where one is needed, or one that is not known
│   └── KeyLimitReached         a limit of the request's own API key (429)
│       ├── TooManyInFlight     too many sequences at once
│       └── TooManyRequests     too many requests in too short a time
└── PlacementError              no node can take the request now (429, 503, 502, 504)
    ├── AllFull                 every usable node is at its limit
    ├── NothingUsable           no node is up
    ├── OutOfDescriptors        this gateway can open no further connection
    ├── TooManyConnections      as many clients are connected as may be
    ├── UpstreamFailed          the chosen node, and every retry, failed before the first byte
    └── UpstreamTimeout         the node accepted the request and did not answer in time
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "AllFull",
    "BodyTooLarge",
    "ConfigError",
    "ConfigProblem",
    "EngineDown",
    "EngineError",
    "EngineGarbage",
    "EngineUnreachable",
    "HeadersTooLarge",
    "InvalidBody",
    "InvalidField",
    "KeyLimitReached",
    "MalformedRequest",
    "NothingUsable",
    "OutOfDescriptors",
    "OutOfReach",
    "PlacementError",
    "RequestError",
    "RequestTimedOut",
    "ResponseNotFound",
    "SlipstreamError",
    "TooManyConnections",
    "TooManyInFlight",
    "TooManyRequests",
    "Unauthenticated",
    "UnknownModel",
    "UnknownPath",
    "UpstreamFailed",
    "UpstreamTimeout",
    "WrongMethod",
]


class SlipstreamError(Exception):
    """Base of all errors that Slipstream raises on purpose. ``str(error)`` is one clear sentence for a person."""


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One thing wrong with a configuration. ``str(problem)`` is the sentence a person gets.

    ``line`` counts from 1; ``None`` when the problem has no place in the file. ``key`` is dotted (``nodes[1].pool``),
    empty for the file as a whole. ``found`` never holds a secret. ``allowed`` says what would have been right.
    """

    file: str
    line: int | None
    key: str
    found: str
    allowed: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        key = f" {self.key}:" if self.key else ""
        return f"{place}:{key} found {self.found}; allowed: {self.allowed}"


class ConfigError(SlipstreamError):
    """A configuration can not be used. ``problems`` are all that is wrong with it, in the order of the file."""

    def __init__(self, problems: tuple[ConfigProblem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class EngineError(SlipstreamError):
    """An engine answered with something unusable."""


class EngineUnreachable(EngineError):
    """No connection to the engine, or no answer in time."""


class EngineDown(EngineError):
    """Who watches the engine says that it does not run: there is nothing to wait for, as with one lost poll."""


class EngineGarbage(EngineError):
    """The engine answered, but not with what was asked for."""


class RequestError(SlipstreamError):
    """The client's request can not be served as sent.

    ``param`` is the name of the offending field, as in OpenAI's error objects; ``None`` when no single field is to
    blame.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class InvalidBody(RequestError):
    """The body is not a JSON object."""


class InvalidField(RequestError):
    """A field is missing, or its value is impossible."""


class UnknownModel(RequestError):
    """No node of the fleet serves this model."""


class UnknownPath(RequestError):
    """The gateway has no such endpoint."""


class ResponseNotFound(RequestError):
    """The request refers to an earlier response that no node is known to hold, or whose node takes no requests now."""


class WrongMethod(RequestError):
    """The endpoint exists, with another method; ``allowed`` lists which."""

    def __init__(self, message: str, allowed: tuple[str, ...]) -> None:
        super().__init__(message)
        self.allowed = allowed


class BodyTooLarge(RequestError):
    """The body is over the configured limit."""


class HeadersTooLarge(RequestError):
    """The request's line and headers, or its trailers and chunk extensions, are over the configured limit."""


class MalformedRequest(RequestError):
    """The bytes are not an HTTP/1.1 request, or one that two readers could read differently."""


class RequestTimedOut(RequestError):
    """The request began to come and did not come whole in time."""


class Unauthenticated(RequestError):
    """The request has no API key where one is needed, or one that is not known."""


class KeyLimitReached(RequestError):
    """A limit of the request's own API key is reached. ``retry_after_s`` as of a PlacementError."""

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TooManyInFlight(KeyLimitReached):
    """The key has as many sequences in flight as it may."""


class TooManyRequests(KeyLimitReached):
    """The key has sent as many requests as it may in this time."""


class PlacementError(SlipstreamError):
    """No node can take the request now.

    ``retry_after_s`` is when it is worth trying again, in whole seconds.
    """

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class AllFull(PlacementError):
    """Every usable node is at its limit."""


class NothingUsable(PlacementError):
    """No node that serves the model is up."""


class OutOfReach(PlacementError):
    """No node can serve the request within its class's targets any more without making others late."""


class OutOfDescriptors(PlacementError):
    """This gateway may open no further connection: the operating system's limit on its file descriptors is reached."""


class TooManyConnections(PlacementError):
    """As many clients are connected as the configuration or the system's descriptors allow."""


class UpstreamFailed(PlacementError):
    """The chosen node, and every node tried after it, failed before the first byte of an answer."""


class UpstreamTimeout(PlacementError):
    """A node accepted the request and gave no answer in time."""

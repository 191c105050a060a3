"""What became of a request on one node."""

from __future__ import annotations

from enum import StrEnum

from slipstream.core.acceptance import SpeculationSample
from slipstream.core.compilation import mypyc_attr
from slipstream.core.latency import Latency

__all__ = ["Ending", "Outcome", "ResponseStatistics"]


class Ending(StrEnum):
    """How an exchange with a node ended. Metrics label requests by it."""

    COMPLETED = "completed"
    CLIENT_GONE = "client_gone"
    UPSTREAM_LOST = "upstream_lost"
    """The node closed or lost the connection before its answer was complete."""
    UNREACHABLE = "unreachable"
    """No connection could be made."""
    FULL = "full"
    """The node answered 429 or 503."""
    REFUSED = "refused"
    """The node answered with another status of 400 or above, with a redirect, or with an error event in its stream."""
    TIMED_OUT = "timed_out"
    STOPPED = "stopped"
    """The gateway was closed, and its ``grace_s`` was over."""
    NOT_SENT = "not_sent"
    """The gateway itself could open no connection: no fault of the node."""


@mypyc_attr(acyclic=True)
class ResponseStatistics:
    """What a finished response says of itself; ``None`` = it did not say.

    ``sample`` is the response's own speculative statistics.
    """

    __slots__ = ("output_tokens", "prompt_tokens", "sample")

    def __init__(
        self,
        prompt_tokens: int | None = None,
        output_tokens: int | None = None,
        sample: SpeculationSample | None = None,
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.sample = sample

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ResponseStatistics)
            and self.prompt_tokens == other.prompt_tokens
            and self.output_tokens == other.output_tokens
            and self.sample == other.sample
        )

    __hash__ = None  # type: ignore[assignment] # compared, never a key


@mypyc_attr(acyclic=True)
class Outcome:
    """One attempt at one node, ended.

    ``status`` is the HTTP status the node answered, or that of its error event; ``None`` when it gave none.
    ``latency`` is ``None`` unless a whole answer was delivered. Token counts are ``None`` when the answer carried none.
    ``sample`` is ``None`` when the answer carried no speculative statistics. ``retry_after_s`` is for how long a node
    that was full asked not to be asked; ``None`` = it did not say.
    """

    __slots__ = ("ending", "latency", "output_tokens", "prompt_tokens", "retry_after_s", "sample", "status")

    def __init__(
        self,
        ending: Ending,
        status: int | None = None,
        latency: Latency | None = None,
        prompt_tokens: int | None = None,
        output_tokens: int | None = None,
        sample: SpeculationSample | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        self.ending = ending
        self.status = status
        self.latency = latency
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.sample = sample
        self.retry_after_s = retry_after_s

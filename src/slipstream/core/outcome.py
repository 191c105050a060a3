"""What became of a request on one node."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from slipstream.core.acceptance import SpeculationSample
from slipstream.core.latency import Latency

__all__ = ["Ending", "Outcome"]


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
    """The node answered with another status of 400 or above, or with a redirect."""
    TIMED_OUT = "timed_out"


class Outcome(NamedTuple):
    """One attempt at one node, ended.

    ``status`` is the HTTP status the node answered, ``None`` when it gave none. ``latency`` is ``None`` unless a whole
    answer was delivered. Token counts are ``None`` when the answer carried none. ``sample`` is ``None`` when the answer
    carried no speculative statistics.
    """

    ending: Ending
    status: int | None = None
    latency: Latency | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    sample: SpeculationSample | None = None

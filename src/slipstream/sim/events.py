"""What happens in a simulated fleet, one JSON line an event.

Every line begins with ``at_s`` (seconds since the plan's start, to the microsecond) and ``event``; the keys of an event
have one order. Nothing in a line comes from a clock or a hash, so one seed gives one log, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable

__all__ = ["EventLog"]


class EventLog:
    """Writes the lines. ``write`` takes each, with its line end. Requests are numbers, from 0 by arrival."""

    __slots__ = ("_write",)

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write

    def arrive(
        self, at: float, request: int, category: str, traffic_class: str, prompt_tokens: int, output_tokens: int
    ) -> None:
        """A request came."""
        self._line(
            "arrive",
            at,
            f'"request":{request},"category":{json.dumps(category)},"class":"{traffic_class}",'
            f'"prompt_tokens":{prompt_tokens},"output_tokens":{output_tokens}',
        )

    def place(self, at: float, request: int, node: str, reason: str, attempt: int, occupancy: int) -> None:
        """It was given to a node, whose occupancy is that with it."""
        self._line(
            "place",
            at,
            f'"request":{request},"node":{json.dumps(node)},"reason":"{reason}","attempt":{attempt},'
            f'"occupancy":{occupancy}',
        )

    def queue(self, at: float, request: int, waiting: int) -> None:
        """It waits in the gateway, one of so many."""
        self._line("queue", at, f'"request":{request},"waiting":{waiting}')

    def first_token(self, at: float, request: int, node: str) -> None:
        """Its first token came."""
        self._line("first_token", at, f'"request":{request},"node":{json.dumps(node)}')

    def preempt(self, at: float, request: int, node: str) -> None:
        """Its node took its cache away, and will compute it anew."""
        self._line("preempt", at, f'"request":{request},"node":{json.dumps(node)}')

    def finish(self, at: float, request: int, node: str, output_tokens: int, drafted: int, accepted: int) -> None:
        """Its last token came."""
        self._line(
            "finish",
            at,
            f'"request":{request},"node":{json.dumps(node)},"output_tokens":{output_tokens},"drafted":{drafted},'
            f'"accepted":{accepted}',
        )

    def full(self, at: float, request: int, node: str) -> None:
        """A node refused it, being full."""
        self._line("full", at, f'"request":{request},"node":{json.dumps(node)}')

    def refuse(self, at: float, request: int) -> None:
        """It was shed: no node and no place in the queue."""
        self._line("refuse", at, f'"request":{request}')

    def expire(self, at: float, request: int) -> None:
        """It had waited as long as it may."""
        self._line("expire", at, f'"request":{request}')

    def saturated(self, at: float, node: str, occupancy: int, *, saturated: bool) -> None:
        """A speculative node reached its ceiling, or is below it again."""
        told = "true" if saturated else "false"
        self._line("saturated", at, f'"node":{json.dumps(node)},"saturated":{told},"occupancy":{occupancy}')

    def capacity(self, at: float, group: str, nodes: int) -> None:
        """A group of nodes has another size from now on."""
        self._line("capacity", at, f'"group":{json.dumps(group)},"nodes":{nodes}')

    def role(self, at: float, node: str, pool: str, step: str) -> None:
        """A node of a pool ``leaves`` it for the other role, or ``stays`` after all, or ``joins`` it."""
        self._line("role", at, f'"node":{json.dumps(node)},"pool":"{pool}","step":"{step}"')

    def _line(self, event: str, at: float, fields: str) -> None:
        self._write(b'{"at_s":%.6f,"event":"%b",%b}\n' % (at, event.encode(), fields.encode()))

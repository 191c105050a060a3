"""What came of each request, written as it ends: twelve columns, sixty bytes a request."""

from __future__ import annotations

from array import array

from slipstream.sim.fate import Fate

__all__ = ["Columns"]

_NOT_YET = float("nan")


class Columns:
    """One row a request. What they hold is said at `slipstream.sim.run.Run`."""

    __slots__ = (
        "accepted",
        "attempts",
        "drafted",
        "ended_s",
        "engine_wait_s",
        "fate",
        "first_token_s",
        "node",
        "queued_s",
        "reason",
        "steps",
        "verify_steps",
    )

    def __init__(self, requests: int) -> None:
        self.node = array("h", [-1]) * requests
        self.reason = array("b", [-1]) * requests
        self.fate = array("b", [int(Fate.UNFINISHED)]) * requests
        self.attempts = array("h", [0]) * requests
        self.queued_s = array("d", [0.0]) * requests
        self.engine_wait_s = array("d", [_NOT_YET]) * requests
        self.first_token_s = array("d", [_NOT_YET]) * requests
        self.ended_s = array("d", [_NOT_YET]) * requests
        self.drafted = array("i", [0]) * requests
        self.accepted = array("i", [0]) * requests
        self.verify_steps = array("i", [0]) * requests
        self.steps = array("i", [0]) * requests

"""What a line of the access log holds. Apart from what writes it, since structs are not compiled."""

from __future__ import annotations

from datetime import datetime

import msgspec

from slipstream.core.outcome import Ending
from slipstream.core.policy import Reason
from slipstream.core.request import Pool, TrafficClass

__all__ = ["AccessLine"]


class AccessLine(msgspec.Struct, gc=False, frozen=True):
    """One line, in the order of its keys; docs/reference/access-log.md says what each means. Unknown is ``None``."""

    time: datetime
    id: str
    key: str | None
    method: str
    path: str
    status: int | None
    error: str | None
    model: str | None
    category: str | None
    traffic_class: TrafficClass | None
    streamed: bool | None
    node: str | None
    pool: Pool | None
    reason: Reason | None
    attempts: int
    ending: Ending | None
    prompt_tokens: int | None
    output_tokens: int | None
    drafted: int | None
    accepted: int | None
    tau: float | None
    ttft_ms: float | None
    tpot_ms: float | None
    e2e_ms: float | None
    queued_ms: float | None

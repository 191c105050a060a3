"""Requests to come, one row each, in columns: a million of them take tens of megabytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slipstream.core.request import TrafficClass

__all__ = ["CLASSES", "NO_LIMIT", "Plan"]

CLASSES: tuple[TrafficClass, ...] = (TrafficClass.INTERACTIVE, TrafficClass.BULK)
"""What the numbers in ``traffic_class`` stand for."""

NO_LIMIT = -1
"""In a column of whole numbers: the client gave none."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Columns of one length, sorted by ``arrival_s`` (seconds from the plan's start).

    ``prompt_tokens`` and ``output_tokens`` are what the request has and what its answer will have, both at least 1.
    ``category`` and ``model`` are indexes into ``categories`` and ``models``, ``traffic_class`` into `CLASSES`.
    ``quantile`` (0..1, uniform) is where the request stands among those of its category by acceptance: what makes the
    tokens of one request alike, the same under every policy. ``output_limit`` is the token limit that the client sends,
    `NO_LIMIT` = none. ``session`` is the number of its conversation, `NO_LIMIT` = none.
    """

    categories: tuple[str, ...]
    models: tuple[str, ...]
    arrival_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    category: NDArray[np.int16]
    traffic_class: NDArray[np.int8]
    quantile: NDArray[np.float64]
    output_limit: NDArray[np.int64]
    model: NDArray[np.int16]
    session: NDArray[np.int64]

    def __post_init__(self) -> None:
        columns = (
            self.prompt_tokens,
            self.output_tokens,
            self.category,
            self.traffic_class,
            self.quantile,
            self.output_limit,
            self.model,
            self.session,
        )
        if any(len(column) != len(self.arrival_s) for column in columns):
            raise ValueError("the columns of a plan are of one length")
        if len(self) and (np.diff(self.arrival_s) < 0).any():
            raise ValueError("a plan's requests are sorted by arrival")

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def duration_s(self) -> float:
        """When the last request arrives; 0 for none."""
        return float(self.arrival_s[-1]) if len(self) else 0.0

"""The query of ``/decisions``, read strictly: a filter with a typing error must not look like an empty fleet."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from slipstream.core.dispatch import DECISIONS_REMEMBERED, Placement
from slipstream.core.policy import Reason

__all__ = ["DecisionQuery", "read_query"]

DEFAULT_LIMIT = 100


class DecisionQuery(NamedTuple):
    """Which decisions are wanted, newest first; ``None`` = any."""

    limit: int = DEFAULT_LIMIT
    category: str | None = None
    reason: Reason | None = None
    node: str | None = None

    def matches(self, placement: Placement) -> bool:
        """Whether a decision is wanted."""
        return (
            (self.category is None or placement.shape.category == self.category)
            and (self.reason is None or placement.decision.reason is self.reason)
            and (self.node is None or placement.decision.node == self.node)
        )


def read_query(parameters: Mapping[str, str], categories: Sequence[str]) -> DecisionQuery:
    """``categories`` are all there can be. Raises ``ValueError`` with a sentence that says what is allowed."""
    for name in parameters:
        if name not in DecisionQuery._fields:
            near = difflib.get_close_matches(name, DecisionQuery._fields, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"there is no parameter {name!r}: use {', '.join(DecisionQuery._fields)}{hint}")
    return DecisionQuery(
        limit=_limit(parameters.get("limit", str(DEFAULT_LIMIT))),
        category=_category(parameters["category"], categories) if "category" in parameters else None,
        reason=_reason(parameters["reason"]) if "reason" in parameters else None,
        node=parameters.get("node"),
    )


def _limit(text: str) -> int:
    limit = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not 1 <= limit <= DECISIONS_REMEMBERED:
        raise ValueError(f"limit is {text!r}, but must be a whole number from 1 to {DECISIONS_REMEMBERED}")
    return limit


def _category(text: str, categories: Sequence[str]) -> str:
    if text not in categories:
        raise ValueError(f"category is {text!r}, but must be one of {', '.join(categories)}")
    return text


def _reason(text: str) -> Reason:
    try:
        return Reason(text)
    except ValueError:
        raise ValueError(f"reason is {text!r}, but must be one of {', '.join(Reason)}") from None

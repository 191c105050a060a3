"""The header lines by which an answer says where it was made and why."""

from __future__ import annotations

from slipstream.core.dispatch import Placement
from slipstream.gateway.upstream import NodePool

__all__ = ["marks_of"]


def marks_of(placement: Placement, pool: NodePool) -> bytes:
    """The lines, ended, for an answer of this placement. They are few and the same all day, so the pool keeps them."""
    decision = placement.decision
    category = placement.shape.category
    by_reason = pool.marks.get(category)
    if by_reason is None:
        by_reason = pool.marks[category] = {}
    lines = by_reason.get(decision.reason)
    if lines is None:
        text = (
            f"x-slipstream-node: {placement.node.name}\r\nx-slipstream-pool: {decision.pool}\r\n"
            f"x-slipstream-category: {category}\r\nx-slipstream-reason: {decision.reason}\r\n"
        )
        lines = by_reason[decision.reason] = text.encode("latin-1", "replace")
    return lines

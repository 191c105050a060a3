"""The header lines by which an answer says where it was made and why."""

from __future__ import annotations

from slipstream.core.dispatch import Placement
from slipstream.gateway.upstream import NodePool

__all__ = ["marks_of"]


def marks_of(placement: Placement, pool: NodePool) -> bytes:
    """The lines, ended, for an answer of this placement. They are few and the same all day, so the pool keeps them."""
    decision = placement.decision
    category = placement.shape.category
    key = category + decision.reason
    lines = pool.marks.get(key)
    if lines is None:
        text = (
            f"x-slipstream-node: {placement.node.name}\r\nx-slipstream-pool: {decision.pool}\r\n"
            f"x-slipstream-category: {category}\r\nx-slipstream-reason: {decision.reason}\r\n"
        )
        lines = pool.marks[key] = text.encode("latin-1", "replace")
    return lines

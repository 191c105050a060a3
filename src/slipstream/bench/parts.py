"""A plan in parts, each of which begins at once."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from typing import Any

from slipstream.workload.plan import Plan

__all__ = ["parts_of"]


def parts_of(plan: Plan, count: int) -> list[Plan]:
    """``count`` plans of consecutive requests, as equal in number as can be, each with its first arrival at 0.

    ValueError when there are fewer requests than parts.
    """
    if not 1 <= count <= len(plan):
        raise ValueError(f"{len(plan)} requests can not be cut into {count} parts")
    edges = [len(plan) * place // count for place in range(count + 1)]
    return [_part(plan, begin, end) for begin, end in pairwise(edges)]


def _part(plan: Plan, begin: int, end: int) -> Plan:
    columns: dict[str, Any] = {field.name: getattr(plan, field.name) for field in fields(plan)}
    for name, column in columns.items():
        if not isinstance(column, tuple):
            columns[name] = column[begin:end]
    columns["arrival_s"] = columns["arrival_s"] - plan.arrival_s[begin]
    return Plan(**columns)

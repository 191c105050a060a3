"""The name by which a draft is told from others."""

from __future__ import annotations

__all__ = ["drafter_name"]

LONGEST = 64


def drafter_name(method: str, model: str | None) -> str:
    """The method and the last part of the draft model's path, if it has a model of its own; at most 64 characters."""
    base = (model or "").rstrip("/").rpartition("/")[2]
    return (f"{method.lower()}:{base}" if base and base.lower() not in ("none", "null") else method.lower())[:LONGEST]

"""Roles of nodes as operators see and change them, as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from slipstream.core.request import Pool
from slipstream.core.roles import NotChangeable, RoleChange, RoleVerdict

__all__ = ["NoRoles", "Roles", "change_view", "read_change", "verdict_view"]


class Roles(Protocol):
    """Who changes them. ``verdict`` is ``None`` where nothing is decided by load; ``changes`` are the last ones, the
    oldest first. ``change`` raises `NotChangeable`.
    """

    @property
    def verdict(self) -> RoleVerdict | None: ...

    @property
    def changes(self) -> Iterable[RoleChange]: ...

    async def change(self, name: str, pool: Pool) -> RoleChange: ...


class NoRoles:
    """Of a fleet whose nodes keep their roles."""

    verdict: RoleVerdict | None = None
    changes: tuple[RoleChange, ...] = ()

    async def change(self, name: str, _pool: Pool) -> RoleChange:
        """Never."""
        raise NotChangeable(f"nothing changes the role of {name} here")


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    node: str
    pool: str


def read_change(body: bytes, nodes: Mapping[str, Pool]) -> tuple[str, Pool]:
    """The node and the role that ``body`` wants for it. Raises ``ValueError`` with a sentence that says what is
    allowed.
    """
    try:
        asked = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the body must be a JSON object of node and pool: {error}") from None
    if asked.node not in nodes:
        raise ValueError(f"node is {asked.node!r}, but must be one of the fleet's")
    if asked.pool not in tuple(Pool):
        raise ValueError(f"pool is {asked.pool!r}, but must be {' or '.join(Pool)}")
    return asked.node, Pool(asked.pool)


def verdict_view(verdict: RoleVerdict) -> dict[str, Any]:
    """What was found at the last look, for JSON. ``payoff`` is ``None`` where no change was considered."""
    payoff = verdict.payoff
    return {
        "reason": verdict.reason,
        "load": verdict.load,
        "speculative": verdict.speculative,
        "wanted": verdict.wanted,
        "raised": verdict.raised,
        "payoff": None
        if payoff is None
        else {
            "gain_tps": payoff.gain_tps,
            "dwell_s": payoff.dwell_s,
            "lost_tps": payoff.lost_tps,
            "transition_s": payoff.transition_s,
            "pays": payoff.pays,
        },
    }


def change_view(change: RoleChange, now: float) -> dict[str, Any]:
    """A change for JSON; ``ok`` is ``None`` while it runs."""
    until = now if change.ended_at is None else change.ended_at
    return {
        "node": change.node,
        "pool": change.pool,
        "by": change.by,
        "age_s": max(0.0, now - change.began_at),
        "took_s": max(0.0, until - change.began_at),
        "ok": change.ok,
        "why": change.why,
        "phases_s": None if change.phases is None else dict(change.phases),
        "verdict": None if change.verdict is None else verdict_view(change.verdict),
    }

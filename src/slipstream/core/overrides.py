"""What operators change in a running fleet: pins, ceilings, drained nodes, and the switch that turns speculation off.

Overrides live beside the configuration and win over it. They outlast a reload and end with the process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from slipstream.core.request import Pool

__all__ = ["FLEET", "Change", "Override", "OverrideKind", "Overrides", "pool_of"]

ENDED_REMEMBERED = 1_000
FLEET = "fleet"
"""The subject of an override that is not about one node, pool, category or key."""


class OverrideKind(StrEnum):
    """What an override changes."""

    PIN_CATEGORY = "pin_category"
    """Requests of a category go to one pool."""
    PIN_KEY = "pin_key"
    """Requests with an API key, named by its id, go to one pool."""
    NODE_CEILING = "node_ceiling"
    """The ceiling of one speculative node."""
    POOL_CEILING = "pool_ceiling"
    """The ceiling of every speculative node that has none of its own by override."""
    DRAIN = "drain"
    """A node takes no new request; what it has goes on."""
    SPECULATION = "speculation"
    """Nothing is sent to the speculative pool for its speculation."""


class Change(StrEnum):
    """What happened to an override. ``REPLACED`` is followed by the ``SET`` of what replaces it."""

    SET = "set"
    REPLACED = "replaced"
    CLEARED = "cleared"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Override:
    """One thing that an operator fixed.

    ``subject`` names a category, a key's id, a node or a pool, or is ``FLEET``. ``value`` is a pool for pins, a number
    of sequences for ceilings, ``None`` for the others: a drain drains, and speculation is off. ``set_at`` and
    ``expires_at`` are times of the fleet's clock; ``None`` = until it is cleared. ``measured``: a ceiling was found by
    a calibration, and holds as long as that does.
    """

    kind: OverrideKind
    subject: str
    value: Pool | int | None = None
    note: str = ""
    set_at: float = 0.0
    expires_at: float | None = None
    measured: bool = False


def _unheard(_change: Change, _override: Override) -> None:
    """Nobody is told."""


class Overrides:
    """The overrides in force, at most one for each kind and subject, and those that ended lately.

    ``active`` is ``False`` while there are none: all that a request pays for them then. ``notify`` is told of every
    change.
    """

    __slots__ = ("_ended", "_in_force", "_notify", "active", "next_expiry")

    def __init__(self, notify: Callable[[Change, Override], None] = _unheard) -> None:
        self._notify = notify
        self._in_force: dict[tuple[OverrideKind, str], Override] = {}
        self._ended: deque[tuple[Override, float]] = deque(maxlen=ENDED_REMEMBERED)
        self.active = False
        self.next_expiry = float("inf")
        """When the first of them ends by itself; infinity when none does."""

    def __iter__(self) -> Iterator[Override]:
        return iter(tuple(self._in_force.values()))

    def __len__(self) -> int:
        return len(self._in_force)

    def set(self, override: Override, now: float) -> None:
        """Put an override in force, in place of an earlier one of its kind on its subject."""
        self._end(override.kind, override.subject, now, Change.REPLACED)
        self._in_force[override.kind, override.subject] = override
        self._changed()
        self._notify(Change.SET, override)

    def clear(self, kind: OverrideKind, subject: str, now: float) -> Override | None:
        """End an override; returns it, or ``None`` when it was not in force."""
        ended = self._end(kind, subject, now, Change.CLEARED)
        self._changed()
        return ended

    def expire(self, now: float) -> bool:
        """End those whose time is over; whether there were any."""
        if now < self.next_expiry:
            return False
        for override in self:
            if override.expires_at is not None and override.expires_at <= now:
                self._end(override.kind, override.subject, override.expires_at, Change.EXPIRED)
        self._changed()
        return True

    def pin(self, category: str, key_id: str | None) -> Override | None:
        """What fixes the pool of a request; ``None`` = nothing does.

        The narrower pin wins (key before category), but for the switch: with speculation off, no pin speculates.
        """
        return _pin(self._in_force, category, key_id)

    def pin_at(self, moment: float, category: str, key_id: str | None) -> Override | None:
        """What fixed the pool of a request at a moment, as far as is remembered."""
        then = {
            (override.kind, override.subject): override
            for override, ended_at in (*self._ended, *((one, float("inf")) for one in self._in_force.values()))
            if override.set_at <= moment < ended_at
        }
        return _pin(then, category, key_id)

    def ceiling(self, node: str, pool: Pool, *, measured: bool = True) -> int | None:
        """The ceiling fixed for a node, by itself or with its pool; ``None`` = the configured one holds. ``measured``:
        whether one that a calibration found counts.
        """
        for key in ((OverrideKind.NODE_CEILING, node), (OverrideKind.POOL_CEILING, pool)):
            found = self._in_force.get(key)
            if found is not None and isinstance(found.value, int) and (measured or not found.measured):
                return found.value
        return None

    def drains(self, node: str) -> bool:
        """Whether a node is to take no new request."""
        return (OverrideKind.DRAIN, node) in self._in_force

    def _end(self, kind: OverrideKind, subject: str, ended_at: float, how: Change) -> Override | None:
        ended = self._in_force.pop((kind, subject), None)
        if ended is not None:
            self._ended.append((ended, ended_at))
            self._notify(how, ended)
        return ended

    def _changed(self) -> None:
        self.active = bool(self._in_force)
        ends = [one.expires_at for one in self._in_force.values() if one.expires_at is not None]
        self.next_expiry = min(ends, default=float("inf"))


_OFF = (OverrideKind.SPECULATION, FLEET)


def _pin(overrides: dict[tuple[OverrideKind, str], Override], category: str, key_id: str | None) -> Override | None:
    found = overrides.get(_OFF)
    if found is None and key_id is not None:
        found = overrides.get((OverrideKind.PIN_KEY, key_id))
    return overrides.get((OverrideKind.PIN_CATEGORY, category)) if found is None else found


def pool_of(pin: Override) -> Pool:
    """The pool that a pin means."""
    return pin.value if isinstance(pin.value, Pool) else Pool.STANDARD

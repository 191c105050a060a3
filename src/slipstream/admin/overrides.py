"""Overrides as operators write and read them: JSON that is checked against what the fleet has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from slipstream.core.overrides import FLEET, Override, OverrideKind
from slipstream.core.request import Pool

__all__ = ["Known", "override_view", "read_kind", "read_override"]

LONGEST_S = 30 * 86_400.0
MOST_SEQUENCES = 1_000_000
NOTE_CHARACTERS = 200
NAMES_SHOWN = 10


class Known(NamedTuple):
    """What an override can be about: configured categories, ids of keys, and the fleet's nodes with their pools."""

    categories: Collection[str]
    key_ids: Collection[str]
    nodes: Mapping[str, Pool]


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    subject: str = FLEET
    value: str | int | None = None
    for_s: float | None = None
    note: str = ""
    measured: bool = False


def read_override(body: bytes, known: Known, now: float) -> Override:
    """The override that ``body`` asks for, from ``now`` on. Raises ``ValueError`` with a sentence that says what is
    allowed.
    """
    try:
        asked = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        fields = ", ".join(_Body.__struct_fields__)
        raise ValueError(f"the body must be a JSON object of {fields}: {error}") from None
    kind = read_kind(asked.kind)
    _check_subject(kind, asked.subject, known)
    value = _value(kind, asked.value)
    if asked.for_s is not None and not 1.0 <= asked.for_s <= LONGEST_S:
        raise ValueError(
            f"for_s is {asked.for_s:g}, but must be 1 to {LONGEST_S:.0f} seconds; without it, until cleared"
        )
    if len(asked.note) > NOTE_CHARACTERS or not asked.note.isprintable():
        raise ValueError(f"note must be at most {NOTE_CHARACTERS} printable characters on one line")
    ends = None if asked.for_s is None else now + asked.for_s
    if asked.measured and kind not in {OverrideKind.NODE_CEILING, OverrideKind.POOL_CEILING}:
        raise ValueError(f"measured is true, but {kind} is no ceiling, and only those are found by a calibration")
    return Override(kind, asked.subject, value, asked.note, now, ends, asked.measured)


def read_kind(text: str) -> OverrideKind:
    """The kind of that name. Raises ``ValueError``."""
    try:
        return OverrideKind(text)
    except ValueError:
        raise ValueError(f"kind is {text!r}, but must be one of {', '.join(OverrideKind)}") from None


def override_view(override: Override, now: float, limit: int | None = None) -> dict[str, Any]:
    """An override for JSON. ``ends_in_s`` is ``None`` when it lasts until it is cleared. ``limit`` is up to where a
    ceiling has effect: what the nodes that it is about take at once; ``None`` = not known, or no ceiling.
    """
    ends = override.expires_at
    return {
        "kind": override.kind,
        "subject": override.subject,
        "value": override.value,
        "limit": limit,
        "note": override.note,
        "measured": override.measured,
        "age_s": max(0.0, now - override.set_at),
        "ends_in_s": None if ends is None else max(0.0, ends - now),
    }


def _check_subject(kind: OverrideKind, subject: str, known: Known) -> None:
    speculative = [name for name, pool in known.nodes.items() if pool is Pool.SPECULATIVE]
    what, allowed = {
        OverrideKind.PIN_CATEGORY: ("a configured category", known.categories),
        OverrideKind.PIN_KEY: ("the id of a configured key", known.key_ids),
        OverrideKind.NODE_CEILING: ("a node of the speculative pool", speculative),
        OverrideKind.POOL_CEILING: ("the pool that has ceilings", [Pool.SPECULATIVE]),
        OverrideKind.DRAIN: ("a node of the fleet", known.nodes),
        OverrideKind.SPECULATION: ("left out or", [FLEET]),
    }[kind]
    if subject not in allowed:
        raise ValueError(f"subject is {subject!r}, but for {kind} it must be {what}: {_listed(allowed)}")


def _value(kind: OverrideKind, value: str | int | None) -> Pool | int | None:
    if kind in {OverrideKind.PIN_CATEGORY, OverrideKind.PIN_KEY}:
        if value not in tuple(Pool):
            raise ValueError(f"value is {value!r}, but a pin needs a pool: {' or '.join(Pool)}")
        return Pool(value)
    if kind in {OverrideKind.NODE_CEILING, OverrideKind.POOL_CEILING}:
        if not isinstance(value, int) or not 1 <= value <= MOST_SEQUENCES:
            allowed = f"a whole number of sequences, 1 to {MOST_SEQUENCES}"
            raise ValueError(f"value is {value!r}, but a ceiling needs {allowed}")
        return value
    if value is not None:
        raise ValueError(f"value is {value!r}, but {kind} takes none: while it is in force, {_MEANS[kind]}")
    return None


_MEANS = {
    OverrideKind.DRAIN: "the node takes no new request",
    OverrideKind.SPECULATION: "speculation is off",
}


def _listed(names: Iterable[str]) -> str:
    shown = list(names)
    if not shown:
        return "there is none"
    more = len(shown) - NAMES_SHOWN
    return ", ".join(shown[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")

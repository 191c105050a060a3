"""What differs between two configurations, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from slipstream.config.schema import FleetConfig

__all__ = ["differences"]


def differences(before: FleetConfig, after: FleetConfig) -> tuple[str, ...]:
    """One phrase for each key and each node that differs, in the order of the sections; secrets are never read."""
    old, new = before.model_dump(mode="json"), after.model_dump(mode="json")
    old_nodes, new_nodes = ({node["name"]: node for node in one.pop("nodes")} for one in (old, new))
    return (*_keys("", old, new), *_nodes(old_nodes, new_nodes))


def _keys(prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*old, *new]):
        was, is_now = old.get(name), new.get(name)
        key = f"{prefix}{name}"
        if isinstance(was, dict) and isinstance(is_now, dict):
            yield from _keys(f"{key}.", was, is_now)
        elif isinstance(was, list | dict) or isinstance(is_now, list | dict):
            if was != is_now:
                yield from _entries(key, was or [], is_now or [])
        elif was != is_now:
            yield f"{key} {_shown(was)} → {_shown(is_now)}"


def _entries(key: str, old: Any, new: Any) -> Iterator[str]:
    """What differs between two lists: by the entries' ids, where they have them. Entries may hold secrets."""
    if not all(isinstance(one, dict) and "id" in one for one in (*old, *new)):
        yield f"{key} changed"
        return
    was, is_now = ({entry["id"]: entry for entry in entries} for entries in (old, new))
    moved = [name for name in is_now if name in was] != [name for name in was if name in is_now]
    for name, entry in is_now.items():
        if name not in was:
            yield f"{key} {name} added"
        elif entry != was[name]:
            yield f"{key} {name} changed"
    yield from (f"{key} {name} removed" for name in was if name not in is_now)
    if moved:
        yield f"{key} in another order"


def _nodes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name, node in new.items():
        if name not in old:
            yield f"node {name} added"
        else:
            yield from _keys(f"node {name} ", old[name], node)
    yield from (f"node {name} removed" for name in old if name not in new)


def _shown(value: object) -> str:
    return "left out" if value is None else json.dumps(value, ensure_ascii=False).strip('"')

"""What may be changed of a scenario without editing its file: each change by name, as `--sweep` varies it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["CHANGES", "Change", "changed"]

Change = Callable[[Any, float], str | None]
"""Changes the data of a scenario that has been found good; says, if it can not, why."""


def changed(data: Any, changes: Mapping[str, float]) -> tuple[Any, list[tuple[str, str]]]:
    """A copy of the data with ``changes``, and (name, why not) of each that can not be made."""
    data = copy.deepcopy(data)
    failed: list[tuple[str, str]] = []
    for name, value in changes.items():
        change = CHANGES.get(name)
        if change is None:
            failed.append((name, f"one of {', '.join(CHANGES)}"))
        elif (reason := change(data, value)) is not None:
            failed.append((name, reason))
    return data, failed


def _rate(data: Any, value: float) -> str | None:
    arrivals = data["workload"].get("arrivals") or {}
    if arrivals.get("per_s") is None:
        return "arrivals with per_s; load changes any workload"
    arrivals["per_s"] = value
    return None


def _load(data: Any, value: float) -> str | None:
    workload = data["workload"]
    if workload.get("trace"):
        workload["trace"]["speed"] = workload["trace"].get("speed", 1.0) * value
        return None
    arrivals = workload["arrivals"]
    for key in ("per_s", "burst_per_s"):
        if arrivals.get(key) is not None:
            arrivals[key] *= value
    for point in arrivals.get("rates") or ():
        point["per_s"] *= value
    return None


def _everywhere(key: str, *section: str) -> Change:
    """Of the whole fleet: no group of nodes and no policy keeps a value of its own."""

    def change(data: Any, value: float) -> None:
        _own(data, *section)[key] = _whole(value)
        for one in (*data["nodes"], *(data.get("policies") or ())):
            if isinstance(one, dict):
                one.pop(key, None)

    return change


def _k(data: Any, value: float) -> str | None:
    for group in data["nodes"]:
        speculation = _own(group, "speculation")
        speculation["k"] = _whole(value)
        speculation.pop("schedule", None)
    return None


def _speculative_nodes(data: Any, value: float) -> str | None:
    groups = {pool: [one for one in data["nodes"] if one["pool"] == pool] for pool in ("speculative", "standard")}
    if any(len(found) != 1 for found in groups.values()) or any(one.get("capacity") for one in data["nodes"]):
        return "one group of nodes in either pool, without capacity changes"
    total = sum(group.get("count", 1) for group in data["nodes"])
    number = _whole(value)
    if not isinstance(number, int) or not 0 <= number <= total:
        return f"a whole number from 0 to the {total} nodes that there are"
    for pool, count in (("speculative", number), ("standard", total - number)):
        group = groups[pool][0]
        group["count"] = count
        if not count:
            data["nodes"].remove(group)
    return None


def _at(key: str) -> Change:
    def change(data: Any, value: float) -> None:
        data[key] = value

    return change


CHANGES: Mapping[str, Change] = MappingProxyType(
    {
        "rate": _rate,
        "load": _load,
        "ceiling": _everywhere("ceiling", "pools", "speculative"),
        "k": _k,
        "alpha_floor": _everywhere("alpha_floor", "pools", "speculative"),
        "holdback": _everywhere("holdback", "routing"),
        "speculative_nodes": _speculative_nodes,
        "window_s": _at("window_s"),
        "warm_up_s": _at("warm_up_s"),
        "drain_s": _at("drain_s"),
    }
)
"""By name. ``rate``: requests a second of the arrivals (between bursts); ``load``: factor of all rates, or of a trace's
speed; ``ceiling``, ``alpha_floor``, ``holdback``: of every node and every threshold policy; ``k``: of every engine;
``speculative_nodes``: how many of all nodes are in the speculative pool; the rest as the keys of that name.
"""


def _own(data: Any, *path: str) -> Any:
    """The section there, made if it was left out or empty."""
    for key in path:
        if data.get(key) is None:
            data[key] = {}
        data = data[key]
    return data


def _whole(value: float) -> float:
    """A whole number as one: what is none is left for the section to refuse."""
    return int(value) if value == int(value) else value

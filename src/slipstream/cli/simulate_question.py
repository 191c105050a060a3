"""What ``slipstream simulate`` is asked: which policies, seeds, changes and grid of changes."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from math import floor, isfinite, prod
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from slipstream.cli.option_values import whole_numbers
from slipstream.costmodel.errors import ImpossibleInput

if TYPE_CHECKING:  # numbers are loaded by who simulates, not by who asks for help
    from slipstream.sim.scenario import Scenario
    from slipstream.sim.sweep import Point

__all__ = ["Question", "baseline_of", "changes_of", "grid_of", "narrowed", "seeds_of"]

MOST_POINTS = 1000
LOADS = (0.5, 0.75, 1.25, 1.5)
"""Times the scenario's load, beside that itself, for a picture of goodput over load."""
MOST_SEED = 2**63 - 1


class Question(NamedTuple):
    """A scenario's file, and what is asked of it. ``policies``: none = all of it; ``seeds`` ``None`` = those of it."""

    file: Path
    policies: tuple[str, ...]
    seeds: tuple[int, ...] | None
    changes: Mapping[str, float]
    grid: Mapping[str, Sequence[float]]

    def points(self) -> list[Point]:
        """Every point of the grid, without one the scenario itself. Raises ConfigError, and `ImpossibleInput`."""
        from slipstream.sim.sweep import points_of

        for name in self.grid:
            if name in self.changes:
                raise ImpossibleInput(f"--sweep varies {name}, which is set to one value as well")
        if prod(map(len, self.grid.values())) > MOST_POINTS:
            raise ImpossibleInput(f"--sweep has at most {MOST_POINTS:,} combinations")
        return [self._point(values, {**self.changes, **values}, self.seeds) for values in points_of(self.grid)]

    def loads(self) -> list[Point]:
        """The scenario at some other loads, each with its first seed alone."""
        base = self.changes.get("load", 1.0)
        first = self._point({}, self.changes, self.seeds).scenario.seeds[:1]
        return [self._point({"load": base * load}, {**self.changes, "load": base * load}, first) for load in LOADS]

    def _point(self, values: Mapping[str, float], changes: Mapping[str, float], seeds: tuple[int, ...] | None) -> Point:
        from slipstream.scenarios import read_scenario
        from slipstream.sim.sweep import Point

        return Point(values, narrowed(read_scenario(self.file, changes=changes), self.policies, seeds))


def changes_of(options: Sequence[str], window_s: float | None) -> dict[str, float]:
    """``name=value`` each, and the window. Raises `ImpossibleInput` for another form, and for a name given twice."""
    changes: dict[str, float] = {}
    for option in options:
        for pair in option.split(","):
            name, _, value = pair.partition("=")
            if not name.strip() or not value.strip():
                raise ImpossibleInput(f"--set is name=value, as in rate=80, not {pair!r}")
            _once("--set", name.strip(), changes)
            changes[name.strip()] = _number("--set", value)
    if window_s is not None:
        _once("--set", "window_s", changes)
        changes["window_s"] = window_s
    return changes


def grid_of(options: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """``name=values`` each, also several with commas: ``rate=40,60,ceiling=8..16:4``. A range has its last value if a
    whole number of steps leads there. Raises `ImpossibleInput` as `changes_of`.
    """
    words: dict[str, list[str]] = {}
    for option in options:
        name = ""
        for word in option.split(","):
            before, equals, value = word.partition("=")
            if equals:
                name = before.strip()
                _once("--sweep", name, words)
                words[name] = []
            if not name or not (value if equals else before).strip():
                raise ImpossibleInput(f"--sweep is name=values, as in rate=40,60,80 or rate=40..120:20, not {option!r}")
            words[name].append(value if equals else before)
    return {name: tuple(dict.fromkeys(one for word in own for one in _values(word))) for name, own in words.items()}


def seeds_of(seed: str | None, seeds: int | None) -> tuple[int, ...] | None:
    """Seeds given one by one, or a number of them; ``None`` for those of the scenario. Raises `ImpossibleInput`."""
    if seed is not None and seeds is not None:
        raise ImpossibleInput("--seed says which seeds there are and --seeds how many: give one of the two")
    if seeds is not None:
        return tuple(range(1, seeds + 1))
    return None if seed is None else whole_numbers("--seed", seed, 0, MOST_SEED)


def narrowed(scenario: Scenario, policies: Sequence[str], seeds: tuple[int, ...] | None) -> Scenario:
    """Only these policies, in the order of the scenario, under these seeds; of none, all. ``bound`` may always be asked
    for. Raises `ImpossibleInput` for a name that there is not.
    """
    from slipstream.sim.scenario import Policy, PolicyKind

    known = {policy.name: policy for policy in scenario.policies}
    known.setdefault(PolicyKind.BOUND.value, Policy(PolicyKind.BOUND.value, PolicyKind.BOUND))
    for name in policies:
        if name not in known:
            raise ImpossibleInput(f"the scenario has no policy {name!r}; it has {', '.join(known)}")
    kept = tuple(policy for name, policy in known.items() if name in policies)
    return replace(scenario, policies=kept or scenario.policies, seeds=seeds or scenario.seeds)


def baseline_of(scenario: Scenario, name: str | None) -> str:
    """The policy that the others are compared with: the one named, or the first.

    Raises `ImpossibleInput` for one that is not simulated, and where there is no other.
    """
    from slipstream.sim.scenario import PolicyKind

    simulated = [policy.name for policy in scenario.policies if policy.kind is not PolicyKind.BOUND]
    if len(simulated) < 2:
        raise ImpossibleInput("--compare takes at least two policies that are simulated")
    if name is not None and name not in simulated:
        raise ImpossibleInput(f"--baseline is one of the policies simulated, {', '.join(simulated)}, not {name!r}")
    return name or simulated[0]


def _once(option: str, name: str, found: Container[str]) -> None:
    if name in found:
        raise ImpossibleInput(f"{option} has {name} twice")


def _values(word: str) -> tuple[float, ...]:
    first, dots, rest = word.partition("..")
    if not dots:
        return (_number("--sweep", word),)
    last, colon, step = rest.partition(":")
    if not colon:
        raise ImpossibleInput(f"a range of --sweep is first..last:step, as in 40..120:20, not {word!r}")
    begin, end, by = (_number("--sweep", one) for one in (first, last, step))
    if by <= 0.0 or end < begin:
        raise ImpossibleInput(f"a range of --sweep rises from its first value to its last by its step, unlike {word!r}")
    steps = floor((end - begin) / by + 1e-9)
    if steps >= MOST_POINTS:
        raise ImpossibleInput(f"a range of --sweep has at most {MOST_POINTS:,} values, unlike {word!r}")
    return tuple(round(begin + by * step, 12) for step in range(steps + 1))


def _number(option: str, word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise ImpossibleInput(f"{option} takes numbers, not {word.strip()!r}")
    return value

"""Several runs of one policy as one result: means over seeds, and how far they can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeAlias, TypeVar, cast

from slipstream.core.interval import Interval, interval_of, mean_of
from slipstream.sim.measures import Measures

__all__ = ["Interval", "PolicyResult", "compare", "interval_of", "mean_of", "summarise"]

_Tree = TypeVar("_Tree")
_Values: TypeAlias = list[float]


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """``mean`` over ``seeds`` runs; ``low`` and ``high``, the ends of each figure's 95 % interval, in the shape of the
    figures themselves. A mean is over the runs that know the figure; ends are ``None`` where fewer than two do.
    """

    policy: str
    seeds: int
    mean: Measures
    low: Measures
    high: Measures


def summarise(policy: str, runs: Sequence[Measures]) -> PolicyResult:
    """Of one policy's runs, one a seed. ValueError for none."""
    if not runs:
        raise ValueError("there is nothing to sum up without a run")
    return _result(policy, len(runs), lambda function: _leafwise(function, runs))


def compare(policy: str, ours: Sequence[Measures], theirs: Sequence[Measures]) -> PolicyResult:
    """How much more ``ours`` has of everything than ``theirs``, run by run: both of the same seeds in the same order,
    so that what a seed does to both cancels. ValueError for none, or for unequal numbers of runs.
    """
    if not ours or len(ours) != len(theirs):
        raise ValueError(f"runs are compared seed by seed, not {len(ours)} with {len(theirs)}")
    differences = [_paired(mine, its) for mine, its in zip(ours, theirs, strict=True)]
    return _result(policy, len(ours), lambda function: _leafwise(function, differences))


def _result(policy: str, seeds: int, leafwise: Callable[[Callable[[_Values], float | None]], Measures]) -> PolicyResult:
    return PolicyResult(policy, seeds, leafwise(mean_of), leafwise(_low), leafwise(_high))


def _low(values: _Values) -> float | None:
    ends = interval_of(values)
    return None if ends is None else ends[0]


def _high(values: _Values) -> float | None:
    ends = interval_of(values)
    return None if ends is None else ends[1]


def _paired(mine: Measures, its: Measures) -> Measures:
    return _leafwise(lambda both: both[0] - both[1] if len(both) == 2 else None, [mine, its])


def _leafwise(function: Callable[[_Values], float | None], trees: Sequence[_Tree]) -> _Tree:
    """A tree of figures like ``trees``, which are alike: at each leaf what the function makes of the figures known."""
    return cast("_Tree", _combined(function, trees))


def _combined(function: Callable[[_Values], float | None], trees: Sequence[Any]) -> Any:
    first = trees[0]
    if isinstance(first, Mapping):
        shared = [key for key in first if all(key in tree for tree in trees)]
        return {key: _combined(function, [tree[key] for tree in trees]) for key in shared}
    if is_dataclass(first):
        names = [field.name for field in fields(first)]
        kind: Any = type(first)
        return kind(**{name: _combined(function, [getattr(tree, name) for tree in trees]) for name in names})
    return function([value for value in trees if value is not None])

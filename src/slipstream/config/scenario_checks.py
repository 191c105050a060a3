"""What no single key of a scenario can know: keys that belong to another choice, names that nothing has.

The checks read plain data, as those of a fleet's configuration do, so that they report even when something else in the
file is wrong. Values of the wrong type are left to the sections.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from slipstream.config.checks import check_hysteresis, check_intervals, check_targets
from slipstream.config.document import Path, Report, value_at
from slipstream.config.roles import check_watermarks
from slipstream.config.scenario import ScenarioControl
from slipstream.core.errors import ConfigProblem

__all__ = ["check_scenario"]

_OF_PROCESS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "constant": ("per_s",),
        "poisson": ("per_s",),
        "gamma": ("per_s", "cv"),
        "bursts": ("per_s", "burst_per_s", "burst_s", "every_s"),
        "rates": ("rates",),
    }
)
_PROCESS_KEYS = ("per_s", "cv", "burst_per_s", "burst_s", "every_s", "rates")

_OF_KIND: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "threshold": ("ceiling", "alpha_floor", "holdback", "roles"),
        "predictive": ("holdback", "profile_error"),
        "split-lists": ("categories",),
        "all-scheduled": ("schedule",),
    }
)
_KIND_KEYS = ("ceiling", "alpha_floor", "holdback", "profile_error", "categories", "roles", "schedule")

_LENGTHS: tuple[tuple[frozenset[str], frozenset[str]], ...] = tuple(
    (frozenset(needed), frozenset(allowed))
    for needed, allowed in (
        (("tokens",), ()),
        (("least", "most"), ()),
        (("mean",), ("p95", "maximum")),
        (("values",), ()),
    )
)
_LENGTHS_ALLOWED = "a number of tokens, {least, most}, {mean}, {mean, p95}, the last two with maximum, or {values}"

_COMPUTED = ("model", "hardware", "tensor_parallel", "engine", "weight_dtype", "kv_dtype", "memory_share", "speculator")


def check_scenario(data: object, report: Report) -> Iterator[ConfigProblem]:
    """Every problem between keys; ``report`` makes one from a path, what was found and what is allowed."""
    yield from _seeds(data, report)
    yield from check_targets(data, ("targets",), report)
    yield from _profiles(data, report)
    yield from _nodes(data, report)
    yield from _workload(data, report)
    yield from _models(data, report)
    yield from _policies(data, report)
    yield from check_hysteresis(data, report)
    yield from check_intervals(data, report, ScenarioControl())


def _given(data: object, *path: str | int) -> bool:
    """Whether something stands there; an empty list is nothing."""
    return value_at(data, *path) not in (None, [])


def _keys(data: object, *path: str | int) -> Collection[str]:
    """The keys of the mapping there; none when there is none."""
    found = value_at(data, *path)
    return found.keys() if isinstance(found, dict) else ()


def _count(data: object, *path: str | int) -> int:
    found = value_at(data, *path)
    return len(found) if isinstance(found, list) else 0


def _missing(path: Path, key: str, why: str, report: Report) -> ConfigProblem:
    return report((*path, key), f"nothing, and {why} needs it", "a value")


def _needless(path: Path, key: str, why: str, report: Report) -> ConfigProblem:
    return report((*path, key), f"a key without effect {why}", "to leave it out")


def _seeds(data: object, report: Report) -> Iterator[ConfigProblem]:
    seeds = value_at(data, "seeds")
    if seeds == []:
        yield report(("seeds",), "an empty list", "at least one")
    elif isinstance(seeds, list):
        for index, seed in enumerate(seeds):
            if seed in seeds[:index]:
                yield report(("seeds", index), f"{seed} again", "each seed once")


def _profiles(data: object, report: Report) -> Iterator[ConfigProblem]:
    if "profiles" in _keys(data) and not _keys(data, "profiles"):
        yield report(("profiles",), "no profile", "at least one, by name")
    for name in _keys(data, "profiles"):
        path: Path = ("profiles", name)
        if _given(data, *path, "file"):
            found = [key for key in _COMPUTED if key in _keys(data, *path)]
            yield from (_needless(path, key, "beside a file", report) for key in found)
        else:
            missing = [key for key in ("model", "hardware") if not _given(data, *path, key)]
            if len(missing) == 2:
                yield report(path, "neither model and hardware nor a file", "either of the two")
            elif missing:
                yield _missing(path, missing[0], "a profile without a file", report)
        yield from _speculator(data, (*path, "speculator"), report)


def _speculator(data: object, path: Path, report: Report) -> Iterator[ConfigProblem]:
    kind = value_at(data, *path, "kind")
    if kind == "draft-model" and not _given(data, *path, "model"):
        yield _missing(path, "model", "a draft model", report)
    elif kind == "ngram" and not _given(data, *path, "proposing_share"):
        yield _missing(path, "proposing_share", "n-gram lookup, which proposes only where it finds something,", report)
    if isinstance(kind, str) and kind != "draft-model":
        found = [key for key in ("model", "sharded") if key in _keys(data, *path)]
        yield from (_needless(path, key, f"for {kind}", report) for key in found)


def _nodes(data: object, report: Report) -> Iterator[ConfigProblem]:
    if value_at(data, "nodes") == []:
        yield report(("nodes",), "an empty list", "at least one group")
    profiles = _keys(data, "profiles")
    first: dict[object, int] = {}
    for index in range(_count(data, "nodes")):
        path: Path = ("nodes", index)
        name = value_at(data, *path, "name")
        if isinstance(name, str) and (seen := first.setdefault(name, index)) != index:
            yield report((*path, "name"), f'"{name}", as in nodes[{seen}]', "a name of its own")
        profile = value_at(data, *path, "profile")
        if isinstance(profile, str) and profiles and profile not in profiles:
            yield report((*path, "profile"), f'the unknown profile "{profile}"', f"one of {', '.join(profiles)}")
        if value_at(data, *path, "pool") == "standard" and _given(data, *path, "ceiling"):
            yield _needless(path, "ceiling", "in the standard pool", report)
        yield from _capacity(data, path, report)
        yield from _schedule(data, (*path, "speculation", "schedule"), report)


def _capacity(data: object, path: Path, report: Report) -> Iterator[ConfigProblem]:
    most = value_at(data, *path, "count")
    most = 1 if most is None else most
    before: float = -1.0
    for index in range(_count(data, *path, "capacity")):
        here: Path = (*path, "capacity", index)
        at_s, count = (value_at(data, *here, key) for key in ("at_s", "count"))
        if isinstance(at_s, int | float):
            if at_s <= before:
                yield report((*here, "at_s"), f"{at_s:g}, not after the change before it", "changes in order of time")
            before = at_s
        if isinstance(count, int) and isinstance(most, int) and count > most:
            yield report((*here, "count"), str(count), f"at most the {most} of the group's count")


def _roles(data: object, path: Path, report: Report) -> Iterator[ConfigProblem]:
    if not _given(data, *path):
        return
    yield from check_watermarks(data, path, report)
    for index in range(_count(data, "nodes")):
        if _given(data, "nodes", index, "capacity"):
            found = "changes of capacity, beside a policy under which nodes change their roles"
            yield report(("nodes", index, "capacity"), found, "one of the two")


def _schedule(data: object, path: Path, report: Report) -> Iterator[ConfigProblem]:
    before = 0
    for index in range(_count(data, *path)):
        up_to = value_at(data, *path, index, "up_to")
        if isinstance(up_to, int):
            if up_to <= before:
                yield report((*path, index, "up_to"), str(up_to), f"more than the {before} before it: ranges rise")
            before = up_to


def _workload(data: object, report: Report) -> Iterator[ConfigProblem]:
    if "workload" not in _keys(data):
        return
    path: Path = ("workload",)
    drawn, traced = (_given(data, "workload", key) for key in ("arrivals", "trace"))
    if drawn == traced:
        yield report(path, "arrivals and a trace" if drawn else "neither arrivals nor a trace", "one of the two")
    process = value_at(data, "workload", "arrivals", "process")
    if isinstance(process, str) and process in _OF_PROCESS:
        arrivals: Path = ("workload", "arrivals")
        for key in _PROCESS_KEYS:
            wanted, given = key in _OF_PROCESS[process], _given(data, *arrivals, key)
            if wanted and not given:
                yield _missing(arrivals, key, process, report)
            elif given and not wanted:
                yield _needless(arrivals, key, f"for {process}", report)
    names = _keys(data, "workload", "categories")
    if not names and "categories" in _keys(data, "workload"):
        yield report(("workload", "categories"), "no category", "at least one, by name")
    shares = [value_at(data, "workload", "categories", name, "share") for name in names]
    if names and all(isinstance(share, int | float) and share == 0 for share in shares):
        yield report(("workload", "categories"), "shares that are all 0", "a share above 0")
    for name in names:
        yield from _category(data, ("workload", "categories", name), report, traced=traced)


def _category(data: object, path: Path, report: Report, *, traced: bool) -> Iterator[ConfigProblem]:
    alpha, survival = (_given(data, *path, key) for key in ("alpha", "survival"))
    if alpha == survival:
        found = "both alpha and survival" if alpha else "neither alpha nor survival"
        yield report(path, found, "one of the two: what its requests accept")
    shares = value_at(data, *path, "survival")
    before = 1.0
    for index, share in enumerate(shares if isinstance(shares, list) else ()):
        if isinstance(share, int | float):
            if share > before:
                yield report((*path, "survival", index), f"{share:g}", f"at most the {before:g} before it")
            before = share
    for key in ("prompt_tokens", "output_tokens"):
        lengths = value_at(data, *path, key)
        if lengths is None:
            if not traced:
                yield _missing(path, key, "a workload without a trace", report)
        elif isinstance(lengths, dict):
            given = {name for name, value in lengths.items() if value not in (None, [])}
            if not any(needed <= given <= needed | allowed for needed, allowed in _LENGTHS):
                yield report((*path, key), f"{', '.join(sorted(map(str, given))) or 'nothing'}", _LENGTHS_ALLOWED)


def _models(data: object, report: Report) -> Iterator[ConfigProblem]:
    """Models that are asked for and that no node serves."""
    default = "model"
    names = [value_at(data, "nodes", index, "model") or default for index in range(_count(data, "nodes"))]
    served = {name for name in names if isinstance(name, str)}
    known = sorted(served)
    asked = _keys(data, "workload", "models")
    for name in asked:
        if name not in served and served:
            yield report(("workload", "models", name), "a model that no node serves", f"one of {', '.join(known)}")
    shares = [value_at(data, "workload", "models", name) for name in asked]
    if asked and all(isinstance(share, int | float) and share == 0 for share in shares):
        yield report(("workload", "models"), "shares that are all 0", "a share above 0")
    if not asked and len(served) > 1:
        found = f"nothing, and nodes serve {', '.join(known)}"
        yield report(("workload", "models"), found, "the models that requests ask for, and their shares")


def _policies(data: object, report: Report) -> Iterator[ConfigProblem]:
    if value_at(data, "policies") == []:
        yield report(("policies",), "an empty list", "at least one policy")
    categories = _keys(data, "workload", "categories")
    first: dict[object, int] = {}
    for index in range(_count(data, "policies")):
        path: Path = ("policies", index)
        entry = value_at(data, *path)
        kind = entry if isinstance(entry, str) else value_at(data, *path, "kind")
        name = value_at(data, *path, "name") or kind
        if isinstance(name, str) and (seen := first.setdefault(name, index)) != index:
            yield report(path, f'the name "{name}", as in policies[{seen}]', "a name of its own")
        if not isinstance(kind, str):
            continue
        wanted = _OF_KIND.get(kind, ())
        given = [key for key in _KIND_KEYS if _given(data, *path, key)]
        yield from (_needless(path, key, f"for {kind}", report) for key in given if key not in wanted)
        if kind in {"split-lists", "all-scheduled"} and wanted[0] not in given:
            yield _missing(path, wanted[0], kind, report)
        listed = value_at(data, *path, "categories")
        for place, category in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(category, str) and categories and category not in categories:
                where = (*path, "categories", place)
                yield report(where, f'the unknown category "{category}"', f"one of {', '.join(categories)}")
        yield from _schedule(data, (*path, "schedule"), report)
        yield from _roles(data, (*path, "roles"), report)

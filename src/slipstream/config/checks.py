"""What no single key can know: names used twice, references to nothing, keys that would have no effect.

The checks read plain data, not sections, so that they report even when something else in the file is wrong. Values
of the wrong type are left to the sections.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from slipstream.config.calibration import calibration_from_file
from slipstream.config.document import Path, Report, value_at
from slipstream.config.endpoints import ApiKey
from slipstream.config.roles import check_minimums, check_watermarks
from slipstream.config.schema import DEFAULT_CATEGORIES, FleetConfig, Polling
from slipstream.config.section import Secret
from slipstream.config.values import (
    Address,
    check_authorities,
    check_certificate,
    clash,
    is_loopback,
    node_url,
    parse_address,
)
from slipstream.core.errors import ConfigProblem
from slipstream.core.node import DEFAULT_CEILING

__all__ = ["check", "check_hysteresis", "check_intervals", "check_targets"]


def check(data: object, report: Report) -> Iterator[ConfigProblem]:
    """Every problem between keys; ``report`` makes one from a path, what was found and what is allowed."""
    yield from _listeners(data, report)
    yield from _admin_token(data, report)
    yield from _certificates(data, report)
    yield from _keys(data, report)
    yield from _nodes(data, report)
    yield from _category_references(data, report)
    yield from check_hysteresis(data, report)
    yield from check_intervals(data, report, FleetConfig.model_construct().control)
    yield from _output_files(data, report)
    yield from _profile(data, (), report)
    yield from check_targets(data, ("routing", "targets"), report)
    yield from _policy(data, report)
    yield from _roles(data, report)


def _entries(data: object, key: str) -> list[object]:
    found = value_at(data, key)
    return found if isinstance(found, list) else []


def _listeners(data: object, report: Report) -> Iterator[ConfigProblem]:
    gateway, admin = (_address(data, section) for section in ("gateway", "admin"))
    if admin is None:
        return
    path = ("admin", "listen")
    if gateway is not None and clash(gateway, admin):
        yield report(path, f"port {admin.port}, where the gateway listens too", "an address of its own")
    if not is_loopback(admin.host) and value_at(data, "admin", "token") is None:
        allowed = "an address on loopback such as 127.0.0.1:8081, or an admin.token besides: others can reach this one"
        yield report(path, f'"{admin.host}"', allowed)


def _address(data: object, section: str) -> Address | None:
    """Where a section listens; ``None`` when the section itself refuses the value."""
    given = value_at(data, section, "listen")
    try:
        return parse_address(getattr(FleetConfig.model_construct(), section).listen if given is None else str(given))
    except ValueError:
        return None


def _admin_token(data: object, report: Report) -> Iterator[ConfigProblem]:
    if (token := value_at(data, "admin", "token")) is not None:
        yield from _secret(token, ("admin", "token"), report)


def _certificates(data: object, report: Report) -> Iterator[ConfigProblem]:
    for section in ("gateway", "admin"):
        certificate, key = (value_at(data, section, "tls", word) for word in ("certificate", "key"))
        if isinstance(certificate, str) and isinstance(key, str):
            try:
                check_certificate(certificate, key)
            except ValueError as error:
                yield report((section, "tls"), "no usable certificate", str(error))


def _authorities(node: object, path: Path, report: Report) -> Iterator[ConfigProblem]:
    file, url = value_at(node, "ca"), value_at(node, "url")
    if not isinstance(file, str):
        return
    if isinstance(url, str) and not url.startswith("https:"):
        yield report((*path, "ca"), "a key without effect", "to leave it out, or an url with https://")
    try:
        check_authorities(file)
    except ValueError as error:
        yield report((*path, "ca"), "no usable authorities", str(error))


def _profile(section: object, path: Path, report: Report) -> Iterator[ConfigProblem]:
    file = value_at(section, "profile")
    if isinstance(file, str):
        try:
            calibration_from_file(file)
        except ValueError as error:
            yield report((*path, "profile"), "no usable profile", str(error))


def _keys(data: object, report: Report) -> Iterator[ConfigProblem]:
    keys = value_at(data, "gateway", "keys")
    if keys == [] and isinstance(value_at(data, "gateway", "keys_file"), str):
        allowed = "at least one: without any, requests would need none (to leave keys_file out says that this is meant)"
        yield report(("gateway", "keys_file"), "no key, there or here", allowed)
    first: dict[str | bytes, int] = {}
    for index, data_of_key in enumerate(keys if isinstance(keys, list) else []):
        path: Path = ("gateway", "keys", index)
        try:
            key = ApiKey.model_validate(data_of_key)
        except ValidationError:
            continue  # the section says so itself
        if (seen := first.setdefault(key.id, index)) != index:
            yield report((*path, "id"), f'"{key.id}", as in gateway.keys[{seen}]', "an id of its own")
        try:
            digest = key.digest()
        except ValueError as error:
            yield report((*path, "file" if key.env is None else "env"), "no usable key", str(error))
            continue
        if (seen := first.setdefault(digest, index)) != index:
            yield report(path, f"the same key as in gateway.keys[{seen}]", "a key of its own")


def _nodes(data: object, report: Report) -> Iterator[ConfigProblem]:
    nodes = _entries(data, "nodes")
    if isinstance(data, dict) and not nodes and value_at(data, "discovery", "file") is None:
        if "nodes" not in data:
            yield report(("nodes",), "nothing, and the key is required", "the engine endpoints, at least one")
        elif data["nodes"] == []:
            yield report(("nodes",), "an empty list", "at least one entry")
    first: dict[tuple[str, str], int] = {}
    for index in range(len(nodes)):
        for key in ("name", "url", "agent"):
            value = _identity(key, value_at(nodes, index, key))
            seen = first.setdefault((key, value), index) if value is not None else index
            if seen != index:
                allowed = "an agent of its own" if key == "agent" else f"a {key} of its own"
                yield report(("nodes", index, key), f'"{value}", as in nodes[{seen}]', allowed)
        for key in ("ceiling", "speculator") if value_at(nodes, index, "agent") is None else ():
            if value_at(nodes, index, "pool") == "standard" and value_at(nodes, index, key) is not None:
                found = "a key without effect in the standard pool"
                yield report(("nodes", index, key), found, "to leave it out; max_in_flight limits any node")
        for key in ("api_key", "agent_token"):
            if (secret := value_at(nodes, index, key)) is not None:
                yield from _secret(secret, ("nodes", index, key), report)
        yield from _agent(nodes[index], ("nodes", index), report)
        yield from _authorities(nodes[index], ("nodes", index), report)
        yield from _profile(nodes[index], ("nodes", index), report)
        if value_at(nodes, index, "resolve") == "all" and str(value_at(nodes, index, "url")).startswith("https:"):
            allowed = "http://, or one entry for each name: certificates are for names, not for their addresses"
            yield report(("nodes", index, "url"), "https:// beside `resolve: all`", allowed)


def _agent(node: object, path: Path, report: Report) -> Iterator[ConfigProblem]:
    if value_at(node, "agent") is None:
        if value_at(node, "agent_token") is not None:
            yield report(
                (*path, "agent_token"), "a key without effect", "to leave it out, or the address of an `agent`"
            )
    elif value_at(node, "resolve") == "all":
        allowed = "one entry for each node that has an agent: each agent has an address of its own"
        yield report((*path, "agent"), "an agent beside `resolve: all`", allowed)


def _roles(data: object, report: Report) -> Iterator[ConfigProblem]:
    if value_at(data, "roles") is None:
        return
    yield from check_watermarks(data, ("roles",), report)
    nodes = _entries(data, "nodes")
    if value_at(data, "discovery", "file") is None and all(value_at(node, "agent") is None for node in nodes):
        yield report(("roles",), "roles that change, and no node with an agent", "an `agent` for some node")
    if value_at(data, "discovery", "file") is None and all(value_at(node, "resolve") is None for node in nodes):
        yield from check_minimums(data, ("roles",), len(nodes), report)


def _identity(key: str, value: object) -> str | None:
    """What two nodes may not share; ``None`` when the section itself refuses the value."""
    if not isinstance(value, str):
        return None
    try:
        return value if key == "name" else node_url(value)
    except ValueError:
        return None


def _secret(data: object, path: Path, report: Report) -> Iterator[ConfigProblem]:
    try:
        secret = Secret.model_validate(data)
    except ValidationError:
        return  # the section says so itself
    try:
        secret.reveal()
    except ValueError as error:
        yield report((*path, "file" if secret.env is None else "env"), "no usable key", str(error))


def _category_references(data: object, report: Report) -> Iterator[ConfigProblem]:
    own = value_at(data, "categories")
    known = {*DEFAULT_CATEGORIES, *(own if isinstance(own, dict) else ())}
    pins = value_at(data, "routing", "pins")
    rules = _entries(data, "category_rules")
    named: list[tuple[Path, object]] = [(("default_category",), value_at(data, "default_category"))]
    named += [(("routing", "pins", name), name) for name in (pins if isinstance(pins, dict) else ())]
    named += [(("category_rules", i, "category"), value_at(rules, i, "category")) for i in range(len(rules))]
    for path, name in named:
        if isinstance(name, str) and name not in known:
            yield report(path, f'the unknown category "{name}"', f"one of {', '.join(sorted(known))}")


def check_hysteresis(data: object, report: Report) -> Iterator[ConfigProblem]:
    """Ceilings, of the pool and of nodes, under which a node that was saturated would stay so for ever."""
    hysteresis = value_at(data, "pools", "speculative", "hysteresis")
    ceilings: list[tuple[Path, object]] = [
        (("pools", "speculative", "ceiling"), value_at(data, "pools", "speculative", "ceiling") or DEFAULT_CEILING)
    ]
    ceilings += [
        (("nodes", i, "ceiling"), value_at(data, "nodes", i, "ceiling")) for i in range(len(_entries(data, "nodes")))
    ]
    for path, ceiling in ceilings:
        if isinstance(ceiling, int) and isinstance(hysteresis, int) and 1 <= ceiling <= hysteresis:
            yield report(path, str(ceiling), f"more than the hysteresis, {hysteresis}")


def check_intervals(data: object, report: Report, default: Polling) -> Iterator[ConfigProblem]:
    """Reports that would always be stale; ``default`` holds for what the file leaves out."""
    interval = value_at(data, "control", "poll_interval_s")
    stale = value_at(data, "control", "stale_after_s")
    interval = default.poll_interval_s if interval is None else interval
    stale = default.stale_after_s if stale is None else stale
    if isinstance(interval, int | float) and isinstance(stale, int | float) and 0 < stale <= interval:
        found = f"{stale}, not more than the {interval} of poll_interval_s"
        yield report(("control", "stale_after_s"), found, "longer than the time between two polls")


def _output_files(data: object, report: Report) -> Iterator[ConfigProblem]:
    recording = value_at(data, "record", "file")
    if isinstance(recording, str) and recording == value_at(data, "log", "access"):
        yield report(("record", "file"), f'"{recording}", where the access log goes', "a file of its own")


def check_targets(data: object, path: Path, report: Report) -> Iterator[ConfigProblem]:
    """Classes that are given targets, and none of them; ``path`` is where the section stands."""
    given = value_at(data, *path)
    for name, target in given.items() if isinstance(given, dict) else ():
        if target in (None, {}):
            allowed = "at least one of ttft_ms, tpot_ms, e2e_ms, or to leave it out"
            yield report((*path, name), "no latency", allowed)


def _policy(data: object, report: Report) -> Iterator[ConfigProblem]:
    """A policy that would foretell, and nothing to foretell from."""
    if value_at(data, "routing", "policy") != "predictive":
        return
    sections = [data, *_entries(data, "nodes")]
    if all(value_at(section, "profile") is None for section in sections):
        allowed = (
            "threshold, or a `profile` of the fleet or of a node besides: the file that "
            "`slipstream calibrate --output` writes"
        )
        yield report(("routing", "policy"), "predictive, and no profile to foretell from", allowed)

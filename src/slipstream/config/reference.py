"""The JSON schema, and the reference page's tables made from it, so that neither can fall behind the sections."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from slipstream.config.schema import FleetConfig
from slipstream.config.section import Section

__all__ = ["Key", "json_schema", "keys", "tables"]


class Key(NamedTuple):
    """One key of the configuration. ``default`` is JSON text, ``required`` or ``left out``."""

    name: str
    kind: str
    default: str
    description: str


def json_schema(root: type[Section] = FleetConfig) -> dict[str, Any]:
    """JSON schema (2020-12) of a file whose whole is ``root``, with a description on every key."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **root.model_json_schema()}


def keys(root: type[Section] = FleetConfig) -> Iterator[Key]:
    """Every key in the order of the sections, dotted; ``<name>`` is a name that the user chooses, ``[]`` an entry."""
    schema = json_schema(root)
    yield from _keys(schema, schema["$defs"], "")


def _keys(section: dict[str, Any], definitions: dict[str, Any], prefix: str) -> Iterator[Key]:
    required = section.get("required", [])
    for name, field in section.get("properties", {}).items():
        resolved, suffix = _resolve(field, definitions)
        default = "required" if name in required else _default(field)
        yield Key(
            f"{prefix}{name}",
            _kind(resolved, suffix),
            default,
            field.get("description") or resolved.get("description", ""),
        )
        yield from _keys(resolved, definitions, f"{prefix}{name}{suffix}.")


def _resolve(field: dict[str, Any], definitions: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The definition behind a field, and how a path goes into it."""
    choices = [choice for choice in field.get("anyOf", [field]) if choice.get("type") != "null"]
    target = choices[0]
    if "$ref" in target:
        return definitions[target["$ref"].rsplit("/", 1)[1]], ""
    if "items" in target:
        return _resolve(target["items"], definitions)[0], "[]"
    inner = target.get("additionalProperties") or next(iter(target.get("patternProperties", {}).values()), None)
    if isinstance(inner, dict):
        return _resolve(inner, definitions)[0], ".<name>"
    return target, ""


def _kind(resolved: dict[str, Any], suffix: str) -> str:
    if "enum" in resolved:
        one = " or ".join(f"`{value}`" for value in resolved["enum"])
    else:
        types = resolved["type"] if isinstance(resolved["type"], list) else [resolved["type"]]
        one = " or ".join(_word(name, resolved) for name in types)
    return {"[]": f"list of: {one}", ".<name>": f"names, each with: {one}"}.get(suffix, one)


def _word(name: str, resolved: dict[str, Any]) -> str:
    words = {"object": "section", "string": "text", "integer": "whole number", "number": "number"}
    return words.get(name, "`true` or `false`") + (_limits(resolved) if name in {"integer", "number"} else "")


def _limits(resolved: dict[str, Any]) -> str:
    words = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most"}
    limits = [f"{word} {resolved[key]:.15g}" for key, word in words.items() if key in resolved]
    return f", {', '.join(limits)}" if limits else ""


def _default(field: dict[str, Any]) -> str:
    default = field.get("default")
    return "left out" if default is None else json.dumps(default)


def tables(root: type[Section] = FleetConfig) -> str:
    """The tables of a reference page (docs/reference/config.md), one a section, as Markdown."""
    sections: dict[str, list[Key]] = {}
    for key in keys(root):
        section, _, name = key.name.rpartition(".")
        sections.setdefault(section, []).append(key._replace(name=name))
    return "\n".join(_table(section, entries) for section, entries in sections.items())


def _table(section: str, entries: list[Key]) -> str:
    heading = f"## `{section}`" if section else "## Top level"
    rows = [f"| `{key.name}` | {key.kind} | {_cell(key.default)} | {key.description} |" for key in entries]
    return "\n".join([heading, "", "| Key | Value | Default | Meaning |", "|---|---|---|---|", *rows, ""])


def _cell(default: str) -> str:
    if default in {"required", "left out"}:
        return default
    return "its own keys' defaults" if default.startswith("{") and len(default) > 2 else f"`{default}`"


if __name__ == "__main__":
    from slipstream.config.scenario import ScenarioConfig  # a fleet that serves does without

    sys.stdout.write(tables(ScenarioConfig if sys.argv[1:] == ["scenario"] else FleetConfig))

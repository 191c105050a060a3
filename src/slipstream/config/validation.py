"""Data against a section: every problem in words, with what was found, what is allowed and what may be meant."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from slipstream.config.document import Path, Report
from slipstream.config.reference import keys
from slipstream.config.section import Section
from slipstream.core.errors import ConfigProblem

__all__ = ["validated"]

Root = TypeVar("Root", bound=Section)

_KINDS = {
    "string_type": "text, in quotes",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "keys with values",
    "model_type": "keys with values",
    "model_attributes_type": "keys with values",
}


def _nowhere(_path: Path) -> bool:
    return False


def validated(
    root: type[Root], data: object, report: Report, is_secret: Callable[[Path], bool] = _nowhere
) -> tuple[Root | None, list[ConfigProblem]]:
    """The data as a section, or ``None`` and its problems. What stands where ``is_secret`` is never shown."""
    if not isinstance(data, dict):
        return None, [report((), _shown(data, (), is_secret), "keys with values")]
    try:
        return root.model_validate(data), []
    except ValidationError as error:
        return None, [_problem(root, report, is_secret, one) for one in error.errors(include_url=False)]


def _problem(
    root: type[Section], report: Report, is_secret: Callable[[Path], bool], details: ErrorDetails
) -> ConfigProblem:
    path: Path = tuple(part for part in details["loc"] if part != "[key]")
    match details["type"]:
        case "missing":
            return report(path, "nothing, and the key is required", _description(root, path))
        case "extra_forbidden":
            known, near = _known_keys(root, path[:-1]), _near(root, path)
            if is_secret(path[:-1]) and not near:
                return report(path[:-1], "an unknown key that is not shown", known)
            meant = " or ".join(f'"{name}"' for name in near)
            found = f"an unknown key (did you mean {meant}?)" if near else "an unknown key"
            return report(path, found, known)
    return report(path, _shown(details["input"], path, is_secret), _allowed(details))


def _allowed(details: ErrorDetails) -> str:
    context = details.get("ctx", {})
    match details["type"]:
        case "literal_error" | "enum":
            return f"one of {context['expected'].replace(' or ', ', ')}".replace("'", "")
        case "greater_than_equal":
            return f"at least {context['ge']:.15g}"
        case "greater_than":
            return f"more than {context['gt']:.15g}"
        case "less_than_equal":
            return f"at most {context['le']:.15g}"
        case "string_pattern_mismatch":
            return f"a name that matches {context['pattern']}"
        case "value_error":
            return str(context["error"])
        case kind:
            return _KINDS.get(kind, details["msg"])


def _shown(value: object, path: Path, is_secret: Callable[[Path], bool]) -> str:
    """The value as it may be shown: short, and never a secret, not even one in the wrong place."""
    if is_secret(path) or (isinstance(value, str) and "@" in value and path[-1:] in {("url",), ("endpoint",)}):
        return "a value that is not shown"
    if isinstance(value, dict):
        return "keys with values"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _section_at(root: type[Section], path: Path) -> type[Section] | None:
    """The section whose keys stand at ``path``; ``None`` when the path leads to something else."""
    annotation: Any = root
    for part in path:
        section = _as_section(annotation)
        if section is None:
            entries = get_args(annotation)
            annotation = entries[0 if get_origin(annotation) is tuple else -1] if entries else None
        else:
            field = section.model_fields.get(str(part))
            annotation = None if field is None else field.annotation
    return _as_section(annotation)


def _as_section(annotation: Any) -> type[Section] | None:
    """``X`` and ``X | None`` as ``X`` when that is a section."""
    choices = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    return next((one for one in choices if isinstance(one, type) and issubclass(one, Section)), None)


def _description(root: type[Section], path: Path) -> str:
    section = _section_at(root, path[:-1])
    field = None if section is None else section.model_fields.get(str(path[-1]))
    if field is None or field.description is None:
        return "a value"
    text = field.description[0].lower() + field.description[1:].rstrip(".")
    kind = field.annotation
    return f"{text}, {' or '.join(kind)}" if isinstance(kind, type) and issubclass(kind, StrEnum) else text


def _known_keys(root: type[Section], path: Path) -> str:
    """The keys that the section at ``path`` has."""
    section = _section_at(root, path)
    return ", ".join(() if section is None else section.model_fields) or "no keys here"


def _near(root: type[Section], path: Path) -> list[str]:
    """The keys that may be meant by one that its section does not have; empty when there is none like it."""
    section = _section_at(root, path[:-1])
    known = () if section is None else tuple(section.model_fields)
    return difflib.get_close_matches(str(path[-1]), known, n=1) or _elsewhere(root, str(path[-1]))


def _elsewhere(root: type[Section], name: str) -> list[str]:
    """The keys of any section, dotted, that are nearest to ``name``: who has the wrong section has the right word."""
    places = _places(root)
    return [place for near in difflib.get_close_matches(name, places, n=1) for place in places[near]]


@cache
def _places(root: type[Section]) -> Mapping[str, list[str]]:
    """Where each key may stand, dotted, by its last word. Made once: a file may hold very many unknown keys."""
    places: dict[str, list[str]] = {}
    for key in keys(root):
        places.setdefault(key.name.rpartition(".")[2], []).append(key.name)
    return places

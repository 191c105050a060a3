"""From a file to a checked configuration: all problems at once, each with its place."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path as FilePath
from types import UnionType
from typing import Any, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from slipstream.config.checks import check
from slipstream.config.document import Path
from slipstream.config.files import read_text
from slipstream.config.reference import keys
from slipstream.config.schema import FleetConfig
from slipstream.config.section import Section
from slipstream.config.sources import Sources, files_of, read_sources
from slipstream.core.errors import ConfigError, ConfigProblem

__all__ = ["load", "parse"]

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


def load(path: str | FilePath) -> FleetConfig:
    """The configuration in a file. Raises ConfigError with every problem found."""
    file = FilePath(path)
    try:
        text = read_text(file)
    except FileNotFoundError as error:
        allowed = "a file that is there: name yours with -c, or begin with a copy of examples/fleet.yaml"
        raise ConfigError((ConfigProblem(str(path), None, "", "no such file", allowed),)) from error
    except OSError as error:
        found = error.strerror or str(error)
        raise ConfigError((ConfigProblem(str(path), None, "", found, "a file that can be read"),)) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError((ConfigProblem(str(path), line, "", "bytes that are not UTF-8", "UTF-8 text"),)) from error
    return parse(text, str(path), file.parent)


def parse(text: str, filename: str, directory: FilePath = FilePath()) -> FleetConfig:
    """The configuration in a text. ``filename`` is for messages; files named in it are relative to ``directory``.

    Raises ConfigError with every problem found. Secrets are looked up (and may be missing), never kept.
    """
    sources, problems = read_sources(text, filename, directory)
    data = sources.data
    if not isinstance(data, dict):
        raise ConfigError((*problems, sources.problem((), _shown(data, ()), "keys with values")))
    config = None
    try:
        config = FleetConfig.model_validate(data)
    except ValidationError as error:
        problems += [_problem(sources, details) for details in error.errors(include_url=False)]
    problems += check(data, sources.problem)
    if config is not None:
        problems += _written_over(config, filename, sources)
    if config is None or problems:
        raise ConfigError(_in_order(problems, filename))
    return config


def _written_over(config: FleetConfig, filename: str, sources: Sources) -> Iterator[ConfigProblem]:
    """Lines that would be appended to a file which the configuration is read from."""
    read = {file.absolute() for file in files_of(filename, config)}
    recording = None if config.record is None else config.record.file
    for path, name in (("log", "access"), config.log.access), (("record", "file"), recording):
        if name is not None and FilePath(name) in read:
            yield sources.problem(path, f'"{name}", which the configuration is read from', "a file of its own")


def _in_order(problems: Iterable[ConfigProblem], filename: str) -> tuple[ConfigProblem, ...]:
    """By file, the first one first, and line; each place once per complaint."""
    return tuple(sorted(dict.fromkeys(problems), key=lambda one: (one.file != filename, one.line or 0)))


def _problem(sources: Sources, details: ErrorDetails) -> ConfigProblem:
    path: Path = tuple(part for part in details["loc"] if part != "[key]")
    match details["type"]:
        case "missing":
            return sources.problem(path, "nothing, and the key is required", _description(path))
        case "extra_forbidden":
            known, near = _known_keys(path[:-1]), _near(path)
            if _is_secret(path[:-1]) and not near:
                return sources.problem(path[:-1], "an unknown key that is not shown", known)
            meant = " or ".join(f'"{name}"' for name in near)
            found = f"an unknown key (did you mean {meant}?)" if near else "an unknown key"
            return sources.problem(path, found, known)
    return sources.problem(path, _shown(details["input"], path), _allowed(details))


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


def _shown(value: object, path: Path) -> str:
    """The value as it may be shown: short, and never a secret, not even one in the wrong place."""
    if _is_secret(path) or (isinstance(value, str) and "@" in value and path[-1:] in {("url",), ("endpoint",)}):
        return "a value that is not shown"
    if isinstance(value, dict):
        return "keys with values"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _is_secret(path: Path) -> bool:
    """Whether a key may stand there, by mistake or not."""
    match path:
        case ("gateway", "keys") | ("gateway", "keys", _) | ("gateway", "keys", _, "hash" | "env" | "file"):
            return True
        case ("admin", "token", *_) | ("nodes", _, "api_key", *_):
            return True
    return False


def _section_at(path: Path) -> type[Section] | None:
    """The section whose keys stand at ``path``; ``None`` when the path leads to something else."""
    annotation: Any = FleetConfig
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


def _description(path: Path) -> str:
    section = _section_at(path[:-1])
    field = None if section is None else section.model_fields.get(str(path[-1]))
    if field is None or field.description is None:
        return "a value"
    text = field.description[0].lower() + field.description[1:].rstrip(".")
    kind = field.annotation
    return f"{text}, {' or '.join(kind)}" if isinstance(kind, type) and issubclass(kind, StrEnum) else text


def _known_keys(path: Path) -> str:
    """The keys that the section at ``path`` has."""
    section = _section_at(path)
    return ", ".join(() if section is None else section.model_fields) or "no keys here"


def _near(path: Path) -> list[str]:
    """The keys that may be meant by one that its section does not have; empty when there is none like it."""
    section = _section_at(path[:-1])
    known = () if section is None else tuple(section.model_fields)
    return difflib.get_close_matches(str(path[-1]), known, n=1) or _elsewhere(str(path[-1]))


def _elsewhere(name: str) -> list[str]:
    """The keys of any section, dotted, that are nearest to ``name``: who has the wrong section has the right word."""
    places = _places()
    return [place for near in difflib.get_close_matches(name, places, n=1) for place in places[near]]


@cache
def _places() -> Mapping[str, list[str]]:
    """Where each key may stand, dotted, by its last word. Made once: a file may hold very many unknown keys."""
    places: dict[str, list[str]] = {}
    for key in keys():
        places.setdefault(key.name.rpartition(".")[2], []).append(key.name)
    return places

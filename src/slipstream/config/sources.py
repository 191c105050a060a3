"""The texts that a configuration consists of: its file, and the files with more nodes and keys that it may name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

from slipstream.config.document import Document, Path, read_document
from slipstream.config.files import read_text
from slipstream.config.schema import FleetConfig
from slipstream.core.errors import ConfigError, ConfigProblem

__all__ = ["Sources", "files_named", "files_of", "read_sources"]


@dataclass(frozen=True, slots=True)
class Part:
    """A list of which a second file holds more: ``at`` is where it stands, ``own`` how many entries the first file has.

    In its own ``document`` the list stands under the last word of ``at``.
    """

    at: tuple[str, ...]
    own: int
    document: Document


@dataclass(frozen=True, slots=True)
class Sources:
    """``data`` is the configuration as one: entries of a part stand behind the first file's own."""

    main: Document
    data: Any
    parts: tuple[Part, ...] = ()

    def problem(self, path: Path, found: str, allowed: str) -> ConfigProblem:
        """A problem with the value at ``path``, placed in the file that it stands in."""
        for part in self.parts:
            depth = len(part.at)
            match path[depth:]:
                case (int(index), *rest) if path[:depth] == part.at and index >= part.own:
                    return part.document.problem((part.at[-1], index - part.own, *rest), found, allowed)
        return self.main.problem(path, found, allowed)


def read_sources(text: str, filename: str, directory: FilePath) -> tuple[Sources, list[ConfigProblem]]:
    """A configuration's text and what it names, and what is wrong with them as texts.

    ``filename`` is for messages; files named in a text are relative to where it lies, the first one in ``directory``.
    Raises ConfigError when a text can not be read at all.
    """
    document, problems = read_document(text, filename)
    data = _resolve_files(document.data, directory)
    parts = []
    match data:
        case {"discovery": {"file": str(file)}, **others}:
            own = others.get("nodes") or []
            if isinstance(own, list):
                part, entries = _read_part(document, ("discovery", "file"), file, ("nodes",), len(own), problems)
                data = data | {"nodes": [*own, *entries]}
                parts.append(part)
    match data:
        case {"gateway": {"keys_file": str(file), **others} as gateway}:
            own = others.get("keys") or []
            if isinstance(own, list):
                at = ("gateway", "keys")
                part, entries = _read_part(document, ("gateway", "keys_file"), file, at, len(own), problems)
                data = data | {"gateway": gateway | {"keys": [*own, *entries]}}
                parts.append(part)
    return Sources(document, data, tuple(parts)), problems


def _read_part(
    document: Document, named_at: Path, file: str, at: tuple[str, ...], own: int, problems: list[ConfigProblem]
) -> tuple[Part, list[Any]]:
    """A second file and its entries; ``problems`` gets what else stands in it. Raises ConfigError, with all
    ``problems`` so far, when it can not be read.
    """
    word, path = at[-1], FilePath(file)
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else "bytes that are not UTF-8"
        problem = document.problem(named_at, f"{file}: {reason}", f"a file with `{word}` that can be read")
        raise ConfigError((*problems, problem)) from error
    try:
        more, own_problems = read_document(text, file)
    except ConfigError as error:
        raise ConfigError((*problems, *error.problems)) from error
    data = _resolve_files(more.data, path.parent)
    if not isinstance(data, dict):
        raise ConfigError((*problems, more.problem((), "no keys with values", f"`{word}`")))
    problems += own_problems
    strays = [more.problem((key,), "a key that does not belong here", word) for key in data if key != word]
    # Beside keys of clients it may be one.
    problems += [replace(stray, key="") for stray in strays] if word == "keys" else strays
    entries = data.get(word)
    if entries is None:
        entries = []
    elif not isinstance(entries, list):
        problems.append(more.problem((word,), "no list", "a list"))
        entries = []
    return Part(at, own, more), entries


def files_of(path: str | FilePath, config: FleetConfig) -> tuple[FilePath, ...]:
    """Every file that the configuration at ``path`` was read from: when none has changed, neither has it."""
    gateway, token = config.gateway, config.admin.token
    named = [config.discovery.file, gateway.keys_file, *(key.file for key in gateway.keys)]
    named += [node.api_key.file for node in config.nodes if node.api_key is not None]
    named += [node.agent_token.file for node in config.nodes if node.agent_token is not None]
    named += [node.ca for node in config.nodes]
    named += [config.profile, *(node.profile for node in config.nodes)]
    named.append(None if token is None else token.file)
    named += [file for tls in (gateway.tls, config.admin.tls) if tls is not None for file in (tls.certificate, tls.key)]
    return tuple(dict.fromkeys([FilePath(path), *(FilePath(file) for file in named if file is not None)]))


def files_named(path: str | FilePath) -> tuple[FilePath, ...]:
    """Every file that the configuration at ``path`` would be read from, whatever is wrong with it: what is missing is
    among them too.
    """
    file = FilePath(path)
    data = _data_of(file)
    parts = [name for at in _PARTS for name in _names(data, at)]
    named = [name for one in (data, *map(_data_of, parts)) for at in _READ for name in _names(one, at)]
    return tuple(dict.fromkeys([file, *named]))


def _data_of(file: FilePath) -> Any:
    """What a file says, with the file names in it made absolute; ``None`` when it can not be read."""
    try:
        document, _ = read_document(read_text(file), str(file))
    except (OSError, UnicodeDecodeError, ConfigError):
        return None
    return _resolve_files(document.data, file.parent)


def _names(data: Any, path: Path) -> Iterator[FilePath]:
    """The file names at ``path``."""
    if path and path[0] == "*":
        for entry in data if isinstance(data, list) else ():
            yield from _names(entry, path[1:])
    elif path:
        yield from _names(data.get(path[0]) if isinstance(data, dict) else None, path[1:])
    elif isinstance(data, str) and data and "\0" not in data:
        yield FilePath(data)


STANDARD_OUTPUT = "-"
"""Where lines are written, this stands for no file."""

_PARTS: tuple[Path, ...] = (("discovery", "file"), ("gateway", "keys_file"))
"""Where the names of files stand that hold a part of the configuration."""

_READ: tuple[Path, ...] = (
    *_PARTS,
    ("nodes", "*", "api_key", "file"),
    ("nodes", "*", "agent_token", "file"),
    ("nodes", "*", "ca"),
    ("nodes", "*", "profile"),
    ("profile",),
    ("gateway", "keys", "*", "file"),
    ("gateway", "tls", "certificate"),
    ("gateway", "tls", "key"),
    ("admin", "token", "file"),
    ("admin", "tls", "certificate"),
    ("admin", "tls", "key"),
    ("keys", "*", "file"),
)
"""Where names of files to read stand, in the first file and in others; ``*`` is any entry of a list."""

_WRITTEN: tuple[Path, ...] = (("log", "access"), ("record", "file"))
"""Where names of files to write stand."""


def _resolve_files(data: Any, directory: FilePath) -> Any:
    """The data with file names made absolute, so that a configuration means the same wherever it is used."""
    for path in (*_READ, *_WRITTEN):
        data = _resolve(data, path, directory)
    return data


def _resolve(data: Any, path: Path, directory: FilePath) -> Any:
    """The data with the file names at ``path`` made absolute."""
    if not path:
        names_a_file = isinstance(data, str) and data not in {"", STANDARD_OUTPUT}
        return str((directory / data).absolute()) if names_a_file else data
    word, rest = path[0], path[1:]
    if word == "*":
        return [_resolve(entry, rest, directory) for entry in data] if isinstance(data, list) else data
    if isinstance(data, dict) and word in data:
        return data | {word: _resolve(data[word], rest, directory)}
    return data

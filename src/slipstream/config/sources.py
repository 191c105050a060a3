"""The texts that a configuration consists of: its file, and the file with more nodes that it may name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from slipstream.config.document import Document, Path, read_document
from slipstream.config.files import read_text
from slipstream.config.schema import FleetConfig
from slipstream.core.errors import ConfigError, ConfigProblem

__all__ = ["Sources", "files_of", "read_sources"]


@dataclass(frozen=True, slots=True)
class Sources:
    """``data`` is the configuration as one: the nodes of ``more``, the second file, stand behind the first's
    ``own_nodes``.
    """

    main: Document
    data: Any
    more: Document | None = None
    own_nodes: int = 0

    def problem(self, path: Path, found: str, allowed: str) -> ConfigProblem:
        """A problem with the value at ``path``, placed in the file that it stands in."""
        match path:
            case ("nodes", int(index), *rest) if self.more is not None and index >= self.own_nodes:
                return self.more.problem(("nodes", index - self.own_nodes, *rest), found, allowed)
        return self.main.problem(path, found, allowed)


def read_sources(text: str, filename: str, directory: FilePath) -> tuple[Sources, list[ConfigProblem]]:
    """A configuration's text and what it names, and what is wrong with them as texts.

    ``filename`` is for messages; files named in a text are relative to where it lies, the first one in ``directory``.
    Raises ConfigError when a text can not be read at all.
    """
    document, problems = read_document(text, filename)
    data = _resolve_files(document.data, directory)
    match data:
        case {"discovery": {"file": str(file)}}:
            try:
                more, entries, more_problems = _read_nodes(document, FilePath(file))
            except ConfigError as error:
                raise ConfigError((*problems, *error.problems)) from error
            own = data.get("nodes") or []
            if isinstance(own, list):
                sources = Sources(document, data | {"nodes": [*own, *entries]}, more, len(own))
                return sources, [*problems, *more_problems]
    return Sources(document, data), problems


def _read_nodes(document: Document, file: FilePath) -> tuple[Document, list[Any], list[ConfigProblem]]:
    """The second file, its nodes, and what else stands in it. Raises ConfigError when it can not be read."""
    try:
        text = read_text(file)
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else "bytes that are not UTF-8"
        problem = document.problem(("discovery", "file"), f"{file}: {reason}", "a file with `nodes` that can be read")
        raise ConfigError((problem,)) from error
    more, problems = read_document(text, str(file))
    data = _resolve_files(more.data, file.parent)
    if not isinstance(data, dict):
        raise ConfigError((more.problem((), "no keys with values", "`nodes`"),))
    problems += [more.problem((key,), "a key that does not belong here", "nodes") for key in data if key != "nodes"]
    entries = data.get("nodes")
    if entries is None:
        entries = []
    elif not isinstance(entries, list):
        problems.append(more.problem(("nodes",), "no list", "a list"))
        entries = []
    return more, entries, problems


def files_of(path: str | FilePath, config: FleetConfig) -> tuple[FilePath, ...]:
    """Every file that the configuration at ``path`` was read from: when none has changed, neither has it."""
    named = [config.discovery.file, *(node.api_key.file for node in config.nodes if node.api_key is not None)]
    return tuple(dict.fromkeys([FilePath(path), *(FilePath(file) for file in named if file is not None)]))


def _resolve_files(data: Any, directory: FilePath) -> Any:
    """The data with file names made absolute, so that a configuration means the same wherever it is used."""
    match data:
        case {"discovery": {"file": str(file)} as discovery}:
            data = data | {"discovery": discovery | {"file": _absolute(file, directory)}}
    match data:
        case {"nodes": list(nodes)}:
            data = data | {"nodes": [_resolve_key(node, directory) for node in nodes]}
    return data


def _resolve_key(node: Any, directory: FilePath) -> Any:
    match node:
        case {"api_key": {"file": str(file)} as key}:
            return node | {"api_key": key | {"file": _absolute(file, directory)}}
    return node


def _absolute(file: str, directory: FilePath) -> str:
    return str((directory / file).absolute())

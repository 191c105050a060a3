"""A YAML text as plain data, with the line of every key. Loads plain data only: no tag can build an object."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

from slipstream.core.errors import ConfigError, ConfigProblem

__all__ = ["Document", "Path", "Report", "dotted", "read_document", "value_at"]

Path = tuple[str | int, ...]
"""Where a value stands: ``("nodes", 1, "pool")``."""

Report = Callable[[Path, str, str], ConfigProblem]
"""Makes a problem of a path, what was found there and what is allowed."""

_MERGE = "tag:yaml.org,2002:merge"
_TEXT = "tag:yaml.org,2002:str"
MAX_VISITS = 200_000
"""More keys and values than any fleet needs. Aliases and merges count each time that they are followed, so a file that
multiplies itself is refused before it fills the memory or takes for ever."""

MAX_NUMBER_LENGTH = 1_000
"""Longest scalar, in characters, that is read as anything but text: reading a number takes time quadratic in it."""

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Document:
    """``data`` is the file as dicts, lists and scalars. ``lines`` gives the line, from 1, of a key or list entry."""

    file: str
    data: object
    lines: dict[Path, int]

    def line_of(self, path: Path) -> int | None:
        """The line of the value at ``path``, or of the nearest thing around it that the file has."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)

    def problem(self, path: Path, found: str, allowed: str) -> ConfigProblem:
        """A problem with the value at ``path``."""
        return ConfigProblem(self.file, self.line_of(path), dotted(path), found, allowed)


def dotted(path: Path) -> str:
    """``("nodes", 1, "pool")`` as ``nodes[1].pool``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def value_at(data: object, *path: str | int) -> object:
    """The value at a path; ``None`` when something on the way is missing or no container."""
    for part in path:
        match data:
            case dict():
                data = data.get(part)
            case list() if isinstance(part, int):
                data = data[part]
            case _:
                return None
    return data


def read_document(text: str, file: str) -> tuple[Document, list[ConfigProblem]]:
    """The document and what is wrong with it as YAML (keys given twice, keys that are no text).

    Raises ConfigError when it can not be read at all.
    """
    try:
        loader = _Loader(text)
        root = _root(loader)
        if root is None:
            return Document(file, {}, {(): 1}), []
        reading = _Reading(loader, file)
        data = reading.value(root, ())
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError((_unreadable(file, error),)) from error
    return Document(file, data, reading.lines), reading.problems


class _Loader(yaml.SafeLoader):
    """Stops at too many nodes while it reads, since a long file takes half a minute to be read to its end."""

    nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.nodes += 1
        if self.nodes > MAX_VISITS:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # not in the stubs
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_VISITS} keys and values", problem_mark=mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


def _root(loader: yaml.SafeLoader) -> yaml.Node | None:
    try:
        root: yaml.Node | None = loader.get_single_node()
    except (ValueError, OverflowError) as error:  # an escape beyond Unicode, a version number without end
        raise yaml.MarkedYAMLError(problem="a number out of range", problem_mark=loader.get_mark()) from error
    return root


def _unreadable(file: str, error: yaml.YAMLError | RecursionError) -> ConfigProblem:
    line = None
    reason = "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = None if mark is None else mark.line + 1
        reason = error.problem or reason
    return ConfigProblem(file, line, "", f"text that can not be read ({reason})", "valid YAML")


@dataclass(slots=True)
class _Reading:
    """One walk over the node tree. PyYAML's own constructor keeps the last of two equal keys and forgets the lines."""

    loader: yaml.SafeLoader
    file: str
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[ConfigProblem] = field(default_factory=list)
    visits: int = 0

    def visit(self, node: yaml.Node) -> None:
        self.visits += 1
        if self.visits > MAX_VISITS:
            problem = f"more than {MAX_VISITS} keys and values, aliases followed"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)

    def value(self, node: yaml.Node, path: Path) -> object:
        self.visit(node)
        self.lines[path] = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            return [self.value(entry, (*path, index)) for index, entry in enumerate(node.value)]
        if isinstance(node, yaml.CollectionNode):
            raise yaml.MarkedYAMLError(problem=f"the tag {node.tag!r}", problem_mark=node.start_mark)
        return self.scalar(node, path)

    def scalar(self, node: yaml.Node, path: Path) -> object:
        """A scalar's value. Raises ConfigError with its place when it is not what its tag or its form says."""
        if node.tag != _TEXT and len(node.value) > MAX_NUMBER_LENGTH:
            raise self.unusable(node, path, f"more than {MAX_NUMBER_LENGTH} characters that are no text")
        try:
            found: object = self.loader.construct_object(node)
        except (ValueError, TypeError, OverflowError, LookupError, AttributeError) as error:
            # PyYAML trusts that a scalar fits its tag: each kind that does not fails in its own way.
            raise self.unusable(node, path, f"no {node.tag.rpartition(':')[2]}") from error
        except yaml.MarkedYAMLError as error:
            raise self.unusable(node, path, error.problem or str(error)) from error
        if isinstance(found, int) and found.bit_length() >= 64:
            raise self.unusable(node, path, "a number too large")
        if isinstance(found, str) and _SURROGATE.search(found):
            raise self.unusable(node, path, "half a surrogate pair, which is no character")
        return found

    def unusable(self, node: yaml.Node, path: Path, reason: str) -> ConfigError:
        found = f"text that can not be read ({reason})"
        return ConfigError((ConfigProblem(self.file, node.start_mark.line + 1, dotted(path), found, "valid YAML"),))

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, object]:
        data: dict[str, object] = {}
        own: dict[str, int] = {}
        for key_node, value_node in node.value:
            self.visit(key_node)
            if key_node.tag == _MERGE:
                for source in reversed(self.merge_sources(value_node)):
                    data |= self.mapping(source, path)
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                continue
            line = key_node.start_mark.line + 1
            key = None if isinstance(key_node, yaml.CollectionNode) else self.scalar(key_node, path)
            if not isinstance(key, str):
                found = f"the key {key!r}" if key is not None else "a key that is no text"
                self.problems.append(ConfigProblem(self.file, line, dotted(path), found, "text, in quotes"))
                continue
            here = (*path, key)
            if key in own:
                found = f"the key twice, first on line {own[key]}"
                self.problems.append(ConfigProblem(self.file, line, dotted(here), found, "each key once"))
                continue
            data[key] = self.value(value_node, here)
            own[key] = self.lines[here] = line
        return data

    def merge_sources(self, node: yaml.Node) -> list[yaml.MappingNode]:
        """The mappings that a ``<<`` merges in; the first of several wins."""
        self.visit(node)
        if isinstance(node, yaml.MappingNode):
            return [node]
        if isinstance(node, yaml.SequenceNode):
            return [source for entry in node.value for source in self.merge_sources(entry)]
        raise yaml.MarkedYAMLError(problem="a merge (<<) of something that is no mapping", problem_mark=node.start_mark)

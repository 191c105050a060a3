"""A YAML text as plain data, with the line of every key. Loads plain data only: no tag can build an object."""

from __future__ import annotations

from dataclasses import dataclass, field

import yaml

from slipstream.core.errors import ConfigError, ConfigProblem

__all__ = ["Document", "Path", "dotted", "read_document"]

Path = tuple[str | int, ...]
"""Where a value stands: ``("nodes", 1, "pool")``."""

_MERGE = "tag:yaml.org,2002:merge"
MAX_VALUES = 200_000
"""More values than any fleet needs; a file whose aliases multiply past it is refused before it fills the memory."""


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


def read_document(text: str, file: str) -> tuple[Document, list[ConfigProblem]]:
    """The document and what is wrong with it as YAML (keys given twice, keys that are no text).

    Raises ConfigError when it can not be read at all.
    """
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            return Document(file, {}, {(): 1}), []
        reading = _Reading(loader, file)
        data = reading.value(root, ())
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError((_unreadable(file, error),)) from error
    return Document(file, data, reading.lines), reading.problems


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

    def value(self, node: yaml.Node, path: Path) -> object:
        self.lines[path] = node.start_mark.line + 1
        if len(self.lines) > MAX_VALUES:
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_VALUES} values", problem_mark=node.start_mark)
        if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            return [self.value(entry, (*path, index)) for index, entry in enumerate(node.value)]
        if isinstance(node, yaml.CollectionNode):
            raise yaml.MarkedYAMLError(problem=f"the tag {node.tag}", problem_mark=node.start_mark)
        return self.scalar(node)

    def scalar(self, node: yaml.Node) -> object:
        try:
            return self.loader.construct_object(node)
        except ValueError as error:  # a date that does not exist
            raise yaml.MarkedYAMLError(problem=str(error), problem_mark=node.start_mark) from error

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, object]:
        data: dict[str, object] = {}
        own: dict[str, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                for source in reversed(_merge_sources(value_node)):
                    data |= self.mapping(source, path)
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                continue
            line = key_node.start_mark.line + 1
            key = None if isinstance(key_node, yaml.CollectionNode) else self.scalar(key_node)
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


def _merge_sources(node: yaml.Node) -> list[yaml.MappingNode]:
    """The mappings that a ``<<`` merges in; the first of several wins."""
    if isinstance(node, yaml.MappingNode):
        return [node]
    if isinstance(node, yaml.SequenceNode):
        return [source for entry in node.value for source in _merge_sources(entry)]
    raise yaml.MarkedYAMLError(problem="a merge (<<) of something that is no mapping", problem_mark=node.start_mark)

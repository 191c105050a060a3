"""The commands and their options as Markdown, made from the command line itself, so that the page can not fall behind.

Not the text of ``--help``: that is drawn for a terminal and depends on its width.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from typer.main import get_command

from slipstream.cli import application

__all__ = ["Command", "Parameter", "commands", "sections"]

_KINDS = {
    "int": "whole number",
    "float": "number",
    "str": "text",
    "Path": "path",
    "list": "text, may be repeated",
    "bool": "",
}


class Parameter(NamedTuple):
    """One option or argument. ``names`` are all its spellings; ``kind`` is empty for an option that takes no value."""

    names: tuple[str, ...]
    kind: str
    default: str
    meaning: str


class Command(NamedTuple):
    """One command with all words that call it. ``usage`` is the whole line, ``meaning`` its help."""

    name: str
    usage: str
    meaning: str
    parameters: tuple[Parameter, ...]


def commands() -> Iterator[Command]:
    """Every command that does something, in the order of ``slipstream --help``; first the bare ``slipstream``."""
    yield from _commands("slipstream", get_command(application()))


def _commands(name: str, command: Any) -> Iterator[Command]:
    inner = getattr(command, "commands", {})
    parameters = tuple(_parameter(parameter) for parameter in command.params)
    if parameters or not inner:
        words = [name, *(_shown(parameter) for parameter in parameters), *(["COMMAND"] if inner else [])]
        yield Command(name, " ".join(words), command.help or "", parameters)
    for word, one in inner.items():
        yield from _commands(f"{name} {word}", one)


def _parameter(parameter: Any) -> Parameter:
    if parameter.param_type_name == "argument":
        names = (parameter.name.upper(),)
    else:
        names = (*parameter.opts, *parameter.secondary_opts)
    return Parameter(names, _kind(parameter), _default(parameter), parameter.help or "")


def _kind(parameter: Any) -> str:
    annotation = parameter.type_descriptor.annotation
    if issubclass(annotation, StrEnum):
        return " or ".join(f"`{one}`" for one in annotation)
    kind = _KINDS[annotation.__name__]
    limits = [f"at {word} {limit}" for word, limit in (("least", parameter.min), ("most", parameter.max)) if limit]
    return ", ".join([kind, *limits])


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):
        return f"`{parameter.show_default}`"
    if parameter.default is None or parameter.default is False:
        return "left out"
    return f"`{parameter.default}`"


def _shown(parameter: Parameter) -> str:
    name = parameter.names[0]
    if not name.startswith("-"):
        return name if parameter.default == "required" else f"[{name}]"
    return f"[{name}]" if not parameter.kind else f"[{name} {name.lstrip('-').upper()}]"


def sections() -> str:
    """The sections of docs/reference/cli.md, one a command, as Markdown."""
    return "\n".join(_section(command) for command in commands())


def _section(command: Command) -> str:
    lines = [f"## `{command.name}`", "", "```text", command.usage, "```", "", command.meaning, ""]
    if command.parameters:
        rows = (
            f"| {', '.join(f'`{name}`' for name in parameter.names)} | {parameter.kind or '–'} "
            f"| {parameter.default} | {parameter.meaning} |"
            for parameter in command.parameters
        )
        lines += ["| Option | Value | Default | Meaning |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(sections())

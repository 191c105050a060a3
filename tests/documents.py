"""The project's documents as data: pages, links, and what they tell a reader to type."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PAGES", "ROOT", "Command", "SavedFile", "Script", "anchors", "fences", "links", "mentions", "steps"]

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """A line for the shell. ``output`` is what the page says it prints, ``…`` standing for anything; ``None`` = nothing
    is said, and it must succeed.
    """

    line: str
    output: str | None = None


@dataclass(frozen=True)
class SavedFile:
    """A file that the reader saves: a fence with a name beside its language."""

    name: str
    text: str


@dataclass(frozen=True)
class Script:
    """A Python program."""

    text: str


def fences(page: Path) -> list[tuple[str, str | None, str]]:
    """Language, name and text of each fence."""
    return [(language, name or None, text) for language, name, text in _FENCE.findall(page.read_text())]


def steps(page: Path) -> list[Command | SavedFile | Script]:
    """What a reader who follows the page does, in order."""
    found: list[Command | SavedFile | Script] = []
    for language, name, text in fences(page):
        if name is not None:
            found.append(SavedFile(name, text))
        elif language in ("sh", "bash"):
            found += [Command(line) for line in _commands(text)]
        elif language == "console":
            found += _session(text)
        elif language == "python":
            found.append(Script(text))
    return found


def _commands(text: str) -> list[str]:
    """The commands of a script: a line each, or more where a quote or a backslash goes on."""
    commands: list[str] = []
    pending = ""
    for line in text.splitlines():
        pending += line
        if pending.endswith("\\") or not _closed(pending):
            pending += "\n"
        elif pending:
            commands.append(pending)
            pending = ""
    assert not pending, f"a command does not end: {pending}"
    return commands


def _closed(command: str) -> bool:
    try:
        shlex.split(command)
    except ValueError:
        return False
    return True


def _session(text: str) -> list[Command]:
    """A terminal's lines: ``$`` before each command, its output below."""
    parts = re.split(r"^\$ (.+)\n", text, flags=re.MULTILINE)
    assert parts[0] == "", f"a console begins with output: {parts[0]}"
    return [Command(line, output) for line, output in zip(parts[1::2], parts[2::2], strict=True)]


def links(page: Path) -> list[str]:
    """The targets of the page's links."""
    return _LINK.findall(_FENCE.sub("", page.read_text()))


def anchors(page: Path) -> set[str]:
    """The names by which GitHub links to the page's headings."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def mentions(page: Path) -> list[list[str]]:
    """Every ``slipstream …`` in commands and in code within sentences, as words after the first."""
    text = page.read_text()
    lines = [step.line for step in steps(page) if isinstance(step, Command)]
    lines += re.findall(r"`(slipstream(?: [^`]*)?)`", _FENCE.sub("", text))
    words = (shlex.split(line) for line in lines)
    return [found[1:] for found in words if found[:1] == ["slipstream"]]

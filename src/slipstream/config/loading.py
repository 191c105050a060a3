"""From a file to a checked configuration: all problems at once, each with its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path as FilePath

from slipstream.config.checks import check
from slipstream.config.document import Path
from slipstream.config.files import readable_text
from slipstream.config.schema import FleetConfig
from slipstream.config.sources import Sources, files_of, read_sources
from slipstream.config.validation import validated
from slipstream.core.errors import ConfigError, ConfigProblem

__all__ = ["load", "parse"]


def load(path: str | FilePath) -> FleetConfig:
    """The configuration in a file. Raises ConfigError with every problem found."""
    file = FilePath(path)
    text = readable_text(path, "name yours with -c, or begin with a copy of examples/fleet.yaml")
    return parse(text, str(path), file.parent)


def parse(text: str, filename: str, directory: FilePath = FilePath()) -> FleetConfig:
    """The configuration in a text. ``filename`` is for messages; files named in it are relative to ``directory``.

    Raises ConfigError with every problem found. Secrets are looked up (and may be missing), never kept.
    """
    sources, problems = read_sources(text, filename, directory)
    config, found = validated(FleetConfig, sources.data, sources.problem, _is_secret)
    problems += found
    problems += check(sources.data, sources.problem)
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


def _is_secret(path: Path) -> bool:
    """Whether a key may stand there, by mistake or not."""
    match path:
        case ("gateway", "keys") | ("gateway", "keys", _) | ("gateway", "keys", _, "hash" | "env" | "file"):
            return True
        case ("admin", "token", *_) | ("nodes", _, "api_key" | "agent_token", *_):
            return True
    return False

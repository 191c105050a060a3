"""From a scenario's file to its checked sections: all problems at once, each with its place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import NamedTuple

from slipstream.config.document import Document, Report, read_document
from slipstream.config.files import readable_text
from slipstream.config.scenario import ScenarioConfig
from slipstream.config.scenario_changes import changed
from slipstream.config.scenario_checks import check_scenario
from slipstream.config.validation import validated
from slipstream.core.errors import ConfigError, ConfigProblem

__all__ = ["LoadedScenario", "load_scenario", "parse_scenario"]


class LoadedScenario(NamedTuple):
    """A checked scenario. ``report`` makes a problem that is found later, with its line in the file."""

    config: ScenarioConfig
    report: Report


def load_scenario(path: str | FilePath, changes: Mapping[str, float] | None = None) -> LoadedScenario:
    """The scenario in a file, with ``changes`` by the names of `scenario_changes`.

    Raises ConfigError with every problem found.
    """
    text = readable_text(path, "begin with a copy of examples/fleet-16.yaml")
    return parse_scenario(text, str(path), changes)


def parse_scenario(text: str, filename: str, changes: Mapping[str, float] | None = None) -> LoadedScenario:
    """The scenario in a text. ``filename`` is for messages. Raises ConfigError with every problem found."""
    document, problems = read_document(text, filename)
    config = _checked(document, problems)
    if not changes:
        return LoadedScenario(config, document.problem)
    data, failed = changed(document.data, changes)
    if failed:
        raise ConfigError(
            tuple(
                ConfigProblem(filename, None, name, "a change that can not be made", allowed)
                for name, allowed in failed
            )
        )
    # What is wrong now stands in no line of the file.
    without_lines = Document(filename, data, {})
    return LoadedScenario(_checked(without_lines, []), without_lines.problem)


def _checked(document: Document, problems: list[ConfigProblem]) -> ScenarioConfig:
    config, found = validated(ScenarioConfig, document.data, document.problem)
    problems = [*problems, *found, *check_scenario(document.data, document.problem)]
    if config is None or problems:
        raise ConfigError(tuple(sorted(dict.fromkeys(problems), key=lambda one: one.line or 0)))
    return config

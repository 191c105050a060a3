"""The page of commands can not fall behind the commands."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slipstream.cli import application, reference
from slipstream.cli.reference import commands, sections

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_the_page_holds_the_sections_of_the_command_line() -> None:
    assert sections() in PAGE.read_text(), "write the output of `python -m slipstream.cli.reference` into the page"


def test_every_option_of_help_has_a_row_with_its_meaning() -> None:
    found = {command.name: command for command in commands()}
    assert {"slipstream", "slipstream serve", "slipstream config check"} <= found.keys()
    for name, command in found.items():
        runner = CliRunner(env={"COLUMNS": "300", "NO_COLOR": "1"})
        words = name.split()[1:]
        shown = runner.invoke(application(words[0] if words else None), [*words, "--help"]).output
        assert command.meaning.splitlines()[0] in shown
        rows = re.findall(r"^│ [* ]*(--[\w-]+)(?: +(--[\w-]+))?", shown, re.MULTILINE)
        options = {name for names in rows for name in names if name} - {"--help"}
        assert {one for parameter in command.parameters for one in parameter.names if one.startswith("--")} == options
        assert [parameter for parameter in command.parameters if not parameter.meaning] == []


def test_limits_and_defaults_are_told() -> None:
    rows = {(command.name, parameter.names[0]): parameter for command in commands() for parameter in command.parameters}
    slots = rows["slipstream up", "--slots"]
    assert (slots.kind, slots.default) == ("whole number, at least 1, at most 256", "`8`")
    assert rows["slipstream explain", "REQUEST_ID"].default == "required"
    assert rows["slipstream config check", "FILE"].default == "`fleet.yaml`"
    assert rows["slipstream status", "--watch"].names == ("--watch", "-w")
    assert rows["slipstream status", "--watch"].kind == ""


def test_the_sections_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(reference.__file__), run_name="__main__")
    assert capsys.readouterr().out == sections()

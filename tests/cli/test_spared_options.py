"""Options that are not converted are what a command expects all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer.main import get_command
from typer.testing import CliRunner

from slipstream.cli import application
from slipstream.cli.spared_options import SparedCommand

told = typer.Typer(add_completion=False)


@told.command(cls=SparedCommand)
def tell(
    name: Annotated[str, typer.Option()],
    count: Annotated[int, typer.Option(min=1)] = 3,
    word: Annotated[list[str] | None, typer.Option()] = None,
) -> None:
    typer.echo(repr((name, count, word)))


def said(*words: str) -> str:
    return CliRunner(env={"NO_COLOR": "1", "COLUMNS": "80"}).invoke(told, words).output


def test_text_is_taken_as_it_is_and_the_rest_is_converted() -> None:
    assert said("--name", "7") == "('7', 3, None)\n"
    assert said("--name", "", "--count", "4", "--word", "a", "--word", "1") == "('', 4, ['a', '1'])\n"


def test_what_is_missing_or_of_another_kind_is_named() -> None:
    assert "Missing option '--name'" in said()
    assert "Invalid value for '--count'" in said("--name", "x", "--count", "0")
    assert "Invalid value for '--count'" in said("--name", "x", "--count", "many")


def options(command: Any) -> Iterator[Any]:
    yield from (parameter for parameter in command.params if parameter.param_type_name == "option")
    for below in getattr(command, "commands", {}).values():
        yield from options(below)


def test_every_default_is_of_its_options_type_since_none_is_converted() -> None:
    found = list(options(get_command(application())))
    assert len(found) > 100
    for option in found:
        assert option.default is None or isinstance(option.default, option.type_descriptor.annotation), option.name

"""Commands whose options are converted only where there is something to convert.

Typer converts each value by pydantic, text to text and defaults to themselves, too. Importing that takes longer than
all that a command like `status` does.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup, TyperOption

__all__ = ["SparedCommand", "SparedGroup"]


class _SparedOption(TyperOption):
    """An option that takes text as it is, and needs nothing where it was not given."""

    def process_value(self, ctx: Any, value: Any) -> Any:
        given = ctx.get_parameter_source(self.name).name != "DEFAULT"
        if self.required or (given and self.type_descriptor.annotation not in (str, list[str])):
            return super().process_value(ctx, value)
        return value if self.callback is None else self.callback(ctx, self, value)


def _spared(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if type(parameter) is TyperOption:  # typer makes them, and can not be told which class to make
            parameter.__class__ = _SparedOption
    return parameters


class SparedCommand(TyperCommand):
    """A command with such options."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _spared(super().get_params(ctx))


class SparedGroup(TyperGroup):
    """A group of commands with such options; each command below it has its own class."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _spared(super().get_params(ctx))

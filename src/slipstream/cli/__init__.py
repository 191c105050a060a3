"""The command ``slipstream``: parse, call, print. One file a command, and only the file that is needed is imported."""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module

import typer

from slipstream import __version__
from slipstream.cli.spared_options import SparedCommand, SparedGroup

__all__ = ["application", "main"]

COMMANDS = (
    "demo",
    "up",
    "node",
    "serve",
    "status",
    "explain",
    "override",
    "roles",
    "config",
    "keys",
    "emulate",
    "crossover",
    "simulate",
    "bench",
    "calibrate",
)
"""In the order of the help: a module of this package, that holds a function of that name or (config) a group."""


def application(only: str | None = None) -> typer.Typer:
    """The command line, with all commands or with ``only`` one: `status` need not load what `demo` needs."""
    app = typer.Typer(
        name="slipstream",
        cls=SparedGroup,
        help="Decides where and when speculative decoding pays in a fleet of LLM inference engines, and acts on it.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        callback=_options,
    )
    for name in COMMANDS if only is None else (only,):
        module = import_module(f"slipstream.cli.{name}")
        group = getattr(module, f"{name}_app", None)
        if group is None:
            app.command(name, cls=SparedCommand)(getattr(module, name))
        else:
            app.add_typer(group, name=name, cls=SparedGroup)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        print(f"slipstream {__version__}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", callback=_version, is_eager=True
    ),
) -> None:
    pass


def main() -> None:
    """Run the command line. What the system refuses (a full disk, say) is one sentence and exit status 1."""
    first = sys.argv[1] if len(sys.argv) > 1 else None
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a dash still gets its table
    try:
        try:
            application(first if first in COMMANDS else None)()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        print(f"slipstream has stopped: {error}", file=sys.stderr)
        with open(os.devnull, "wb") as nowhere:  # what is still buffered would fail once more at exit
            os.dup2(nowhere.fileno(), 1)
        sys.exit(1)

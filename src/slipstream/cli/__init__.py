"""The command ``slipstream``: parse, call, print. One file a command."""

from __future__ import annotations

import typer

from slipstream import __version__
from slipstream.cli.config import config_app
from slipstream.cli.demo import demo
from slipstream.cli.explain import explain
from slipstream.cli.serve import serve
from slipstream.cli.status import status
from slipstream.cli.up import up

__all__ = ["app", "main"]

app = typer.Typer(
    name="slipstream",
    help="Decides where and when speculative decoding pays in a fleet of LLM inference engines, and acts on it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(up)
app.command()(serve)
app.command()(status)
app.command()(explain)
app.add_typer(config_app, name="config")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"slipstream {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", callback=_version, is_eager=True
    ),
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    app()

"""``slipstream keys``: make API keys, and the hashes by which a configuration knows them."""

from __future__ import annotations

import getpass
import json
import re
import secrets
import sys
from typing import Annotated

import typer

from slipstream.core.keys import digest_of

__all__ = ["keys_app"]

keys_app = typer.Typer(help="Make an API key, or the hash of one for the configuration.", no_args_is_help=True)

PREFIX = "sk-slipstream-"
RANDOM_BYTES = 32
GUESSABLE_BELOW = 32
"""Characters. A shorter key may be a word, and what is a word is found by trying words: SHA-256 is quick."""

MOST_BYTES = 4096
"""More than any key; what is longer is no key, and may never end."""

AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]


@keys_app.command()
def new(as_json: AsJson = False) -> None:
    """Make a key of 256 random bits. The key is for its holder and shown this once; the hash is for `gateway.keys`."""
    key = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    made = {"key": key, "hash": _hash_of(key)}
    print(json.dumps(made, indent=2) if as_json else "\n".join(f"{name}: {value}" for name, value in made.items()))


@keys_app.command("hash")
def hash_key(as_json: AsJson = False) -> None:
    """Print the hash of a key that is read from standard input, so that it stands in no command line and no history."""
    key = _given()
    if not re.fullmatch(r"[!-~]+", key):
        typer.echo("a key is printable ASCII characters without spaces, on one line of standard input", err=True)
        raise typer.Exit(1)
    if len(key) < GUESSABLE_BELOW:
        sentence = f"warning: a key of {len(key)} characters may be guessed from its hash"
        typer.echo(f"{sentence}; `slipstream keys new` makes one that can not", err=True)
    print(json.dumps({"hash": _hash_of(key)}) if as_json else _hash_of(key))


def _given() -> str:
    """The line that was typed, or that stands first on standard input: bytes that are no text are no key either."""
    if sys.stdin is None:
        return ""
    if sys.stdin.isatty():
        return getpass.getpass("key: ").rstrip("\r\n")
    line = sys.stdin.buffer.readline(MOST_BYTES + 1).rstrip(b"\r\n")
    return line.decode("ascii", "replace") if len(line) <= MOST_BYTES else ""


def _hash_of(key: str) -> str:
    return f"sha256:{digest_of(key.encode()).hex()}"

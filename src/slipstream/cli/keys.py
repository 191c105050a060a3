"""``slipstream keys``: make API keys, and the hashes by which a configuration knows them."""

from __future__ import annotations

import getpass
import json
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
    key = getpass.getpass("key: ") if sys.stdin.isatty() else sys.stdin.readline()
    key = key.rstrip("\r\n")
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        typer.echo("a key is printable ASCII characters without spaces, on one line of standard input", err=True)
        raise typer.Exit(1)
    if len(key) < GUESSABLE_BELOW:
        sentence = f"warning: a key of {len(key)} characters may be guessed from its hash"
        typer.echo(f"{sentence}; `slipstream keys new` makes one that can not", err=True)
    print(json.dumps({"hash": _hash_of(key)}) if as_json else _hash_of(key))


def _hash_of(key: str) -> str:
    return f"sha256:{digest_of(key.encode()).hex()}"

"""Keys are made and hashed without leaving traces."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess

import pytest
import yaml
from typer.testing import CliRunner

from live_service import COMMAND_ENVIRONMENT, command
from slipstream.cli import application

KEY = "sk-of-the-users-own-and-long-enough-not-to-be-guessed"


def run(*arguments: str, given: str = "", status: int = 0) -> tuple[str, str]:
    done = CliRunner().invoke(application("keys"), ["keys", *arguments], input=given, catch_exceptions=False)
    assert done.exit_code == status, done.stderr
    return done.stdout, done.stderr


def hash_of(key: str) -> str:
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def test_a_new_key_is_random_and_comes_with_its_hash() -> None:
    made = [yaml.safe_load(run("new")[0]), json.loads(run("new", "--json")[0])]
    for one in made:
        assert re.fullmatch(r"sk-slipstream-[\w-]{43}", one["key"])
        assert one["hash"] == hash_of(one["key"])
    assert made[0]["key"] != made[1]["key"]


@pytest.mark.parametrize("given", [KEY, f"{KEY}\n", f"{KEY}\r\n"])
def test_the_hash_of_a_key_is_printed_and_the_key_is_not(given: str) -> None:
    assert run("hash", given=given) == (f"{hash_of(KEY)}\n", "")
    assert json.loads(run("hash", "--json", given=given)[0]) == {"hash": hash_of(KEY)}


@pytest.mark.parametrize("given", ["", "\n", "two words\n", "schl\u00fcssel\n", "a\tb\n"])
def test_what_is_no_key_is_refused_and_not_repeated(given: str) -> None:
    printed, said = run("hash", given=given, status=1)
    assert printed == ""
    assert said == "a key is printable ASCII characters without spaces, on one line of standard input\n"


@pytest.mark.parametrize("given", ["< /dev/zero", "< /dev/urandom", "<&-", "< /dev/null"])
def test_what_is_no_text_never_ends_or_is_not_there_is_refused(given: str) -> None:
    line = f"{shlex.join(command('keys', 'hash'))} {given}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, env=COMMAND_ENVIRONMENT, check=False, timeout=60)
    said = b"a key is printable ASCII characters without spaces, on one line of standard input\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", said)


def test_a_key_that_can_be_guessed_gets_its_hash_and_a_warning() -> None:
    printed, said = run("hash", given="token-abc123")
    assert printed == f"{hash_of('token-abc123')}\n"
    assert "a key of 12 characters may be guessed" in said

"""Whatever answers in place of the admin API, and wherever the output goes: one sentence and exit status 1."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

COMMANDS = (["status"], ["explain", "x"])
Run = Callable[..., tuple[int, str, str]]


def answer(body: str, head: str = "") -> bytes:
    return f"HTTP/1.1 200 OK\r\n{head}Content-Length: {len(body.encode())}\r\n\r\n{body}".encode()


@contextmanager
def server(response: bytes) -> Iterator[str]:
    """Sends the same bytes to everyone and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(response)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The whole command line in this process: what it exits with and says."""
    from slipstream.cli import main

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["slipstream", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return command


def started(arguments: list[str | bytes], stdout: int, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", "from slipstream.cli import main; main()", *arguments]
    return subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, env={**os.environ, **environment}, check=False, timeout=60
    )


NODE: dict[str, Any] = dict.fromkeys(
    ("ceiling", "limit", "occupancy", "capacity_left", "alpha", "k", "tau", "tokens_per_step", "drafted", "accepted")
) | {"name": "näme", "pool": "standard", "state": "ready", "saturated_share": None, "error": None}


def fleet(**fields: object) -> str:
    return json.dumps({"blind": False, "nodes": [NODE | fields], "categories": []})


@pytest.mark.parametrize(
    "response",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
        b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
        b'HTTP/1.1 404 No\r\nContent-Length: 15\r\n\r\n{"error": null}',
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 150 + b"\r\n{}",
        b"HTTP/1.1 200 OK\r\n\r\n\xff\xfe",
        answer("{}"),
        answer('{"attempts": null, "nodes": null, "blind": null, "categories": null}'),
        answer('{"attempts": [1], "nodes": [1], "blind": 0, "categories": [1]}'),
        answer('{"attempts": [{}], "nodes": [{}], "blind": 0, "categories": []}'),
        answer('{"attempts": [{"attempt": null}], "nodes": 5, "blind": 0, "categories": []}'),
        answer('{"a": ' + "[" * 50_000 + "]" * 50_000 + "}"),
        answer('{"a": ' + "1" * 5000 + "}"),
    ],
)
def test_an_answer_that_is_not_ours_is_one_sentence(run: Run, response: bytes) -> None:
    with server(response) as url:
        for command in COMMANDS:
            code, output, errors = run(*command, "--url", url)
            assert (code, output, len(errors.splitlines())) == (1, "", 1)
            assert url in errors


@pytest.mark.parametrize("option", ["--json", "--watch"])
def test_another_objects_json_is_not_handed_on(run: Run, option: str) -> None:
    with server(answer('{"status": "ok"}')) as url:
        assert run("status", option, "--url", url)[:2] == (1, "")
        assert run("explain", "x", "--json", "--url", url)[:2] == (1, "")


@pytest.mark.parametrize(
    "fields", [{"name": 5}, {"k": 1e400}, {"alpha": "x"}, {"state": "[/]"}, {"pool": 3}, {"pool": []}]
)
def test_a_field_of_a_wrong_type_is_not_ours(run: Run, fields: dict[str, object]) -> None:
    with server(answer(fleet(**fields))) as url:
        code, output, errors = run("status", "--url", url)
    assert (code, output) == (1, "")
    assert errors == f"{url} answers, but not as an admin API of slipstream: is it the right port?\n"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:abc",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:80 ",
        "http://127.0.0.1:80\n",
        "http://a b:80",
        "http://",
        "http://[::1",
        "http://a..b",
        "http://" + "a" * 64,
        "http://ä",
        "http://user@127.0.0.1",
        "ftp://127.0.0.1",
        "\udcff",
    ],
)
def test_an_address_that_can_not_be_asked_is_one_sentence(run: Run, url: str) -> None:
    for command in COMMANDS:
        code, output, errors = run(*command, "--url", url)
        assert (code, output, len(errors.splitlines())) == (1, "", 1)
        assert "is no address of an admin API; it looks like http://127.0.0.1:8081" in errors


def test_the_answer_can_be_shown_where_only_ascii_can_be_written() -> None:
    with server(answer(fleet())) as url:
        done = started(["status", "--url", url], subprocess.PIPE, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"n?me" in done.stdout


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_output_that_can_not_be_written_is_one_sentence(option: list[str | bytes]) -> None:
    with server(answer(fleet())) as url, open("/dev/full", "wb") as full:
        done = started(["status", "--url", url, *option], full.fileno())
    assert (done.returncode, done.stderr) == (1, b"slipstream has stopped: [Errno 28] No space left on device\n")


def test_an_id_that_is_not_utf_8_is_asked_for_and_the_answer_is_one_line() -> None:
    refusal = answer(json.dumps({"error": {"message": "no\nsuch"}})).replace(b"200 OK", b"404 No")
    with server(refusal) as url:
        done = started(["explain", b"\xff", "--url", url], subprocess.PIPE)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"no such\n")

"""How commands find the admin API's token, and to whom they show it."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

TOKEN = "token-of-the-admin-api"
Run = Callable[..., str]
UNAUTHORIZED = b'HTTP/1.1 401 No\r\nContent-Length: 39\r\n\r\n{"error":{"message":"needs its token"}}'


@contextmanager
def listening(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """An address, and the requests that came there."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    heard.append(connection.recv(65536))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", heard
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The whole command line in this process; what it complains of."""
    from slipstream.cli import main

    monkeypatch.delenv("SLIPSTREAM_ADMIN_TOKEN", raising=False)

    def command(*arguments: str, variable: str | None = None) -> str:
        monkeypatch.setattr(sys, "argv", ["slipstream", *arguments])
        if variable is not None:
            monkeypatch.setenv("SLIPSTREAM_ADMIN_TOKEN", variable)
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 1
        return capsys.readouterr().err

    return command


@pytest.mark.parametrize("words", [["status"], ["explain", "x"]])
def test_the_token_of_a_file_or_the_environment_is_sent_and_never_said(
    run: Run, tmp_path: Path, words: list[str]
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    with listening(UNAUTHORIZED) as (url, heard):
        said = run(*words, "--url", url)
        said += run(*words, "--url", url, "--token-file", str(file))
        said += run(*words, "--url", url, variable="another-token")
        said += run(*words, "--url", url, "--token-file", str(file), variable="another-token")
    sent = [request.lower().partition(b"authorization: bearer ")[2].partition(b"\r")[0].decode() for request in heard]
    assert sent == ["", TOKEN, "another-token", TOKEN]
    assert said == "needs its token (here: --token-file, or the variable SLIPSTREAM_ADMIN_TOKEN)\n" * 4


def test_no_proxy_of_the_environment_gets_the_question_or_the_token(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(UNAUTHORIZED) as (url, heard), listening(UNAUTHORIZED) as (proxy, overheard):
        monkeypatch.setenv("http_proxy", proxy)
        assert "needs its token" in run("status", "--url", url, variable=TOKEN)
        assert (len(heard), overheard) == (1, [])


def test_the_token_is_not_for_where_an_answer_redirects_to(run: Run) -> None:
    with listening(UNAUTHORIZED) as (elsewhere, heard):
        redirect = f"HTTP/1.1 302 Found\r\nLocation: {elsewhere}/fleet\r\nContent-Length: 0\r\n\r\n".encode()
        with listening(redirect) as (url, first):
            run("status", "--url", url, variable=TOKEN)
    assert TOKEN.encode() in first[0]
    assert heard
    assert TOKEN.encode() not in heard[0]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "--token-file needs a file that can be read ("),
        ("\n", "--token-file needs the file "),
        ("two words", "with one key of printable ASCII characters, without spaces"),
    ],
)
def test_a_token_file_that_can_not_be_used_is_one_sentence(
    run: Run, tmp_path: Path, content: str | None, sentence: str
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    said = run("status", "--token-file", str(file))
    assert sentence in said
    assert said.count("\n") == 1


def test_a_variable_that_is_no_token_is_one_sentence(run: Run) -> None:
    said = run("status", variable="t\u00f6ken with spaces")
    assert said == "SLIPSTREAM_ADMIN_TOKEN must be printable ASCII characters, without spaces\n"

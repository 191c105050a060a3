"""How commands ask a running gateway's admin API, and read what may turn out to be another server's answer."""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Any, NoReturn
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import typer
from rich.errors import ConsoleError

from slipstream.core.errors import SlipstreamError

__all__ = [
    "DEFAULT_URL",
    "AdminUnreachable",
    "AsJson",
    "TokenFile",
    "Url",
    "fetch",
    "interrupted",
    "reading",
    "sentences",
]

DEFAULT_URL = "http://127.0.0.1:8081"
TOKEN_VARIABLE = "SLIPSTREAM_ADMIN_TOKEN"

TokenFile = Annotated[
    Path | None,
    typer.Option(
        help=f"File with the admin API's token; left out = the environment variable {TOKEN_VARIABLE}, if set."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
Url = Annotated[str, typer.Option(help="Address of the admin API.")]
TIMEOUT_S = 5.0
MAX_BYTES = 64 * 1024 * 1024
"""More than any admin API answers; another server's answer may never end."""

_DIRECT = build_opener(ProxyHandler({}))
"""A proxy of the environment is for the web: it would read the token, and where it stands 127.0.0.1 is another."""


class AdminUnreachable(SlipstreamError):
    """The admin API did not answer, or not as one. ``silent``: nothing answered at all, as while it starts again."""

    def __init__(self, sentence: str, *, silent: bool = False) -> None:
        super().__init__(sentence)
        self.silent = silent


def fetch(
    url: str,
    path: str,
    token_file: Path | None = None,
    *,
    method: str = "GET",
    body: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The JSON object at ``path``. Raises ``AdminUnreachable`` with one sentence for a person.

    ``body`` is sent as JSON; ``None`` = no body.
    """
    if not _is_address(url):
        raise AdminUnreachable(f"{url!r} is no address of an admin API; it looks like {DEFAULT_URL}")
    token = _token(token_file)
    with reading(url):
        request = Request(url.rstrip("/") + path, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("content-type", "application/json")
        if token:
            request.add_unredirected_header("authorization", f"Bearer {token}")  # not for wherever that may lead
        try:
            with _DIRECT.open(request, timeout=TIMEOUT_S) as response:
                answer = json.loads(response.read(MAX_BYTES))
        except HTTPError as error:
            raise AdminUnreachable(_sentence_of(error)) from error
        except OSError as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise AdminUnreachable(
                    f"the certificate that {url} shows is not trusted here ({reason.verify_message}): the variable "
                    "SSL_CERT_FILE can name the file of the authority that signed it"
                ) from error
            raise AdminUnreachable(
                f"no admin API answers at {url} ({reason}): is `slipstream serve` or `slipstream up` running?",
                silent=True,
            ) from error
        if not isinstance(answer, dict):
            raise TypeError("no object")
    return answer


def _token(file: Path | None) -> str:
    """The token to send; empty = none."""
    if file is None:
        token = os.environ.get(TOKEN_VARIABLE, "")
        if not re.fullmatch(r"[!-~]*", token):
            raise AdminUnreachable(f"{TOKEN_VARIABLE} must be printable ASCII characters, without spaces")
        return token
    from slipstream.config.values import secret_from_file  # half a second to load, for those who need it

    try:
        return secret_from_file(str(file))
    except ValueError as error:
        raise AdminUnreachable(f"--token-file needs {error}") from None


@contextmanager
def reading(url: str) -> Iterator[None]:
    """The one place where an answer from ``url`` is taken for ours: what does not fit raises ``AdminUnreachable``.

    Nothing but reading and showing the answer belongs inside, since a wrong type can fail in any of these ways.
    """
    try:
        yield
    except (
        HTTPException,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        RecursionError,
        ConsoleError,
    ) as error:
        raise AdminUnreachable(
            f"{url} answers, but not as an admin API of slipstream: is it the right port?"
        ) from error


@contextmanager
def sentences() -> Iterator[None]:
    """Of a command that changes something: what can not be done is a sentence and exit status 1."""
    try:
        yield
    except AdminUnreachable as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        interrupted()


def interrupted() -> NoReturn:
    """End as a command that Ctrl-C has ended."""
    raise typer.Exit(130) from None


def _is_address(url: str) -> bool:
    """Whether ``url`` can be asked at all: scheme, host and perhaps a port, in printable ASCII."""
    if not re.fullmatch(r"https?://[!-~]+", url):
        return False
    try:
        parts = urlsplit(url)
        return parts.port != 0 and "@" not in parts.netloc and bool((parts.hostname or "").encode("idna"))
    except ValueError:  # a port that is no number, or a name that can not be looked up
        return False


def _sentence_of(error: HTTPError) -> str:
    try:
        sentence = " ".join(str(json.loads(error.read(MAX_BYTES))["error"]["message"]).split())
    except (OSError, HTTPException, LookupError, TypeError, ValueError, RecursionError):
        return f"{error.url} answers with status {error.code}: is it the admin API's port?"
    return f"{sentence} (here: --token-file, or the variable {TOKEN_VARIABLE})" if error.code == 401 else sentence

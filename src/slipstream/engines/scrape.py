"""Fetching an engine's pages: the only input and output of this package."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

from slipstream.core.errors import EngineGarbage, EngineUnreachable
from slipstream.engines.connection import Answer, Connection

__all__ = ["Scraper"]

OK = 200
NOT_READY = 503
"""What an engine says to everything while it loads its model, and a proxy while it has no engine."""


class Scraper:
    """Gets the pages of one node over one connection that is kept open; one fetch at a time.

    ``url`` is scheme (``http`` or ``https``), host and port; ``api_key`` goes along as a bearer token. ``tls`` makes
    the context of an ``https`` connection, by default one that trusts whom the system trusts. Raises ``ValueError``
    for another scheme, no host or an impossible port; a host that can not be looked up is unreachable.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url} is not the address of a node: it must be http:// or https://, host and port")
        self._url = url.rstrip("/")
        self._host = parts.hostname
        self._tls = tls if parts.scheme == "https" else None
        self._port = parts.port or (80 if self._tls is None else 443)
        self._prefix = parts.path.rstrip("/")
        authorization = "" if api_key is None else f"authorization: Bearer {api_key}\r\n"
        self._headers = f"host: {parts.netloc.rpartition('@')[2]}\r\naccept: */*\r\n{authorization}\r\n"
        self._connection: Connection | None = None

    async def fetch(self, path: str, timeout_s: float) -> bytes:
        """The body at ``path``, whole, within ``timeout_s`` seconds.

        Raises `EngineUnreachable` when there is no connection or no whole answer in time, or the status is 503, and
        `EngineGarbage` for another status than 200, an answer that is not HTTP, or one over 4 MiB.
        """
        request = f"GET {self._prefix}{path} HTTP/1.1\r\n{self._headers}".encode()
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._get(request)
        except TimeoutError:
            raise EngineUnreachable(f"{self._url}{path} did not answer within {timeout_s:g} s") from None
        except OSError as error:
            raise EngineUnreachable(f"{self._url}{path} can not be reached: {error}") from None
        except EngineGarbage as error:
            raise EngineGarbage(f"{self._url}{path} gave {error}") from None
        if answer.status == NOT_READY:
            raise EngineUnreachable(f"{self._url}{path} answered with status 503: not ready")
        if answer.status != OK:
            raise EngineGarbage(f"{self._url}{path} answered with status {answer.status}")
        return answer.body

    def close(self) -> None:
        """Close the connection; a later fetch opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _get(self, request: bytes) -> Answer:
        kept = self._connection
        if kept is not None and not kept.closed:
            try:
                return await kept.get(request)
            except ConnectionError:
                # The engine may close a kept connection whenever it likes; only a new one tells whether it is there.
                if kept.answered:
                    raise
        self._connection = await self._open()
        return await self._connection.get(request)

    async def _open(self) -> Connection:
        loop = asyncio.get_running_loop()
        tls = None if self._tls is None else self._tls()
        try:
            _, connection = await loop.create_connection(Connection, self._host, self._port, ssl=tls)
        except ValueError as error:
            # A host that no name service could be asked for: an empty label, a zero byte, not encodable.
            raise ConnectionError(f"{self._host!r} is not the name of a host: {error}") from None
        return connection

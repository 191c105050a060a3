"""Fetching an engine's pages: the only input and output of this package."""

from __future__ import annotations

import asyncio

import aiohttp

from slipstream.core.errors import EngineGarbage, EngineUnreachable

__all__ = ["MAX_PAGE_BYTES", "Scraper", "scraping_session"]

MAX_PAGE_BYTES = 4 * 1024 * 1024


def scraping_session() -> aiohttp.ClientSession:
    """A session fit for many nodes: one connection a node is kept, pages arrive in few pieces, no proxy, no cookies.

    Whoever opens it closes it. A running event loop is needed.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, limit_per_host=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=256 * 1024,
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        headers={"accept-encoding": "identity"},
    )


class Scraper:
    """Gets the pages of one node. ``url`` is scheme, host and port; ``api_key`` goes along as a bearer token."""

    def __init__(self, session: aiohttp.ClientSession, url: str, api_key: str | None = None) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}

    async def fetch(self, path: str, timeout_s: float) -> bytes:
        """The body at ``path``, whole, within ``timeout_s`` seconds.

        Raises `EngineUnreachable` when there is no connection or no whole answer in time, and `EngineGarbage` for a
        status other than 200 or a body over 4 MiB.
        """
        url = self._url + path
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.get(url, headers=self._headers, allow_redirects=False) as response,
            ):
                if response.status != 200:
                    raise EngineGarbage(f"{url} answered with status {response.status}")
                return await _body(response, url)
        except TimeoutError:
            raise EngineUnreachable(f"{url} did not answer within {timeout_s:g} s") from None
        except aiohttp.ClientConnectionError as error:
            raise EngineUnreachable(f"{url} can not be reached: {error}") from None
        except aiohttp.ClientPayloadError as error:
            raise EngineUnreachable(f"{url} broke off its answer: {error}") from None
        except (aiohttp.ClientError, ValueError) as error:
            raise EngineGarbage(f"{url} does not speak HTTP: {error}") from None


async def _body(response: aiohttp.ClientResponse, url: str) -> bytes:
    """The body, or `EngineGarbage` as soon as it is too large: no more of it than that is ever held."""
    if (response.content_length or 0) > MAX_PAGE_BYTES:
        raise EngineGarbage(f"{url} answered with more than {MAX_PAGE_BYTES} bytes")
    if response.content_length is not None:
        return await response.read()
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > MAX_PAGE_BYTES:
            raise EngineGarbage(f"{url} answered with more than {MAX_PAGE_BYTES} bytes")
        pieces.append(piece)
    return b"".join(pieces)

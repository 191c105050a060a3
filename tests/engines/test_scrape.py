"""Fetching over real sockets: each trouble becomes one of two errors, with a sentence."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress

import pytest

from recorded_engine import llamacpp_pages, recorded_engine
from slipstream.core.errors import EngineGarbage, EngineUnreachable
from slipstream.engines.connection import MAX_PAGE_BYTES, Connection
from slipstream.engines.scrape import Scraper

Scrapers = Callable[..., Scraper]
PAGE = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\na 1\n"


@asynccontextmanager
async def scripted_server(*scripts: list[bytes]) -> AsyncIterator[tuple[str, list[int]]]:
    """A server whose n-th connection gives the answers of the n-th script, then closes; and how many each was asked."""
    left = list(scripts)
    requests: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine = len(requests)
        requests.append(0)
        for answer in left[mine]:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await reader.readuntil(b"\r\n\r\n")
                requests[mine] += 1
                writer.write(answer)
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", requests


@pytest.fixture
def scrapers() -> Iterator[Scrapers]:
    """Makes scrapers that are closed when the test ends."""
    made: list[Scraper] = []

    def scraper(url: str, api_key: str | None = None) -> Scraper:
        made.append(Scraper(url, api_key))
        return made[-1]

    yield scraper
    for each in made:
        each.close()


async def test_a_page_arrives_whole_again_and_again(scrapers: Scrapers) -> None:
    async with recorded_engine(llamacpp_pages()) as engine:
        scraper = scrapers(engine.url + "/")
        for path, page in engine.pages.items():
            assert await scraper.fetch(path, 5.0) == page
        assert engine.paths() == list(engine.pages)


async def test_one_connection_is_kept_for_all_pages(scrapers: Scrapers) -> None:
    async with recorded_engine(llamacpp_pages()) as engine:
        scraper = scrapers(engine.url)
        for path in engine.pages:
            await scraper.fetch(path, 5.0)
        assert engine.connections == 1


async def test_the_nodes_own_key_goes_along_as_a_bearer_token(scrapers: Scrapers) -> None:
    async with recorded_engine({"/metrics": b"a 1\n"}) as engine:
        await scrapers(engine.url, "secret").fetch("/metrics", 5.0)
        await scrapers(engine.url).fetch("/metrics", 5.0)
        assert engine.asked == [("/metrics", "Bearer secret"), ("/metrics", None)]


async def test_a_connection_the_engine_closed_is_opened_anew(scrapers: Scrapers) -> None:
    async with recorded_engine({"/metrics": b"a 1\n"}) as engine:
        scraper = scrapers(engine.url)
        await scraper.fetch("/metrics", 5.0)
        await engine.stop()
        await engine.start()
        assert await scraper.fetch("/metrics", 5.0) == b"a 1\n"


async def test_a_page_without_a_length_arrives_whole(scrapers: Scrapers) -> None:
    async with recorded_engine({}) as engine:
        engine.raw["/metrics"] = (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\na \r\n2\r\n1\n\r\n0\r\n\r\n"
        )
        assert await scrapers(engine.url).fetch("/metrics", 5.0) == b"a 1\n"


@pytest.mark.parametrize("status", [204, 302, 401, 404, 501])
async def test_another_status_than_200_is_garbage(scrapers: Scrapers, status: int) -> None:
    async with recorded_engine({}) as engine:
        engine.raw["/metrics"] = b"HTTP/1.1 %d -\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n" % status
        with pytest.raises(EngineGarbage, match=f"/metrics answered with status {status}"):
            await scrapers(engine.url).fetch("/metrics", 5.0)


async def test_a_server_whose_engine_is_not_ready_is_not_reached(scrapers: Scrapers) -> None:
    """llama.cpp answers so while it loads its model, and refuses every request."""
    async with recorded_engine({"/metrics": 503}) as engine:
        with pytest.raises(EngineUnreachable, match="/metrics answered with status 503: not ready"):
            await scrapers(engine.url).fetch("/metrics", 5.0)


@pytest.mark.parametrize("length_is_said", [True, False])
async def test_a_page_that_is_too_large_is_garbage(scrapers: Scrapers, length_is_said: bool) -> None:
    page = b"x" * (MAX_PAGE_BYTES + 1)
    async with recorded_engine({"/metrics": page}) as engine:
        if not length_is_said:
            engine.raw["/metrics"] = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + page
        with pytest.raises(EngineGarbage, match="more than 4194304 bytes"):
            await scrapers(engine.url).fetch("/metrics", 30.0)


@pytest.mark.parametrize("answer", [b"220 mail ready\r\n\r\n", b"\x16\x03\x01\x00\x00", b"HTTP/1.1 xyz\r\n\r\n"])
async def test_what_is_not_http_is_garbage(scrapers: Scrapers, answer: bytes) -> None:
    async with recorded_engine({}) as engine:
        engine.raw["/metrics"] = answer
        with pytest.raises(EngineGarbage, match="not an HTTP answer"):
            await scrapers(engine.url).fetch("/metrics", 5.0)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n\r\na 1\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 4\r\n\r\na 1\n",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 4\r\n\r\na 1\n",
        b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\na 1\n",
    ],
)
async def test_an_answer_that_ends_with_its_connection_arrives_whole(scrapers: Scrapers, answer: bytes) -> None:
    async with recorded_engine({}) as engine:
        engine.raw["/metrics"] = answer
        scraper = scrapers(engine.url)
        assert await scraper.fetch("/metrics", 5.0) == b"a 1\n"
        assert await scraper.fetch("/metrics", 5.0) == b"a 1\n"


@pytest.mark.parametrize("answer", [PAGE + b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nb 2", PAGE + b"b 2\n"])
async def test_more_than_one_answer_is_not_taken_for_the_next(scrapers: Scrapers, answer: bytes) -> None:
    async with scripted_server([answer], [PAGE]) as (url, requests):
        scraper = scrapers(url)
        with suppress(EngineGarbage):  # bytes that are no answer at all may be seen with the first
            assert await scraper.fetch("/metrics", 5.0) == b"a 1\n"
        assert await scraper.fetch("/metrics", 5.0) == b"a 1\n"
        assert requests == [1, 1]


async def test_bytes_sent_unasked_end_the_connection_and_the_next_page_is_right() -> None:
    connection = Connection()
    async with scripted_server([PAGE]) as (url, requests):
        port = int(url.rpartition(":")[2])
        await asyncio.get_running_loop().create_connection(lambda: connection, "127.0.0.1", port)
        assert (await connection.get(b"GET / HTTP/1.1\r\n\r\n")).body == b"a 1\n"
        connection.data_received(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        assert connection.closed
        assert requests == [1]


async def test_a_closed_connection_sends_nothing() -> None:
    connection = Connection()
    connection.close()
    with pytest.raises(ConnectionError, match="the connection is closed"):
        await connection.get(b"GET / HTTP/1.1\r\n\r\n")


async def test_an_answer_that_breaks_off_on_a_kept_connection_is_not_asked_for_again(scrapers: Scrapers) -> None:
    async with scripted_server([PAGE, PAGE[:-2]], [PAGE]) as (url, requests):
        scraper = scrapers(url)
        await scraper.fetch("/metrics", 5.0)
        with pytest.raises(EngineUnreachable, match="the answer broke off"):
            await scraper.fetch("/metrics", 5.0)
        assert requests == [2]


async def test_an_answer_that_breaks_off_is_unreachable(scrapers: Scrapers) -> None:
    async with recorded_engine({}) as engine:
        engine.raw["/metrics"] = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\na 1\n"
        with pytest.raises(EngineUnreachable, match="broke off"):
            await scrapers(engine.url).fetch("/metrics", 5.0)


async def test_a_node_that_never_answers_is_unreachable(scrapers: Scrapers) -> None:
    async with recorded_engine({"/metrics": None}) as engine:
        with pytest.raises(EngineUnreachable, match=r"did not answer within 0\.05 s"):
            await scrapers(engine.url).fetch("/metrics", 0.05)


async def test_a_node_that_closes_without_an_answer_is_unreachable(scrapers: Scrapers) -> None:
    async with recorded_engine({}) as engine:
        engine.raw["/metrics"] = b""
        with pytest.raises(EngineUnreachable, match="can not be reached"):
            await scrapers(engine.url).fetch("/metrics", 5.0)


async def test_after_a_timeout_a_late_answer_is_not_taken_for_the_next(scrapers: Scrapers) -> None:
    async with recorded_engine({"/metrics": None, "/props": b"{}"}) as engine:
        scraper = scrapers(engine.url)
        with pytest.raises(EngineUnreachable):
            await scraper.fetch("/metrics", 0.05)
        assert await scraper.fetch("/props", 5.0) == b"{}"
        assert engine.connections == 2


async def test_a_node_without_tls_is_unreachable_by_https(scrapers: Scrapers) -> None:
    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(EngineUnreachable, match="can not be reached"):
            await scrapers(f"https://127.0.0.1:{port}").fetch("/metrics", 5.0)


@pytest.mark.parametrize("url", ["10.0.0.1:8000", "ftp://host", "http://", ""])
def test_what_is_no_address_of_a_node_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is not the address of a node"):
        Scraper(url)


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "a\0b", "-\u00fc.."])
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_host_that_can_not_be_looked_up_is_unreachable(scrapers: Scrapers, scheme: str, host: str) -> None:
    with pytest.raises(EngineUnreachable, match=r"can not be reached: .* is not the name of a host"):
        await scrapers(f"{scheme}://{host}:80").fetch("/metrics", 5.0)


@pytest.mark.parametrize(
    "begin",
    [
        b"HTTP/1.1 200 OK\r\nx: ",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\na 1\n\r\n0\r\nx: ",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4;",
    ],
)
async def test_a_head_or_trailer_without_end_is_garbage(scrapers: Scrapers, begin: bytes) -> None:
    async with recorded_engine({}) as engine:
        engine.raw["/metrics"] = begin + b"y" * MAX_PAGE_BYTES
        with pytest.raises(EngineGarbage, match="more than 4194304 bytes"):
            await scrapers(engine.url).fetch("/metrics", 30.0)


@pytest.mark.parametrize("piece", [b"x: y\r\n", b"\r\nHTTP/1.1 100 Continue\r\n"])
async def test_headers_and_announcements_without_end_are_garbage(scrapers: Scrapers, piece: bytes) -> None:
    async with recorded_engine({}) as engine:
        engine.raw["/metrics"] = b"HTTP/1.1 100 Continue\r\n" + piece * (MAX_PAGE_BYTES // len(piece) + 1)
        with pytest.raises(EngineGarbage, match="more than 4194304 bytes"):
            await scrapers(engine.url).fetch("/metrics", 30.0)


async def test_the_limit_is_on_one_answer_and_not_on_all_of_a_connection(scrapers: Scrapers) -> None:
    page = b"x" * (MAX_PAGE_BYTES // 2)
    async with recorded_engine({"/metrics": page}) as engine:
        scraper = scrapers(engine.url)
        for _ in range(3):
            assert await scraper.fetch("/metrics", 30.0) == page
        assert engine.connections == 1


async def test_a_closed_scraper_opens_another_connection_when_asked_again(scrapers: Scrapers) -> None:
    async with recorded_engine({"/metrics": b"a 1\n"}) as engine:
        scraper = scrapers(engine.url)
        scraper.close()
        assert await scraper.fetch("/metrics", 5.0) == b"a 1\n"
        scraper.close()
        assert await scraper.fetch("/metrics", 5.0) == b"a 1\n"
        assert engine.connections == 2


async def test_an_address_where_nobody_listens_is_unreachable(scrapers: Scrapers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(EngineUnreachable, match="can not be reached"):
        await scrapers(f"http://127.0.0.1:{port}").fetch("/metrics", 5.0)

"""How many requests run while a load does: what engine or gateway admit, as they say themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeAlias

import msgspec

from slipstream.core.errors import EngineGarbage, EngineUnreachable
from slipstream.engines.detect import PROBE_PATHS, detect
from slipstream.engines.engine import Page
from slipstream.engines.scrape import Scraper

__all__ = ["RunningSource", "admin_source", "engine_source", "watched"]

EVERY_S = 0.25
TIMEOUT_S = 2.0

RunningSource: TypeAlias = Callable[[], Awaitable[int | None]]
"""Sequences that run now; ``None`` when that can not be told now."""


@asynccontextmanager
async def engine_source(root_url: str, api_key: str | None) -> AsyncIterator[RunningSource | None]:
    """From the metrics of the engine at an address; ``None`` when none is known by its pages, or it tells no load."""
    scraper = Scraper(root_url, api_key)
    try:
        pages: dict[str, bytes] = {}
        for path in PROBE_PATHS:
            page = await _page(scraper, path)
            if page is not None:
                pages[path] = page
        engine = detect(pages)
        sources = (partial(_running_by, scraper, load) for load in (engine.load if engine is not None else ()))
        for source in sources:
            if await source() is not None:
                yield source
                return
        yield None
    finally:
        scraper.close()


async def _running_by(scraper: Scraper, load: Page) -> int | None:
    page = await _page(scraper, load.path)
    try:
        return None if page is None else load.read(page).running
    except EngineGarbage:
        return None


class _Node(msgspec.Struct):
    occupancy: int


class _Fleet(msgspec.Struct):
    nodes: list[_Node]


@asynccontextmanager
async def admin_source(admin_url: str, token: str | None) -> AsyncIterator[RunningSource | None]:
    """From a gateway's admin API: occupancy, summed over its nodes; ``None`` when none answers there."""
    scraper = Scraper(admin_url, token)
    source = partial(_occupancy, scraper)
    try:
        yield source if await source() is not None else None
    finally:
        scraper.close()


async def _occupancy(scraper: Scraper) -> int | None:
    page = await _page(scraper, "/fleet")
    try:
        return None if page is None else sum(node.occupancy for node in msgspec.json.decode(page, type=_Fleet).nodes)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


@asynccontextmanager
async def watched(source: RunningSource | None) -> AsyncIterator[list[int]]:
    """What the source says, four times a second while the block lasts; nothing without one."""
    seen: list[int] = []

    async def watch(ask: RunningSource) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            running = await ask()
            if running is not None:
                seen.append(running)

    watching = None if source is None else asyncio.create_task(watch(source), name="running requests")
    try:
        yield seen
    finally:
        if watching is not None:
            watching.cancel()
            await asyncio.wait([watching])


async def _page(scraper: Scraper, path: str) -> bytes | None:
    try:
        return await scraper.fetch(path, TIMEOUT_S)
    except (EngineUnreachable, EngineGarbage):
        return None

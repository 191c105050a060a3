"""A node under calibration: what its engine says of itself, and what it has counted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from slipstream.calibrate.errors import NodeBusy, NodeUnusable
from slipstream.core.errors import EngineGarbage, EngineUnreachable
from slipstream.core.node import Instrument, NodeReport, SpeculativeCounters, Speculator, SpeculatorKind
from slipstream.engines.catalogue import added_fields
from slipstream.engines.detect import PROBE_PATHS, detect
from slipstream.engines.engine import Engine, Page, merged
from slipstream.engines.scrape import Scraper

__all__ = ["CalibratedNode", "known_node"]

TIMEOUT_S: Final = 5.0
QUIET_EVERY_S: Final = 0.02
QUIET_SLACK_S: Final = 0.5
"""How much longer than the engine's own lag it is waited for its last sequence to leave."""
FIELDS: Final[Mapping[str | None, Mapping[str, Any]]] = {
    "llamacpp": {"ignore_eos": True, "cache_prompt": False},
    None: {},
}
"""What requests ask for beyond a completion, by engine; others take ``ignore_eos`` and keep a cache of prefixes, which
prompts with beginnings of their own do not meet."""


@dataclass(slots=True)
class CalibratedNode:
    """One arm. ``root_url`` is scheme, host and port. ``engine`` is ``None`` where its pages show none that is
    known. ``facts`` is what changes slowly, as last looked at; ``model`` the name to ask for.

    ``speculator_kind`` is what was said of a node that does not report it.
    """

    root_url: str
    engine: Engine | None
    facts: NodeReport
    model: str
    api_key: str | None
    speculator_kind: SpeculatorKind | None
    scraper: Scraper
    load_page: Page | None

    @property
    def name(self) -> str:
        """Host and port."""
        return urlsplit(self.root_url).netloc

    @property
    def engine_name(self) -> str | None:
        """The engine's name, ``None`` = not known."""
        return None if self.engine is None else self.engine.name

    @property
    def base_url(self) -> str:
        """What an OpenAI client would be given."""
        return f"{self.root_url}/v1"

    @property
    def headers(self) -> dict[str, str]:
        """To be sent with each request."""
        return {} if self.api_key is None else {"authorization": f"Bearer {self.api_key}"}

    @property
    def fields(self) -> dict[str, Any]:
        """Of each request's body: answers of full length, no prompt from a cache, and statistics where there are."""
        fields = dict(FIELDS.get(self.engine_name, {"ignore_eos": True}))
        for added in added_fields(self.engine_name, Instrument.ENGINE):
            if added.name != "stream_options":
                fields[added.name] = msgspec.json.decode(added.value)
        return fields

    @property
    def speculator(self) -> Speculator:
        """What drafts, as far as it is known by now."""
        facts = self.facts
        kind = self.speculator_kind or facts.speculator_kind or SpeculatorKind.DRAFT
        return Speculator(kind, None if kind is SpeculatorKind.NGRAM else facts.k, facts.drafter)

    async def reading(self) -> NodeReport | None:
        """Load and counters now; ``None`` where they can not be had."""
        if self.engine is None or self.load_page is None:
            return None
        report = await self._read(self.load_page)
        if report is not None and (report.counters is None or report.counters.drafted is None):
            for page in self.engine.counters:
                more = await self._read(page)
                if more is not None:
                    report = merged(report, more)
        return report

    async def look_again(self) -> None:
        """Take in what the engine tells only once it has drafted, or while it does."""
        report = await self.reading()
        if report is not None and self.engine is not None:
            self.facts = self.engine.completed(merged(self.facts, report))

    async def quiet(self, *, shared: bool) -> SpeculativeCounters | None:
        """Wait until nothing of ours runs there, and return what it has counted; ``None`` where it does not say.

        Raises `NodeBusy` when something still runs after all of ours must have left, or when it can not be told, unless
        ``shared``.
        """
        lags = 0.0 if self.engine is None else self.engine.gauge_lag_s + self.engine.abort_lag_s
        deadline = monotonic() + lags + QUIET_SLACK_S
        while True:
            report = await self.reading()
            running = None if report is None else report.sequences
            if shared or running == 0:
                return None if report is None else report.counters
            if running is None and (report is not None or self.load_page is None):
                raise NodeBusy(
                    f"{self.name} does not say what it runs, so that other traffic would go unseen: --shared "
                    "calibrates it all the same"
                )
            if monotonic() >= deadline:
                told = "does not answer" if running is None else f"runs {running} requests that are not ours"
                raise NodeBusy(f"{self.name} {told}: take it out of service first, or say --shared")
            await asyncio.sleep(QUIET_EVERY_S)

    def close(self) -> None:
        """Close the connection to its pages."""
        self.scraper.close()

    async def _read(self, page: Page) -> NodeReport | None:
        return await _read(self.scraper, page)


async def known_node(
    url: str,
    *,
    model: str | None = None,
    api_key: str | None = None,
    speculator_kind: SpeculatorKind | None = None,
) -> CalibratedNode:
    """The node at an address, with or without the ``/v1`` at its end. Raises `NodeUnusable`."""
    root_url = url.rstrip("/").removesuffix("/v1")
    try:
        scraper = Scraper(root_url, api_key)
    except ValueError as error:
        raise NodeUnusable(str(error)) from None
    pages: dict[str, bytes] = {}
    unreachable = ""
    for path in PROBE_PATHS:
        try:
            pages[path] = await scraper.fetch(path, TIMEOUT_S)
        except EngineGarbage:
            continue
        except EngineUnreachable as error:
            unreachable = str(error)
            if not pages and path == PROBE_PATHS[0]:
                break
    if not pages and unreachable:
        scraper.close()
        raise NodeUnusable(unreachable)
    engine = detect(pages)
    facts, load_page = NodeReport(), None
    if engine is not None:
        for page in engine.load:
            report = await _read(scraper, page)
            if report is not None and report.sequences is not None:
                facts, load_page = merged(facts, report), page
                break
        told = [await _read(scraper, page) for page in engine.facts]
        facts = engine.completed(reduce(merged, (report for report in told if report is not None), facts))
    name = model or next(iter(facts.models or ()), None) or _first_model(pages.get("/v1/models", b""))
    if name is None:
        scraper.close()
        raise NodeUnusable(f"{root_url} names no model: say which with --model")
    return CalibratedNode(root_url, engine, facts, name, api_key, speculator_kind, scraper, load_page)


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


def _first_model(page: bytes) -> str | None:
    try:
        models = msgspec.json.decode(page, type=_Models).data
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return models[0].id if models else None


async def _read(scraper: Scraper, page: Page) -> NodeReport | None:
    try:
        return page.read(await scraper.fetch(page.path, TIMEOUT_S))
    except (EngineUnreachable, EngineGarbage):
        return None

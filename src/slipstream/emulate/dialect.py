"""An engine's way of speaking, as a table: pages, answers and errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from slipstream.emulate.answers import Answers, WriteError
from slipstream.emulate.engine import Engine, Load

__all__ = ["JSON", "METRICS_PAGE", "Dialect", "Page", "PageMaker", "json_page"]

JSON = "application/json"
METRICS_PAGE = "text/plain; version=0.0.4; charset=utf-8"


class Page(NamedTuple):
    """A body with its type."""

    content_type: str
    body: bytes


PageMaker = Callable[[Engine, Load, int], Page]
"""A page of an engine under a load; the last argument is the time of the engine's start, Unix seconds. May raise
`Problem`."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """``server_headers`` stand in every answer, ``kept_headers`` in those after which the connection stays open,
    ``stream_headers`` in streams; each line with its end.

    ``answers`` are those to requests for work, by path, ``pages`` all others; ``error`` writes what is at neither.
    ``error_closes``: the connection is closed after an error. ``dated``: answers tell the time. ``checks_model``: other
    names of models than its own are unknown. ``counters_at_request_end``: tokens are counted when a request ends, not
    while it runs.
    ``drafts_fit_output``: see `constant_pacing`.
    ``has_request_statistics``: it has `NodeSettings.request_statistics`. ``rejected_when_speculating``: fields refused
    with a speculator.
    """

    name: str
    server_headers: bytes
    kept_headers: bytes
    stream_headers: bytes
    json_type: str
    pages: Mapping[str, PageMaker]
    answers: Mapping[str, Answers]
    error: WriteError
    error_closes: bool
    dated: bool
    checks_model: bool
    counters_at_request_end: bool
    drafts_fit_output: bool
    has_request_statistics: bool
    rejected_when_speculating: frozenset[str] = frozenset()


def json_page(value: object) -> Page:
    return Page(JSON, msgspec.json.encode(value))

"""An engine's way of speaking, as a table: pages, answers and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from slipstream.emulate.engine import Engine, Load
from slipstream.emulate.generation import Generation
from slipstream.emulate.request import Problem
from slipstream.emulate.settings import NodeSettings

__all__ = ["JSON", "METRICS_PAGE", "Dialect", "Json", "Page", "PageMaker", "json_page", "usage_of"]

Json = dict[str, Any]
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

    ``stream``: a generation and the tokens it had before its last step → the events of that step, with the closing ones
    when it is finished. ``text_event``: a generation and a text → the only event of a step between the first and the
    last, or of each of its tokens with ``event_a_token``; ``None`` if it tells more than the text, which is then in one
    place of it. ``body``: a finished generation → the unstreamed answer. ``error``: status and body.
    ``identify``: 128 random bits and whether it is a chat → the id of an answer. ``error_closes``: the connection is
    closed after an error. ``dated``: answers tell the time. ``checks_model``: other names of models than its own are
    unknown. ``counters_at_request_end``: tokens are counted when a request ends, not while it runs.
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
    stream: Callable[[Generation, int, NodeSettings], Iterator[Json]]
    text_event: Callable[[Generation, str], Json | None]
    event_a_token: bool
    body: Callable[[Generation, NodeSettings], Json]
    error: Callable[[Problem, NodeSettings], tuple[int, Json]]
    identify: Callable[[int, bool], str]
    error_closes: bool
    dated: bool
    checks_model: bool
    counters_at_request_end: bool
    drafts_fit_output: bool
    has_request_statistics: bool
    rejected_when_speculating: frozenset[str] = frozenset()


def json_page(value: object) -> Page:
    return Page(JSON, msgspec.json.encode(value))


def usage_of(generation: Generation) -> Json:
    """Tokens of the prompt and of all choices so far."""
    prompt, completion = generation.request.prompt_tokens, generation.emitted * generation.request.choices
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}

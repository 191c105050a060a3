"""Which engine a node runs, told from its own pages."""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.engines.catalogue import ENGINES
from slipstream.engines.engine import Engine

__all__ = ["PROBE_PATHS", "detect"]

PROBE_PATHS = ("/v1/models", "/metrics", "/props")
"""The pages to fetch, in this order, until `detect` has an answer. Not `/version`: several engines share its form."""


def detect(pages: Mapping[str, bytes]) -> Engine | None:
    """The engine whose marks are on these pages (path → body, those that were answered).

    The first page in the order of `PROBE_PATHS` with the marks of just one engine decides; ``None`` when none does.
    """
    for path in PROBE_PATHS:
        page = pages.get(path)
        if page is None:
            continue
        found = [engine for engine in ENGINES.values() if path in engine.marks and engine.marks[path].search(page)]
        if len(found) == 1:
            return found[0]
    return None

"""A few named series out of a Prometheus text page, without parsing the rest of it.

A vLLM page has 57 kB and 600 lines, of which Slipstream wants eight names, again and again. The text format
(https://prometheus.io/docs/instrumenting/exposition_formats/) requires all lines of one metric to stand together, so
each name costs one search to where its lines begin.
"""

from __future__ import annotations

import re

from slipstream.core.errors import EngineGarbage

__all__ = ["MAX_LINES", "MAX_LINE_BYTES", "check_page", "samples", "samples_by_label"]

_FIRST_LINE = re.compile(
    rb"\s*(?:#|[a-zA-Z_:][a-zA-Z0-9_:]*(?:\s*\{.*\}\s*|\s+)[-+0-9.eEaAnNiIfF]+(?:\s+-?\d+)?\s*$)", re.MULTILINE
)
_AFTER_NAME = b"{ \t"
_SHOWN_BYTES = 60

MAX_LINE_BYTES = 16 * 1024
"""The longest line that is read; an engine's own have a few hundred bytes."""
MAX_LINES = 10_000
"""The most lines of one metric; an engine has one for each rank, model and position."""


def check_page(page: bytes) -> None:
    """Raise `EngineGarbage` unless ``page`` looks like a whole page of metrics; an empty one does.

    Only the beginning and the end are looked at; the lines that are asked for are checked as they are read.
    """
    if not page:
        return
    if not _FIRST_LINE.match(page):
        raise EngineGarbage(f"not a page of Prometheus metrics: it begins with {_shown(page)}")
    if not page.endswith(b"\n"):
        raise EngineGarbage(f"the page of metrics is cut off: it ends with {_shown(page[-_SHOWN_BYTES:])}")


def samples(page: bytes, name: bytes) -> list[float]:
    """The values of all series of the metric ``name``, one per label set, in page order.

    Empty = the page does not have that metric. Values may be ``nan`` or infinite, as the engine wrote them. Raises
    `EngineGarbage` for a line of this metric that has no number, a line of more than 16 KiB, or more than
    10,000 lines.
    """
    return [value for _, value in _lines(page, name)]


def samples_by_label(page: bytes, name: bytes, label: bytes) -> dict[bytes, float]:
    """The values of the metric ``name`` summed over all its labels but ``label``, by the value of that label.

    ``label`` values are taken as written, escapes included. Series without the label are left out. Raises as `samples`.
    """
    sums: dict[bytes, float] = {}
    of_label = _label_pattern(label)
    for labels, value in _lines(page, name):
        if found := of_label.match(labels):
            sums[found[1]] = sums.get(found[1], 0.0) + value
    return sums


def _label_pattern(label: bytes) -> re.Pattern[bytes]:
    """Matches a label block from its beginning up to ``label``, whose value is the group.

    Nothing is given back once matched (``*+``), so the work is linear in the block whatever it holds.
    """
    rest = rb'\s*+=\s*+"(?:[^"\\]|\\.)*+"'
    others = rb"(?:[{,\s]*+(?!%s\s*+=)[a-zA-Z_][a-zA-Z0-9_]*+%s)*+" % (label, rest)
    return re.compile(others + rb'[{,\s]*+%s\s*+=\s*+"((?:[^"\\]|\\.)*+)"' % label)


def _lines(page: bytes, name: bytes) -> list[tuple[bytes, float]]:
    """Label block and value of each line of the metric ``name``."""
    lines: list[tuple[bytes, float]] = []
    start = _first_line(page, name)
    width = len(name)
    while start >= 0 and page.startswith(name, start) and page[start + width : start + width + 1] in _AFTER_NAME:
        end = page.find(b"\n", start)
        end = len(page) if end < 0 else end
        if end - start > MAX_LINE_BYTES:
            raise EngineGarbage(f"a line of {end - start} bytes for the metric {name.decode()}")
        if len(lines) == MAX_LINES:
            raise EngineGarbage(f"more than {MAX_LINES} lines of the metric {name.decode()}")
        labels, _, figures = page[start + width : end].rpartition(b"}")
        try:
            # A time stamp may follow the value.
            value = float(figures.split(None, 1)[0])
        except (ValueError, IndexError):
            raise EngineGarbage(f"no number for the metric {name.decode()}: {_shown(page[start:end])}") from None
        lines.append((labels, value))
        start = end + 1
    return lines


def _first_line(page: bytes, name: bytes) -> int:
    """Where the first line of the metric ``name`` begins; -1 when there is none. The whole name, never a longer one."""
    width = len(name)
    if page.startswith(name) and page[width : width + 1] in _AFTER_NAME:
        return 0
    needle = b"\n" + name
    found = page.find(needle)
    while found >= 0 and page[found + width + 1 : found + width + 2] not in _AFTER_NAME:
        found = page.find(needle, found + width)
    return found + 1 if found >= 0 else -1


def _shown(line: bytes) -> str:
    return repr(line[:_SHOWN_BYTES].decode("utf-8", "replace"))

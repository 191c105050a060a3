"""Traces of real traffic, read whole before anything else happens: when each request came, and how long it was."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import chain
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from slipstream.workload.errors import TraceUnreadable
from slipstream.workload.lengths import MOST_TOKENS
from slipstream.workload.plan import NO_LIMIT

__all__ = ["Trace", "TraceFormat", "read_trace"]

MOST_S = 1e11
"""No timestamp is later, three thousand years: a figure above is a slip."""


class TraceFormat(StrEnum):
    """Whose format a trace has."""

    AZURE = "azure"
    """CSV of Azure's LLM inference traces of 2023 and 2024: TIMESTAMP, ContextTokens, GeneratedTokens."""
    MOONCAKE = "mooncake"
    """JSON lines of Mooncake: timestamp in milliseconds, input_length, output_length; other keys are passed over."""
    BURSTGPT = "burstgpt"
    """CSV of BurstGPT: Timestamp in seconds, Request tokens, Response tokens and, from its second release on, Session
    ID; other columns are passed over."""


_COLUMNS = {
    TraceFormat.AZURE: ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    TraceFormat.BURSTGPT: ("Timestamp", "Request tokens", "Response tokens"),
}
_SESSION = "Session ID"


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Columns of one length, at least 1, sorted by ``arrival_s``: seconds since the first request of the trace.

    ``session`` is the number of a request's conversation, from 0 on, `NO_LIMIT` = none. ``skipped`` rows had no prompt
    or no answer, so nothing to work on: BurstGPT's failures.
    """

    format: TraceFormat
    arrival_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    session: NDArray[np.int64]
    skipped: int

    def __len__(self) -> int:
        return len(self.arrival_s)


def read_trace(path: Path, trace_format: TraceFormat | None = None) -> Trace:
    """The trace in a file, of a format that is told or recognised by the first line.

    Rows that are not in the order of time are sorted, those of one time stay in the file's order. Blank lines are
    passed over. Fractions of a second beyond the sixth digit of Azure's are cut.

    Raises:
        TraceUnreadable: no such file, no regular one, not a trace, a line that is none, or no request in it.
    """
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise TraceUnreadable(path, None, "no regular file")  # a device or a pipe may never end
        # Bytes that are no UTF-8 stand in columns that nobody reads, or are found as what no number is made of.
        with path.open(encoding="utf-8-sig", errors="replace") as lines:
            return _read(path, lines, trace_format)
    except OSError as error:
        raise TraceUnreadable(path, None, f"can not be read: {error.strerror}") from error


Row = tuple[float, int, int, str]
"""Seconds, prompt and output tokens, and the name of its conversation, empty = none."""


def _read(path: Path, lines: Iterator[str], trace_format: TraceFormat | None) -> Trace:
    at = array("d")
    prompt = array("q")
    output = array("q")
    session = array("q")
    sessions: dict[str, int] = {}
    skipped = 0
    number = 1
    try:
        first = next(lines, "")
        trace_format = trace_format or _recognised(first)
        if trace_format is TraceFormat.MOONCAKE:
            row_of: Callable[[str], Row] = _mooncake_row
            lines = chain((first,), lines)
            number = 0
        else:
            row_of = _csv_row_of(first, trace_format)
        for line in lines:
            number += 1
            if line.isspace():
                continue
            second, prompt_tokens, output_tokens, name = row_of(line)
            _check(second, prompt_tokens, output_tokens)
            if not prompt_tokens or not output_tokens:
                skipped += 1
                continue
            at.append(second)
            prompt.append(prompt_tokens)
            output.append(output_tokens)
            session.append(sessions.setdefault(name, len(sessions)) if name else NO_LIMIT)
    except _NoRow as error:
        raise TraceUnreadable(path, number, str(error)) from error
    if not at:
        raise TraceUnreadable(path, None, f"no request in it; {skipped} rows have no prompt or no answer")
    seconds = np.array(at)
    order = np.argsort(seconds, kind="stable")
    return Trace(
        trace_format,
        seconds[order] - seconds.min(),
        np.array(prompt)[order],
        np.array(output)[order],
        np.array(session)[order],
        skipped,
    )


class _NoRow(ValueError):
    """Why a line is none of the format."""


def _recognised(first: str) -> TraceFormat:
    if first.lstrip().startswith("{"):
        return TraceFormat.MOONCAKE
    names = {name.strip() for name in _fields(first)}
    for trace_format, columns in _COLUMNS.items():
        if names.issuperset(columns):
            return trace_format
    known = "; ".join(f"{trace_format} ({', '.join(columns)})" for trace_format, columns in _COLUMNS.items())
    raise _NoRow(
        f"found {_shown(first)}; the first line of a trace is a JSON object (mooncake) or names columns: {known}"
    )


def _csv_row_of(first: str, trace_format: TraceFormat) -> Callable[[str], Row]:
    names = [name.strip() for name in _fields(first)]
    wanted = _COLUMNS[trace_format]
    missing = [name for name in wanted if name not in names]
    if missing:
        raise _NoRow(f"found {_shown(first)}; the first line of a {trace_format} trace names the column {missing[0]}")
    at, prompt, output = map(names.index, wanted)
    session = names.index(_SESSION) if _SESSION in names else None
    seconds = _date if trace_format is TraceFormat.AZURE else _number

    def row(line: str) -> Row:
        fields = _fields(line)
        if len(fields) != len(names):
            raise _NoRow(f"found {len(fields)} columns; the first line names {len(names)}")
        return (
            seconds(fields[at]),
            _whole(wanted[1], fields[prompt]),
            _whole(wanted[2], fields[output]),
            "" if session is None else fields[session],
        )

    return row


def _fields(line: str) -> list[str]:
    if '"' not in line:
        return line.rstrip("\r\n").split(",")
    try:
        return next(csv.reader((line,), strict=True))
    except csv.Error as error:
        raise _NoRow(f"not a line of CSV: {error}") from error


def _date(field: str) -> float:
    try:
        date = datetime.fromisoformat(field.strip())
    except ValueError:
        raise _NoRow(
            f"found {_shown(field)}; a TIMESTAMP is a date and time as in 2023-11-16 18:15:46.680590"
        ) from None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _number(field: str) -> float:
    try:
        return float(field)
    except ValueError:
        raise _NoRow(f"found {_shown(field)}; a Timestamp is a number of seconds") from None


def _whole(name: str, field: str) -> int:
    try:
        return int(field)
    except ValueError:
        raise _NoRow(f"found {_shown(field)}; {name} is a whole number") from None


class _MooncakeLine(msgspec.Struct, gc=False):
    timestamp: float
    input_length: int
    output_length: int


_mooncake_line = msgspec.json.Decoder(_MooncakeLine).decode


def _mooncake_row(line: str) -> Row:
    try:
        row = _mooncake_line(line)
    except msgspec.DecodeError as error:
        raise _NoRow(f"found {_shown(line)}; {error}") from error
    return row.timestamp / 1000.0, row.input_length, row.output_length, ""


def _check(second: float, prompt_tokens: int, output_tokens: int) -> None:
    if not 0.0 <= second <= MOST_S:
        raise _NoRow(f"found a time of {second:g} s; allowed: 0 to {MOST_S:g} s")
    for tokens in (prompt_tokens, output_tokens):
        if not 0 <= tokens <= MOST_TOKENS:
            raise _NoRow(f"found {_shown(str(tokens))} tokens; allowed: 0 to {MOST_TOKENS:,}")


def _shown(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= 60 else text[:60] + "…")

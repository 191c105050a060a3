"""Values as JSON text, for lines that are put together piece by piece. Compiled, since every request has such lines.

What repeats from line to line is encoded once and remembered; what does not is numbers, whose text comes from tables.
To build an object for each line and encode that costs twice as much.
"""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["POINT_THREE", "THREE", "Fragments", "Latest", "encoded", "four_digits", "micros", "milliseconds", "whole"]

REMEMBERED: Final = 1024
"""Fragments that are remembered; then all are forgotten."""

SMALL: Final = [b"%d" % number for number in range(1000)]
THREE: Final = [b"%03d" % number for number in range(1000)]
"""Numbers below a thousand, with leading zeros."""
POINT_THREE: Final = [b".%03d" % number for number in range(1000)]
"""The same behind a decimal point: thousandths."""

_ENCODE: Final = msgspec.json.Encoder().encode


class Fragments:
    """Members of objects, as they stand between the braces, by what they are made from."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], bytes] = {}

    def get(self, source: tuple[object, ...]) -> bytes | None:
        """What was learnt of ``source``; ``None`` when that was nothing, or is forgotten."""
        return self._known.get(source)

    def learn(self, source: tuple[object, ...], members: bytes) -> bytes:
        """Remember ``members``, and return them."""
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[source] = members
        return members


class Latest:
    """The text of a number that is mostly the same as the last time."""

    __slots__ = ("_number", "_text")

    def __init__(self) -> None:
        self._number = 0
        self._text = b"0"

    def text(self, number: int) -> bytes:
        if number != self._number:
            self._number = number
            self._text = str(number).encode()
        return self._text


def encoded(value: object) -> bytes:
    """Any value, by an encoder of JSON. Raises UnicodeEncodeError for half a surrogate pair, which no text is."""
    text: bytes = _ENCODE(value)
    return text


def whole(number: int | None) -> bytes:
    """An integer; ``None`` is null."""
    if number is None:
        return b"null"
    if 0 <= number < 1000:
        return SMALL[number]
    return str(number).encode()


def micros(seconds: float) -> int:
    """Microseconds, rounded; 0 of less than nothing, which no time takes."""
    number = int(seconds * 1e6 + 0.5)
    return max(0, number)


def milliseconds(seconds: float | None) -> bytes:
    """Seconds as milliseconds, to the microsecond; ``None`` is null."""
    if seconds is None:
        return b"null"
    number = micros(seconds)
    return whole(number // 1000) + POINT_THREE[number % 1000]


def four_digits(number: float | None) -> bytes:
    """A number that is not negative, to four digits after the point; ``None`` is null."""
    if number is None:
        return b"null"
    rounded = int(number * 1e4 + 0.5)
    return whole(rounded // 10_000) + POINT_THREE[rounded % 10_000 // 10] + SMALL[rounded % 10]

"""Values as JSON text, for lines that are put together piece by piece. Compiled, since every request has such lines.

A line of a log has the same keys each time, and most of its strings come again and again: joining known pieces takes a
quarter of the instructions of building an object and encoding that.
"""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = [
    "Strings",
    "exact",
    "four_digits",
    "microseconds",
    "milliseconds",
    "once",
    "six_digits",
    "truth",
    "whole",
]

REMEMBERED: Final = 1024
"""Strings that are remembered as JSON; then all are forgotten."""

_SMALL: Final = [str(number) for number in range(1000)]
_THREE_DIGITS: Final = [f"{number:03}" for number in range(1000)]
_ENCODE: Final = msgspec.json.Encoder().encode


class Strings:
    """Strings as JSON. Raises UnicodeEncodeError for half a surrogate pair, which no text is."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def text(self, value: str | None) -> str:
        """A string that will probably come again."""
        if value is None:
            return "null"
        known = self._known.get(value)
        return self._learn(value) if known is None else known

    def _learn(self, value: str) -> str:
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        quoted = once(value)
        self._known[value] = quoted
        return quoted


def once(value: str | None) -> str:
    """A string that will hardly come again, as JSON. Raises as `Strings` does."""
    if value is None:
        return "null"
    if value.isalnum():  # then it has nothing to escape
        return f'"{value}"'
    encoded: bytes = _ENCODE(value)
    return encoded.decode()


def truth(value: bool) -> str:  # noqa: FBT001 - a value
    return "true" if value else "false"


def whole(number: int | None) -> str:
    """An integer; ``None`` is null."""
    if number is None:
        return "null"
    if 0 <= number < 1000:
        return _SMALL[number]
    return str(number)


def exact(number: float) -> str:
    """A finite number, with as many digits as it takes to read the same again."""
    encoded: bytes = _ENCODE(number)
    return encoded.decode()


def milliseconds(seconds: float | None) -> str:
    """Seconds as milliseconds, to the microsecond; ``None`` is null."""
    return "null" if seconds is None else _thousandths(int(seconds * 1e6 + 0.5))


def microseconds(seconds: float) -> str:
    """Seconds, to the microsecond."""
    number = int(seconds * 1e6 + 0.5)
    if number < 0:
        return f"-{_millionths(-number)}"
    return _millionths(number)


def four_digits(number: float | None) -> str:
    """A number that is not negative, to four digits after the point; ``None`` is null."""
    if number is None:
        return "null"
    rounded = int(number * 1e4 + 0.5)
    return f"{whole(rounded // 10_000)}.{_THREE_DIGITS[rounded % 10_000 // 10]}{_SMALL[rounded % 10]}"


def six_digits(number: int) -> str:
    """A number from 0 to 999,999, with leading zeros."""
    return f"{_THREE_DIGITS[number // 1000]}{_THREE_DIGITS[number % 1000]}"


def _thousandths(number: int) -> str:
    if number < 0:
        return f"-{_thousandths(-number)}"
    return f"{whole(number // 1000)}.{_THREE_DIGITS[number % 1000]}"


def _millionths(number: int) -> str:
    return f"{whole(number // 1_000_000)}.{six_digits(number % 1_000_000)}"

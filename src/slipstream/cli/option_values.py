"""What options hold beyond one word: numbers with commas between them, and a name with its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import TypeVar

from slipstream.costmodel.errors import ImpossibleInput

__all__ = ["named_values", "numbers", "share_of", "survival_of", "whole_numbers"]

Number = TypeVar("Number", int, float)


def numbers(option: str, text: str, separator: str = ",") -> tuple[float, ...]:
    """Numbers, finite ones. Raises `ImpossibleInput` where one is none."""
    found = tuple(_number(option, word, float, "a number") for word in text.split(separator))
    if not all(map(isfinite, found)):
        raise ImpossibleInput(f"{option} is finite, not {text}")
    return found


def whole_numbers(option: str, text: str, least: int, most: int) -> tuple[int, ...]:
    """Whole numbers, rising and each once. Raises `ImpossibleInput` for one outside ``least``..``most``."""
    found = sorted({_number(option, word, int, "a whole number") for word in text.split(",")})
    for one in found:
        if not least <= one <= most:
            raise ImpossibleInput(f"{option} is {least} to {most:,}, not {one}")
    return tuple(found)


def share_of(name: str, value: float) -> float:
    """``value``, or `ImpossibleInput` outside 0..1."""
    if not 0.0 <= value <= 1.0:
        raise ImpossibleInput(f"{name} is a share, 0 to 1, not {value:g}")
    return value


def survival_of(name: str, values: tuple[float, ...]) -> tuple[float, ...]:
    """Survival by draft position. Raises `ImpossibleInput` for shares outside 0..1, or one above that before it."""
    before = 1.0
    for position, value in enumerate(values, 1):
        if share_of(name, value) > before:
            rises = f"at position {position} it rises from {before:g} to {value:g}"
            raise ImpossibleInput(f"{name} can not rise, and {rises}: a token is kept only if the one before it is")
        before = value
    return values


def named_values(option: str, text: str, keys: Mapping[str, Callable[[str], object]]) -> tuple[str, dict[str, object]]:
    """``name:key=value,key=value`` as the name and its values, each read by its key's function.

    Raises `ImpossibleInput` for what is not of that form.
    """
    name, colon, rest = text.rpartition(":")
    if "=" not in rest:
        name, colon, rest = text, "", ""
    if not name:
        raise ImpossibleInput(f"{option} begins with a name, as in name:{next(iter(keys))}=0.7, and {text!r} does not")
    values: dict[str, object] = {}
    for pair in rest.split(",") if colon else ():
        key, equals, value = pair.partition("=")
        if not equals or key not in keys:
            raise ImpossibleInput(f"{option} {name} takes {', '.join(f'{one}=' for one in keys)} and not {pair!r}")
        values[key] = keys[key](value)
    return name, values


def _number(option: str, word: str, kind: Callable[[str], Number], wanted: str) -> Number:
    try:
        return kind(word.strip())
    except ValueError:
        sentence = f"{option} is {wanted}, or several with commas between them, not {word.strip()!r}"
        raise ImpossibleInput(sentence) from None

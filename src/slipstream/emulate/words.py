"""The text that emulated nodes write: always the same tokens in a circle, some of them longer than a byte a letter."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["IN_JSON", "text_of", "texts_of"]

TOKENS = (
    "The", " wheel", " turns", ",", " the", " crème", " brûlée", " waits", ",", " and", " α", " meets", " τ", " →",
    " 風", " in", " the", " peloton", ".", "\n", "One", " rider", " drafts", ",", " eight", " follow", " 🚴", ";",
    " naïve", " counting", " of", " bytes", " ends", " here", ".", " ",
)  # fmt: skip

IN_JSON: Final = tuple(msgspec.json.encode(token)[1:-1] for token in TOKENS)
"""The tokens as they stand in JSON, without the quotes around them."""


def text_of(first: int, last: int) -> str:
    """The text of the tokens ``first`` up to but not ``last``."""
    return "".join([TOKENS[index % len(TOKENS)] for index in range(first, last)])


def texts_of(first: int, last: int, *, each: bool) -> list[str]:
    """The same in one piece, or one for ``each`` token."""
    return [text_of(token, token + 1) for token in range(first, last)] if each else [text_of(first, last)]

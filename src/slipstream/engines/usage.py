"""The ``usage`` object that every answer of OpenAI's API may carry."""

from __future__ import annotations

from typing import Annotated

import msgspec

__all__ = ["NO_USAGE", "Count", "Usage"]

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""A number of tokens. More than a float counts exactly is no count, and JSON has no limit of its own."""


class Usage(msgspec.Struct, gc=False, frozen=True):
    """Tokens of the prompt and of all the answer's choices; ``None`` = not said."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None


NO_USAGE = Usage()

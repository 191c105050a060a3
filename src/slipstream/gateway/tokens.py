"""Token counts of an answer in a dialect whose engines count them otherwise than OpenAI's completions do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec

__all__ = ["Count", "ReadTokens"]

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""A number of tokens. More than a float counts exactly is no count, and JSON has no limit of its own."""

ReadTokens = Callable[[tuple[bytes, ...]], tuple["int | None", "int | None"]]
"""Payloads of an answer, in order, to its tokens: of the prompt, cached ones among them, and of the output."""

"""The options of ``slipstream bench``, before anything is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

__all__ = ["Question"]


class Question(NamedTuple):
    """The command's words and options as they were typed; ``None`` = left out."""

    words: tuple[str, ...]
    goodput: tuple[str, ...]
    compare: tuple[str, ...]
    find_max: bool
    rate: float | None
    arrivals: str | None
    trace: Path | None
    concurrency: int | None
    requests: int | None
    duration: str | None
    warm_up: int | None
    prompt_tokens: str | None
    output_tokens: str | None
    categories: str
    attainment: float
    points: int
    parts: int | None
    model: str | None
    ignore_eos: bool
    api_key_variable: str | None
    admin: tuple[str, ...]
    timeout: str
    seed: int
    plot: Path | None
    as_json: bool

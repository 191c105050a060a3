"""The options of ``slipstream calibrate`` as they were typed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

__all__ = ["Question"]


class Question(NamedTuple):
    """``None`` = left out."""

    standard: str | None
    speculative: tuple[str, ...]
    node: str | None
    agent: str | None
    agent_token_file: Path | None
    embedded: bool
    gguf: Path | None
    slots: int
    speculator: str | None
    budget: str | None
    largest: int | None
    context: str | None
    categories: str
    output_tokens: int
    rounds: int
    model: str | None
    api_key_variable: str | None
    shared: bool
    output: Path | None
    form: str
    hardware: str | None
    engine_version: str | None
    flags: str
    apply: str | None
    token_file: Path | None
    seed: int
    plot: Path | None
    as_json: bool

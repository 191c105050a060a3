"""What a finished answer says of itself: by its engine's own figures, and by its dialect's where those are silent."""

from __future__ import annotations

from slipstream.core.outcome import ResponseStatistics
from slipstream.gateway.dialect import Dialect
from slipstream.gateway.ports import ReadStatistics

__all__ = ["statistics_of"]


def statistics_of(
    read: ReadStatistics, engine: str | None, dialect: Dialect, payloads: tuple[bytes, ...]
) -> ResponseStatistics:
    """``payloads`` are the body, or the data of the events that may count. What nothing says is ``None``."""
    statistics = read(engine, payloads)
    count_tokens = dialect.count_tokens
    if count_tokens is None or (statistics.prompt_tokens is not None and statistics.output_tokens is not None):
        return statistics
    prompt, output = count_tokens(payloads)
    return ResponseStatistics(
        prompt if statistics.prompt_tokens is None else statistics.prompt_tokens,
        output if statistics.output_tokens is None else statistics.output_tokens,
        statistics.sample,
    )

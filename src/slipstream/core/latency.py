"""TTFT, TPOT and E2E: one definition for gateway, simulator and bench. Times are seconds on one monotonic clock."""

from __future__ import annotations

from slipstream.core.compilation import mypyc_attr

__all__ = ["Latency", "latency_of", "time_per_output_token"]


@mypyc_attr(acyclic=True)
class Latency:
    """``ttft_s``: time to the first content, reasoning or tool delta, ``None`` when not streamed or nothing came.
    ``tpot_s``: mean time per output token after the first, ``None`` without a token count, a first token time or a
    second token. ``e2e_s``: from receipt of the request to the last byte of the answer.
    """

    __slots__ = ("e2e_s", "tpot_s", "ttft_s")

    def __init__(self, ttft_s: float | None, tpot_s: float | None, e2e_s: float) -> None:
        self.ttft_s = ttft_s
        self.tpot_s = tpot_s
        self.e2e_s = e2e_s


def time_per_output_token(e2e_s: float, ttft_s: float | None, output_tokens: int | None) -> float | None:
    """(E2E − TTFT)/(output tokens − 1). ``None`` without both inputs, or with fewer than two tokens: chunks are not
    tokens.
    """
    if ttft_s is None or output_tokens is None or output_tokens < 2:
        return None
    return (e2e_s - ttft_s) / (output_tokens - 1)


def latency_of(received_at: float, first_token_at: float | None, ended_at: float, output_tokens: int | None) -> Latency:
    """The three measures of one request from its time stamps; ``first_token_at`` is ``None`` for unstreamed answers."""
    ttft = None if first_token_at is None else first_token_at - received_at
    e2e = ended_at - received_at
    return Latency(ttft, time_per_output_token(e2e, ttft, output_tokens), e2e)

"""The engines Slipstream knows, by name."""

from __future__ import annotations

from types import MappingProxyType

from slipstream.engines.engine import ResponseStatistics
from slipstream.engines.llamacpp import LLAMACPP
from slipstream.engines.vllm import VLLM

__all__ = ["ENGINES", "gauge_lag_s", "read_statistics"]

ENGINES = MappingProxyType({engine.name: engine for engine in (VLLM, LLAMACPP)})

UNKNOWN = ResponseStatistics()


def read_statistics(engine: str | None, payloads: tuple[bytes, ...]) -> ResponseStatistics:
    """What a finished response says of itself.

    ``payloads``: the body of an unstreamed response, or the last ``data:`` payloads of a stream in their order; the
    last one that counts tokens is taken. All ``None`` when none does, or when the engine is not a known one.
    A node without a speculator may give a sample of 0 drafted tokens. Never raises.
    """
    known = None if engine is None else ENGINES.get(engine)
    if known is not None:
        for payload in reversed(payloads):
            statistics = known.read_statistics(payload)
            if statistics.output_tokens is not None or statistics.prompt_tokens is not None:
                return statistics
    return UNKNOWN


def gauge_lag_s(engine: str | None) -> float:
    """How far an engine's running gauge may lag behind what it does, in seconds; 0 for an engine that is not known."""
    known = None if engine is None else ENGINES.get(engine)
    return 0.0 if known is None else known.gauge_lag_s

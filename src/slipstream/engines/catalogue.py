"""The engines Slipstream knows, by name. Compiled, since every answer is read through it."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from slipstream.core.acceptance.sample import SpeculationSample
from slipstream.core.node import Instrument
from slipstream.engines.added_field import AddedField
from slipstream.engines.engine import Engine, ResponseStatistics
from slipstream.engines.llamacpp import LLAMACPP
from slipstream.engines.sglang import SGLANG
from slipstream.engines.trtllm import TRTLLM
from slipstream.engines.vllm import VLLM

__all__ = ["ENGINES", "abort_lag_s", "added_fields", "gauge_lag_s", "read_statistics"]

_BY_NAME: Final = {engine.name: engine for engine in (VLLM, SGLANG, LLAMACPP, TRTLLM)}

ENGINES = MappingProxyType(_BY_NAME)

UNKNOWN = ResponseStatistics()


def read_statistics(engine: str | None, payloads: tuple[bytes, ...]) -> ResponseStatistics:
    """What a finished response says of itself.

    ``payloads``: the body of an unstreamed response, or the last ``data:`` payloads of a stream in their order; the
    last one that counts tokens is taken. All ``None`` when none does, or when the engine is not a known one.
    A node without a speculator may give a sample of 0 drafted tokens. Never raises.
    """
    known = None if engine is None else _BY_NAME.get(engine)
    if known is not None:
        if known.statistics_apart and len(payloads) > 1:
            return _put_together(known, payloads)
        for payload in reversed(payloads):
            statistics = known.read_statistics(payload)
            if statistics.output_tokens is not None or statistics.prompt_tokens is not None:
                return statistics
    return UNKNOWN


def _put_together(engine: Engine, payloads: tuple[bytes, ...]) -> ResponseStatistics:
    """The last token counts, and the last sample, wherever they stand; the sample knows the output tokens too."""
    told = [engine.read_statistics(payload) for payload in reversed(payloads)]
    counts = next((one for one in told if one.output_tokens is not None or one.prompt_tokens is not None), UNKNOWN)
    sample = next((one.sample for one in told if one.sample is not None), None)
    if sample is not None:
        sample = SpeculationSample(sample.drafted, sample.accepted, sample.verify_steps, counts.output_tokens)
    return ResponseStatistics(counts.prompt_tokens, counts.output_tokens, sample)


def gauge_lag_s(engine: str | None) -> float:
    """How far an engine's running gauge may lag behind what it does, in seconds; 0 for an engine that is not known."""
    known = None if engine is None else ENGINES.get(engine)
    return 0.0 if known is None else known.gauge_lag_s


def abort_lag_s(engine: str | None) -> float:
    """How long an engine may work on for a client that left, in seconds; 0 for an engine that is not known."""
    known = None if engine is None else ENGINES.get(engine)
    return 0.0 if known is None else known.abort_lag_s


def added_fields(engine: str | None, instrument: Instrument) -> tuple[AddedField, ...]:
    """What to add to requests so that answers say more; nothing when off, and for an engine that is not known."""
    known = None if engine is None else ENGINES.get(engine)
    return () if known is None else known.instruments.get(instrument, ())

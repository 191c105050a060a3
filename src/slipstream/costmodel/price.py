"""Tokens per GPU, and what a million of them costs."""

from __future__ import annotations

from slipstream.costmodel.errors import ImpossibleInput

__all__ = ["cost_per_million_tokens", "gpu_tps"]

MOST = 1e9
"""Of any currency; what is beyond is a slip."""


def gpu_tps(aggregate_tps: float, gpus: int) -> float:
    """Tokens per second and GPU. Raises ImpossibleInput without a GPU."""
    if gpus < 1:
        raise ImpossibleInput(f"a deployment has at least one GPU, not {gpus}")
    return aggregate_tps / gpus


def cost_per_million_tokens(aggregate_tps: float, gpus: int, price_per_gpu_hour: float) -> float | None:
    """In the currency of the price; ``None`` where nothing is produced. Raises ImpossibleInput for a negative price."""
    if not 0.0 <= price_per_gpu_hour <= MOST:
        raise ImpossibleInput(f"a price is 0 to {MOST:g} for a GPU and hour, not {price_per_gpu_hour:g}")
    rate = gpu_tps(aggregate_tps, gpus)
    return price_per_gpu_hour / 3600.0 / rate * 1e6 if rate > 0.0 else None

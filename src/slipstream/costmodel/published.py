"""The second article's script as a curve like any other. Imports no more than it needs: it is asked from the shell."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.core.speedup import crossovers_of, published_row, shape_of
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.rows import LARGEST_BATCH, Curve, Row

__all__ = ["published_curve"]


def published_curve(
    alpha: float, k: int, batch_sizes: Sequence[float], *, verify_width: bool = False, largest: int = LARGEST_BATCH
) -> Curve:
    """The second article's script as a curve. ``verify_width`` as in `published_row`. Raises ImpossibleInput."""
    if not batch_sizes:
        raise ImpossibleInput("at least one batch size is needed")
    try:
        return _curve(alpha, k, batch_sizes, largest, verify_width=verify_width)
    except ValueError as error:
        raise ImpossibleInput(str(error)) from None


def _curve(alpha: float, k: int, batch_sizes: Sequence[float], largest: int, *, verify_width: bool) -> Curve:
    wanted = [published_row(alpha, k, batch, verify_width=verify_width) for batch in sorted(set(batch_sizes))]
    every = sorted({*range(1, largest + 1), *(row.batch_size for row in wanted)})
    speedup = [published_row(alpha, k, batch, verify_width=verify_width).speedup for batch in every]
    rows = tuple(
        Row(
            batch_size=row.batch_size,
            speedup=row.speedup,
            tau=row.tau,
            tokens_per_step=row.tau,
            standard_step_ms=row.standard_step_ms,
            speculative_step_ms=row.speculative_step_ms,
            standard_user_tps=row.standard_aggregate_tps / row.batch_size,
            speculative_user_tps=row.speculative_aggregate_tps / row.batch_size,
            standard_aggregate_tps=row.standard_aggregate_tps,
            speculative_aggregate_tps=row.speculative_aggregate_tps,
            best_k=None,
            recommendation=row.recommendation,
        )
        for row in wanted
    )
    sampled = (tuple(map(float, every)), tuple(speedup))
    return Curve("published", k, rows, crossovers_of(every, speedup), shape_of(every, speedup), sampled)

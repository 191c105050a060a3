"""What the waves at one point come to, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, hypot, log, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from slipstream.calibrate.plan import Point
from slipstream.calibrate.waves import Wave
from slipstream.core.acceptance.student import t_quantile_97_5
from slipstream.core.interval import Interval

__all__ = ["Figures", "Gain", "figures_of", "gain_of", "unrest_of"]

FEWEST_WAVES: Final = 4
"""From so many waves on, how much whole waves differ is told from them."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One arm at one point. Sums over sums: ``step_s`` is a step of the batch, ``token_s`` a token of one user,
    ``tokens_per_step`` those of one sequence. ``error`` is the standard error of the logarithm of ``token_s``,
    ``None`` below two requests.
    """

    point: Point
    requests: int
    waves: int
    step_s: float
    token_s: float
    tokens_per_step: float
    cached_tokens: float
    error: float | None


@dataclass(frozen=True, slots=True)
class Gain:
    """Tokens a second and user of the speculative arm over the standard arm's; ``interval`` 95 %, ``None`` = too few
    requests to tell.
    """

    speedup: float
    interval: Interval | None


def unrest_of(standard: Iterable[Sequence[Wave]]) -> float:
    """How much the machines differ from one wave to the next, as a standard deviation of the logarithm of times: that
    of a standard node, whose tokens all take a step, pooled over its points. 0 where no point has two waves.
    """
    squares, freedom = 0.0, 0
    for waves in standard:
        times = [log(_sum(wave, "elapsed_s") / _sum(wave, "tokens")) for wave in waves if wave.decoded]
        if len(times) > 1:
            squares += float(np.var(times)) * len(times)
            freedom += len(times) - 1
    return sqrt(squares / freedom) if freedom else 0.0


def figures_of(point: Point, waves: Sequence[Wave], unrest: float = 0.0) -> Figures | None:
    """``None`` where no wave had all its requests running at once for long enough. Requests of one wave share what
    ``unrest`` did to it, so that it adds to their error; a request alone shows its own.
    """
    told = [wave for wave in waves if wave.decoded]
    requests = [one for wave in told for one in wave.decoded]
    if not requests:
        return None
    elapsed, tokens = _column(requests, "elapsed_s"), _column(requests, "tokens")
    steps = _column(requests, "steps")
    own = np.repeat(np.arange(len(told)), [len(wave.decoded) for wave in told])
    return Figures(
        point=point,
        requests=len(requests),
        waves=len(told),
        step_s=float(elapsed.sum() / steps.sum()),
        token_s=float(elapsed.sum() / tokens.sum()),
        tokens_per_step=float(tokens.sum() / steps.sum()),
        cached_tokens=float(np.average(_column(requests, "cached_tokens"), weights=elapsed)),
        error=_error(elapsed, tokens, own, unrest if point.batch_size > 1 else 0.0),
    )


def gain_of(standard: Figures, speculative: Figures) -> Gain:
    """Both at the same point. The interval is by request: Student's t with the degrees of freedom of the smaller arm,
    on the logarithm of the ratio.
    """
    speedup = standard.token_s / speculative.token_s
    if standard.error is None or speculative.error is None:
        return Gain(speedup, None)
    freedom = min(standard.requests, speculative.requests) - 1.0
    width = t_quantile_97_5(freedom) * sqrt(standard.error**2 + speculative.error**2)
    return Gain(speedup, (exp(log(speedup) - width), exp(log(speedup) + width)))


def _error(
    elapsed: NDArray[np.float64], tokens: NDArray[np.float64], wave: NDArray[np.int64], unrest: float
) -> float | None:
    """Of a ratio of sums (Cochran, Sampling Techniques, 1977, section 2.11), relative to it. Requests of one wave share
    its steps, so that where there are enough waves, theirs counts if it is the larger.
    """
    if len(elapsed) < 2:
        return None
    residuals = elapsed - tokens * (elapsed.sum() / tokens.sum())
    waves = int(wave[-1]) + 1
    error = hypot(_relative(residuals, elapsed), unrest / sqrt(waves))
    if waves >= FEWEST_WAVES:
        error = max(error, _relative(np.bincount(wave, residuals).astype(np.float64), elapsed))
    return error


def _relative(residuals: NDArray[np.float64], elapsed: NDArray[np.float64]) -> float:
    count = len(residuals)
    return float(sqrt(count / (count - 1.0) * float((residuals**2).sum())) / elapsed.sum())


def _sum(wave: Wave, name: str) -> float:
    return float(_column(wave.decoded, name).sum())


def _column(requests: Sequence[object], name: str) -> NDArray[np.float64]:
    return np.array([getattr(request, name) for request in requests], np.float64)

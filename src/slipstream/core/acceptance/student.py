"""Quantiles of Student's t, for intervals over few requests."""

from __future__ import annotations

from math import atan, cos, exp, isfinite, lgamma, pi, sqrt, tan

__all__ = ["NORMAL_97_5", "t_quantile_97_5"]

NORMAL_97_5 = 1.959963984540054
"""The 97.5 % quantile of the standard normal: half the width of a 95 % interval, in standard errors."""

_PANELS = 32
_ALMOST_NORMAL = 1e6


def t_quantile_97_5(degrees_of_freedom: float) -> float:
    """The 97.5 % quantile of Student's t; ``degrees_of_freedom`` need not be whole, and counts as at least 1.

    With `t = √ν · tan θ` the distribution is `1/2 + c ∫₀^θ cos^(ν−1)`, smooth and on a bounded range: Simpson's rule
    inside Newton's method. Starts from the expansion of Abramowitz and Stegun, 26.7.5. Accurate to 1e-4 of itself, and
    to 1e-6 from 2 degrees of freedom on.
    """
    if not isfinite(degrees_of_freedom) or degrees_of_freedom > _ALMOST_NORMAL:
        return NORMAL_97_5
    nu = max(1.0, degrees_of_freedom)
    scale = exp(lgamma((nu + 1.0) / 2.0) - lgamma(nu / 2.0)) / sqrt(pi)
    z = NORMAL_97_5
    first = (z**3 + z) / 4.0
    second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    theta = atan((z + first / nu + second / nu**2) / sqrt(nu))
    for _ in range(20):
        excess = 0.475 - scale * _integral_of_power_of_cosine(theta, nu - 1.0)
        step = excess / (scale * cos(theta) ** (nu - 1.0))
        theta += step
        if abs(step) <= 1e-12 * theta:
            break
    return sqrt(nu) * tan(theta)


def _integral_of_power_of_cosine(upper: float, power: float) -> float:
    width = upper / _PANELS
    total: float = 1.0 + cos(upper) ** power
    for panel in range(1, _PANELS):
        total += (4.0 if panel % 2 else 2.0) * cos(panel * width) ** power
    return total * width / 3.0

"""Every source as if it had never been seen: constants estimated anew from the other sources, and judged on it.

The efficiencies of a GPU and the constants of an engine were estimated from the very measurements that they are
compared with. So each source is left out in turn, all of these are estimated from what is left, and what nothing else
tells falls back to `GENERIC`.

The estimate is a ridge regression of the logarithms of the constants towards the generic ones, on the logarithms of
the errors, with the absolute error as loss (by reweighting). Sources count by the root of their figures. Derivatives
are taken at the constants that ship.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slipstream.costmodel.catalogue import engines, hardware
from slipstream.costmodel.engine import Engine
from slipstream.costmodel.roofline import Deployment
from slipstream.costmodel.validation.measurements import Measurements, SpeedupRow, StepRow
from slipstream.costmodel.validation.scores import computed_speedup, computed_steps_ms

__all__ = ["GENERIC", "Constant", "constants", "estimated", "held_out"]

Values = NDArray[np.float64]
Row = StepRow | SpeedupRow

GENERIC: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "memory_efficiency": (0.8, 0.15),
        "compute_efficiency": (0.7, 0.15),
        "layer_s": (4e-5, 0.5),
        "expert_layer_s": (1e-5, 1.0),
        "step_s": (3e-4, 0.7),
        "sequence_s": (8e-6, 0.7),
        "collective_s": (1e-5, 0.5),
        "draft_pass_s": (2e-4, 0.7),
        "speculative_step_s": (5e-4, 0.7),
        "speculative_token_s": (2e-6, 1.5),
        "interference": (1.0, 0.2),
        "expert_efficiency": (0.1, 0.5),
        "eager_layer_s": (1e-5, 1.0),
    }
)
"""What is believed of a constant that nothing tells, and how far off it may be (of its logarithm)."""

FAMILIES = {"vllm-0.8": "vllm", "vllm-0": "vllm", "sglang-0.4": "sglang"}
"""Releases, which share the constants of their engine but for those in `RELEASE`."""

RELEASE = ("draft_pass_s", "speculative_step_s", "speculative_token_s", "eager_layer_s")
EVERYWHERE = ("collective_s", "expert_efficiency")
"""Of all engines alike."""

NONE = ""
ROUNDS = 6
STEP = 0.02
SMALLEST = 1e-3
"""No source; of reweighting; of a derivative; of an error that counts in full."""


@dataclass(frozen=True, slots=True)
class Constant:
    """``field`` of the GPUs or engines called ``of``, which share one value."""

    of: tuple[str, ...]
    field: str
    shipped: float


def constants() -> tuple[Constant, ...]:
    """All that was estimated, each once."""
    found = [
        Constant((gpu.name,), name, getattr(gpu, name))
        for gpu in hardware().values()
        for name in ("memory_efficiency", "compute_efficiency")
    ]
    shared: dict[tuple[str, str], list[Engine]] = {}
    for engine in engines().values():
        for name in GENERIC:
            if getattr(engine, name, 0.0) > 0.0:
                family = engine.name if name in RELEASE else FAMILIES.get(engine.name, engine.name)
                shared.setdefault(("" if name in EVERYWHERE else family, name), []).append(engine)
    found += [
        Constant(tuple(one.name for one in group), name, getattr(group[0], name)) for (_, name), group in shared.items()
    ]
    return tuple(found)


def held_out(measurements: Measurements) -> Measurements:
    """The same rows, each with the constants that all sources but its own tell."""
    rows: list[Row] = [*measurements.steps, *(row for row in measurements.speedups if row.tau is not None)]
    known = constants()
    errors, slopes = _linearised(rows, known)
    sources = np.array([row.source for row in rows])
    deployed = {
        source: _deployer(known, estimated(errors, slopes, sources, known, without=source))
        for source in {*sources.tolist(), NONE}
    }
    for row in measurements.speedups:
        deployed.setdefault(row.source, deployed[NONE])  # it told nothing to begin with
    return replace(
        measurements,
        steps=tuple(replace(row, deployment=deployed[row.source](row.deployment)) for row in measurements.steps),
        speedups=tuple(replace(row, deployment=deployed[row.source](row.deployment)) for row in measurements.speedups),
    )


def estimated(
    errors: Values, slopes: Values, sources: NDArray[np.str_], known: Sequence[Constant], *, without: str
) -> Values:
    """Values of the constants ``known`` from the rows of every source but ``without``.

    ``errors`` are logarithms of computed over measured; ``slopes`` their derivatives by the logarithm of each constant.
    """
    kept = sources != without
    counts = {source: int((sources == source).sum()) for source in set(sources[kept].tolist())}
    importance = np.array([counts[source] ** -0.5 for source in sources[kept].tolist()])
    generic = np.log([GENERIC[one.field][0] / one.shipped for one in known])
    narrow = np.array([GENERIC[one.field][1] ** -2.0 for one in known])
    rows, wanted = slopes[kept], errors[kept]
    shift = np.zeros(len(known))
    for _ in range(ROUNDS):
        left = np.abs(wanted + rows @ shift)
        weights = importance / np.maximum(left, SMALLEST)
        normal = (rows * weights[:, None]).T @ rows + np.diag(narrow)
        shift = np.linalg.solve(normal, narrow * generic - (rows * weights[:, None]).T @ wanted)
    return np.array([one.shipped for one in known]) * np.exp(shift)


def _linearised(rows: Sequence[Row], known: Sequence[Constant]) -> tuple[Values, Values]:
    """Errors of ``rows`` and their derivatives, both of logarithms."""
    curves: dict[tuple[str, ...], list[int]] = {}
    for place, row in enumerate(rows):
        curves.setdefault(row.curve, []).append(place)
    errors, slopes = np.zeros(len(rows)), np.zeros((len(rows), len(known)))
    for places in curves.values():
        errors[places] = _log_errors([rows[place] for place in places])
    for column, one in enumerate(known):
        moved = _deployer([one], [one.shipped * np.exp(STEP)])
        for places in curves.values():
            deployment = rows[places[0]].deployment
            if deployment.hardware.name in one.of or deployment.engine.name in one.of:
                curve = [replace(rows[place], deployment=moved(deployment)) for place in places]
                slopes[places, column] = (_log_errors(curve) - errors[places]) / STEP
    return errors, slopes


def _log_errors(curve: Sequence[Row]) -> Values:
    """Of rows of one curve, which share a deployment."""
    first = curve[0]
    if isinstance(first, StepRow):
        steps = [row for row in curve if isinstance(row, StepRow)]
        return np.log(computed_steps_ms(first, [row.load for row in steps]) / [row.step_ms for row in steps])
    speedups = [row for row in curve if isinstance(row, SpeedupRow)]
    return np.log([computed_speedup(row, row.tau or 1.0) / row.speedup for row in speedups])


def _deployer(known: Sequence[Constant], values: Sequence[float] | Values) -> Callable[[Deployment], Deployment]:
    """What puts ``values`` in the place of the constants ``known``."""
    of: dict[str, dict[str, Any]] = {}
    for one, value in zip(known, values, strict=True):
        for name in one.of:
            of.setdefault(name, {})[one.field] = min(float(value), 1.0) if one.field.endswith("efficiency") else value

    def deployed(deployment: Deployment) -> Deployment:
        return replace(
            deployment,
            hardware=replace(deployment.hardware, **of.get(deployment.hardware.name, {})),
            engine=replace(deployment.engine, **of.get(deployment.engine.name, {})),
        )

    return deployed

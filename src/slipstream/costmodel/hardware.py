"""A GPU's datasheet, and how much of it engines reach."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from slipstream.costmodel.errors import ImpossibleInput

__all__ = ["Hardware"]


NARROW_EFFICIENCY = {"fp8": 0.73, "int8": 0.73, "fp4": 0.79}
"""Of what the compute efficiency leaves, the share that narrow types reach: scaling and layout cost them more."""


MOST = 1e30
"""No GPU has or does more of anything; what is beyond is a slip of a file. A link without limit stands for none."""

LEAST_EFFICIENCY = 0.001


@dataclass(frozen=True, slots=True)
class Hardware:
    """One GPU. Bytes, bytes per second and dense floating point operations per second.

    ``flops`` is by data type; a type that is missing is computed as bf16, its values unpacked on the way.
    ``link_bytes_per_s`` is what one GPU sends to its neighbours in one direction. The two efficiencies are the shares
    of bandwidth and of arithmetic that engines reach, 0..1: estimated from published step times where there were any.
    """

    name: str
    memory_bytes: float
    memory_bytes_per_s: float
    flops: dict[str, float]
    link_bytes_per_s: float
    memory_efficiency: float = 0.8
    compute_efficiency: float = 0.7
    source: str = ""

    def __post_init__(self) -> None:
        for what, most in (("memory_bytes", MOST), ("memory_bytes_per_s", MOST), ("link_bytes_per_s", inf)):
            if not 1.0 <= getattr(self, what) <= most:
                raise ImpossibleInput(f"{self.name}: {what} must be positive, 1 to {most:g}, not {getattr(self, what)}")
        if not all(1.0 <= rate <= MOST for rate in (self.flops.get("bf16", 0.0), *self.flops.values())):
            raise ImpossibleInput(f"{self.name}: flops needs at least bf16, and rates of 1 to {MOST:g}")
        for what in ("memory_efficiency", "compute_efficiency"):
            if not LEAST_EFFICIENCY <= getattr(self, what) <= 1.0:
                within = f"within {LEAST_EFFICIENCY}..1"
                raise ImpossibleInput(f"{self.name}: {what} must be {within}, not {getattr(self, what)}")

    def flops_of(self, dtype: str) -> float:
        """Rate for weights stored as ``dtype``, before the compute efficiency."""
        native = self.flops.get("fp8" if dtype == "int8" else dtype)
        return self.flops["bf16"] if native is None else native * NARROW_EFFICIENCY.get(dtype, 1.0)

"""Step times from a file: coefficients of a line, or a measured table. Refused without their provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slipstream.costmodel.arms import ZERO_DRAFT_TAX
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.huggingface import read_json
from slipstream.costmodel.rows import MOST_BATCH

__all__ = ["LinearCosts", "Provenance", "TableCosts", "article_1", "profile_of", "read_profile"]

MOST = 1e15
"""No figure of a profile is so large; what is beyond is a slip of a file."""
SHORTEST_S = 1e-9
"""No step takes less."""

Seconds = NDArray[np.float64]

_COEFFICIENTS = (
    "step_s",
    "token_s",
    "cached_token_s",
    "draft_pass_s",
    "draft_token_s",
    "overhead_s",
    "prefill_token_s",
)

_PREFILL = ("prefill_base", "prefill_token", "drafter_prefill_token")


@dataclass(frozen=True, slots=True)
class Provenance:
    """What a profile holds for. Without all of it, nobody can tell later whether it still does."""

    engine: str
    version: str
    hardware: str
    model: str
    date: str
    note: str = ""

    def __str__(self) -> str:
        told = f"{self.model} on {self.hardware}, {self.engine} {self.version}, {self.date}"
        return f"{told}; {self.note}" if self.note else told


@dataclass(frozen=True, slots=True)
class LinearCosts:
    """`T(n, m) = step_s + token_s·n + cached_token_s·m` for n query and m cached tokens of the whole batch, in seconds.

    Drafting takes ``draft_pass_s`` a pass and ``draft_token_s`` a drafted token; ``overhead_s`` is what a verify step
    costs besides, ``prefill_token_s`` a prompt token. The form is the one fitted by SpecDecode-Bench (2026).
    """

    provenance: Provenance
    step_s: float
    token_s: float
    cached_token_s: float = 0.0
    draft_pass_s: float = 0.0
    draft_token_s: float = 0.0
    overhead_s: float = 0.0
    prefill_token_s: float = 0.0
    proposing_share: float = 1.0
    zero_draft_tax: float = ZERO_DRAFT_TAX

    def __post_init__(self) -> None:
        for name in _COEFFICIENTS:
            if not getattr(self, name) >= 0.0:
                raise ImpossibleInput(f"a linear profile's {name} must not be negative, not {getattr(self, name)}")
        if not self.step_s + self.token_s >= SHORTEST_S:
            raise ImpossibleInput(f"a linear profile needs a step_s or a token_s above 0, at least {SHORTEST_S:g}")

    def standard_s(self, batch_size: ArrayLike, context: ArrayLike) -> Seconds:
        batch_size = np.asarray(batch_size, float)
        return np.asarray(self.step_s + batch_size * (self.token_s + self.cached_token_s * np.asarray(context, float)))

    def speculative_s(self, batch_size: ArrayLike, k: ArrayLike, context: ArrayLike) -> Seconds:
        batch_size, k = np.asarray(batch_size, float), np.asarray(k, float)
        drafted = self.proposing_share * k
        standard = self.standard_s(batch_size, context)
        draft = self.draft_pass_s * k + self.draft_token_s * batch_size * drafted
        speculative = standard + self.token_s * batch_size * drafted + draft + self.overhead_s
        return np.where(k > 0.0, speculative, standard * (1.0 + self.zero_draft_tax))

    def prefill_s(self, prompt_tokens: ArrayLike) -> tuple[Seconds, Seconds]:
        prompt = np.asarray(prompt_tokens, float)
        return self.prefill_token_s * prompt, np.zeros_like(prompt)


@dataclass(frozen=True, slots=True)
class TableCosts:
    """Measured step times, interpolated in the logarithm of the batch size and nowhere extended.

    ``step_s`` maps a draft length to its ``(batch size, seconds)`` points; K = 0 is the standard arm and must be there.
    ``context_tokens`` is the context it was measured at (``None`` = not stated). A prompt takes ``prefill_base_s`` and
    ``prefill_token_s`` for each of its tokens, on a speculative node ``drafter_prefill_token_s`` more; 0 where that was
    not measured, so that prompts are left out.
    """

    provenance: Provenance
    step_s: Mapping[int, tuple[tuple[float, float], ...]] = field(hash=False)
    context_tokens: float | None = None
    proposing_share: float = 1.0
    prefill_base_s: float = 0.0
    prefill_token_s: float = 0.0
    drafter_prefill_token_s: float = 0.0

    def __post_init__(self) -> None:
        for name in _PREFILL:
            if not getattr(self, f"{name}_s") >= 0.0:
                raise ImpossibleInput(
                    f"a table profile's {name}_ms must not be negative, not {1e3 * getattr(self, f'{name}_s'):g}"
                )
        if 0 not in self.step_s:
            raise ImpossibleInput("a table profile needs points of k 0: the standard arm to compare with")
        if self.context_tokens is not None and not self.context_tokens > 0.0:
            raise ImpossibleInput(f"a table profile's context_tokens must be above 0, not {self.context_tokens:g}")
        for k, points in self.step_s.items():
            batches = [batch for batch, _ in points]
            if k < 0:
                raise ImpossibleInput(f"a table profile's k must not be negative, not {k}")
            if not points or batches != sorted(set(batches)) or not 0.0 < batches[0] <= batches[-1] <= MOST_BATCH:
                raise ImpossibleInput(
                    f"a table profile's points of k {k} need batch sizes that rise, above 0 and at most {MOST_BATCH:,}"
                )
            if shorter := [seconds for _, seconds in points if not seconds >= SHORTEST_S]:
                raise ImpossibleInput(
                    f"a table profile's points of k {k} need a step_ms of {1e3 * SHORTEST_S:g} or more, "
                    f"not {1e3 * shorter[0]:g}"
                )
        low, high = self.batch_range
        if low > high:
            raise ImpossibleInput("a table profile needs a batch size that all its draft lengths cover, and has none")

    @property
    def batch_range(self) -> tuple[float, float]:
        """The batch sizes that every measured draft length covers."""
        low = max(points[0][0] for points in self.step_s.values())
        return low, min(points[-1][0] for points in self.step_s.values())

    def standard_s(self, batch_size: ArrayLike, context: ArrayLike) -> Seconds:
        return self.speculative_s(batch_size, 0, context)

    def speculative_s(self, batch_size: ArrayLike, k: ArrayLike, context: ArrayLike) -> Seconds:
        batch_size, k, context = np.broadcast_arrays(
            np.asarray(batch_size, float), np.asarray(k, float), np.asarray(context, float)
        )
        if self.context_tokens is not None:
            off = max(float(context.max()) / self.context_tokens, self.context_tokens / max(1.0, float(context.min())))
            if off > 2.0:
                raise ImpossibleInput(
                    f"the profile was measured at a context of {self.context_tokens:g} tokens, which is more than "
                    "twice or less than half of the one asked for"
                )
        result = np.empty(batch_size.shape)
        for length in np.unique(k):
            points = self.step_s.get(int(length)) if length == int(length) else None
            if points is None:
                raise ImpossibleInput(
                    f"the profile has no draft length {length:g}; it has {', '.join(map(str, self.step_s))}"
                )
            at = k == length
            wanted = batch_size[at]
            low, high = points[0][0], points[-1][0]
            if wanted.size and (wanted.min() < low or wanted.max() > high):
                raise ImpossibleInput(
                    f"the profile was measured from batch size {low:g} to {high:g} only, at k {length:g}"
                )
            batches, seconds = np.log([point[0] for point in points]), np.log([point[1] for point in points])
            result[at] = np.exp(np.interp(np.log(wanted), batches, seconds))
        return result

    def prefill_s(self, prompt_tokens: ArrayLike) -> tuple[Seconds, Seconds]:
        prompt = np.asarray(prompt_tokens, float)
        return self.prefill_base_s + self.prefill_token_s * prompt, self.drafter_prefill_token_s * prompt


def read_profile(path: Path) -> LinearCosts | TableCosts:
    """A profile from a JSON file. Raises ImpossibleInput if it can not be used, above all without its provenance."""
    return profile_of(read_json(path), str(path))


def profile_of(document: Mapping[str, Any], where: str) -> LinearCosts | TableCosts:
    """A profile from its document: ``form`` (`linear` or `table`), the provenance, then what the form needs."""
    needed = ("engine", "version", "hardware", "model", "date")
    if missing := [key for key in needed if not str(document.get(key) or "").strip()]:
        raise ImpossibleInput(f"{where} is refused: it does not say its {', '.join(missing)}")
    provenance = Provenance(**{key: str(document.get(key, "")) for key in (*needed, "note")})
    form = document.get("form")
    share = _number(document, "proposing_share", where, 1.0)
    if not 0.0 <= share <= 1.0:
        raise ImpossibleInput(f"{where}: proposing_share must be within 0..1, not {share:g}")
    if form == "linear":
        coefficients = document.get("coefficients")
        if not isinstance(coefficients, Mapping):
            raise ImpossibleInput(f"{where}: a linear profile needs coefficients")
        if unknown := sorted(set(coefficients) - set(_COEFFICIENTS)):
            raise ImpossibleInput(
                f"{where}: unknown coefficients {', '.join(unknown)}; known are {', '.join(_COEFFICIENTS)}"
            )
        values = {name: _number(coefficients, name, where) for name in coefficients}
        for name in ("step_s", "token_s"):
            if name not in values:
                raise ImpossibleInput(f"{where}: coefficients need {name}")
        return LinearCosts(provenance, **values, proposing_share=share)
    if form == "table":
        points = document.get("points")
        if not isinstance(points, list) or not all(isinstance(point, Mapping) for point in points):
            raise ImpossibleInput(f"{where}: a table profile needs points, each with batch_size, k and step_ms")
        by_k: dict[int, list[tuple[float, float]]] = {}
        for point in points:
            k = _number(point, "k", where)
            if k != int(k):
                raise ImpossibleInput(f"{where}: k must be a whole number, not {k:g}")
            by_k.setdefault(int(k), []).append(
                (_number(point, "batch_size", where), _number(point, "step_ms", where) / 1000.0)
            )
        context = document.get("context_tokens")
        return TableCosts(
            provenance,
            {k: tuple(sorted(found)) for k, found in sorted(by_k.items())},
            None if context is None else _number(document, "context_tokens", where),
            share,
            *(_number(document, f"{name}_ms", where, 0.0) / 1000.0 for name in _PREFILL),
        )
    raise ImpossibleInput(f"{where}: form must be linear or table, not {form}")


def article_1() -> LinearCosts:
    """The line through the first article's two speedups. See its note: two points are not a measurement."""
    text = files("slipstream.costmodel") / "data" / "article-1.json"
    costs = read_profile(Path(str(text)))
    assert isinstance(costs, LinearCosts)
    return costs


def _number(document: Mapping[str, Any], key: str, where: str, default: float | None = None) -> float:
    value = document.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= MOST:
        raise ImpossibleInput(f"{where}: {key} must be a number, at most {MOST:g}, not {value!r}")
    return float(value)

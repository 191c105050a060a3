"""What a profile says of itself, and what it promises. Its step times are for whoever calculates with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec

from slipstream.config.files import read_text
from slipstream.core.calibration import Calibration, MeasuredAcceptance, MeasuredTime, MeasuredTraffic

__all__ = ["calibration_from_file"]

_NEEDED = ("engine", "version", "hardware", "model", "date")

_Positive = Annotated[float, msgspec.Meta(gt=0.0, le=1e12)]
_Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
_Duration = Annotated[float, msgspec.Meta(ge=0.0, le=1e12)]


class _Time(msgspec.Struct):
    k: Annotated[int, msgspec.Meta(ge=0)]
    batch_size: _Positive
    tpot_ms: _Positive
    interval_ms: tuple[_Positive, _Positive] | None = None


class _Acceptance(msgspec.Struct):
    speculator: str
    category: str
    tokens_per_step: _Positive
    interval: tuple[_Positive, _Positive] | None = None


class _Traffic(msgspec.Struct):
    categories: dict[str, _Share]
    context_tokens: tuple[_Positive, _Positive]


class _Coefficients(msgspec.Struct, frozen=True):
    prefill_token_s: _Duration = 0.0


class _Figures(msgspec.Struct):
    speculators: list[str] = []
    system_fingerprints: list[str] = []
    replicas: Annotated[int, msgspec.Meta(ge=1)] | None = None
    times: list[_Time] = []
    acceptance: list[_Acceptance] = []
    traffic: _Traffic | None = None
    prefill_base_ms: _Duration = 0.0
    prefill_token_ms: _Duration = 0.0
    coefficients: _Coefficients = _Coefficients()


def calibration_from_file(file: str) -> Calibration:
    """The fingerprint of the profile in a file, and its figures that a gateway can see for itself. Raises
    ``ValueError`` saying what is allowed when it is none.
    """
    try:
        document = json.loads(read_text(Path(file)))
    except OSError as error:
        raise ValueError(f"a file that can be read ({error.strerror or error})") from None
    except (ValueError, RecursionError):
        raise ValueError("a profile in JSON, as `slipstream calibrate --output` writes it") from None
    if not isinstance(document, dict):
        raise ValueError("a JSON object, as `slipstream calibrate --output` writes it")
    missing = [key for key in _NEEDED if not str(document.get(key) or "").strip()]
    if missing:
        raise ValueError(f"a profile that says its {', '.join(missing)}")
    try:
        figures = msgspec.convert(document, _Figures)
    except msgspec.ValidationError as error:
        raise ValueError(f"a profile whose figures are as `slipstream calibrate` writes them ({error})") from None
    return _calibration(file, document, figures)


def _calibration(file: str, document: dict[str, Any], figures: _Figures) -> Calibration:
    traffic = figures.traffic
    return Calibration(
        file=file,
        date=str(document["date"]),
        engine=str(document["engine"]),
        version=str(document["version"]),
        model=str(document["model"]),
        speculators=tuple(figures.speculators),
        hardware=str(document["hardware"]),
        replicas=figures.replicas,
        system_fingerprints=tuple(figures.system_fingerprints),
        times=tuple(sorted(map(_time, figures.times))),
        acceptance=tuple(
            MeasuredAcceptance(one.speculator, one.category, one.tokens_per_step, one.interval)
            for one in figures.acceptance
            if one.interval is not None
        ),
        traffic=None
        if traffic is None
        else MeasuredTraffic(tuple(sorted(traffic.categories.items())), *traffic.context_tokens),
        prefill=(
            figures.prefill_base_ms / 1e3,
            figures.prefill_token_ms / 1e3 or figures.coefficients.prefill_token_s,
        ),
    )


def _time(row: _Time) -> MeasuredTime:
    low_ms, high_ms = row.interval_ms or (row.tpot_ms, row.tpot_ms)
    return MeasuredTime(row.k, row.batch_size, row.tpot_ms / 1e3, low_ms / 1e3, high_ms / 1e3)

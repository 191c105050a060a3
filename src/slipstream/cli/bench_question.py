"""What ``slipstream bench`` is asked: its words and options as plain values, each refused with its reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite

from slipstream.cli.option_values import named_values
from slipstream.core.goodput import Target
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.workload.arrivals import (
    Arrivals,
    BurstArrivals,
    ConstantArrivals,
    GammaArrivals,
    PoissonArrivals,
)
from slipstream.workload.lengths import ExponentialLengths, FixedLengths, Lengths, LognormalLengths, UniformLengths
from slipstream.workload.mix import CategoryTraffic, Mix, TraceArrivals, make_plan
from slipstream.workload.plan import Plan
from slipstream.workload.traces import Trace

__all__ = [
    "Traffic",
    "Words",
    "lengths_of",
    "process_of",
    "read_words",
    "seconds_of",
    "shares_of",
    "target_of",
    "trace_rate",
]

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_MEASURES = {"ttft": "ttft_s", "tpot": "tpot_s", "e2el": "e2e_s", "e2e": "e2e_s"}

Process = Callable[[float], Arrivals]
"""Arrivals at a mean rate."""


@dataclass(frozen=True, slots=True)
class Words:
    """What stands on the line without an option: addresses, ``NAME=URL`` to compare, and ``MEASURE:TIME`` targets."""

    urls: tuple[str, ...]
    named: tuple[tuple[str, str], ...]
    targets: tuple[str, ...]


def read_words(words: Sequence[str]) -> Words:
    """Sorted by their form. Raises `ImpossibleInput` for one of no known form."""
    urls: list[str] = []
    named: list[tuple[str, str]] = []
    targets: list[str] = []
    for word in words:
        name, equals, url = word.partition("=")
        if _is_url(word):
            urls.append(word)
        elif equals and name and _is_url(url):
            named.append((name, url))
        elif word.partition(":")[0] in _MEASURES:
            targets.append(word)
        else:
            raise ImpossibleInput(
                f"{word!r} is neither an address (http://…), nor NAME=http://… to compare, nor a target (ttft:500)"
            )
    return Words(tuple(urls), tuple(named), tuple(targets))


def target_of(texts: Sequence[str]) -> Target:
    """``ttft:500``, ``tpot:50ms``, ``e2el:5s``: bare numbers are milliseconds. Raises `ImpossibleInput`."""
    limits: dict[str, float] = {}
    for text in texts:
        for word in text.replace(",", " ").split():
            measure, _, limit = word.partition(":")
            if measure not in _MEASURES:
                raise ImpossibleInput(f"--goodput knows ttft, tpot and e2el, as in ttft:500, and not {word!r}")
            key = _MEASURES[measure]
            if key in limits:
                raise ImpossibleInput(f"--goodput gives {measure} twice")
            limits[key] = seconds_of("--goodput", limit, bare="ms")
    return Target(**limits)


def seconds_of(option: str, text: str, bare: str = "s") -> float:
    """``90``, ``90s``, ``1.5m``, ``500ms``: above 0; ``bare`` is a number's unit. Raises `ImpossibleInput`."""
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * _UNITS[match[2] or bare] if match else 0.0
    if not 0.0 < seconds < 1e9:
        raise ImpossibleInput(f"{option} takes a time above 0, as in 90s, 2m or 500ms, and not {text!r}")
    return seconds


def process_of(text: str) -> Process:
    """How requests arrive at a mean rate: ``poisson``, ``constant``, ``gamma:cv=2`` or
    ``bursts:times=4,burst=5,every=30`` (seconds; in a burst so many times the rate between bursts). Raises
    `ImpossibleInput`.
    """
    numbers = dict.fromkeys(("cv", "times", "burst", "every"), _positive)
    name, values = named_values("--arrivals", text, numbers) if ":" in text else (text, {})
    allowed = {"constant": set(), "poisson": set(), "gamma": {"cv"}, "bursts": {"times", "burst", "every"}}
    if name not in allowed or not values.keys() <= allowed[name]:
        raise ImpossibleInput(
            "--arrivals is constant, poisson, gamma (gamma:cv=2) or bursts (bursts:times=4,burst=5,every=30), "
            f"not {text!r}"
        )
    given = {key: float(str(value)) for key, value in values.items()}
    if name == "constant":
        return ConstantArrivals
    if name == "poisson":
        return PoissonArrivals
    if name == "gamma":
        cv = given.get("cv", 2.0)
        return lambda rate: GammaArrivals(rate, cv)
    times, burst_s, every_s = given.get("times", 4.0), given.get("burst", 5.0), given.get("every", 30.0)

    def bursts(rate: float) -> BurstArrivals:
        quiet = rate * every_s / (every_s - burst_s + times * burst_s) if every_s > burst_s else rate
        return BurstArrivals(quiet, times * quiet, burst_s, every_s)

    return bursts


def lengths_of(option: str, text: str) -> Lengths:
    """``512``, ``100-900``, ``exponential:mean=200`` or ``lognormal:mean=350,p95=900``, the latter two also with
    ``maximum=``. Raises `ImpossibleInput`, and ImpossibleWorkload for lengths that can not be.
    """
    if match := re.fullmatch(r"(\d+)(?:-(\d+))?", text.strip()):
        return FixedLengths(int(match[1])) if match[2] is None else UniformLengths(int(match[1]), int(match[2]))
    keys = dict.fromkeys(("mean", "p95", "maximum"), _positive)
    name, values = named_values(option, text, keys)
    given = {key: float(str(value)) for key, value in values.items()}
    maximum = {"maximum": int(given["maximum"])} if "maximum" in given else {}
    if name == "exponential" and "mean" in given and "p95" not in given:
        return ExponentialLengths(given["mean"], **maximum)
    if name == "lognormal" and {"mean", "p95"} <= given.keys():
        return LognormalLengths(given["mean"], given["p95"], **maximum)
    raise ImpossibleInput(
        f"{option} is a number, a range (100-900), exponential:mean=200 or lognormal:mean=350,p95=900, not {text!r}"
    )


def shares_of(text: str) -> tuple[tuple[str, float], ...]:
    """``code=2,chat=1``, or names alone for equal shares. Raises `ImpossibleInput`."""
    shares: list[tuple[str, float]] = []
    for word in text.split(","):
        name, equals, share = word.strip().partition("=")
        if not name:
            raise ImpossibleInput(f"--categories are names with shares, as in code=2,chat=1, not {text!r}")
        shares.append((name, _positive(share) if equals else 1.0))
    return tuple(shares)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What arrives, at any rate. ``trace`` in place of ``process`` and lengths; ``duration_s`` or ``requests`` ends it,
    a trace does by itself.
    """

    process: Process
    categories: tuple[tuple[str, float], ...]
    prompt: Lengths
    output: Lengths
    trace: Trace | None
    requests: int | None
    duration_s: float | None
    seed: int

    def plan(self, rate: float | None) -> Plan:
        """At a mean rate a second; ``None`` = the trace's own. Raises ImpossibleWorkload."""
        trace = self.trace
        arrivals: Arrivals | TraceArrivals
        if trace is None:
            arrivals = self.process(1.0 if rate is None else rate)
        else:
            own = trace_rate(trace)
            repeat = self.duration_s is not None or (self.requests or 0) > len(trace)
            arrivals = TraceArrivals(trace, 1.0 if rate is None else rate / own, repeat=repeat)
        lengths = (None, None) if trace is not None else (self.prompt, self.output)
        mix = Mix(
            arrivals,
            tuple(CategoryTraffic(name, share, *lengths) for name, share in self.categories),
            (("", 1.0),),
            duration_s=self.duration_s,
            requests=self.requests,
        )
        return make_plan(mix, self.seed)


def trace_rate(trace: Trace) -> float:
    """Requests a second, over the trace's length. Raises `ImpossibleInput` where all come at once."""
    lasts_s = float(trace.arrival_s[-1])
    if not lasts_s > 0.0:
        raise ImpossibleInput("all requests of the trace come at once: it has no rate")
    return (len(trace) - 1) / lasts_s


def _is_url(word: str) -> bool:
    return word.startswith(("http://", "https://"))


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (value > 0.0 and isfinite(value)):
        raise ImpossibleInput(f"{text!r} is no number above 0")
    return value

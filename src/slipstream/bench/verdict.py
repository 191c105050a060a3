"""Whether a measurement can be believed: a sentence for a person and an exit status for a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from slipstream.bench.find_max import Ended, Search
from slipstream.bench.measures import LATE_S, Measures
from slipstream.bench.resampling import FEWEST
from slipstream.core.goodput import Target, meets
from slipstream.load import LoadResult

__all__ = ["Status", "Verdict", "is_out_of_reach", "out_of_reach", "verdict_of", "verdict_of_search"]


class Status(IntEnum):
    """Exit statuses, as docs/reference/bench.md has them."""

    MEASURED = 0
    UNUSABLE = 1
    IMPOSSIBLE = 2
    FELL_BEHIND = 3
    OUT_OF_REACH = 4
    TOO_FEW = 5
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Verdict:
    """``sentences``: everything that is wrong; ``status`` is that of the first, which is the gravest."""

    status: Status
    sentences: tuple[str, ...]


def verdict_of(measures: Sequence[Measures], errors: Sequence[str], *, interrupted: bool, in_flight: int) -> Verdict:
    """Of a load, or of one on each of two servers. ``errors``: what requests failed of, most often first."""
    found: list[tuple[Status, str]] = []
    if interrupted:
        under_way = f"; {in_flight} requests were under way and are not counted" if in_flight else ""
        found.append((Status.INTERRUPTED, f"interrupted: the figures are of what had ended{under_way}"))
    for one in measures:
        requests = one.requests
        if requests.offered and not requests.finished:
            because = f", the most often because: {errors[0]}" if errors else ""
            found.append((Status.UNUSABLE, f"all {requests.offered} requests failed{because}"))
        elif one.fell_behind:
            found.append((Status.FELL_BEHIND, _behind(one)))
        if requests.finished < FEWEST:
            few = f"{requests.finished} requests that ended well are too few to tell: intervals need {FEWEST}"
            found.append((Status.TOO_FEW, few))
    if all(one.requests.finished >= FEWEST and one.requests.attainment.value == 0.0 for one in measures):
        offered = sum(one.requests.offered for one in measures)
        found.append((Status.OUT_OF_REACH, f"none of {offered} requests met all its targets"))
    found = list(dict.fromkeys(found))
    return Verdict(found[0][0] if found else Status.MEASURED, tuple(sentence for _, sentence in found))


def verdict_of_search(search: Search, attainment: float) -> Verdict:
    """Of a search for the highest rate."""
    if search.ended is Ended.INTERRUPTED:
        return Verdict(Status.INTERRUPTED, ("interrupted: the search was not at its end",))
    if search.ended is Ended.GENERATOR:
        return Verdict(Status.FELL_BEHIND, (_behind(search.points[-1].measures),))
    if search.ended is Ended.NEVER:
        least = min(point.rate for point in search.points)
        sentence = f"not even at {least:.3g} requests a second did {attainment:.0%} of them meet their targets"
        return Verdict(Status.OUT_OF_REACH, (sentence,))
    if search.rate is None or search.ended is Ended.BUDGET:
        sentence = f"after {len(search.points)} rates the search is not at its end: --points allows more"
        return Verdict(Status.TOO_FEW, (sentence,))
    return Verdict(Status.MEASURED, ())


def is_out_of_reach(alone: Sequence[LoadResult], target: Target) -> bool:
    """Whether none of the requests that were alone on the server met its targets."""
    return not any(
        result.latency is not None and meets(target, result.latency, result.output_tokens) for result in alone
    )


def out_of_reach(alone: Sequence[LoadResult], target: Target) -> str:
    """The sentence for it: the best there was of each measure that has a target."""
    latencies = [result.latency for result in alone if result.latency is not None]
    measures = (
        ("TTFT", [latency.ttft_s for latency in latencies], target.ttft_s),
        ("TPOT", [latency.tpot_s for latency in latencies], target.tpot_s),
        ("E2E", [latency.e2e_s for latency in latencies], target.e2e_s),
    )
    told = [
        f"{name} {min(known) * 1000.0:.3g} ms of {limit * 1000.0:.3g}"
        for name, values, limit in measures
        if limit is not None and (known := [value for value in values if value is not None])
    ]
    return f"not even requests that are alone on the server meet all their targets; the best were {', '.join(told)}"


def _behind(measures: Measures) -> str:
    return (
        f"the load generator fell behind: 1 % of the requests went out more than {measures.late_p99_s * 1000.0:.0f} ms "
        f"late, and {LATE_S * 1000.0:.0f} ms are allowed, so that the figures say more of it than of the server"
    )

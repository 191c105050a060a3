"""What requests of one kind are worth on one kind of node, by its occupancy: tables, so that decisions only look up."""

from __future__ import annotations

from math import log, sqrt
from typing import Final

from slipstream.core.forecast import Forecast, Work, burden, predict
from slipstream.core.goodput import Target
from slipstream.core.latency import Latency
from slipstream.core.track_record import TrackRecord

__all__ = ["Outlook", "Records", "outlook"]

LENGTH_SPREAD: Final = 0.7
"""Relative spread of answers' lengths within a category: lognormal ones whose 95th percentile is 2.4 times the mean."""
MEAN_OVER_MEDIAN: Final = 1.28
"""Of such lengths. A forecast is for the mean, and half of the answers are shorter than the median."""
DRAFT_SPREAD: Final = 0.3
"""Relative spread of tokens a step between requests of a category: of how well they can be drafted, and of luck."""
EFFORT: Final = 0.02
"""What using a target up once is worth beside meeting it: enough to tell apart what meets it, or does not, alike."""
UNTARGETED_S: Final = 1.0
"""Seconds a token that stand in for the target of a class that has none: it only orders nodes."""
NO_TIME_S: Final = 1e-6


class Records:
    """How predictions for requests of one kind on one kind of node came true, by what has a target."""

    __slots__ = ("e2e", "tpot", "ttft")

    def __init__(self, spread: float, drafts: bool) -> None:  # noqa: FBT001 - a row of data
        """``spread`` (above 0): assumed standard deviation of the logarithm of what comes true over what is predicted;
        more where they are drafted for.
        """
        if drafts:
            spread = sqrt(spread * spread + DRAFT_SPREAD * DRAFT_SPREAD)
        self.ttft = TrackRecord(0.0, spread)
        self.tpot = TrackRecord(0.0, spread)
        self.e2e = TrackRecord(-log(MEAN_OVER_MEDIAN), sqrt(spread * spread + LENGTH_SPREAD * LENGTH_SPREAD))

    def lines(self) -> tuple[float, ...]:
        """What an outlook rests on: numbers of the order of 1."""
        ttft, tpot, e2e = self.ttft, self.tpot, self.e2e
        levels = (1.0 + ttft.level, 1.0 + tpot.level, 1.0 + e2e.level)
        return (*levels, ttft.slope, tpot.slope, e2e.slope, 1.0 + ttft.spread, 1.0 + tpot.spread, 1.0 + e2e.spread)


class Outlook:
    """Entry ``n`` of each list is for the request and ``n - 1`` other sequences; entry 0 means nothing.

    ``ttft_s``, ``tpot_s`` and ``stay_s`` (until its end) are as forecast. ``worth``: the probability that it meets its
    targets, less a little for how much of them it uses up. ``loss``: what is added to that (0 or less) when one of mean
    length joins and stays. ``burden_s``: how long a sequence of mean length would have to be there to slow the others
    down as much.
    """

    __slots__ = ("_records", "_target", "burden_s", "loss", "stay_s", "tpot_s", "ttft_s", "worth")

    def __init__(self, target: Target, records: Records) -> None:
        self._target = target
        self._records = records
        self.ttft_s = [1.0]
        self.tpot_s = [1.0]
        self.stay_s = [1.0]
        self.burden_s = [1.0]
        self.worth = [0.0]
        self.loss = [0.0]

    def worth_late(self, occupancy: int, queued_s: float) -> float:
        """``worth`` of one that has waited so many seconds before it joins."""
        return self._probability(occupancy, occupancy, queued_s) - EFFORT * self._used(occupancy, queued_s)

    def chance_left(self, occupancy: int, queued_s: float) -> float:
        """The share, 0..1, of its chance to meet its targets that is left after so many seconds of waiting."""
        target, records = self._target, self._records
        left = 1.0
        if target.ttft_s is not None:
            left *= _left(records.ttft, self.ttft_s[occupancy], target.ttft_s, queued_s)
        if target.e2e_s is not None:
            left *= _left(records.e2e, self.stay_s[occupancy], target.e2e_s, queued_s)
        return left

    def learn(self, occupancy: int, latency: Latency, queued_s: float) -> None:
        """One that joined as the last of ``occupancy`` sequences, after so many seconds of waiting, was answered."""
        if occupancy >= len(self.worth):
            return
        target, records = self._target, self._records
        if target.ttft_s is not None and latency.ttft_s is not None:
            _learn(records.ttft, self.ttft_s[occupancy], latency.ttft_s - queued_s, target.ttft_s)
        if target.tpot_s is not None and latency.tpot_s is not None:
            _learn(records.tpot, self.tpot_s[occupancy], latency.tpot_s, target.tpot_s)
        if target.e2e_s is not None:
            _learn(records.e2e, self.stay_s[occupancy], latency.e2e_s - queued_s, target.e2e_s)

    def fill(self) -> None:
        """Compute ``worth`` and ``loss`` from the latencies."""
        last = len(self.ttft_s) - 1
        for occupancy in range(1, last + 1):
            fuller = min(occupancy + 1, last)
            used = self._used(occupancy, 0.0)
            probability = self._probability(occupancy, occupancy, 0.0)
            self.worth.append(probability - EFFORT * used)
            harm = self._probability(occupancy, fuller, 0.0) - probability
            self.loss.append(harm - EFFORT * (self._used(fuller, 0.0) - used))

    def _probability(self, occupancy: int, then: int, queued_s: float) -> float:
        """That it meets its targets where it joins ``occupancy`` sequences and stays with ``then``. What is a habit of
        the load, and in the record, is no answer to one that stays: latencies are longer by all that is forecast.
        """
        target, records = self._target, self._records
        probability = 1.0
        if target.ttft_s is not None:
            ttft_s = self.ttft_s[occupancy]
            probability *= records.ttft.met(ttft_s / _rest(target.ttft_s, queued_s), self.ttft_s[then] / ttft_s)
        if target.tpot_s is not None:
            tpot_s = self.tpot_s[occupancy]
            probability *= records.tpot.met(tpot_s / target.tpot_s, self.tpot_s[then] / tpot_s)
        if target.e2e_s is not None:
            e2e_s = self.stay_s[occupancy]
            probability *= records.e2e.met(e2e_s / _rest(target.e2e_s, queued_s), self.stay_s[then] / e2e_s)
        return probability

    def _used(self, occupancy: int, queued_s: float) -> float:
        """The share of its tightest target that it uses."""
        target, used = self._target, 0.0
        if target.ttft_s is not None:
            used = self.ttft_s[occupancy] / _rest(target.ttft_s, queued_s)
        if target.tpot_s is not None:
            used = max(used, self.tpot_s[occupancy] / target.tpot_s)
        if target.e2e_s is not None:
            used = max(used, self.stay_s[occupancy] / _rest(target.e2e_s, queued_s))
        return used if used > 0.0 else self.tpot_s[occupancy] / UNTARGETED_S


def outlook(forecast: Forecast, work: Work, records: Records) -> Outlook:
    """Of such requests on such a node, as far as its forecast is valid, by how predictions came true so far."""
    found = Outlook(work.target, records)
    for occupancy in range(1, forecast.most + 1):
        predicted = predict(forecast, work, occupancy)
        found.ttft_s.append(predicted.ttft_s)
        found.tpot_s.append(predicted.tpot_s)
        found.stay_s.append(predicted.e2e_s)
        found.burden_s.append(burden(forecast, work, occupancy, predicted))
    found.fill()
    return found


def _rest(target_s: float, queued_s: float) -> float:
    return max(NO_TIME_S, target_s - queued_s)


def _left(record: TrackRecord, predicted_s: float, target_s: float, queued_s: float) -> float:
    at_once = record.met(predicted_s / target_s)
    return record.met(predicted_s / _rest(target_s, queued_s)) / at_once if at_once > 0.0 else 0.0


def _learn(record: TrackRecord, predicted_s: float, actual_s: float, target_s: float) -> None:
    if actual_s > 0.0:
        record.add(predicted_s / target_s, actual_s / target_s)

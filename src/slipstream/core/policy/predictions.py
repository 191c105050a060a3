"""What policy ``predictive`` foretells: kinds of requests, kinds of nodes, and the outlook of each on each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from slipstream.core.acceptance import AcceptanceEstimate
from slipstream.core.forecast import Company, Forecast, Work
from slipstream.core.goodput import Target
from slipstream.core.node import Speculator
from slipstream.core.outlook import MEAN_OVER_MEDIAN, Outlook, Records, outlook
from slipstream.core.policy.threshold import Evidence
from slipstream.core.request import RequestShape, TrafficClass

__all__ = ["Equipment", "Kind", "Predictions"]

CHARACTERS_A_TOKEN: Final = 4.0
PROMPT_TOKENS: Final = 500.0
"""Assumed of prompts of unknown length."""
OUTPUT_TOKENS: Final = 250.0
"""Assumed of a category's answers until enough were seen."""
FORGET: Final = 0.02
"""What the latest prompt weighs in the mean of its kind."""
LONGEST_REVIEW: Final = 64
"""Requests of a kind after which what is predicted of it is looked at again; sooner at the start."""
NOTABLE: Final = 0.02
"""Relative change of what a prediction rests on that makes it worth computing anew."""


class Kind:
    """Requests alike: of one model, category and class, and with prompts of one order of length. ``prompt_tokens`` is a
    mean that forgets.
    """

    __slots__ = ("category", "index", "model", "output_tokens", "prompt_tokens", "review_at", "seen", "target")

    def __init__(self, index: int, model: str, category: str, target: Target) -> None:
        self.index = index
        self.model = model
        self.category = category
        self.target = target
        self.prompt_tokens = PROMPT_TOKENS
        self.output_tokens = OUTPUT_TOKENS
        self.seen = 0
        self.review_at = 1


class Equipment:
    """Nodes of one forecast and speculator. By kind: their ``outlooks``, what each rests on (``bases``), and how its
    predictions came true (``records``).
    """

    __slots__ = ("bases", "forecast", "outlooks", "records", "speculator")

    def __init__(self, forecast: Forecast, speculator: Speculator | None) -> None:
        self.forecast = forecast
        self.speculator = speculator
        self.outlooks: list[Outlook] = []
        self.bases: list[tuple[float, ...]] = []
        self.records: list[Records] = []


class Predictions:
    """All kinds and all equipment that a policy has met. ``changes`` counts the outlooks that were computed, and
    ``full_tokens`` is what a sequence has in the cache at its end, on average.
    """

    __slots__ = ("_by_key", "_equipments", "_evidence", "_spread", "_targets", "changes", "full_tokens", "kinds")

    def __init__(self, evidence: Evidence, targets: Mapping[TrafficClass, Target], spread: float) -> None:
        """``spread`` as in `Records`."""
        self._evidence = evidence
        self._targets = targets
        self._spread = spread
        self._by_key: dict[tuple[str, str, TrafficClass, int], Kind] = {}
        self._equipments: list[Equipment] = []
        self.kinds: list[Kind] = []
        self.changes = 0
        self.full_tokens = PROMPT_TOKENS + OUTPUT_TOKENS

    def kind(self, shape: RequestShape) -> Kind:
        """The request's kind."""
        key = (shape.model, shape.category, shape.traffic_class, _order(shape.prompt_characters))
        kind = self._by_key.get(key)
        if kind is None:
            target = self._targets.get(shape.traffic_class) or Target()
            kind = self._by_key[key] = Kind(len(self.kinds), shape.model, shape.category, target)
            self.kinds.append(kind)
            for equipment in self._equipments:
                self._predict(equipment, kind)
        return kind

    def reviewed(self, shape: RequestShape) -> Kind:
        """The request's kind, one request more seen of it, and what is predicted of it up to date."""
        kind = self.kind(shape)
        seen = kind.seen = kind.seen + 1
        characters = shape.prompt_characters
        if characters is not None:
            weight = max(FORGET, 1.0 / seen)
            kind.prompt_tokens += weight * (characters / CHARACTERS_A_TOKEN - kind.prompt_tokens)
        if seen >= kind.review_at:
            kind.review_at = seen + min(seen, LONGEST_REVIEW)
            median = self._evidence.median_output_tokens(kind.category)
            if median is not None:
                kind.output_tokens = max(1.0, MEAN_OVER_MEDIAN * median)
            for equipment in self._equipments:
                self._predict(equipment, kind)
        return kind

    def most_seen(self) -> Kind:
        """The kind of which there were the most requests. ValueError before the first."""
        return max(self.kinds, key=_seen)

    def equipment(self, forecast: Forecast, speculator: Speculator | None) -> Equipment:
        """Nodes that have this forecast and speculator."""
        for equipment in self._equipments:
            if equipment.forecast is forecast and equipment.speculator == speculator:
                return equipment
        equipment = Equipment(forecast, speculator)
        self._equipments.append(equipment)
        for kind in self.kinds:
            self._predict(equipment, kind)
        return equipment

    def work(self, equipment: Equipment, kind: Kind) -> Work:
        """A kind's requests on nodes so equipped, by all that is known now."""
        acceptance: AcceptanceEstimate | None = None
        if equipment.speculator is not None:
            acceptance = self._evidence.estimate(kind.model, equipment.speculator, kind.category)
        return Work(kind.prompt_tokens, kind.output_tokens, self._company(), acceptance, kind.target)

    def _predict(self, equipment: Equipment, kind: Kind) -> None:
        """Compute a kind's outlook on nodes so equipped, if what it rests on has changed notably."""
        fresh = kind.index == len(equipment.outlooks)
        if fresh:
            equipment.records.append(Records(self._spread, equipment.speculator is not None))
        records = equipment.records[kind.index]
        work = self.work(equipment, kind)
        accepted = 1.0 if work.acceptance is None else work.acceptance.tokens_per_step or 1.0
        company = work.company
        self.full_tokens = company.full_tokens
        bases = (
            kind.prompt_tokens,
            kind.output_tokens,
            accepted,
            company.prompt_tokens,
            company.output_tokens,
            company.context_tokens,
            company.full_tokens,
            *records.lines(),
        )
        if not fresh and not _differ(bases, equipment.bases[kind.index]):
            return
        found = outlook(equipment.forecast, work, records)
        if fresh:
            equipment.outlooks.append(found)
            equipment.bases.append(bases)
        else:
            equipment.outlooks[kind.index] = found
            equipment.bases[kind.index] = bases
        self.changes += 1

    def _company(self) -> Company:
        """What all kinds are like together: each weighs as much as it was seen, and in the cache by how long it is."""
        requests = prompts = outputs = contexts = fulls = 0.0
        for kind in self.kinds:
            seen = max(1, kind.seen)
            prompt, output = kind.prompt_tokens, kind.output_tokens
            requests += seen
            prompts += seen * prompt
            outputs += seen * output
            contexts += seen * output * (prompt + 0.5 * output)
            fulls += seen * output * (prompt + output)
        return Company(prompts / requests, outputs / requests, contexts / outputs, fulls / outputs)


def _order(characters: int | None) -> int:
    """The order of a prompt's length, each four times the one before; -1 = unknown."""
    return -1 if characters is None else (characters >> 10).bit_length() >> 1


def _differ(new: tuple[float, ...], old: tuple[float, ...]) -> bool:
    return any(abs(one - other) > NOTABLE * abs(other) for one, other in zip(new, old, strict=True))


def _seen(kind: Kind) -> int:
    return kind.seen

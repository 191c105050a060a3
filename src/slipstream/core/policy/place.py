"""A node as policy ``predictive`` sees it: which requests it was given, what they are worth, and what joining costs."""

from __future__ import annotations

from typing import Final

from slipstream.core.forecast import PRESSED
from slipstream.core.node_state import NodeState, ReplicaGroup
from slipstream.core.policy.predictions import Equipment, Predictions

__all__ = ["Place", "Places"]

LOOK_AT_MOST: Final = 32


class Place:
    """``residents[kind]`` are the sequences that it was given. ``cost`` is what one more adds to what those are worth
    in a second (negative: takes), and ``hope`` how many of them are expected to meet their targets, as long as the
    occupancy is ``known_at`` and the changes of predictions are ``known_by``. ``alike``: as many sequences of the mean
    length weigh as much as those. ``equipment`` ``None``: there is no valid forecast.
    """

    __slots__ = ("alike", "cost", "equipment", "hope", "known_at", "known_by", "node", "residents")

    def __init__(self, node: NodeState) -> None:
        self.node = node
        self.equipment: Equipment | None = None
        self.residents: list[int] = []
        self.alike = 0
        self.cost = 0.0
        self.hope = 0.0
        self.known_at = -1
        self.known_by = -1

    def count(self, index: int, sequences: int) -> None:
        """So many sequences of a kind more; fewer, below 0."""
        residents = self.residents
        while len(residents) <= index:
            residents.append(0)
        residents[index] = residents[index] + sequences
        self.known_at = -1

    def weigh(self, equipment: Equipment, predictions: Predictions, occupancy: int) -> None:
        """What one sequence more takes from those that are there; foreign ones are taken to be like ours there, or,
        where we have none, like the requests seen most.

        On a node whose cache fills, long sequences count as several of the mean length.
        """
        outlooks, kinds = equipment.outlooks, predictions.kinds
        own = 0
        tokens = 0.0
        residents = self.residents
        if occupancy > 0 and not any(residents):
            residents = [0] * len(kinds)
            residents[predictions.most_seen().index] = occupancy
        for index, count in enumerate(residents):
            if count > 0:
                own += count
                tokens += count * (kinds[index].prompt_tokens + kinds[index].output_tokens)
        self.alike = occupancy
        self.known_at = occupancy
        self.known_by = predictions.changes
        self.cost = 0.0
        self.hope = 0.0
        if own == 0:
            return
        forecast = equipment.forecast
        tokens = tokens * occupancy / own
        if forecast.cache_tokens is not None and tokens > PRESSED * forecast.cache_tokens:
            self.alike = round(tokens / predictions.full_tokens)
        alike = max(1, min(self.alike, forecast.most - 1))
        cost = hope = 0.0
        for index, count in enumerate(residents):
            if count > 0:
                its = outlooks[index]
                cost += count * its.loss[alike] / its.stay_s[alike]
                hope += count * max(0.0, its.worth[alike])
        self.cost = cost * occupancy / own
        self.hope = hope * occupancy / own


class Places:
    """The places of all nodes that serve a model, as long as these are its groups. ``whole``: all have a forecast.
    ``look_at`` is when it is asked whether forecasts are still valid.
    """

    __slots__ = ("_turn", "found", "look_at", "speculative", "standard", "whole")

    def __init__(
        self,
        speculative: tuple[ReplicaGroup, ...],
        standard: tuple[ReplicaGroup, ...],
        found: list[Place],
        whole: bool,  # noqa: FBT001 - a row of data
        look_at: float,
    ) -> None:
        self.look_at = look_at
        self.speculative = speculative
        self.standard = standard
        self.found = found
        self.whole = whole
        self._turn = 0

    def next_looked_at(self) -> list[Place]:
        """Those whose turn it is to be asked whether their forecast holds: all at once would hold a request up."""
        found, turn = self.found, self._turn
        count = min(len(found), LOOK_AT_MOST)
        self._turn = (turn + count) % max(1, len(found))
        return [found[(turn + step) % len(found)] for step in range(count)]

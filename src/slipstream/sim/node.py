"""A node of a simulated fleet: an engine that runs its steps, and what it says of itself when it is polled."""

from __future__ import annotations

from collections.abc import Sequence as Several
from math import floor, inf
from typing import Final, Protocol

from slipstream.core.node import NodeReport, NodeSpec, SpeculativeCounters, SpeculatorKind
from slipstream.core.node_state import NodeState
from slipstream.enginemodel.engine import Engine
from slipstream.enginemodel.sequence import Sequence
from slipstream.enginemodel.settings import Speculation

__all__ = ["FINISHED", "FIRST_TOKEN", "PREEMPTED", "Node", "Note"]

COUNTERS_INTERVAL_S: Final = 1.0
"""As control/poller.py: counters are read no more often, since acceptance changes slower than load."""

FIRST_TOKEN: Final = 0
PREEMPTED: Final = 1
FINISHED: Final = 2

Note = tuple[float, int, int, int, Sequence]
"""Something that a step showed: when, on which node, its place among what that step showed, what, of which sequence."""


class Acceptance(Protocol):
    """What is accepted of a category's drafts."""

    def at(self, quantile: float) -> tuple[float, ...]:
        """The survival of the request at that quantile, 0..1."""


class Node:
    """One node. ``index`` is its place in the fleet's columns, ``phase`` (0..1) when in an interval it is polled.

    ``acceptance`` is what its speculator has accepted of each category, by the category's index; empty for a standard
    node. ``ends_at`` is when the running step ends, infinity = none runs. ``capacity`` is how many its engine runs at
    once. ``poll_at`` is when it is polled next, infinity = it is not. ``state`` is the gateway's view of it, ``None``
    while it is not in the fleet. ``joined_at`` and ``present_s`` are since when it is there, and for how long it was
    before.
    """

    __slots__ = (
        "_alike",
        "_batch_sizes",
        "_counters",
        "_counters_due",
        "_finished",
        "_k",
        "_kind",
        "_running",
        "_speculates",
        "acceptance",
        "capacity",
        "ends_at",
        "engine",
        "gpus",
        "index",
        "joined_at",
        "leaving",
        "name",
        "phase",
        "poll_at",
        "present_s",
        "saturated_at",
        "saturated_s",
        "spec",
        "state",
    )

    def __init__(
        self,
        index: int,
        spec: NodeSpec,
        gpus: int,
        phase: float,
        engine: Engine,
        slots: int,
        speculation: Speculation | None,
        acceptance: Several[Acceptance],
    ) -> None:
        self.index = index
        self.spec = spec
        self.name = spec.name
        self.gpus = gpus
        self.phase = phase
        self.engine = engine
        self.acceptance = acceptance
        self.ends_at: float = inf
        self.state: NodeState | None = None
        self.leaving = False
        self.poll_at: float = inf
        self.joined_at = 0.0
        self.present_s = 0.0
        self.saturated_at = -1.0
        self.saturated_s = 0.0
        self.capacity = slots
        self._batch_sizes: list[int] = []
        self._running = 0  # with so many admitted were the last steps, so many of them are not counted yet
        self._alike = 0
        self._finished: list[Sequence] = []
        self._speculates = speculation is not None
        self._k: int | None = None
        self._kind: SpeculatorKind | None = None
        if speculation is not None:
            self._k = None if speculation.schedule else speculation.k
            self._kind = SpeculatorKind.DRAFT if speculation.proposing_share >= 1.0 else SpeculatorKind.NGRAM
        self._counters: SpeculativeCounters | None = None
        self._counters_due = 0.0

    def submit(self, sequence: Sequence, now: float) -> bool:
        """Give the engine a sequence; whether it took it."""
        if not self.engine.submit(sequence, now):
            return False
        if self.ends_at == inf:
            self._begin(now)
        return True

    def run(self, until: float, notes: list[Note]) -> None:
        """Run the steps that end until then, that moment included; ``notes`` gets what ended with them."""
        engine, finished = self.engine, self._finished
        now = self.ends_at
        while now <= until:
            ends_at = engine.next_step(now, finished)
            if finished:
                for place, sequence in enumerate(finished):
                    notes.append((now, self.index, place, FINISHED, sequence))
                finished.clear()
            if ends_at < inf:
                self._count(engine.running)
            now = ends_at
        self.ends_at = now

    def run_watched(self, until: float, notes: list[Note]) -> None:
        """The same, and ``notes`` gets first tokens and preemptions too."""
        engine = self.engine
        while self.ends_at <= until:
            now = self.ends_at
            before = engine.sequences()
            losses = [sequence.preemptions for sequence in before]
            finished = engine.end_step(now)
            place = 0
            for sequence, lost in zip(before, losses, strict=True):
                if sequence.first_token_at == now:
                    notes.append((now, self.index, place, FIRST_TOKEN, sequence))
                    place += 1
                if sequence.preemptions > lost:
                    notes.append((now, self.index, place, PREEMPTED, sequence))
                    place += 1
            for sequence in finished:
                notes.append((now, self.index, place, FINISHED, sequence))
                place += 1
            self._begin(now)

    def batch_sizes(self) -> list[int]:
        """By size, how many steps had so many sequences admitted; up to a size that was reached."""
        sizes = self._batch_sizes
        if self._running >= len(sizes):
            # Room for more in one go; not for every size, since slots may be a million.
            sizes.extend([0] * (2 * self._running + 1 - len(sizes)))
        sizes[self._running] += self._alike
        self._alike = 0
        return sizes

    def _begin(self, now: float) -> None:
        self.ends_at = self.engine.begin_step(now)
        if self.ends_at < inf:
            self._count(self.engine.running)

    def _count(self, running: int) -> None:
        """A step has begun. Most are as large as the one before."""
        if running != self._running:
            self.batch_sizes()
            self._running = running
        self._alike += 1

    def next_poll(self, after: float, interval_s: float) -> float:
        """The first moment later than ``after`` at which it is polled: multiples of the interval, its phase past them,
        so that no two nodes are asked at once and no beat drifts.
        """
        beat = (floor(after / interval_s - self.phase) + 1 + self.phase) * interval_s
        return beat if beat > after else beat + interval_s

    def next_telling_poll(self, now: float, interval_s: float, stale_after_s: float) -> float:
        """The next poll after the one of ``now`` whose answer the gateway would miss: the last that comes before it
        takes this one for stale, or the first that reads counters anew. Others would change nothing: here nobody else
        sends to a node, so what it says of its load is at most what the gateway has booked. A node of which nothing is
        known yet, and one that has refused a request, is polled at every beat.
        """
        beat, state = self.next_poll(now, interval_s), self.state
        if state is None or not state.fresh or state.refusing or state.learned.limit is not None:
            return beat
        number = floor((now + stale_after_s) / interval_s - self.phase) + 1
        while (number + self.phase) * interval_s - now > stale_after_s:
            number -= 1
        if self._speculates:
            counters = floor(self._counters_due / interval_s - self.phase)
            while (counters + self.phase) * interval_s < self._counters_due:
                counters += 1
            number = min(number, counters)
        telling = (number + self.phase) * interval_s
        return max(beat, telling)

    def report(self, now: float) -> NodeReport:
        """What its engine says when it is asked now."""
        engine = self.engine
        if self._speculates and now >= self._counters_due:
            self._counters = SpeculativeCounters(
                engine.drafted,
                engine.accepted,
                engine.verify_steps,
                tuple(engine.accepted_per_position),
                engine.generated_tokens,
            )
            self._counters_due = self.next_poll(now, COUNTERS_INTERVAL_S)
        return NodeReport(
            engine.running,
            engine.waiting,
            engine.kv_use,
            self.capacity,
            self._speculates,
            self._k,
            self._kind,
            self._counters,
            self.spec.models,
            "sim",
            "1",
        )

    def joined(self, state: NodeState, now: float) -> None:
        """It is in the fleet from now on."""
        self.state = state
        self.leaving = False
        self.joined_at = now

    def left(self, now: float) -> None:
        """It is in the fleet no more, or the run is over."""
        if self.state is not None:
            self.state = None
            self.follow_saturation(now)
            self.present_s += now - self.joined_at

    def follow_saturation(self, now: float) -> bool:
        """Keep the gateway's account of how long it was saturated; whether that changed just now."""
        state = self.state
        saturated = state is not None and state.saturated
        if saturated == (self.saturated_at >= 0.0):
            return False
        if saturated:
            self.saturated_at = now
        else:
            self.saturated_s += now - self.saturated_at
            self.saturated_at = -1.0
        return True

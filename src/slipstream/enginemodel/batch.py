"""The sequences that answer, and what a step does to each: a token of its own, and what is accepted of its draft.

A step that treats all alike, as most do, is counted once and not for each sequence: its own counts are brought up to
date when someone asks, or when it is due, at the end of its blocks or of its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from slipstream.enginemodel.account import alphas_kept
from slipstream.enginemodel.blocks import Blocks
from slipstream.enginemodel.sequence import Sequence
from slipstream.enginemodel.settings import Account, Speculation

__all__ = ["RECENT_STEPS", "Batch"]

RECENT_STEPS: Final = 16
"""Verify steps after which a sequence is judged by `Speculation.drop_below`, and then by the next so many."""

_LEAST_WIDTH: Final = 2.0**-24
"""A uniform number has 53 bits. What a draft has left of one decides the next, as long as that is 29 of them."""

_FAR: Final = 1 << 60


class Outcome:
    """In how many verify steps so many tokens of the draft were accepted."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0


class Batch:
    """``draw`` gives uniform numbers of 0..1: less than one a verify step and sequence, and one more a step and
    sequence where not all propose.

    ``sequences``: the oldest first; who asks for their counts calls `update` before. ``drafts``: how many of them had a
    draft in the last step. ``outcomes``: verify steps by the number of tokens accepted. ``finished``: whom steps have
    ended, oldest first, until they are taken out. ``short``: somebody needs a block, and there is none.
    """

    __slots__ = (
        "_behind",
        "_blocks",
        "_counting",
        "_drafted",
        "_draw",
        "_drop_below",
        "_everyone",
        "_falls",
        "_left",
        "_longest",
        "_lowest",
        "_share",
        "_steps",
        "_verify_steps",
        "_width",
        "drafts",
        "finished",
        "outcomes",
        "sequences",
        "short",
    )

    def __init__(self, speculation: Speculation, longest: int, blocks: Blocks, draw: Callable[[], float]) -> None:
        """``longest``: tokens of the longest draft that there can be."""
        self.sequences: list[Sequence] = []
        self.drafts = 0
        self.outcomes: list[Outcome] = [Outcome() for _ in range(longest + 1)]
        self.finished: list[Sequence] = []
        self.short = False
        self._longest = longest
        self._blocks = blocks
        self._draw = draw
        self._left = 0.0  # of the last uniform number, and how much of 0..1 that was
        self._width = 0.0
        self._share = speculation.proposing_share
        self._drop_below = 0.0 if speculation.drop_below is None else speculation.drop_below
        self._falls = speculation.account is Account.FIRST_ARTICLE
        self._everyone = True
        # While steps are counted for all: how many, those with a draft, its tokens. What a sequence has of them is what
        # they are now without its ``counted_…``, and the tokens that it has got less to go until it is due.
        self._counting = False
        self._steps = 0
        self._verify_steps = 0
        self._drafted = 0
        self._behind = 0  # steps of a token each that no sequence's ``ahead`` knows of yet
        self._lowest = 0  # no ``ahead`` is less

    def join(self, sequence: Sequence) -> None:
        """One that has its first token: it is the youngest."""
        if self._counting:
            self._spread()
            self._lowest = min(self._lowest, self._count(sequence))
        self.sequences.append(sequence)

    def plan(self, k: int, tokens: int) -> int:
        """Who drafts ``k`` tokens in the next step, the oldest first, with ``tokens`` in all; returns how many."""
        sequences = self.sequences
        most = tokens // k
        self._everyone = self._share >= 1.0 and self._drop_below == 0.0 and most >= len(sequences)
        if self._everyone:
            return len(sequences)
        draw, share = self._draw, self._share
        drafting = 0
        for sequence in sequences:
            proposes = not sequence.dropped and (share >= 1.0 or draw() < share)
            sequence.drafting = proposes and drafting < most
            if sequence.drafting:
                drafting += 1
        return drafting

    def step(self, k: int) -> int:
        """Everybody's token and what is accepted of the drafts, ``k`` tokens each of those planned; 0 = there are none.
        Returns how many tokens came.
        """
        if k == 0:
            generated = self._step_without()
        elif self._everyone and not self._falls:
            generated = self._step_alike(k)
        else:
            generated = self._step_apart(k)
        if self.finished:
            self.sequences = [one for one in self.sequences if one.emitted < one.output_tokens]
        return generated

    def update(self) -> None:
        """Bring every sequence's own counts up to date."""
        if self._counting:
            self._spread()
            self._counting = False
            for sequence in self.sequences:
                self._write(sequence)

    def _step_without(self) -> int:
        """A token for everyone; whom that makes due is looked for only when it may be somebody."""
        if not self._counting:
            self._start()
        self.drafts = 0
        self._steps += 1
        self._behind += 1
        if self._behind > self._lowest:
            behind, lowest = self._behind, _FAR
            self._behind = 0
            for sequence in self.sequences:
                ahead = sequence.ahead - behind
                sequence.ahead = ahead
                if ahead < 0:
                    ahead = self._due(sequence)
                if ahead < lowest:
                    lowest = ahead
            self._lowest = lowest
        return len(self.sequences)

    def _step_alike(self, k: int) -> int:
        """A draft for everyone."""
        if not self._counting:
            self._start()
        self._spread()
        self.drafts = len(self.sequences)
        self._steps += 1
        self._verify_steps += 1
        self._drafted += k
        self._lowest = -1
        outcomes = self.outcomes
        generated = 0
        for sequence in self.sequences:
            survival, ahead = sequence.survival, sequence.ahead
            most = len(survival)
            if most > k:
                most = k
            if ahead < 0:  # near the end of its answer, and so with counts that are right
                left = sequence.output_tokens - sequence.emitted
                if most >= left:
                    most = left - 1
            accepted = self._accepted(survival, most, 1.0)
            outcome = outcomes[accepted]
            outcome.steps += 1
            accepted += 1
            generated += accepted
            ahead -= accepted
            sequence.ahead = ahead
            if ahead < 0:
                self._due(sequence)
        return generated

    def _step_apart(self, k: int) -> int:
        """Drafts for some, or of different worth."""
        self.update()
        sequences, outcomes, drops = self.sequences, self.outcomes, self._drop_below > 0.0
        kept = alphas_kept(sequences, self._blocks.use) if self._falls else []
        generated = drafts = 0
        for index, sequence in enumerate(sequences):
            left = sequence.output_tokens - sequence.emitted
            count = 1
            if self._everyone or sequence.drafting:
                most = min(min(len(sequence.survival), k), left - 1)
                accepted = self._accepted(sequence.survival, most, kept[index] if self._falls else 1.0)
                sequence.drafted += k
                sequence.accepted += accepted
                sequence.verify_steps += 1
                outcome = outcomes[accepted]
                outcome.steps += 1
                drafts += 1
                count += accepted
                if drops:
                    self._judge(sequence, accepted)
            sequence.steps += 1
            sequence.emitted += count
            sequence.room -= count
            generated += count
            if count == left:
                self.finished.append(sequence)
            elif sequence.room < 0 and not self._blocks.grow(sequence, sequence.room):
                self.short = True
        self.drafts = drafts
        return generated

    def _accepted(self, survival: tuple[float, ...], most: int, kept: float) -> int:
        """How many tokens of a draft are accepted, ``most`` at most. ``kept``: what is left of per-token acceptance.

        Positions are as long as their survival is above a uniform number. Where between two survivals it fell is as
        uniform a number, and independent of the outcome: it decides the next draft.
        """
        u, width = self._left, self._width
        if width < _LEAST_WIDTH:
            u, width = self._draw(), 1.0
        low, high, scale = 0.0, 1.0, kept
        accepted = 0
        for rate in survival:
            if accepted == most:
                break
            share = rate * scale
            if share <= u:
                low = share
                break
            high = share
            scale *= kept
            accepted += 1
        part = high - low
        width *= part
        self._width = width
        if width >= _LEAST_WIDTH:
            self._left = (u - low) / part
        return accepted

    def _judge(self, sequence: Sequence, accepted: int) -> None:
        """Drop a sequence whose mean acceptance length over its last steps is too low."""
        sequence.recent_accepted += accepted
        sequence.recent_steps += 1
        if sequence.recent_steps == RECENT_STEPS:
            sequence.dropped = 1.0 + sequence.recent_accepted / RECENT_STEPS < self._drop_below
            sequence.recent_steps = sequence.recent_accepted = 0

    def _start(self) -> None:
        """From now on steps are counted for all."""
        self._counting = True
        self._lowest = _FAR
        for sequence in self.sequences:
            self._lowest = min(self._lowest, self._count(sequence))

    def _count(self, sequence: Sequence) -> int:
        """Its own counts are right now, and steps are counted for it; how many tokens it may get before it is due."""
        ahead = sequence.output_tokens - sequence.emitted - self._longest - 1
        if sequence.room < ahead:
            ahead = sequence.room
        sequence.ahead = sequence.counted_ahead = ahead
        sequence.counted_steps = self._steps
        sequence.counted_verify_steps = self._verify_steps
        sequence.counted_drafted = self._drafted
        return ahead

    def _write(self, sequence: Sequence) -> None:
        """Bring its own counts up to date."""
        emitted = sequence.counted_ahead - sequence.ahead
        steps = self._steps - sequence.counted_steps
        sequence.emitted += emitted
        sequence.room -= emitted
        sequence.steps += steps
        sequence.accepted += emitted - steps
        sequence.verify_steps += self._verify_steps - sequence.counted_verify_steps
        sequence.drafted += self._drafted - sequence.counted_drafted

    def _due(self, sequence: Sequence) -> int:
        """It is at its end, or near that, or needs a block; how many tokens it may get before it is due again."""
        emitted = sequence.counted_ahead - sequence.ahead
        left = sequence.output_tokens - sequence.emitted - emitted
        if left == 0:
            self._write(sequence)
            self.finished.append(sequence)
            return _FAR
        room = sequence.room - emitted
        if room < 0 and not self._blocks.grow(sequence, room):
            self.short = True
        ahead = left - self._longest - 1
        if ahead < 0:
            self._write(sequence)
            return self._count(sequence)
        # Most need a block only: what was counted of them goes on.
        room = sequence.room - emitted
        if room < ahead:
            ahead = room
        sequence.ahead = ahead
        sequence.counted_ahead = ahead + emitted
        return ahead

    def _spread(self) -> None:
        """Steps of a token each come off everyone's ``ahead``."""
        behind = self._behind
        if behind > 0:
            self._behind = 0
            self._lowest -= behind
            for sequence in self.sequences:
                sequence.ahead -= behind

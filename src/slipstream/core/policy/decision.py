"""The answer of a routing policy, small enough to keep the last ten thousand."""

from __future__ import annotations

from typing import Literal, NamedTuple

from slipstream.core.acceptance import Source
from slipstream.core.compilation import mypyc_attr
from slipstream.core.reason import Reason
from slipstream.core.request import Pool

__all__ = ["AcceptanceFigure", "Candidate", "Decision", "Foretold"]


@mypyc_attr(acyclic=True)
class Decision:
    """Where a request goes and why.

    ``fleet_version`` and ``draw`` (uniform, 0..1) are all that chance and state contributed: with them every other
    candidate's reason is recomputed on demand. ``at`` is the time of the decision. ``by_affinity``: within its pool the
    node was preferred to one less full, because it holds the request's cache. ``intended`` is the decision that would
    have been made, where policy only observes; ``None`` when it steers, or found no node.
    """

    __slots__ = ("at", "by_affinity", "draw", "fleet_version", "intended", "node", "pool", "reason")

    def __init__(
        self,
        node: str,
        pool: Pool,
        reason: Reason,
        fleet_version: int,
        draw: float,
        at: float,
        by_affinity: bool = False,  # noqa: FBT001, FBT002 - a row of data
        intended: Decision | None = None,
    ) -> None:
        self.node = node
        self.pool = pool
        self.reason = reason
        self.fleet_version = fleet_version
        self.draw = draw
        self.at = at
        self.by_affinity = by_affinity
        self.intended = intended


class Foretold(NamedTuple):
    """What a forecast says of a request on a node that it joins: seconds to its first token, a token after that, and in
    all; what it is ``worth`` (the probability, 0..1, to meet its targets, less a little for what it uses of them), and
    what its joining costs the requests there, as much of their worth: negative where it takes nothing from them.
    """

    ttft_s: float
    tpot_s: float
    e2e_s: float
    worth: float
    cost: float


class Candidate(NamedTuple):
    """One node as a decision saw it.

    ``reason`` is why it was not chosen; ``None`` = it could have served and was not needed: fuller, of the other pool,
    or it lost the draw. ``load`` is occupancy over the limit that applies to its pool; where routing only observes,
    over the node's own. ``ceiling`` is that of a speculative node, ``None`` of others, and ``fallen_back`` whether it
    was the default since the node's calibration did not hold. ``foretold`` is what a forecast says of the request
    there; ``None`` = the node was judged by none, or is beyond it.
    """

    node: str
    pool: Pool
    chosen: bool
    reason: Reason | None
    occupancy: int
    load: float
    ceiling: int | None = None
    fallen_back: bool = False
    foretold: Foretold | None = None


class AcceptanceFigure(NamedTuple):
    """What a decision knew of its category's acceptance under one speculator, and the floor it had to exceed.

    ``speculator`` is its fingerprint. ``measure`` is ``alpha`` (0..1), or ``tokens_per_step`` (1 or more) for n-gram
    speculators; ``value`` is ``None`` when unknown, which does not count as too low. ``source`` is what ``value`` rests
    on.
    """

    speculator: str
    measure: Literal["alpha", "tokens_per_step"]
    value: float | None
    floor: float
    source: Source

"""The gateway in virtual time: what `gateway/exchange.py` and `gateway/waiting.py` do, without wire and event loop.

Decisions, books, evidence and the queue are the gateway's own objects; what is repeated here is their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from heapq import heappush
from typing import Final

from slipstream.core.acceptance import SpeculationSample
from slipstream.core.dispatch import Dispatcher, Placement
from slipstream.core.errors import AllFull, NothingUsable, OutOfReach, SlipstreamError, UnknownModel
from slipstream.core.latency import latency_of
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.reason import Reason
from slipstream.core.request import RequestShape
from slipstream.core.request_queue import BEAT_S, RequestQueue, Ticket, go_first, serve
from slipstream.enginemodel.sequence import Sequence
from slipstream.sim.columns import Columns
from slipstream.sim.events import EventLog
from slipstream.sim.fate import REASONS, Fate
from slipstream.sim.node import Node

__all__ = ["ASK", "BEAT", "CAPACITY", "LOOK", "Due", "Exchange", "Gateway"]

# What is due at one moment happens in this order.
CAPACITY: Final = 0
ASK: Final = 1
BEAT: Final = 2
LOOK: Final = 3

Due = tuple[float, int, int, object]
"""(when, one of the above, a number that tells two of them apart, what it is about)."""

_NOBODY: Final[frozenset[str]] = frozenset()
_FINISHED: Final = int(Fate.FINISHED)
_REFUSED: Final = int(Fate.REFUSED)
_EXPIRED: Final = int(Fate.EXPIRED)
_UNFINISHED: Final = int(Fate.UNFINISHED)
_NEVER: Final = float("nan")
_NUMBERS: Final[Mapping[Reason, int]] = {reason: number for number, reason in enumerate(REASONS)}


class Gateway:
    """What all requests of a run share. ``due`` is a heap of what will happen. ``sent`` are the requests on their way
    to a node, in the order in which they reach one, and ``alive`` those that came and have not ended, by number.
    ``now`` is the moment that is being simulated, in seconds.
    """

    __slots__ = (
        "_beating",
        "_statistics",
        "alive",
        "columns",
        "dispatcher",
        "due",
        "forward_s",
        "log",
        "nodes",
        "now",
        "queue",
        "retries",
        "sent",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        nodes: dict[str, Node],
        queue: RequestQueue[Exchange],
        columns: Columns,
        log: EventLog | None,
        forward_s: float,
        retries: int,
        statistics: bool,  # noqa: FBT001 - a row of settings
    ) -> None:
        """``forward_s`` passes between a decision and its node's having the request; ``retries`` is how many further
        nodes are tried; ``statistics``: answers say what was drafted and accepted.
        """
        self.dispatcher = dispatcher
        self.nodes = nodes
        self.queue = queue
        self.columns = columns
        self.log = log
        self.forward_s = forward_s
        self.retries = retries
        self.due: list[Due] = []
        self.sent: deque[Exchange] = deque()
        self.alive: dict[int, Exchange] = {}
        self.now = 0.0
        self._statistics = statistics
        self._beating = False

    def arrive(self, exchange: Exchange) -> None:
        """A request came."""
        self.alive[exchange.number] = exchange
        shape = exchange.shape
        if self.log is not None:
            self.log.arrive(
                self.now,
                exchange.number,
                shape.category,
                shape.traffic_class.value,
                exchange.prompt_tokens,
                exchange.output_tokens,
            )
        go_first(self.queue, shape.model, shape.traffic_class)
        exchange.place()

    def freed(self) -> None:
        """A request has left a node, so there may be room."""
        if self.queue.count:
            serve(self.queue)

    def beat(self) -> None:
        """Send away who has waited too long, and look for room that came without a word."""
        for ticket in self.queue.expire(self.now):
            ticket.owner.give_up()
        serve(self.queue)
        self._beating = False
        self.keep_beating()

    def keep_beating(self) -> None:
        """Look again in a while, if anyone waits."""
        if self.queue.count and not self._beating:
            self._beating = True
            heappush(self.due, (self.now + BEAT_S, BEAT, 0, None))

    def finished(self, sequence: Sequence, node: Node) -> None:
        """An engine has answered a request."""
        exchange = sequence.owner
        assert isinstance(exchange, Exchange)
        placement = exchange.placement
        assert placement is not None
        now, output_tokens = self.now, sequence.output_tokens
        sample: SpeculationSample | None = None
        if self._statistics and node.acceptance:
            sample = SpeculationSample(sequence.drafted, sequence.accepted, sequence.verify_steps, output_tokens)
        latency = latency_of(exchange.arrived_at, sequence.first_token_at, now, output_tokens)
        outcome = Outcome(Ending.COMPLETED, 200, latency, sequence.prompt_tokens, output_tokens, sample)
        self.dispatcher.settle(placement, outcome, now)
        exchange.placement = None
        if self.log is not None:
            self.log.finish(now, exchange.number, node.name, output_tokens, sequence.drafted, sequence.accepted)
        exchange.end(_FINISHED)
        exchange.sequence = None  # whose owner it is: the two would wait for the garbage collector
        self.followed(node)
        self.freed()

    def followed(self, node: Node) -> None:
        """The books of a node have changed."""
        state = node.state
        if state is None:
            return
        if node.follow_saturation(self.now) and self.log is not None:
            self.log.saturated(self.now, node.name, state.occupancy, saturated=state.saturated)
        if node.leaving and state.own == 0:
            self.dispatcher.remove(node.name)
            node.left(self.now)


class Exchange:
    """One request's life: placed, sent, tried elsewhere when its node is full, waiting while all are.

    ``number`` is its row in the plan, ``category`` an index, ``quantile`` (0..1) where it stands in its category.
    ``reaches_at`` is when it reaches, or reached, the node that it was given to.
    """

    __slots__ = (
        "_attempts",
        "_avoid",
        "_before",
        "_gateway",
        "_joined_at",
        "_node",
        "_queued_s",
        "_reason",
        "_retries_left",
        "_ticket",
        "arrived_at",
        "category",
        "number",
        "output_tokens",
        "placement",
        "prompt_tokens",
        "quantile",
        "reaches_at",
        "sequence",
        "shape",
    )

    def __init__(
        self,
        gateway: Gateway,
        number: int,
        shape: RequestShape,
        arrived_at: float,
        prompt_tokens: int,
        output_tokens: int,
        category: int,
        quantile: float,
    ) -> None:
        self.number = number
        self.shape = shape
        self.arrived_at = arrived_at
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.category = category
        self.quantile = quantile
        self.reaches_at = 0.0
        self.placement: Placement | None = None
        self.sequence: Sequence | None = None
        self._gateway = gateway
        self._avoid: frozenset[str] = _NOBODY
        self._before = 0
        self._retries_left = gateway.retries
        self._node = self._reason = -1
        self._attempts = 0
        self._queued_s: float | None = None
        self._joined_at = 0.0
        self._ticket: Ticket[Exchange] | None = None

    def place(self) -> None:
        """Book a node and send to it; when all are full, wait for one that is not."""
        may_wait = self._gateway.queue.size > 0
        error = self._try(may_wait=may_wait)
        if may_wait and isinstance(error, AllFull):
            if self._wait():
                return
            error = self._try(may_wait=False)
        if error is not None:
            self._refuse()

    def resume(self) -> bool | None:
        """It is this request's turn to be placed; ``False``: there is still no room, ``None``: there never will be."""
        error = self._try(may_wait=True)
        if isinstance(error, AllFull):
            return False
        if error is None:
            return True
        ticket = self._ticket
        assert ticket is not None
        self._gateway.queue.leave(ticket)
        self._stop_waiting()
        self._refuse()
        return None

    def give_up(self) -> None:
        """It has waited as long as it may: a last try."""
        if self._try(may_wait=False) is not None:
            self._stop_waiting()
            gateway = self._gateway
            if gateway.log is not None:
                gateway.log.expire(gateway.now, self.number)
            self.end(_EXPIRED)

    def deliver(self) -> Node | None:
        """The request has reached its node, which is returned if it does not take it."""
        gateway, placement = self._gateway, self.placement
        assert placement is not None
        state = placement.state
        node = gateway.nodes[state.name]
        survival = node.acceptance[self.category].at(self.quantile) if node.acceptance else ()
        sequence = Sequence(self.number, self.prompt_tokens, self.output_tokens, survival, self)
        if node.submit(sequence, gateway.now):
            self.sequence = sequence
            if state.learned.limit is not None:
                gateway.dispatcher.took(placement, gateway.now)
            return None
        # One that could never fit is the client's own fault, and no sign of a full node.
        fits = node.engine.fits(self.prompt_tokens, self.output_tokens)
        ending, status = (Ending.FULL, 503) if fits else (Ending.REFUSED, 400)
        self.settle(Outcome(ending, status))
        self._avoid |= {node.name}
        if not fits:
            self._refuse()
            return node
        if gateway.log is not None:
            gateway.log.full(gateway.now, self.number, node.name)
        if self._retries_left > 0:
            self._retries_left -= 1
            self.place()
        elif gateway.queue.size == 0 or not self._wait():
            self._refuse()
        gateway.freed()
        return node

    def settle(self, outcome: Outcome) -> None:
        """Let go of the placement."""
        gateway, placement = self._gateway, self.placement
        assert placement is not None
        self.placement = None
        gateway.dispatcher.settle(placement, outcome, gateway.now)
        gateway.followed(gateway.nodes[placement.state.name])

    def end(self, fate: int) -> None:
        """It is over."""
        gateway = self._gateway
        del gateway.alive[self.number]
        self._put(fate, gateway.now)

    def break_off(self) -> None:
        """The run is over, and this request is not."""
        gateway = self._gateway
        if self._ticket is not None:
            gateway.queue.leave(self._ticket)
            self._stop_waiting()
        if self.placement is not None:
            gateway.dispatcher.settle(self.placement, Outcome(Ending.STOPPED), gateway.now)
        self._put(_UNFINISHED, _NEVER)

    def _put(self, fate: int, ended_s: float) -> None:
        """Write down what came of it."""
        sequence, queued_s = self.sequence, 0.0 if self._queued_s is None else self._queued_s
        wait_s = first_token_s = _NEVER
        drafted = accepted = verify_steps = steps = 0
        if sequence is not None:
            wait_s = sequence.admitted_at - sequence.submitted_at
            first_token_s = sequence.first_token_at
            drafted, accepted = sequence.drafted, sequence.accepted
            verify_steps, steps = sequence.verify_steps, sequence.steps
        self._gateway.columns.put(
            self.number,
            queued_s,
            wait_s,
            first_token_s,
            ended_s,
            drafted,
            accepted,
            verify_steps,
            steps,
            self._node,
            self._attempts,
            self._reason,
            fate,
        )

    def _try(self, *, may_wait: bool) -> SlipstreamError | None:
        """Book a node and send to it; or what the dispatcher raised."""
        gateway = self._gateway
        now, queued_s = gateway.now, self._queued_s
        if queued_s is not None and self._ticket is not None:
            queued_s += now - self._joined_at
        try:
            placement = gateway.dispatcher.place(
                self.shape, str(self.number), now, self._avoid, may_wait, self._before, queued_s
            )
        except (AllFull, NothingUsable, OutOfReach, UnknownModel) as error:
            return error
        self.placement = placement
        self._stop_waiting()
        node = gateway.nodes[placement.state.name]
        self._node, self._attempts = node.index, placement.attempt
        self._reason = _NUMBERS[placement.decision.reason]
        self.reaches_at = now + gateway.forward_s
        gateway.sent.append(self)
        if gateway.log is not None:
            reason = placement.decision.reason.value
            gateway.log.place(now, self.number, node.name, reason, placement.attempt, placement.occupancy)
        gateway.followed(node)
        return None

    def _wait(self) -> bool:
        """Take a place in the queue; whether there was one. Nodes that were full may have room by then."""
        gateway, shape = self._gateway, self.shape
        queue, again = gateway.queue, self._queued_s is not None
        self._ticket = queue.join(self, shape.model, shape.traffic_class, gateway.now, self.arrived_at, again=again)
        if self._ticket is None:
            return False
        self._joined_at = gateway.now
        if not again:
            self._queued_s = 0.0
        self._before += len(self._avoid)
        self._avoid = _NOBODY
        self._retries_left = gateway.retries
        if gateway.log is not None:
            gateway.log.queue(gateway.now, self.number, queue.count)
        gateway.keep_beating()
        return True

    def _stop_waiting(self) -> None:
        if self._ticket is not None and self._queued_s is not None:
            self._ticket = None
            self._queued_s += self._gateway.now - self._joined_at

    def _refuse(self) -> None:
        gateway = self._gateway
        if gateway.log is not None:
            gateway.log.refuse(gateway.now, self.number)
        self.end(_REFUSED)

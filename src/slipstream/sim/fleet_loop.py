"""The event loop of a simulated fleet: arrivals, steps of engines, polls, the queue's beat, nodes that come and go.

Engines run ahead of the rest where that changes nothing. What is decided at a moment reaches an engine ``forward_s``
later at the earliest, and while nobody waits in the gateway, nothing is decided when a step ends. So all steps up to
the next event run at once, engine by engine, and only what ended with them is put in order; while somebody waits, they
run in windows of ``forward_s``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Final

from slipstream.core.node import NodeReport
from slipstream.core.request import Pool, RequestShape, TrafficClass
from slipstream.core.roles import LOOK_S
from slipstream.sim.gateway import ASK, CAPACITY, LOOK, Due, Exchange, Gateway
from slipstream.sim.node import FINISHED, FIRST_TOKEN, Node, Note
from slipstream.sim.roles import Roles

__all__ = ["FleetLoop", "Group", "Resize", "Rows"]

PROGRESS_EVERY: Final = 1000
CHARACTERS_A_TOKEN: Final = 4
"""A gateway sees prompts as text, and not how many tokens a model makes of it."""
_PHI: Final = 0x9E3779B97F4A7C15
_64_BITS: Final = 0xFFFFFFFFFFFFFFFF


class Rows:
    """Some rows of a plan, column by column, as plain numbers. -1 = none, for limits and sessions."""

    __slots__ = (
        "arrival_s",
        "category",
        "model",
        "output_limit",
        "output_tokens",
        "prompt_tokens",
        "quantile",
        "session",
        "traffic_class",
    )

    def __init__(
        self,
        arrival_s: list[float],
        prompt_tokens: list[int],
        output_tokens: list[int],
        category: list[int],
        traffic_class: list[int],
        quantile: list[float],
        output_limit: list[int],
        model: list[int],
        session: list[int],
    ) -> None:
        self.arrival_s = arrival_s
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.category = category
        self.traffic_class = traffic_class
        self.quantile = quantile
        self.output_limit = output_limit
        self.model = model
        self.session = session


class Answer:
    """What a node said when it was asked, on its way to the gateway."""

    __slots__ = ("asked_at", "node", "received_at", "report")

    def __init__(self, node: Node, asked_at: float, received_at: float, report: NodeReport) -> None:
        self.node = node
        self.asked_at = asked_at
        self.received_at = received_at
        self.report = report


class Group:
    """Nodes that come and go together. ``size`` is how many of them are wanted now, the first ones."""

    __slots__ = ("name", "nodes", "size")

    def __init__(self, name: str, nodes: list[Node]) -> None:
        self.name = name
        self.nodes = nodes
        self.size = len(nodes)


class Resize:
    """A group is to have another size."""

    __slots__ = ("group", "size")

    def __init__(self, group: Group, size: int) -> None:
        self.group = group
        self.size = size


class FleetLoop:
    """One run. ``rows(first)`` gives the plan's rows from ``first`` on, some at a time; ``requests`` is how many there
    are. ``names`` are the plan's categories, classes and models. ``over_at``: when the run is broken off.
    """

    __slots__ = (
        "_answers",
        "_categories",
        "_classes",
        "_models",
        "_next",
        "_notes",
        "_over_at",
        "_pins",
        "_poll_interval_s",
        "_progress",
        "_report_delay_s",
        "_requests",
        "_rows",
        "_rows_of",
        "_stale_after_s",
        "arrived",
        "ended_at",
        "gateway",
        "nodes",
        "unsettled",
    )

    def __init__(
        self,
        gateway: Gateway,
        nodes: list[Node],
        rows: Callable[[int], Rows],
        requests: int,
        categories: tuple[str, ...],
        classes: tuple[TrafficClass, ...],
        models: tuple[str, ...],
        pins: dict[str, Pool],
        over_at: float,
        poll_interval_s: float,
        report_delay_s: float,
        stale_after_s: float,
        progress: Callable[[float], None] | None,
    ) -> None:
        self.gateway = gateway
        self.nodes = nodes
        self.arrived = 0
        self.unsettled = 0
        """Requests that engines have answered ahead of the moment that is being simulated."""
        self.ended_at = 0.0
        self._rows_of = rows
        self._rows = rows(0)
        self._next = 0  # to arrive, among these rows
        self._requests = requests
        self._categories = categories
        self._classes = classes
        self._models = models
        self._pins = pins
        self._over_at = over_at
        self._poll_interval_s = poll_interval_s
        self._report_delay_s = report_delay_s
        self._stale_after_s = stale_after_s
        self._progress = progress
        self._notes: list[Note] = []
        self._answers: deque[Answer] = deque()

    def start(self, groups: list[Group], changes: list[tuple[float, Resize]], roles: Roles | None = None) -> None:
        """The fleet as it is before the first request, of which the gateway has heard; and how it will change. Where
        there are ``roles``, nodes change theirs.
        """
        gateway = self.gateway
        if roles is not None:
            heappush(gateway.due, (LOOK_S, LOOK, 0, roles))
        for group in groups:
            for node in group.nodes[: group.size]:
                self.join(node)
                gateway.dispatcher.report(node.name, 0.0, 0.0, node.report(0.0))
        for number, (at, change) in enumerate(changes):
            heappush(gateway.due, (at, CAPACITY, number, change))

    def run(self) -> None:
        """From the first event to the last."""
        gateway, over_at, answers = self.gateway, self._over_at, self._answers
        queue, due, sent, forward_s = gateway.queue, gateway.due, gateway.sent, gateway.forward_s
        while self.arrived < self._requests or gateway.alive:
            next_arrival = self._next_arrival()
            due_at = due[0][0] if due else inf
            received_at = answers[0].received_at if answers else inf
            reached_at = sent[0].reaches_at if sent else inf
            # min() of two is one comparison when compiled; of more it is a call.
            at = min(min(min(next_arrival, due_at), min(received_at, reached_at)), over_at)
            if queue.count:
                until = min(at, self._first_end() + forward_s)
                self._run_engines(until)
                if until < at:
                    continue
                if sent:
                    reached_at = sent[0].reaches_at
            else:
                self._run_engines(at)
            if at >= over_at or not (gateway.alive or self.arrived < self._requests):
                break
            gateway.now = at
            if due_at == at and due[0][1] == CAPACITY:
                self._happen(heappop(due))
            elif received_at == at:
                self._receive(answers.popleft())
            elif reached_at == at:
                node = sent.popleft().deliver()
                if node is not None:
                    self._poll_soon(node)
            elif next_arrival == at:
                self._arrive()
            else:
                self._happen(heappop(due))
        self._finish(over_at if gateway.alive or self.arrived < self._requests else gateway.now)

    def _finish(self, now: float) -> None:
        """The run is over: what is not finished is taken off the books."""
        gateway = self.gateway
        self.ended_at = gateway.now = now
        for node in self.nodes:
            node.engine.sequences()  # whose counts are told of those that are broken off
        for exchange in gateway.alive.values():
            exchange.break_off()
        gateway.alive.clear()
        for node in self.nodes:
            node.left(now)

    def _next_arrival(self) -> float:
        """When the next request comes; infinity after the last."""
        if self.arrived == self._requests:
            return inf
        if self._next == len(self._rows.arrival_s):
            self._rows = self._rows_of(self.arrived)
            self._next = 0
        return self._rows.arrival_s[self._next]

    def _first_end(self) -> float:
        """When the first of the running steps ends."""
        first = inf
        for node in self.nodes:
            if node.ends_at < first:
                first = node.ends_at
        return first

    def _run_engines(self, until: float) -> None:
        """Run all steps that end until then, and do what follows for the gateway in the order of time."""
        notes = self._notes
        if self.gateway.log is None:
            for node in self.nodes:
                if node.ends_at <= until:
                    node.run(until, notes)
        else:
            for node in self.nodes:
                if node.ends_at <= until:
                    node.run_watched(until, notes)
        if notes:
            self._take(notes)

    def _take(self, notes: list[Note]) -> None:
        gateway, log = self.gateway, self.gateway.log
        if len(notes) > 1:
            notes.sort()
        self.unsettled = sum([note[3] == FINISHED for note in notes])
        for at, index, _, what, sequence in notes:
            gateway.now = at
            node = self.nodes[index]
            if what == FINISHED:
                self.unsettled -= 1
                gateway.finished(sequence, node)
                continue
            assert log is not None
            if what == FIRST_TOKEN:
                log.first_token(at, sequence.number, node.name)
            else:
                log.preempt(at, sequence.number, node.name)
        notes.clear()

    def _arrive(self) -> None:
        """The next row of the plan comes true."""
        gateway, rows, row = self.gateway, self._rows, self._next
        number = self.arrived
        self._next = row + 1
        self.arrived = number + 1
        category = rows.category[row]
        name = self._categories[category]
        limit, session = rows.output_limit[row], rows.session[row]
        shape = RequestShape(self._models[rows.model[row]], name, self._classes[rows.traffic_class[row]])
        shape.streamed = True
        if limit >= 0:
            shape.output_limit = limit
        if session >= 0:
            shape.session = (session + 1) * _PHI & _64_BITS
            shape.cache_keys = (shape.session ^ rows.model[row],)
        if self._pins:
            shape.pinned_pool = self._pins.get(name)
        prompt_tokens, output_tokens = rows.prompt_tokens[row], rows.output_tokens[row]
        shape.prompt_characters = prompt_tokens * CHARACTERS_A_TOKEN
        exchange = Exchange(
            gateway, number, shape, gateway.now, prompt_tokens, output_tokens, category, rows.quantile[row]
        )
        gateway.arrive(exchange)
        if self._progress is not None and number % PROGRESS_EVERY == 0:
            self._progress(number / self._requests)

    def _happen(self, due: Due) -> None:
        """What was due is due now."""
        _, kind, _, what = due
        if kind == ASK:
            assert isinstance(what, Node)
            if what.poll_at == due[0]:  # and was not put forward
                self._ask(what)
        elif kind == CAPACITY:
            assert isinstance(what, Resize)
            self._resize(what.group, what.size)
        elif kind == LOOK:
            assert isinstance(what, Roles)
            gateway = self.gateway
            what.look(self, gateway.queue.count, gateway.now)
            for node in self.nodes:
                gateway.followed(node)
            heappush(gateway.due, (gateway.now + LOOK_S, LOOK, 0, what))
        else:
            self.gateway.beat()

    def _ask(self, node: Node) -> None:
        """Poll a node: the answer tells how it is now, and comes later."""
        now = self.gateway.now
        if node.state is None:
            node.poll_at = inf
            return
        self._answers.append(Answer(node, now, now + self._report_delay_s, node.report(now)))
        node.poll_at = node.next_telling_poll(now, self._poll_interval_s, self._stale_after_s)
        heappush(self.gateway.due, (node.poll_at, ASK, node.index, node))

    def _poll_soon(self, node: Node) -> None:
        """Poll a node at its next beat."""
        beat = node.next_poll(self.gateway.now, self._poll_interval_s)
        if beat < node.poll_at:
            node.poll_at = beat
            heappush(self.gateway.due, (beat, ASK, node.index, node))

    def _receive(self, answer: Answer) -> None:
        """A poll's answer has come: for nothing, if the node has left since, even if it is back."""
        node = answer.node
        if node.state is None or answer.asked_at < node.joined_at:
            return
        self.gateway.dispatcher.report(node.name, answer.asked_at, answer.received_at, answer.report)
        self.gateway.followed(node)

    def _resize(self, group: Group, size: int) -> None:
        """So many nodes of a group are wanted from now on."""
        gateway = self.gateway
        group.size = size
        if gateway.log is not None:
            gateway.log.capacity(gateway.now, group.name, size)
        for place, node in enumerate(group.nodes):
            if place < size:
                if node.state is None:
                    self.join(node)
                elif node.leaving:
                    self.stay(node)
            elif node.state is not None and not node.leaving:
                self.leave(node)

    def leave(self, node: Node) -> None:
        """The node takes no more requests, and leaves once it has ended those it has."""
        gateway = self.gateway
        node.leaving = True
        gateway.dispatcher.fleet.drain(node.name, gateway.now)
        gateway.followed(node)

    def tell(self, node: Node, step: str) -> None:
        """What a node does about its role."""
        gateway = self.gateway
        if gateway.log is not None:
            gateway.log.role(gateway.now, node.name, node.spec.pool.value, step)

    def stay(self, node: Node) -> None:
        """A node that was to leave takes requests again."""
        node.leaving = False
        self.gateway.dispatcher.fleet.drain(node.name, self.gateway.now, draining=False)

    def join(self, node: Node) -> None:
        """A node comes to the fleet, which knows nothing of it until it has answered a poll."""
        gateway = self.gateway
        gateway.dispatcher.add(node.spec, gateway.now)
        state = gateway.dispatcher.fleet.node(node.name)
        assert state is not None
        node.joined(state, gateway.now)
        self._poll_soon(node)

"""The node itself: it listens, knows its pages, answers requests, and takes orders to fail."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from random import Random
from time import monotonic
from typing import Any

from slipstream.core.category import Categorizer
from slipstream.core.category_rules import DEFAULT_CATEGORY, DEFAULT_RULES
from slipstream.emulate.answers import Answers
from slipstream.emulate.connection import Connection, Request
from slipstream.emulate.constant import ConstantEngine
from slipstream.emulate.dialect import Dialect, Page
from slipstream.emulate.dialects import DIALECTS
from slipstream.emulate.engine import Engine
from slipstream.emulate.exchange import Exchange
from slipstream.emulate.faults import (
    Die,
    Fault,
    FaultError,
    Faults,
    FreezeMetrics,
    GarbageMetrics,
    Refuse,
    ResetCounters,
    SlowDrain,
    Split,
    Stall,
    read_fault,
)
from slipstream.emulate.generation import Generation
from slipstream.emulate.pacing import Pacing, constant_pacing
from slipstream.emulate.record import Record, Seen
from slipstream.emulate.reply import Replies
from slipstream.emulate.request import Completion, Problem, ProblemKind
from slipstream.emulate.settings import CanNotEmulate, CanNotListen, NodeSettings

__all__ = ["EmulatedNode", "emulated"]

CATEGORY_HEADER = "x-emulate-category"
LOAD_PAGES = ("/metrics", "/slots", "/v1/loads")
BACKLOG = 4096
RETRY_S = 0.05


class EmulatedNode:
    """Answers as an engine of ``dialect`` does. ``started`` is the time of its start, Unix seconds.

    ``pacing`` is for requests that each have a pace of their own; ``None``: as the settings say. ``engine`` and
    ``record`` are for tests in the same process; others ask ``/emulate/state``. Raises `CanNotEmulate` for a dialect
    that is not known or can not do what the settings say.
    """

    def __init__(self, dialect: str, settings: NodeSettings, started: float, pacing: Pacing | None = None) -> None:
        if dialect not in DIALECTS:
            raise CanNotEmulate(f"there is no dialect {dialect!r}; known are {', '.join(DIALECTS)}")
        self._dialect = DIALECTS[dialect]
        if settings.request_statistics != "none" and not self._dialect.has_request_statistics:
            raise CanNotEmulate(f"only vllm is told to give statistics of requests; {dialect} has a way of its own")
        self.settings = settings
        self.record = Record()
        self._loop = asyncio.get_running_loop()
        self._started = started
        self._started_at = monotonic()
        self.engine = _engine(settings, self._dialect, self._loop, pacing)
        self._replies = Replies(self._dialect, lambda: self._started + self._now_s())
        self._categorize = Categorizer(DEFAULT_RULES, DEFAULT_CATEGORY).categorize
        self._by_category: Counter[str] = Counter()
        self._connections: set[Connection] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._exchanges: dict[Connection, tuple[Exchange, Seen]] = {}
        self._faults = Faults()
        self._frozen: dict[str, Page] = {}
        self._server: asyncio.Server | None = None
        self._return: asyncio.Task[None] | None = None
        self._host, self._port = "", 0

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    async def listen(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Begin to serve; port 0 = any free one. Raises `CanNotListen` when the address can not be bound."""
        try:
            self._server = await self._loop.create_server(
                lambda: Connection(self, self._loop), host, port, backlog=BACKLOG
            )
        except OSError as error:
            # The text of event loops wraps the system's own, which says what a person has to know.
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise CanNotListen(f"can not listen on {host}:{port}: {reason}") from None
        self._host, self._port = self._server.sockets[0].getsockname()[:2]

    async def close(self) -> None:
        """Stop, as a process that ends: whatever is being answered breaks off."""
        if self._return is not None:
            self._return.cancel()
        self.engine.close()
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.drop()
        await self._empty.wait()

    # Called by connections.

    def opened(self, connection: Connection) -> None:
        self._connections.add(connection)
        self._empty.clear()

    def lost(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()
        if connection not in self._exchanges:
            return
        exchange, _ = self._exchanges[connection]
        drain = self._faults.find(SlowDrain)
        exchange.client_gone(0.0 if drain is None else drain.seconds)
        self._ended(connection, "aborted")

    def handle(self, connection: Connection, request: Request) -> None:
        if request.path.startswith("/emulate/"):
            self._control(connection, request)
            return
        answers = self._dialect.answers.get(request.path) if request.method == "POST" else None
        seen = self.record.begin(self._now_s(), request.path, request.headers) if answers is not None else None
        fault = self._faults.take_status(request.path, completion=answers is not None)
        if fault is not None:
            status = fault.status
            self._replies.reply_fault(connection, request, fault)
        else:
            try:
                if answers is not None and seen is not None:
                    self._begin(connection, request, answers, seen)
                    return
                page = self._page(request.method, request.path)
            except Problem as problem:
                error = self._dialect.error if answers is None else answers.error
                status, body = error(problem, self.settings)
                self._replies.reply_json(connection, request, status, body, self._dialect.json_type)
            else:
                self._replies.reply(connection, request, 200, page.content_type, page.body)
                return
        if seen is not None:
            seen.status = status
            self.record.end(seen, "refused", self._now_s())

    # Requests that the engine works for.

    def _begin(self, connection: Connection, request: Request, answers: Answers, seen: Seen) -> None:
        """Raises `Problem`."""
        completion = answers.read(request.path, request.body)
        self._check(completion)
        category = request.headers.get(CATEGORY_HEADER) or self._categorize(completion.features)
        seen.category, seen.streamed, seen.prompt_tokens = category, completion.stream, completion.prompt_tokens
        generation = self._generation(answers, completion, category)
        exchange = Exchange(
            connection,
            answers,
            self.engine,
            self._loop,
            generation,
            self._replies,
            lambda outcome: self._ended(connection, outcome),
            keep_alive=request.keep_alive,
            stall=self._faults.take(Stall),
            die=self._faults.take(Die),
        )
        self.engine.submit(generation, exchange.stepped)
        self._exchanges[connection] = exchange, seen
        connection.split = self._faults.take(Split)
        seen.status = 200

    def _check(self, completion: Completion) -> None:
        model = self.settings.model
        if self._dialect.checks_model and completion.model not in (None, model):
            message = f"The model `{completion.model}` does not exist. Valid aliases: {model}."
            raise Problem(ProblemKind.UNKNOWN_MODEL, message, "model")
        if self.settings.speculator is not None:
            for name in sorted(completion.rejectable & self._dialect.rejected_when_speculating):
                raise Problem(ProblemKind.REJECTED_FIELD, f"{name} can not be used with speculative decoding.", name)

    def _generation(self, answers: Answers, completion: Completion, category: str) -> Generation:
        """The n-th request of a category draws the same in every run, whatever else is going on."""
        settings = self.settings
        self._by_category[category] += 1
        chance = Random(f"{settings.seed} {category} {self._by_category[category]}")
        limit = completion.max_tokens
        stopped = limit is None or (limit > settings.output_tokens and not completion.ignore_eos)
        tokens = settings.output_tokens if limit is None or stopped else limit
        if completion.inputs is not None:
            tokens = 1  # a prefill is a step too
        return Generation(
            request=completion,
            id=answers.identify(chance.getrandbits(128)),
            model=settings.model,
            created=int(self._started + self._now_s()),
            category=category,
            output_tokens=tokens,
            stopped_by_itself=stopped,
            slots=min(completion.choices, settings.slots),
            k=settings.k if settings.speculator is not None else None,
            chance=chance,
            received_at=monotonic(),
        )

    def _ended(self, connection: Connection, outcome: str) -> None:
        exchange, seen = self._exchanges.pop(connection)
        generation = exchange.generation
        seen.output_tokens = generation.told_tokens
        seen.drafted, seen.accepted = sum(generation.drafted), sum(generation.accepted)
        self.record.end(seen, outcome, self._now_s())

    # Pages.

    def _page(self, method: str, path: str) -> Page:
        """Raises `Problem`."""
        maker = self._dialect.pages.get(path)
        if maker is None or method != "GET":
            raise Problem(ProblemKind.UNKNOWN_PATH, f"There is no {method} {path}.")
        if path in LOAD_PAGES:
            garbage = self._faults.find(GarbageMetrics)
            if garbage is not None:
                return Page("text/html", garbage.body.encode())
            if path in self._frozen:
                return self._frozen[path]
        return maker(self.engine, self._faults.told(self.engine.load), int(self._started))

    def _freeze(self) -> None:
        for path in self._dialect.pages.keys() & set(LOAD_PAGES):
            try:
                self._frozen[path] = self._page("GET", path)
            except Problem:
                continue  # a page that is not served stays so

    # The control API.

    def _control(self, connection: Connection, request: Request) -> None:
        status, answer = 200, {}
        match request.method, request.path:
            case "GET", "/emulate/state":
                answer = self._state()
            case "DELETE", "/emulate/faults":
                self._clear_faults()
            case "POST", "/emulate/faults":
                try:
                    fault = read_fault(request.body)
                except FaultError as error:
                    status, answer = 400, {"error": str(error)}
                else:
                    self._put_in_force(fault)
                    answer = {"fault": fault}
            case _:
                sentence = "GET /emulate/state, POST /emulate/faults and DELETE /emulate/faults are all there is"
                status, answer = 404, {"error": sentence}
        self._replies.reply_json(connection, request, status, answer)

    def _put_in_force(self, fault: Fault) -> None:
        if isinstance(fault, Refuse):
            self._loop.call_soon(self._refuse, fault.seconds)  # not before the order is answered
        elif isinstance(fault, ResetCounters):
            self.engine.reset_counters()
        else:
            if isinstance(fault, FreezeMetrics):
                self._freeze()
            self._faults.add(fault)

    def _clear_faults(self) -> None:
        self._faults.clear()
        self._frozen.clear()
        for exchange, _ in tuple(self._exchanges.values()):
            exchange.spare()

    def _refuse(self, seconds: float) -> None:
        if self._server is None or self._return is not None:
            return  # it refuses already
        self._server.close()
        for connection in tuple(self._connections):
            if not connection.busy:
                connection.close()
        self._return = self._loop.create_task(self._listen_again(seconds), name="listen again")

    async def _listen_again(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        while True:
            try:
                await self.listen(self._host, self._port)
            except CanNotListen:
                await asyncio.sleep(RETRY_S)  # somebody else has the port now
            else:
                self._return = None
                return

    def _state(self) -> dict[str, Any]:
        return {
            "dialect": self._dialect.name,
            "model": self.settings.model,
            "running": self.engine.running,
            "waiting": self.engine.waiting,
            "peak_running": self.engine.peak_running,
            "lateness": self.engine.lateness.as_json(),
            "connections": len(self._connections),
            **self.record.as_json(),
            "faults": list(self._faults),
        }

    def _now_s(self) -> float:
        return monotonic() - self._started_at


def _engine(settings: NodeSettings, dialect: Dialect, loop: asyncio.AbstractEventLoop, pacing: Pacing | None) -> Engine:
    at_request_end, fit = dialect.counters_at_request_end, dialect.drafts_fit_output
    if settings.pace is None:
        pacing = pacing or constant_pacing(settings, drafts_fit_output=fit)
        return ConstantEngine(settings, pacing, loop, monotonic, counters_at_request_end=at_request_end)
    from slipstream.emulate.modelled import ModelledEngine  # it takes scipy with it, which takes its time

    return ModelledEngine(
        settings, settings.pace, loop, monotonic, counters_at_request_end=at_request_end, drafts_fit_output=fit
    )


@asynccontextmanager
async def emulated(
    dialect: str = "vllm",
    settings: NodeSettings | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    pacing: Pacing | None = None,
) -> AsyncIterator[EmulatedNode]:
    """A node that listens for as long as the block lasts. Raises `CanNotEmulate`."""
    node = EmulatedNode(dialect, settings or NodeSettings(), datetime.now(UTC).timestamp(), pacing)
    await node.listen(host, port)
    try:
        yield node
    finally:
        await node.close()

"""The agent over HTTP: what it says, at once and with each change, and what it can be told."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import msgspec
import structlog
from aiohttp import web

from slipstream.agent.errors import CanNotListen, CommandRefused
from slipstream.agent.guard import guarded
from slipstream.agent.node import NodeAgent
from slipstream.agent.problem import problem
from slipstream.operator_connection import OperatorConnection

__all__ = ["serve_agent"]

MAX_BODY_BYTES = 16 * 1024
CLOSE_S = 1.0
"""How long a request that runs at the end may take. Watches end at once."""
HEARTBEAT_S = 1.0
FASTEST_S, SLOWEST_S = 0.01, 60.0
LONGEST_HOLDER = 128

log = structlog.get_logger(__name__)

Kind = TypeVar("Kind", "Command", "SpeculationCommand")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Command(msgspec.Struct):
    """The body of `/drain` and `/resume`. ``holder``: who gives it, ``None`` = a person."""

    holder: str | None = None


class SpeculationCommand(msgspec.Struct):
    """The body of `/speculation`."""

    active: bool
    holder: str | None = None


class _Routes:
    def __init__(self, agent: NodeAgent) -> None:
        self._agent = agent
        self.closing = False

    def application(self, token: str | None) -> web.Application:
        application = web.Application(
            middlewares=[_errors_as_sentences, guarded(token)], client_max_size=MAX_BODY_BYTES
        )
        application.router.add_get("/health", self._health)
        application.router.add_get("/state", self._state)
        application.router.add_get("/watch", self._watch)
        application.router.add_post("/drain", self._drain)
        application.router.add_post("/resume", self._resume)
        application.router.add_post("/speculation", self._speculation)
        return application

    async def _health(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _state(self, _request: web.Request) -> web.Response:
        return self._answer(200)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        """One state a line: now, after each change, and when there was no change for a while. Who reads slowly is sent
        the newest state, not all that there were.
        """
        text = request.query.get("interval_s", "")
        try:
            interval_s = float(text) if text else HEARTBEAT_S
        except ValueError:
            interval_s = math.nan
        if not FASTEST_S <= interval_s <= SLOWEST_S:
            return problem(
                400, f"interval_s is a number of seconds from {FASTEST_S:g} to {SLOWEST_S:g}", "invalid_field"
            )
        response = web.StreamResponse(headers={"content-type": "application/x-ndjson", "cache-control": "no-store"})
        published = self._agent.published
        with suppress(ConnectionError):  # whoever watched has left
            await response.prepare(request)
            while not self.closing:
                seen = published.count
                await response.write(msgspec.json.encode(self._agent.state()) + b"\n")
                await published.beyond(seen, interval_s)
        return response

    async def _drain(self, request: web.Request) -> web.Response:
        command = await _body(request, Command)
        self._agent.drain(command.holder)
        return self._answer(200)

    async def _resume(self, request: web.Request) -> web.Response:
        command = await _body(request, Command)
        self._agent.resume(command.holder)
        return self._answer(200)

    async def _speculation(self, request: web.Request) -> web.Response:
        command = await _body(request, SpeculationCommand)
        begun = self._agent.speculation(active=command.active, by=command.holder)
        return self._answer(202 if begun else 200)

    def _answer(self, status: int) -> web.Response:
        return web.Response(
            status=status, body=msgspec.json.encode(self._agent.state()), content_type="application/json"
        )


class _BadBody(Exception):
    def __init__(self, status: int, sentence: str, code: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code


async def _body(request: web.Request, kind: type[Kind]) -> Kind:
    # A page on the web can make a browser send anything here but this: JSON is asked about first.
    if request.content_type != "application/json":
        raise _BadBody(415, "a command is sent with content-type: application/json", "unsupported_media_type")
    try:
        command = msgspec.json.decode(await request.read() or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _BadBody(400, f"the command can not be read: {error}", "invalid_body") from None
    if command.holder is not None and not 0 < len(command.holder) <= LONGEST_HOLDER:
        raise _BadBody(400, f"holder is a name of at most {LONGEST_HOLDER} characters", "invalid_field")
    return command


@asynccontextmanager
async def serve_agent(agent: NodeAgent, host: str, port: int, token: str | None) -> AsyncIterator[str]:
    """Serve for as long as the context lasts; yields the base URL. ``token`` is what requests must bear, ``None`` =
    nothing. Raises `CanNotListen` when the address can not be bound.
    """
    routes = _Routes(agent)
    runner = web.AppRunner(routes.application(token), access_log=None, handle_signals=False, shutdown_timeout=CLOSE_S)
    await runner.setup()
    try:
        server = runner.server
        assert server is not None
        try:
            listener = await asyncio.get_running_loop().create_server(
                lambda: OperatorConnection(
                    server, lambda status, sentence: problem(status, sentence, "invalid_request")
                ),
                host,
                port,
            )
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise CanNotListen(f"can not listen on {host}:{port} (agent): {reason}") from error
        try:
            bound_host, bound_port, *_ = listener.sockets[0].getsockname()
            yield f"http://[{bound_host}]:{bound_port}" if ":" in bound_host else f"http://{bound_host}:{bound_port}"
        finally:
            listener.close()
            routes.closing = True
            agent.published.tell()  # watches wake up, and end
    finally:
        await runner.cleanup()


@web.middleware
async def _errors_as_sentences(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except CommandRefused as error:
        return problem(409, str(error), error.code)
    except _BadBody as error:
        return problem(error.status, str(error), error.code)
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        response = problem(405, f"{request.path} does not take {request.method}, but {allowed}", "method_not_allowed")
        response.headers["allow"] = allowed
        return response
    except web.HTTPNotFound:
        paths = "/state, /watch, /drain, /resume, /speculation and /health"
        return problem(404, f"there is no {request.path}; there are {paths}", "unknown_path")
    except web.HTTPException as error:  # what a request does that no handler here hears of
        return problem(error.status, error.reason, "invalid_request")

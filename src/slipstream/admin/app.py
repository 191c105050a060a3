"""The admin API: metrics, fleet, decisions and advice, over HTTP on loopback. It only reads."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec
import structlog
from aiohttp import web

from slipstream.admin.auth import token_required
from slipstream.admin.query import read_query
from slipstream.admin.view import advice_view, attempt_view, config_view, decision_view, fleet_view
from slipstream.core.advice import advise
from slipstream.core.dispatch import Dispatcher
from slipstream.telemetry import CONTENT_TYPE, FleetCollector, render
from slipstream.telemetry.reloads import Reloads

__all__ = ["Admin", "serve_admin"]

_log = structlog.get_logger()

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Admin:
    """What the admin API reads from. ``clock`` is the fleet's, in seconds; ``version`` that of the software. ``token``
    gives what every request must bear now, ``None`` = nothing.
    """

    dispatcher: Dispatcher
    collector: FleetCollector
    clock: Callable[[], float]
    version: str
    token: Callable[[], str | None] = lambda: None
    reloads: Reloads = field(default_factory=Reloads)

    def application(self) -> web.Application:
        """The routes, ready to be served."""
        application = web.Application(middlewares=[_errors_as_sentences, token_required(self.token)])
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/fleet", self._fleet)
        application.router.add_get("/decisions", self._decisions)
        application.router.add_get("/decisions/{request_id}", self._decision)
        application.router.add_get("/advice", self._advice)
        application.router.add_get("/health", self._health)
        return application

    async def _metrics(self, _request: web.Request) -> web.Response:
        # Reading is quick; the text of a thousand nodes takes a tenth of a second that requests should not wait for.
        page = await asyncio.to_thread(render, self.collector.snapshot())
        return web.Response(body=page, headers={"content-type": CONTENT_TYPE})

    async def _fleet(self, _request: web.Request) -> web.Response:
        snapshot = self.collector.snapshot()
        fleet = fleet_view(snapshot.nodes, snapshot.categories, blind=snapshot.blind)
        return _json(fleet | {"config": config_view(self.reloads, self.clock())})

    async def _decisions(self, request: web.Request) -> web.Response:
        try:
            query = read_query(request.query, self.collector.categories)
        except ValueError as error:
            return _problem(400, str(error))
        now = self.clock()
        wanted = islice(filter(query.matches, self.dispatcher.placements()), query.limit)
        return _json({"decisions": [decision_view(placement, now) for placement in wanted]})

    async def _decision(self, request: web.Request) -> web.Response:
        request_id = request.match_info["request_id"]
        dispatcher = self.dispatcher
        found = dispatcher.find(request_id)
        if not found:
            return _problem(404, f"no decision on a request {request_id!r} is remembered; the last 10,000 are")
        now = self.clock()
        attempts = [attempt_view(one, dispatcher.candidates(one), dispatcher.acceptance(one), now) for one in found]
        return _json({"request_id": request_id, "attempts": attempts})

    async def _advice(self, _request: web.Request) -> web.Response:
        return _json({"advice": advice_view(advise(self.dispatcher, self.clock()))})

    async def _health(self, _request: web.Request) -> web.Response:
        return _json({"status": "ok", "version": self.version})


@asynccontextmanager
async def serve_admin(admin: Admin, host: str, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve for as long as the context lasts; yields the base URL. Raises ``OSError`` when the address is taken."""
    runner = web.AppRunner(admin.application(), access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        bound_host, bound_port, *_ = runner.addresses[0]
        shown_host = f"[{bound_host}]" if ":" in bound_host else bound_host
        yield f"{'http' if tls is None else 'https'}://{shown_host}:{bound_port}"
    finally:
        await runner.cleanup()


@web.middleware
async def _errors_as_sentences(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPMethodNotAllowed as error:
        response = _problem(405, f"{request.path} is read with GET; the admin API changes nothing")
        response.headers["allow"] = ", ".join(sorted(error.allowed_methods))
        return response
    except web.HTTPNotFound:
        paths = "/metrics, /fleet, /decisions, /decisions/{request_id}, /advice and /health"
        return _problem(404, f"there is no {request.path}; there are {paths}")
    except Exception:  # noqa: BLE001 - the last line of defence, and a loud one: the traceback is logged, never sent
        _log.exception("admin request failed", path=request.path)
        return _problem(500, "this is a fault in slipstream; its log has the details")


def _json(data: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(data), status=status, content_type="application/json")


def _problem(status: int, sentence: str) -> web.Response:
    return _json({"error": {"message": sentence}}, status)

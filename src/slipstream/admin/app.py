"""The admin API: metrics, fleet, decisions, advice and overrides, over HTTP. Only overrides and roles are changed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import structlog
from aiohttp import web

from slipstream.admin.answer import answer, problem
from slipstream.admin.auth import token_required
from slipstream.admin.listener import Listener
from slipstream.admin.overrides import Known, override_view, read_kind, read_override
from slipstream.admin.query import read_query
from slipstream.admin.roles import NoRoles, Roles, change_view, read_change, verdict_view
from slipstream.admin.view import (
    advice_view,
    attempt_view,
    calibrations_view,
    config_view,
    decision_view,
    fleet_view,
    occupancy_view,
)
from slipstream.core.advice import advise, not_foretold, stale_calibrations
from slipstream.core.calibration_watch import calibration_summaries
from slipstream.core.dispatch import Dispatcher, Placement, Refusal
from slipstream.core.occupancy_group import occupancy_groups
from slipstream.core.overrides import Override, OverrideKind
from slipstream.core.request import PinSource, TrafficClass
from slipstream.core.roles import NotChangeable
from slipstream.telemetry import CONTENT_TYPE, FleetCollector, render
from slipstream.telemetry.reloads import Reloads

__all__ = ["Admin", "serve_admin"]

MAX_BODY_BYTES = 64 * 1024
CLOSE_S = 2.0
"""How long a request that runs at the end may take."""

_log = structlog.get_logger()

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Admin:
    """What the admin API reads from. ``clock`` is the fleet's, in seconds; ``version`` that of the software. ``token``
    gives what every request must bear now, ``None`` = nothing; ``key_ids`` the ids of the API keys that there are now;
    ``queue_lengths`` how many requests wait for a node with room, by class. ``roles`` changes those of nodes.
    """

    dispatcher: Dispatcher
    collector: FleetCollector
    clock: Callable[[], float]
    version: str
    token: Callable[[], str | None] = lambda: None
    reloads: Reloads = field(default_factory=Reloads)
    key_ids: Callable[[], Sequence[str]] = tuple
    queue_lengths: Callable[[], Mapping[TrafficClass, int]] = dict
    roles: Roles = field(default_factory=NoRoles)

    def application(self) -> web.Application:
        """The routes, ready to be served."""
        guards = [_errors_as_sentences, token_required(self.token)]
        application = web.Application(middlewares=guards, client_max_size=MAX_BODY_BYTES)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/fleet", self._fleet)
        application.router.add_get("/decisions", self._decisions)
        application.router.add_get("/decisions/{request_id}", self._decision)
        application.router.add_get("/occupancy", self._occupancy)
        application.router.add_get("/advice", self._advice)
        application.router.add_get("/overrides", self._overrides)
        application.router.add_post("/overrides", self._override)
        application.router.add_delete("/overrides", self._clear_all)
        application.router.add_delete("/overrides/{kind}/{subject}", self._clear)
        application.router.add_get("/roles", self._roles)
        application.router.add_post("/roles", self._change_role)
        application.router.add_get("/health", self._health)
        return application

    async def _metrics(self, _request: web.Request) -> web.Response:
        # Reading is quick; the text of a thousand nodes takes a tenth of a second that requests should not wait for.
        page = await asyncio.to_thread(render, self.collector.snapshot())
        return web.Response(body=page, headers={"content-type": CONTENT_TYPE})

    async def _fleet(self, _request: web.Request) -> web.Response:
        snapshot = self.collector.snapshot()
        fleet = fleet_view(snapshot.nodes, snapshot.categories, blind=snapshot.blind)
        now = self.clock()
        fleet["queue"] = dict(self.queue_lengths())
        fleet["changing_role"] = next((change_view(one, now) for one in self.roles.changes if one.ok is None), None)
        fleet["stale_calibrations"] = advice_view(stale_calibrations(self.dispatcher.fleet.nodes()))
        fleet["calibrations"] = calibrations_view(calibration_summaries(self.dispatcher.fleet.nodes()))
        fleet["not_foretold"] = advice_view(not_foretold(self.dispatcher))
        return answer(fleet | {"overrides": self._in_force(now), "config": config_view(self.reloads, now)})

    async def _decisions(self, request: web.Request) -> web.Response:
        try:
            query = read_query(request.query, self.collector.categories)
        except ValueError as error:
            return problem(400, str(error))
        now = self.clock()
        wanted = islice(filter(query.matches, self.dispatcher.placements()), query.limit)
        return answer({"decisions": [decision_view(placement, now) for placement in wanted]})

    async def _decision(self, request: web.Request) -> web.Response:
        request_id = request.match_info["request_id"]
        dispatcher = self.dispatcher
        found = dispatcher.find(request_id)
        if not found:
            return problem(404, f"no decision on a request {request_id!r} is remembered; the last 10,000 are")
        now = self.clock()
        attempts = [
            attempt_view(one, dispatcher.candidates(one), dispatcher.acceptance(one), now, self._pin_of(one))
            for one in found
        ]
        return answer({"request_id": request_id, "attempts": attempts})

    async def _occupancy(self, _request: web.Request) -> web.Response:
        return answer({"groups": occupancy_view(occupancy_groups(self.dispatcher, self.clock()))})

    async def _advice(self, _request: web.Request) -> web.Response:
        return answer({"advice": advice_view(advise(self.dispatcher, self.clock()))})

    async def _overrides(self, _request: web.Request) -> web.Response:
        return answer({"overrides": self._in_force(self.clock())})

    async def _override(self, request: web.Request) -> web.Response:
        # A page on the web can make a browser send anything here but this: JSON is asked about first.
        if request.content_type != "application/json":
            return problem(415, "an override is set with a body of content-type application/json")
        now = self.clock()
        dispatcher = self.dispatcher
        nodes = {node.name: node.pool for node in dispatcher.fleet.nodes()}
        try:
            known = Known(self.collector.categories, self.key_ids(), nodes)
            override = read_override(await request.read(), known, now)
        except ValueError as error:
            return problem(400, str(error))
        dispatcher.override(override, now)
        return answer({"override": self._shown(override, now)})

    async def _clear(self, request: web.Request) -> web.Response:
        now = self.clock()
        try:
            kind = read_kind(request.match_info["kind"])
        except ValueError as error:
            return problem(400, str(error))
        ended = self.dispatcher.clear_override(kind, request.match_info["subject"], now)
        return answer({"cleared": [] if ended is None else [self._shown(ended, now)]})

    async def _clear_all(self, _request: web.Request) -> web.Response:
        now = self.clock()
        ended = list(self.dispatcher.overrides)
        for override in ended:
            self.dispatcher.clear_override(override.kind, override.subject, now)
        return answer({"cleared": [self._shown(override, now) for override in ended]})

    def _in_force(self, now: float) -> list[dict[str, Any]]:
        self.dispatcher.expire_overrides(now)
        return [self._shown(override, now) for override in self.dispatcher.overrides]

    def _shown(self, override: Override, now: float) -> dict[str, Any]:
        """An override, and of a ceiling up to where it has effect."""
        about = (
            node
            for node in self.dispatcher.fleet.nodes()
            if (override.kind is OverrideKind.NODE_CEILING and node.name == override.subject)
            or (override.kind is OverrideKind.POOL_CEILING and node.pool == override.subject)
        )
        return override_view(override, now, max((node.limit for node in about), default=None))

    def _pin_of(self, attempt: Placement | Refusal) -> Override | None:
        """The override that fixed the pool of an attempt, in force or not; ``None`` when none did."""
        shape = attempt.shape
        if shape.pinned_by is not PinSource.OVERRIDE:
            return None
        return self.dispatcher.overrides.pin_at(attempt.decision.at, shape.category, shape.key_id)

    async def _roles(self, _request: web.Request) -> web.Response:
        now = self.clock()
        verdict = self.roles.verdict
        changes = [change_view(change, now) for change in reversed(list(self.roles.changes))]
        return answer({"verdict": None if verdict is None else verdict_view(verdict), "changes": changes})

    async def _change_role(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":  # as for overrides
            return problem(415, "a role is changed with a body of content-type application/json")
        nodes = {node.name: node.pool for node in self.dispatcher.fleet.nodes()}
        try:
            name, pool = read_change(await request.read(), nodes)
        except ValueError as error:
            return problem(400, str(error))
        try:
            change = await self.roles.change(name, pool)
        except NotChangeable as error:
            return problem(409, str(error))
        return answer({"change": change_view(change, self.clock())}, 202)

    async def _health(self, _request: web.Request) -> web.Response:
        return answer({"status": "ok", "version": self.version})


@asynccontextmanager
async def serve_admin(admin: Admin, host: str, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve for as long as the context lasts; yields the base URL. Raises ``OSError`` when the address is taken."""
    runner = web.AppRunner(admin.application(), handle_signals=False, shutdown_timeout=CLOSE_S)
    await runner.setup()
    server = runner.server
    assert server is not None
    listener = Listener(server, tls)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        stack.push_async_callback(listener.close)
        bound_host, bound_port = await listener.listen(host, port)
        shown_host = f"[{bound_host}]" if ":" in bound_host else bound_host
        yield f"{'http' if tls is None else 'https'}://{shown_host}:{bound_port}"


@web.middleware
async def _errors_as_sentences(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        response = problem(405, f"{request.path} does not take {request.method}, but {allowed}")
        response.headers["allow"] = allowed
        return response
    except web.HTTPNotFound:
        paths = (
            "/metrics, /fleet, /decisions, /decisions/{request_id}, /occupancy, /advice, /overrides, /roles and /health"
        )
        return problem(404, f"there is no {request.path}; there are {paths}")
    except web.HTTPRequestEntityTooLarge:
        return problem(413, f"a body may have at most {MAX_BODY_BYTES} bytes")
    except web.RequestPayloadError:
        return problem(400, "the body can not be read: it does not come as its headers say")
    except web.HTTPException as error:  # what a request does that no handler here hears of
        return problem(error.status, error.reason)
    except Exception:  # noqa: BLE001 - the last line of defence, and a loud one: the traceback is logged, never sent
        _log.exception("admin request failed", path=request.path)
        return problem(500, "this is a fault in slipstream; its log has the details")

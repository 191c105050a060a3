"""The composition root: builds every long-lived object once, starts them in order and stops them in reverse."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from socket import gethostname
from time import monotonic, time  # noqa: TID251 - it is handed out from here
from typing import Any

import structlog

from slipstream import __version__
from slipstream.admin import Admin, serve_admin
from slipstream.config import FleetConfig
from slipstream.config.difference import differences
from slipstream.config.sources import files_named, files_of
from slipstream.control.addresses import addresses_of
from slipstream.control.agent_watch import holder_name
from slipstream.control.calibrations import Calibrations
from slipstream.control.discovery import Discovery
from slipstream.control.keep_running import keep_running
from slipstream.control.lag import LoopLag
from slipstream.control.membership import Membership
from slipstream.control.reload import Reloader
from slipstream.control.roles import RoleKeeper
from slipstream.control.supervisor import Supervisor
from slipstream.control.watch import Signature
from slipstream.core.acceptance import AcceptanceBook
from slipstream.core.dispatch import Dispatcher
from slipstream.core.errors import ConfigError, ConfigProblem, SlipstreamError
from slipstream.core.evidence import CategoryEvidence
from slipstream.core.fleet import Fleet
from slipstream.core.node import NodeSpec
from slipstream.core.node_state import NodeState
from slipstream.core.overrides import Override, OverrideKind, Overrides
from slipstream.core.policy import policy_of
from slipstream.core.request import Pool
from slipstream.engines.catalogue import abort_lag_s, added_fields, gauge_lag_s, read_statistics
from slipstream.engines.scrape import Scraper
from slipstream.gateway.keys import KeyRing
from slipstream.gateway.ports import Ports
from slipstream.gateway.server import Gateway
from slipstream.gateway.tls import Authorities, Certificate
from slipstream.settings import (
    Settings,
    read_settings,
    role_settings_of,
    settings_of,
)
from slipstream.telemetry.collector import FleetCollector
from slipstream.telemetry.events import log_calibration, log_circuit, log_override
from slipstream.telemetry.fleet_readings import fleet_readings
from slipstream.telemetry.instruments import Instruments
from slipstream.telemetry.key_readings import key_readings
from slipstream.telemetry.logs import configure_logs
from slipstream.telemetry.metric import (
    CLIENT_CONNECTIONS,
    CONFIG_RELOADS,
    LOST_LINES,
    ROLE_CHANGES,
    ROLES_WANTED,
    Reading,
)
from slipstream.telemetry.reloads import Reloads
from slipstream.telemetry.routing_readings import routing_readings
from slipstream.telemetry.sinks import Sinks

__all__ = ["CanNotListen", "NotReady", "Service", "build_dispatcher", "loopback_config", "running"]

SURGE_NOTE = "a surge that does not pay for a change of roles"

_log = structlog.get_logger()


class NotReady(SlipstreamError):
    """The fleet did not become usable in time."""


class CanNotListen(SlipstreamError):
    """An address that clients or operators should connect to can not be bound."""


class Service:
    """A running gateway with its control loop and admin API.

    What a configuration decides reaches each part through ``apply``, at the start and at each reload.
    """

    def __init__(self, settings: Settings, dispatcher: Dispatcher) -> None:
        self.settings = settings
        self.dispatcher = dispatcher
        self.instruments = Instruments()
        self.reloads = Reloads()
        self.lag = LoopLag(clock=monotonic)
        self.sinks = Sinks(
            settings.sinks, version=__version__, draw=random.Random().random, clock=monotonic, wall_clock=time
        )
        self.collector = FleetCollector(
            dispatcher,
            self.instruments,
            tuple(settings.config.categories),
            monotonic,
            self._worst_lag_s,
            [
                Reading(CONFIG_RELOADS, self.reloads.samples),
                Reading(LOST_LINES, self.sinks.samples),
                Reading(CLIENT_CONNECTIONS, lambda: {(): float(self.gateway.open_connections)}),
                *routing_readings(
                    dispatcher,
                    self.instruments,
                    lambda: self.collector.categories,
                    lambda: self.gateway.queue_lengths,
                ),
                *key_readings(lambda: () if self._keys is None else self._keys.keys),
                *fleet_readings(dispatcher, monotonic),
                Reading(ROLE_CHANGES, lambda: self.roles.samples()),
                Reading(ROLES_WANTED, lambda: self.roles.wanted()),
            ],
        )
        self._keys: KeyRing | None = None
        self.gateway = Gateway(self._ports(settings), settings.limits)
        self.supervisor = Supervisor(
            dispatcher,
            partial(_scraper, Authorities()),
            settings.timing,
            clock=monotonic,
            holder=holder_name(gethostname(), *settings.config.gateway.address, random.Random().getrandbits(64)),
        )
        self.roles = RoleKeeper(
            dispatcher.fleet,
            lambda: self.supervisor.watches,
            role_settings_of(settings.config),
            waiting=lambda: sum(self.gateway.queue_lengths.values()),
            pace=self._pace,
            override=self._surge_ceiling,
            clock=monotonic,
        )
        self.membership = Membership(dispatcher, self.supervisor, clock=monotonic, forgotten=self.gateway.forget)
        self.discovery = Discovery(self.membership.set, addresses_of)
        self.calibrations = Calibrations(
            dispatcher,
            falls_back=lambda: self.config.calibration.stale_ceiling == "default",
            changed=log_calibration,
            clock=monotonic,
        )
        self._reloader: Reloader[Settings] | None = None
        self._reloading: set[asyncio.Task[Any]] = set()
        self.gateway_certificate = None if settings.gateway_tls is None else Certificate(settings.gateway_tls)
        self.admin_certificate = None if settings.admin_tls is None else Certificate(settings.admin_tls)
        self.gateway_url = ""
        self.admin_url = ""

    @property
    def config(self) -> FleetConfig:
        """The configuration in use."""
        return self.settings.config

    def apply(self, settings: Settings) -> None:
        """Go on by other settings, in one step: nothing is awaited, and nothing can fail. Running requests keep what
        they began with; evidence, books and decisions stay.
        """
        before, self.settings = self.settings, settings
        config, dispatcher = settings.config, self.dispatcher
        policy = None
        if settings.steering != before.steering:
            policy = policy_of(settings.steering, settings.policy, dispatcher.evidence, dispatcher.fleet)
        dispatcher.configure(
            settings.policy,
            settings.prior,
            half_life=config.routing.evidence_half_life_s,
            stale_after_s=config.control.stale_after_s,
            hysteresis=config.pools.speculative.hysteresis,
            now=monotonic(),
            policy=policy,
        )
        self.sinks.configure(settings.sinks)
        self.gateway.configure(self._ports(settings), settings.limits)
        self.collector.categories = tuple(config.categories)
        self.supervisor.configure(settings.timing, [node.spec for node in self.dispatcher.fleet.nodes()])
        self.roles.configure(role_settings_of(config))
        self.discovery.configure(settings.nodes, settings.templates, config.discovery.resolve_interval_s)
        for certificate, tls in (
            (self.gateway_certificate, settings.gateway_tls),
            (self.admin_certificate, settings.admin_tls),
        ):
            if certificate is not None and tls is not None:
                certificate.newest = tls
        if config.log != before.config.log:
            configure_logs(config.log.level, config.log.format)

    def watch(self, path: Path, known: Signature | None = None) -> None:
        """Begin to read ``path`` again when it or a file that it names is not as in ``known``, or as it was before."""
        self._reloader = Reloader(
            str(path),
            lambda: self._read(path),
            self.apply,
            lambda settings: settings.files,
            partial(files_named, path),
            settings=self.settings,
            reloads=self.reloads,
            clock=monotonic,
            known=known,
        )
        self._begin(keep_running("watch files", self._reloader.watch))

    def _read(self, path: Path) -> tuple[Settings, tuple[str, ...]]:
        """What the file says now, with all opened that it names, so that to apply it can not fail; and what differs."""
        settings = read_settings(path, self.config)
        try:
            self.sinks.open(settings.sinks)
        except SlipstreamError as error:
            problem = ConfigProblem(str(path), None, "", str(error), "what can be opened")
            raise ConfigError((problem,)) from error
        return settings, differences(self.config, settings.config)

    def reload(self, cause: str) -> None:
        """Begin to read the configuration again, for a service that has a file. Logs are opened anew in any case: they
        may have been rotated.
        """
        self.sinks.reopen()
        if self._reloader is not None and not self._reloader.waiting:
            self._begin(self._reloader.reload(cause))

    def _begin(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._reloading.add(task)
        task.add_done_callback(self._reloading.discard)

    async def stop_reloading(self) -> None:
        """Settings stay as they are from now on."""
        self._reloader = None
        await _ended(*self._reloading)

    async def close_gateway(self) -> None:
        """Let running requests end, for as long as the configuration in use gives them."""
        grace_s = self.config.gateway.grace_s
        broken_off = await self.gateway.close(grace_s)
        if broken_off:
            _log.warning("gateway.grace_over", broken_off=broken_off, grace_s=grace_s)

    def _ports(self, settings: Settings) -> Ports:
        self._keys = KeyRing(settings.keys, self._keys) if settings.keys else None
        return Ports(
            dispatcher=self.dispatcher,
            fleet=self.dispatcher.fleet,
            reader=settings.reader,
            read_statistics=read_statistics,
            added_fields=added_fields,
            observer=self.instruments,
            default_category=settings.config.default_category,
            keys=self._keys,
            answered=self.sinks.answered,
            tracer=self.sinks.tracer,
            clock=monotonic,
        )

    def _pace(self, node: NodeState, pool: Pool, sequences: int, tau: float | None) -> float | None:
        paces = self.settings.paces
        return None if paces is None else paces(node, pool, sequences, tau)

    def _surge_ceiling(self, ceiling: int | None) -> None:
        """An override, so that operators see it and can end it; what they have set themselves stays."""
        kind, pool = OverrideKind.POOL_CEILING, Pool.SPECULATIVE
        in_force = [one for one in self.dispatcher.overrides if (one.kind, one.subject) == (kind, pool)]
        if any(one.note != SURGE_NOTE for one in in_force):
            return
        now = monotonic()
        if ceiling is not None:
            self.dispatcher.override(Override(kind, pool, ceiling, SURGE_NOTE, now), now)
        elif in_force:
            self.dispatcher.clear_override(kind, pool, now)

    def _worst_lag_s(self) -> float | None:
        return self.lag.worst_s

    async def ready(self, timeout_s: float) -> None:
        """Wait until every node has reported, and the speculative ones a speculator. Raises `NotReady` with who has
        not.
        """
        deadline = monotonic() + timeout_s
        while missing := [node for node in self.dispatcher.fleet.nodes() if not (node.usable and node.fresh)]:
            if monotonic() >= deadline:
                details = "; ".join(f"{node.name}: {node.error or 'has not reported'}" for node in missing)
                raise NotReady(f"not ready after {timeout_s:g} s: {details}")
            await asyncio.sleep(0.02)


def build_dispatcher(settings: Settings, specs: Sequence[NodeSpec], draw: Callable[[], float]) -> Dispatcher:
    """Fleet, evidence and policy of a configuration. ``draw`` returns uniform numbers in [0, 1)."""
    config = settings.config
    fleet = Fleet(
        specs,
        monotonic(),
        stale_after_s=config.control.stale_after_s,
        hysteresis=config.pools.speculative.hysteresis,
        gauge_lag_s=gauge_lag_s,
        abort_lag_s=abort_lag_s,
        circuit_changed=log_circuit,
    )
    evidence = CategoryEvidence(AcceptanceBook(settings.prior, half_life=config.routing.evidence_half_life_s))
    policy = policy_of(settings.steering, settings.policy, evidence, fleet)
    return Dispatcher(fleet, evidence, policy, draw, Overrides(log_override))


def loopback_config(
    nodes: Sequence[Mapping[str, object]], gateway_port: int = 0, admin_port: int = 0, **sections: object
) -> FleetConfig:
    """The configuration of a fleet on this machine, of sections of nodes; port 0 picks a free one. ``sections`` replace
    whole sections.
    """
    return FleetConfig.model_validate(
        {
            "gateway": {"listen": f"127.0.0.1:{gateway_port}"},
            "admin": {"listen": f"127.0.0.1:{admin_port}"},
            "nodes": nodes,
            **sections,
        }
    )


@asynccontextmanager
async def running(
    config: FleetConfig, path: Path | None = None, known: Signature | None = None
) -> AsyncIterator[Service]:
    """Gateway, control loop and admin of a configuration, for as long as the context lasts.

    ``path`` is the file that ``config`` was read from, ``known`` how it and those that it names looked before that;
    when one changes, all are read again. Nothing is started unless both listeners can be bound; raises ``CanNotListen``
    when one can not. At the end the gateway closes first: while running requests finish, nodes are polled and operators
    can look.
    """
    settings = settings_of(config, () if path is None else files_of(path, config))
    service = Service(settings, build_dispatcher(settings, (), random.Random().random))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, service.sinks.close)
        with _binding("gateway", config.gateway.listen):
            host, port = await service.gateway.listen(*config.gateway.address, service.gateway_certificate)
        stack.push_async_callback(service.gateway.close, 0.0)
        scheme = "http" if service.gateway_certificate is None else "https"
        service.gateway_url = f"{scheme}://{_shown(host)}:{port}"
        admin = Admin(
            service.dispatcher,
            service.collector,
            monotonic,
            __version__,
            token=lambda: service.settings.admin_token,
            reloads=service.reloads,
            queue_lengths=lambda: service.gateway.queue_lengths,
            roles=service.roles,
            key_ids=lambda: [policy.key_id for _, policy in service.settings.keys],
        )
        admin_tls = None if service.admin_certificate is None else service.admin_certificate.context
        with _binding("admin", config.admin.listen):
            service.admin_url = await stack.enter_async_context(serve_admin(admin, *config.admin.address, admin_tls))
        stack.push_async_callback(service.supervisor.stop)
        stack.push_async_callback(service.discovery.stop)
        service.discovery.configure(settings.nodes, settings.templates, config.discovery.resolve_interval_s)
        for name, run in (
            ("forget nodes", service.membership.run),
            ("loop lag", service.lag.run),
            ("look at calibrations", service.calibrations.run),
            ("change roles", service.roles.run),
        ):
            stack.push_async_callback(_ended, asyncio.create_task(keep_running(name, run), name=name))
        stack.push_async_callback(service.close_gateway)
        if path is not None:
            stack.push_async_callback(service.stop_reloading)
            service.watch(path, known)
        yield service


async def _ended(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def _binding(part: str, listen: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # The text of event loops wraps the system's own, which says what a person has to know.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise CanNotListen(f"can not listen on {listen} ({part}): {reason}") from error


def _scraper(authorities: Authorities, node: NodeSpec) -> Scraper:
    return Scraper(node.url, node.api_key, partial(authorities.context, node.authorities))


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host

"""The composition root: builds every long-lived object once, starts them in order and stops them in reverse."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from time import monotonic

from slipstream import __version__
from slipstream.admin import Admin, serve_admin
from slipstream.config import FleetConfig, category_rules, node_specs, prior_alphas
from slipstream.control.lag import LoopLag
from slipstream.control.poller import Timing
from slipstream.control.supervisor import Supervisor
from slipstream.core.acceptance import AcceptanceBook, AcceptancePrior
from slipstream.core.category import Categorizer
from slipstream.core.category_rules import DEFAULT_RULES
from slipstream.core.dispatch import Dispatcher
from slipstream.core.errors import SlipstreamError
from slipstream.core.evidence import CategoryEvidence
from slipstream.core.fleet import Fleet
from slipstream.core.node import NodeSpec
from slipstream.core.policy import ProbingSettings, ThresholdPolicy, ThresholdSettings
from slipstream.core.request import Pool
from slipstream.embedded import EmbeddedNode
from slipstream.embedded.speculator import SpeculatorChoice
from slipstream.engines.catalogue import ENGINES, gauge_lag_s, read_statistics
from slipstream.engines.scrape import Scraper
from slipstream.gateway.limits import Limits
from slipstream.gateway.ports import Ports, Reader
from slipstream.gateway.reading import RequestReader
from slipstream.gateway.server import Gateway
from slipstream.telemetry.collector import FleetCollector
from slipstream.telemetry.instruments import Instruments

__all__ = ["CanNotListen", "NotReady", "Service", "build_dispatcher", "embedded_config", "reader_of", "running"]

CLOSE_GRACE_S = 30.0


class NotReady(SlipstreamError):
    """The fleet did not become usable in time."""


class CanNotListen(SlipstreamError):
    """An address that clients or operators should connect to can not be bound."""


class Service:
    """A running gateway with its control loop and admin API."""

    def __init__(
        self, config: FleetConfig, dispatcher: Dispatcher, instruments: Instruments, gateway_url: str, admin_url: str
    ) -> None:
        self.config = config
        self.dispatcher = dispatcher
        self.instruments = instruments
        self.gateway_url = gateway_url
        self.admin_url = admin_url

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


def build_dispatcher(config: FleetConfig, specs: Sequence[NodeSpec], draw: Callable[[], float]) -> Dispatcher:
    """Fleet, evidence and policy of a configuration. ``draw`` returns uniform numbers in [0, 1)."""
    speculative, routing = config.pools.speculative, config.routing
    fleet = Fleet(
        specs,
        monotonic(),
        stale_after_s=config.control.stale_after_s,
        hysteresis=speculative.hysteresis,
        gauge_lag_s=gauge_lag_s,
    )
    prior = AcceptancePrior(
        prior_alphas(config),
        alpha_floor=speculative.alpha_floor,
        tokens_per_step_floor=speculative.tokens_per_step_floor,
    )
    evidence = CategoryEvidence(AcceptanceBook(prior, half_life=routing.evidence_half_life_s))
    settings = ThresholdSettings(
        alpha_floor=speculative.alpha_floor,
        tokens_per_step_floor=speculative.tokens_per_step_floor,
        short_output_tokens=speculative.short_output_tokens,
        holdback=routing.holdback,
        fallback=routing.fallback,
        probing=ProbingSettings(routing.probe_share, routing.probe_interval_s),
        rejected_features=_rejected_features,
    )
    return Dispatcher(fleet, evidence, ThresholdPolicy(settings, evidence), draw)


def reader_of(config: FleetConfig) -> Reader:
    """From a request's bytes to its shape, by the configured categories, rules and pins."""
    categorizer = Categorizer((*category_rules(config), *DEFAULT_RULES), config.default_category)
    categories = frozenset(config.categories)
    return RequestReader(
        categorizer,
        categories,
        config.routing.pins,
        trusting=config.trust_category_header,
        trusting_class=config.trust_class_header,
    ).read


def embedded_config(
    nodes: Sequence[EmbeddedNode], gateway_port: int = 0, admin_port: int = 0, **sections: object
) -> FleetConfig:
    """The configuration of a fleet on this machine; port 0 picks a free one. ``sections`` replace whole sections."""
    return FleetConfig.model_validate(
        {
            "gateway": {"listen": f"127.0.0.1:{gateway_port}"},
            "admin": {"listen": f"127.0.0.1:{admin_port}"},
            "nodes": [_embedded_section(node) for node in nodes],
            **sections,
        }
    )


def _embedded_section(node: EmbeddedNode) -> dict[str, object]:
    section: dict[str, object] = {"name": node.name, "url": node.url, "pool": node.pool, "engine": "llamacpp"}
    drafts = node.spec.speculator.choice
    if node.pool is Pool.SPECULATIVE and drafts is not SpeculatorChoice.NONE:
        section["speculator"] = drafts.value
    return section


@asynccontextmanager
async def running(config: FleetConfig) -> AsyncIterator[Service]:
    """Gateway, control loop and admin of a configuration, for as long as the context lasts.

    Nothing is started unless both listeners can be bound; raises ``CanNotListen`` when one can not. At the end the
    gateway closes first: while running requests finish, nodes are polled and operators can look.
    """
    specs = node_specs(config)
    dispatcher = build_dispatcher(config, specs, random.Random().random)
    instruments = Instruments()
    lag = LoopLag(clock=monotonic)
    collector = FleetCollector(dispatcher, instruments, tuple(config.categories), monotonic, lambda: lag.worst_s)
    gateway = Gateway(
        Ports(
            dispatcher=dispatcher,
            fleet=dispatcher.fleet,
            reader=reader_of(config),
            read_statistics=read_statistics,
            observer=instruments,
            default_category=config.default_category,
            clock=monotonic,
        ),
        _limits(config),
    )
    async with AsyncExitStack() as stack:
        with _binding("gateway", config.gateway.listen):
            host, port = await gateway.listen(*config.gateway.address)
        stack.push_async_callback(gateway.close, 0.0)
        admin = Admin(dispatcher, collector, monotonic, version=__version__)
        with _binding("admin", config.admin.listen):
            admin_url = await stack.enter_async_context(serve_admin(admin, *config.admin.address))
        timing = Timing(interval_s=config.control.poll_interval_s, timeout_s=config.control.poll_timeout_s)
        supervisor = Supervisor(dispatcher, lambda node: Scraper(node.url, node.api_key), timing, clock=monotonic)
        supervisor.start(specs)
        stack.push_async_callback(supervisor.stop)
        measuring = asyncio.create_task(lag.run(), name="loop lag")
        stack.callback(measuring.cancel)
        stack.push_async_callback(gateway.close, CLOSE_GRACE_S)
        yield Service(config, dispatcher, instruments, f"http://{_shown(host)}:{port}", admin_url)


@contextmanager
def _binding(part: str, listen: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # The text of event loops wraps the system's own, which says what a person has to know.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise CanNotListen(f"can not listen on {listen} ({part}): {reason}") from error


def _limits(config: FleetConfig) -> Limits:
    gateway, timeouts = config.gateway, config.gateway.timeouts
    return Limits(
        max_body_bytes=gateway.max_body_bytes,
        max_header_bytes=gateway.max_header_bytes,
        connect_s=timeouts.connect_s,
        first_byte_streamed_s=timeouts.first_byte_streamed_s,
        first_byte_unstreamed_s=timeouts.first_byte_unstreamed_s,
        idle_s=timeouts.idle_s,
        write_s=timeouts.write_s,
        retries=gateway.retries,
    )


def _rejected_features(engine: str | None) -> frozenset[str]:
    known = None if engine is None else ENGINES.get(engine)
    return frozenset() if known is None else known.rejects_when_speculating


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host

"""What a configuration decides, checked and made ready: what is left to do is to put it in place."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from slipstream.config import (
    FleetConfig,
    acceptance_prior,
    admin_token,
    api_keys,
    category_rules,
    load,
    node_specs,
    node_templates,
    prior_alphas,
    threshold_settings,
)
from slipstream.config.endpoints import Tls
from slipstream.config.sources import files_of
from slipstream.config.targets import targets_by_class
from slipstream.control.poller import Timing
from slipstream.core.acceptance import AcceptancePrior
from slipstream.core.calibration_watch import is_outdated
from slipstream.core.category import Categorizer
from slipstream.core.category_rules import DEFAULT_RULES
from slipstream.core.errors import ConfigError, ConfigProblem
from slipstream.core.keys import KeyPolicy
from slipstream.core.node import NodeSpec
from slipstream.core.policy import PolicyKind, Steering, ThresholdSettings
from slipstream.core.roles import RoleSettings
from slipstream.engines.catalogue import ENGINES
from slipstream.gateway.limits import Limits, connections_allowed
from slipstream.gateway.ports import Reader
from slipstream.gateway.reading import RequestReader
from slipstream.gateway.tls import server_context
from slipstream.telemetry.sinks import SinkSettings

if TYPE_CHECKING:
    from slipstream.costmodel.forecasts import Profile
    from slipstream.costmodel.paces import ProfilePaces

__all__ = [
    "Settings",
    "profiles_of",
    "read_settings",
    "reader_of",
    "role_settings_of",
    "settings_of",
]


@dataclass(frozen=True, slots=True)
class Settings:
    """One configuration, as each part of the service is given it.

    ``nodes`` are those that are named, ``templates`` stand for as many nodes as their hosts have addresses. ``keys``
    are digest and policy of each client's key. ``files`` are those that all this was read from. ``paces`` tell what
    changing a role is worth, ``None`` = no profile says so.
    """

    config: FleetConfig
    nodes: tuple[NodeSpec, ...]
    templates: tuple[NodeSpec, ...]
    reader: Reader
    limits: Limits
    policy: ThresholdSettings
    steering: Steering
    prior: AcceptancePrior
    timing: Timing
    keys: tuple[tuple[bytes, KeyPolicy], ...]
    admin_token: str | None = field(repr=False)
    sinks: SinkSettings
    gateway_tls: ssl.SSLContext | None = None
    admin_tls: ssl.SSLContext | None = None
    files: tuple[Path, ...] = ()
    paces: ProfilePaces | None = None


def settings_of(config: FleetConfig, files: tuple[Path, ...] = ()) -> Settings:
    """A configuration made ready. Raises ``ValueError`` when a key or certificate that was there at its check is there
    no longer, and as ``profiles_of``.
    """
    profiles = profiles_of(config)
    return Settings(
        config=config,
        nodes=node_specs(config),
        templates=node_templates(config),
        reader=reader_of(config),
        limits=_limits(config),
        policy=_threshold_settings(config),
        steering=_steering(config, profiles),
        prior=acceptance_prior(config.pools.speculative, prior_alphas(config)),
        timing=Timing(interval_s=config.control.poll_interval_s, timeout_s=config.control.poll_timeout_s),
        keys=api_keys(config),
        admin_token=admin_token(config),
        sinks=_sinks(config),
        gateway_tls=_tls(config.gateway.tls),
        admin_tls=_tls(config.admin.tls),
        files=files,
        paces=_paces(config, profiles),
    )


def read_settings(path: Path, running: FleetConfig) -> Settings:
    """What the file at ``path`` says now, for a service that runs. Raises ``ConfigError`` when that can not be used."""
    config = load(path)
    problems = [
        ConfigProblem(str(path), None, key, now, f"{was}, as at the start: listeners are moved by a restart alone")
        for key, was, now in (
            ("gateway.listen", running.gateway.listen, config.gateway.listen),
            ("admin.listen", running.admin.listen, config.admin.listen),
            ("gateway.tls", _with_or_without(running.gateway.tls), _with_or_without(config.gateway.tls)),
            ("admin.tls", _with_or_without(running.admin.tls), _with_or_without(config.admin.tls)),
        )
        if was != now
    ]
    problems += [
        ConfigProblem(str(path), None, key, "none", f"{what}, as now: a file cut short must not open what was closed")
        for key, what, was, now in (
            ("gateway.keys", "at least one", running.gateway.keys, config.gateway.keys),
            ("admin.token", "one", running.admin.token, config.admin.token),
        )
        if was and not now
    ]
    if problems:
        raise ConfigError(tuple(problems))
    try:
        return settings_of(config, files_of(path, config))
    except ValueError as error:
        problem = ConfigProblem(str(path), None, "", "a key or certificate that has gone since its check", str(error))
        raise ConfigError((problem,)) from error


def _with_or_without(tls: Tls | None) -> str:
    return "no certificate" if tls is None else "a certificate"


def _tls(tls: Tls | None) -> ssl.SSLContext | None:
    try:
        return None if tls is None else server_context(tls.certificate, tls.key)
    except OSError as error:
        raise ValueError(f"a certificate and its key ({error.strerror or error})") from error


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
        affinity=config.routing.affinity,
    ).read


def _threshold_settings(config: FleetConfig) -> ThresholdSettings:
    """The conditions under which a request may speculate."""
    routing = config.routing
    return threshold_settings(
        config.pools.speculative,
        routing,
        affinity_slack=routing.affinity_slack if routing.affinity else None,
        rejected_features=_rejected_features,
    )


def _steering(config: FleetConfig, profiles: Mapping[str, Profile]) -> Steering:
    """Who decides."""
    routing = config.routing
    if routing.policy != "predictive":
        return Steering(PolicyKind(routing.policy))
    # What a fleet without forecasts does without takes as long to load as all the rest.
    from slipstream.costmodel.forecasts import ProfileForecasts

    forecasts = ProfileForecasts(profiles, is_outdated)
    return Steering(PolicyKind.PREDICTIVE, targets_by_class(routing.targets), forecasts)


def role_settings_of(config: FleetConfig) -> RoleSettings | None:
    """When nodes change their roles; ``None`` = when operators say so."""
    return None if config.roles is None else config.roles.settings()


def _paces(config: FleetConfig, profiles: Mapping[str, Profile]) -> ProfilePaces | None:
    if config.roles is None or not profiles:
        return None
    from slipstream.costmodel.paces import ProfilePaces

    return ProfilePaces(profiles, is_outdated)


def profiles_of(config: FleetConfig) -> dict[str, Profile]:
    """The profiles that a configuration decides by, by their files; none where it decides by none. Raises
    ``ConfigError`` for those that foretell nothing.
    """
    deciding = [
        what
        for what, decides in (
            ("routing.policy is predictive", config.routing.policy == "predictive"),
            ("nodes change their roles by it", config.roles is not None),
        )
        if decides
    ]
    files = [file for file in dict.fromkeys((config.profile, *(node.profile for node in config.nodes))) if file]
    if not deciding or not files:
        return {}
    from slipstream.costmodel.errors import ImpossibleInput
    from slipstream.costmodel.forecasts import foretelling_profile

    profiles: dict[str, Profile] = {}
    problems = []
    for file in files:
        try:
            profiles[file] = foretelling_profile(Path(file))
        except ImpossibleInput as error:
            allowed = f"step times from a batch size of 1 on, since {' and '.join(deciding)}"
            problems.append(ConfigProblem(file, None, "", str(error), allowed))
    if problems:
        raise ConfigError(tuple(problems))
    return profiles


def _sinks(config: FleetConfig) -> SinkSettings:
    record, tracing = config.record, config.tracing
    return SinkSettings(
        access_log=config.log.access,
        recording=None if record is None else record.file,
        recording_max_bytes=None if record is None else record.max_bytes,
        recording_keep=1 if record is None else record.keep,
        trace_endpoint=None if tracing is None else tracing.endpoint,
        trace_sample=0.0 if tracing is None else tracing.sample,
    )


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
        drain_s=timeouts.drain_s,
        client_head_s=timeouts.client_head_s,
        client_keep_alive_s=timeouts.client_keep_alive_s,
        max_connections=gateway.max_connections or connections_allowed(),
        retries=gateway.retries,
        queue_size=gateway.queue.size,
        queue_timeout_s=gateway.queue.timeout_s,
    )


def _rejected_features(engine: str | None) -> frozenset[str]:
    known = None if engine is None else ENGINES.get(engine)
    return frozenset() if known is None else known.rejects_when_speculating

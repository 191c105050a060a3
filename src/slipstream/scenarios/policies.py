"""Who decides, and by which settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from slipstream.config import acceptance_prior, threshold_settings
from slipstream.config.document import Path as Place
from slipstream.config.document import Report
from slipstream.config.scenario import PolicySection, ScenarioConfig, ScenarioRoles
from slipstream.core.acceptance import DEFAULT_ALPHAS, AcceptancePrior
from slipstream.core.errors import ConfigProblem
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.scenarios.fleet import check_drafts, schedule_of
from slipstream.sim.scenario import GatewaySettings, NodeGroup, Policy, PolicyKind, RoleChanges

__all__ = ["gateway_of", "policy_of", "prior_of", "unequipped"]


def policy_of(section: PolicySection, config: ScenarioConfig) -> Policy:
    """A policy; what it does not say of its own is as in ``pools`` and ``routing``."""
    settings = threshold_settings(
        config.pools.speculative, config.routing, affinity_slack=None, rejected_features=_rejects_nothing
    )
    if section.alpha_floor is not None:
        settings = replace(settings, alpha_floor=section.alpha_floor)
    if section.holdback is not None:
        settings = replace(settings, holdback=section.holdback)
    return Policy(
        name=section.name or section.kind,
        kind=PolicyKind(section.kind),
        ceiling=section.ceiling,
        threshold=settings,
        speculative_categories=frozenset(section.categories),
        schedule=schedule_of(section.schedule),
        profile_error=1.0 if section.profile_error is None else section.profile_error,
        roles=_roles_of(section.roles),
    )


def _roles_of(section: ScenarioRoles | None) -> RoleChanges | None:
    if section is None:
        return None
    return RoleChanges(section.settings(), section.restart_s, section.drain_timeout_s)


def _rejects_nothing(_engine: str | None) -> frozenset[str]:
    """A simulated request has no fields that an engine could refuse."""
    return frozenset()


def unequipped(policy: Policy, groups: Iterable[NodeGroup], place: Place, report: Report) -> Iterator[ConfigProblem]:
    """Nodes that would speculate under a policy and have nothing to draft with."""
    if policy.kind not in {PolicyKind.ALL_SPECULATIVE, PolicyKind.ALL_SCHEDULED}:
        return
    for group in groups:
        if group.speculative is None:
            found = f"{policy.kind}, and the nodes {group.name} have a profile without speculator"
            yield report(place, found, "a policy that leaves them standard, or a profile with a speculator")
            continue
        speculation = group.speculative.settings.speculation
        assert speculation is not None
        if policy.schedule:
            try:
                check_drafts(group.speculative, replace(speculation, schedule=policy.schedule))
            except ImpossibleInput as error:
                found = f"draft lengths that {group.name} can not have ({error})"
                yield report((*place, "schedule"), found, "draft lengths that its profile knows")


def gateway_of(config: ScenarioConfig) -> GatewaySettings:
    """How the gateway works, out of the sections that say so in a fleet's configuration too."""
    gateway, control = config.gateway, config.control
    return GatewaySettings(
        poll_interval_s=control.poll_interval_s,
        report_delay_s=control.report_delay_ms / 1000.0,
        stale_after_s=control.stale_after_s,
        hysteresis=config.pools.speculative.hysteresis,
        forward_s=gateway.forward_ms / 1000.0,
        queue_size=gateway.queue.size,
        queue_timeout_s=gateway.queue.timeout_s,
        retries=gateway.retries,
        evidence_half_life_s=config.routing.evidence_half_life_s,
        request_statistics=gateway.request_statistics,
    )


def prior_of(config: ScenarioConfig) -> AcceptancePrior:
    """What the gateway believes of the categories before it has measured them."""
    alphas = {
        name: section.prior_alpha
        for name, section in config.workload.categories.items()
        if section.prior_alpha is not None
    }
    return acceptance_prior(config.pools.speculative, {**DEFAULT_ALPHAS, **alphas})

"""From configuration to the core's own words."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from slipstream.config.calibration import calibration_from_file
from slipstream.config.endpoints import ApiKey
from slipstream.config.schema import FleetConfig, Node, RoutingRules, SpeculativePool
from slipstream.core.acceptance import AcceptancePrior
from slipstream.core.calibration import Calibration
from slipstream.core.category import CategoryRule
from slipstream.core.keys import KeyPolicy
from slipstream.core.node import Instrument, NodeSpec, SpeculatorKind
from slipstream.core.policy import ProbingSettings, ThresholdSettings

__all__ = [
    "acceptance_prior",
    "admin_token",
    "api_keys",
    "category_rules",
    "node_specs",
    "node_templates",
    "prior_alphas",
    "threshold_settings",
]


def node_specs(config: FleetConfig) -> tuple[NodeSpec, ...]:
    """The configured nodes, with their keys and profiles read from where the configuration says they are.

    Raises ``ValueError`` when a file that was there at the check is there no longer.
    """
    return _specs(config, None)


def node_templates(config: FleetConfig) -> tuple[NodeSpec, ...]:
    """What stands for as many nodes as the host of its url has addresses. Raises as ``node_specs`` does."""
    return _specs(config, "all")


def _specs(config: FleetConfig, resolve: str | None) -> tuple[NodeSpec, ...]:
    ceiling = config.pools.speculative.ceiling
    nodes = [(node, node.profile or config.profile) for node in config.nodes if node.resolve == resolve]
    files = dict.fromkeys(profile for _, profile in nodes if profile is not None)
    calibrations = {None: None} | {file: calibration_from_file(file) for file in files}
    return tuple(_node_spec(node, ceiling, calibrations[profile]) for node, profile in nodes)


def _node_spec(node: Node, pool_ceiling: int, calibration: Calibration | None) -> NodeSpec:
    return NodeSpec(
        name=node.name,
        url=node.url,
        pool=node.pool,
        engine=node.engine,
        models=node.models,
        ceiling=pool_ceiling if node.ceiling is None else node.ceiling,
        max_in_flight=node.max_in_flight,
        speculator_kind=None if node.speculator is None else SpeculatorKind(node.speculator),
        instrument=Instrument(node.instrument),
        api_key=None if node.api_key is None else node.api_key.reveal(),
        authorities=node.ca,
        agent=node.agent,
        agent_token=None if node.agent_token is None else node.agent_token.reveal(),
        calibration=calibration,
        hardware=node.hardware,
        replicas=node.replicas,
    )


def prior_alphas(config: FleetConfig) -> dict[str, float]:
    """Per-token acceptance assumed of each configured category before it has been measured, 0..1."""
    return {name: category.prior_alpha for name, category in config.categories.items()}


def acceptance_prior(speculative: SpeculativePool, alphas: Mapping[str, float]) -> AcceptancePrior:
    """What is believed of categories before they have been measured; ``alphas`` are per-token acceptances, 0..1."""
    return AcceptancePrior(
        alphas, alpha_floor=speculative.alpha_floor, tokens_per_step_floor=speculative.tokens_per_step_floor
    )


def threshold_settings(
    speculative: SpeculativePool,
    rules: RoutingRules,
    *,
    affinity_slack: int | None,
    rejected_features: Callable[[str | None], frozenset[str]],
) -> ThresholdSettings:
    """The conditions under which a request may speculate; what no section says is as in `ThresholdSettings`."""
    return ThresholdSettings(
        alpha_floor=speculative.alpha_floor,
        tokens_per_step_floor=speculative.tokens_per_step_floor,
        short_output_tokens=speculative.short_output_tokens,
        holdback=rules.holdback,
        fallback=rules.fallback,
        affinity_slack=affinity_slack,
        observe=rules.mode == "observe",
        probing=ProbingSettings(rules.probe_share, rules.probe_interval_s),
        rejected_features=rejected_features,
    )


def category_rules(config: FleetConfig) -> tuple[CategoryRule, ...]:
    """The configured rules, in their order; they go before the built-in ones."""
    return tuple(CategoryRule(**rule.model_dump()) for rule in config.category_rules)


def api_keys(config: FleetConfig) -> tuple[tuple[bytes, KeyPolicy], ...]:
    """Digest and policy of each key of a client; none = requests need no key. Raises as ``node_specs`` does."""
    return tuple((key.digest(), _key_policy(key)) for key in config.gateway.keys)


def _key_policy(key: ApiKey) -> KeyPolicy:
    return KeyPolicy(
        key_id=key.id,
        traffic_class=key.traffic_class,
        pinned_pool=key.pool,
        trusts_category=key.trust_category_header,
        trusts_class=key.trust_class_header,
        max_in_flight=key.max_in_flight,
        requests_per_minute=key.requests_per_minute,
    )


def admin_token(config: FleetConfig) -> str | None:
    """What whoever asks the admin API must bear, ``None`` = nothing. Raises as ``node_specs`` does."""
    return None if config.admin.token is None else config.admin.token.reveal()

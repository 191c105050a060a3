"""The only reader of configuration files: YAML in, frozen sections out, or every problem with its line."""

from slipstream.config.loading import load, parse
from slipstream.config.reference import json_schema
from slipstream.config.schema import FleetConfig
from slipstream.config.specs import (
    acceptance_prior,
    admin_token,
    api_keys,
    category_rules,
    node_specs,
    node_templates,
    prior_alphas,
    threshold_settings,
)
from slipstream.config.values import Address
from slipstream.config.warning import warnings

__all__ = [
    "Address",
    "FleetConfig",
    "acceptance_prior",
    "admin_token",
    "api_keys",
    "category_rules",
    "json_schema",
    "load",
    "node_specs",
    "node_templates",
    "parse",
    "prior_alphas",
    "threshold_settings",
    "warnings",
]

"""The prompts that ``slipstream demo`` sends."""

from __future__ import annotations

from importlib.resources import files

import yaml

from slipstream.load import PlannedRequest

__all__ = ["MAX_TOKENS", "PROMPTS", "demo_prompts", "planned"]

PROMPTS = 60
"""How many prompts there are. Written down, so that no other command has to read them to know its options."""

MAX_TOKENS = 64
"""Limit of every answer."""


def demo_prompts() -> list[tuple[str, str]]:
    """Every prompt with its kind, the kinds mixed as evenly as their numbers allow."""
    by_kind: dict[str, list[str]] = yaml.safe_load(files("slipstream.cli").joinpath("demo_prompts.yaml").read_bytes())
    placed = [
        ((index + 0.5) / len(prompts), kind, prompt)
        for kind, prompts in by_kind.items()
        for index, prompt in enumerate(prompts)
    ]
    return [(kind, prompt) for _, kind, prompt in sorted(placed, key=lambda item: item[0])]


def planned(model: str, count: int) -> list[PlannedRequest]:
    """The first ``count`` prompts as requests. No prompt comes twice: a speculator would know the second answer.

    Sampling is greedy, so both pools give the same answers and only their speed is compared.
    """
    return [
        PlannedRequest(model, ({"role": "user", "content": prompt},), MAX_TOKENS, kind, fields={"temperature": 0})
        for kind, prompt in demo_prompts()[:count]
    ]

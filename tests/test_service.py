"""The composition root: what a configuration says is what the running service does."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from live_service import Live, live
from slipstream.config import FleetConfig
from slipstream.service import CanNotListen, NotReady
from vllm_like_node import MODEL, Drafts, VllmLike, vllm_like

CODE = "Write a Python function that reverses a string and returns it."
CHAT = "Hello! How are you today?"


def config_of(spec: VllmLike, std: VllmLike, **sections: Any) -> FleetConfig:
    return FleetConfig.model_validate(
        {
            "gateway": {"listen": "127.0.0.1:0"},
            "admin": {"listen": "127.0.0.1:0"},
            "nodes": [
                {"name": "spec-0", "url": spec.url, "pool": "speculative"},
                {"name": "std-0", "url": std.url, "pool": "standard"},
            ],
            **sections,
        }
    )


async def marks_of(fleet: Live, text: str, headers: dict[str, str] | None = None, **fields: Any) -> tuple[str, ...]:
    """Node, category and reason of an answered request."""
    answer = await fleet.client.chat.completions.with_raw_response.create(
        model=MODEL, messages=[{"role": "user", "content": text}], extra_headers=headers, **fields
    )
    return tuple(answer.headers[f"x-slipstream-{name}"] for name in ("node", "category", "reason"))


async def test_each_reason_to_stay_off_a_speculative_node_is_given_in_the_answer() -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std, live(config_of(spec, std)) as fleet:
        assert await marks_of(fleet, CODE) == ("spec-0", "code", "speculative")
        assert await marks_of(fleet, CODE, max_tokens=8) == ("std-0", "code", "short_output")
        assert await marks_of(fleet, CODE, service_tier="flex") == ("std-0", "code", "bulk")
        assert await marks_of(fleet, CODE, logit_bias={"50": 1}) == ("std-0", "code", "rejected_feature")
        assert await marks_of(fleet, CHAT) == ("std-0", "chat", "below_floor")
        assert await marks_of(fleet, CODE, {"x-slipstream-category": "chat"}) == ("spec-0", "code", "speculative")


async def test_pins_rules_priors_and_the_category_header_are_as_configured() -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        config = config_of(
            spec,
            std,
            trust_category_header=True,
            categories={"greeting": {"prior_alpha": 0.9}},
            category_rules=[{"category": "greeting", "words": ["hello"]}],
            routing={"pins": {"math": "standard"}},
        )
        async with live(config) as fleet:
            assert await marks_of(fleet, CHAT) == ("spec-0", "greeting", "speculative")
            assert await marks_of(fleet, CODE, {"x-slipstream-category": "math"}) == ("std-0", "math", "pinned")
            assert await marks_of(fleet, CODE, {"x-slipstream-category": "nonsense"}) == (
                "spec-0",
                "code",
                "speculative",
            )


async def test_a_holdback_of_everything_sends_what_is_eligible_to_the_standard_pool() -> None:
    async with (
        vllm_like(Drafts(20, 60)) as spec,
        vllm_like() as std,
        live(config_of(spec, std, routing={"holdback": 1.0})) as fleet,
    ):
        assert await marks_of(fleet, CODE) == ("std-0", "code", "holdback")


async def test_a_fleet_that_does_not_become_ready_names_who_is_missing_and_why() -> None:
    async with vllm_like(Drafts(20, 60), metrics=b"<html>") as spec, vllm_like() as std:
        with pytest.raises(NotReady, match=r"not ready after 0\.5 s: spec-0: .*/metrics: not a page") as caught:
            async with live(config_of(spec, std), ready_s=0.5):
                pass
        assert "std-0" not in str(caught.value)


async def test_an_address_that_is_not_this_machines_is_named() -> None:
    async with vllm_like() as spec, vllm_like() as std:
        with pytest.raises(CanNotListen, match=r"^can not listen on 192\.0\.2\.1:80 \(gateway\): "):
            async with live(config_of(spec, std, gateway={"listen": "192.0.2.1:80"})):
                pass


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as listener:
            listener.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
async def test_ipv6_loopback_is_an_address_like_another() -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        config = config_of(spec, std, gateway={"listen": "[::1]:0"}, admin={"listen": "[::1]:0"})
        async with live(config) as fleet:
            assert fleet.service.gateway_url.startswith("http://[::1]:")
            assert await marks_of(fleet, CODE) == ("spec-0", "code", "speculative")
            assert (await fleet.shown("std-0"))["state"] == "ready"

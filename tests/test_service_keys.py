"""What a key's policy says is what happens to its requests, and a changed configuration changes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from live_service import Live, eventually_async, live
from slipstream.config import FleetConfig, load
from slipstream.core.keys import digest_of
from slipstream.settings import settings_of
from test_service import CHAT, CODE, config_of
from vllm_like_node import MODEL, Drafts, vllm_like


def keys(**policies: dict[str, object]) -> dict[str, object]:
    """A key for each name, whose text is the name in capitals."""
    entries = [
        {"id": name, "hash": f"sha256:{digest_of(name.upper().encode()).hex()}"} | policy
        for name, policy in policies.items()
    ]
    return {"listen": "127.0.0.1:0", "keys": entries}


async def asked(
    fleet: Live, key: str, text: str = CODE, headers: dict[str, str] | None = None, **fields: Any
) -> tuple[str, ...]:
    """Node, category and reason of a request with this key."""
    async with openai.AsyncOpenAI(base_url=fleet.base_url, api_key=key, max_retries=0) as client:
        answer = await client.chat.completions.with_raw_response.create(
            model=MODEL, messages=[{"role": "user", "content": text}], extra_headers=headers, **fields
        )
        return tuple(answer.headers[f"x-slipstream-{name}"] for name in ("node", "category", "reason"))


async def test_a_keys_policy_decides_on_its_requests_and_on_no_others() -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        gateway = keys(
            plain={},
            jobs={"traffic_class": "bulk"},
            people={"traffic_class": "interactive"},
            pinned={"pool": "standard"},
            trusted={"trust_category_header": True, "trust_class_header": True},
            distrusted={"trust_category_header": False},
        )
        config = config_of(spec, std, gateway=gateway, trust_category_header=True)
        async with live(config) as fleet:
            as_chat = {"x-slipstream-category": "chat"}
            assert await asked(fleet, "PLAIN") == ("spec-0", "code", "speculative")
            assert await asked(fleet, "PLAIN", service_tier="flex") == ("std-0", "code", "bulk")
            assert await asked(fleet, "PLAIN", headers={"x-slipstream-class": "bulk"}) == (
                "spec-0",
                "code",
                "speculative",
            )
            assert await asked(fleet, "PLAIN", headers=as_chat) == ("std-0", "chat", "below_floor")
            assert await asked(fleet, "DISTRUSTED", headers=as_chat) == ("spec-0", "code", "speculative")
            assert await asked(fleet, "JOBS") == ("std-0", "code", "bulk")
            assert await asked(fleet, "PEOPLE", service_tier="flex") == ("spec-0", "code", "speculative")
            assert await asked(fleet, "PINNED") == ("std-0", "code", "pinned")
            assert await asked(fleet, "TRUSTED", CODE, {"x-slipstream-class": "bulk"}) == ("std-0", "code", "bulk")
            assert (await fleet.admin("/decisions"))["decisions"][0]["key_id"] == "trusted"
            assert {placement.shape.key_id for placement in fleet.placements()} == {
                "plain",
                "jobs",
                "people",
                "pinned",
                "trusted",
                "distrusted",
            }


async def test_openais_client_is_told_of_a_key_that_is_missing_or_has_no_room() -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        config = config_of(spec, std, gateway=keys(once={"requests_per_minute": 1}))
        async with live(config) as fleet:
            with pytest.raises(openai.AuthenticationError, match="not known here"):
                await asked(fleet, "OTHER", CHAT)
            await asked(fleet, "ONCE", CHAT)
            with pytest.raises(openai.RateLimitError, match="limited to 1 requests per minute") as refused:
                await asked(fleet, "ONCE", CHAT)
            assert refused.value.code == "key_rate_limit"
            metrics = await (await fleet.session.get(fleet.service.admin_url + "/metrics")).text()
            assert 'slipstream_rejected_requests_total{error="Unauthenticated"} 1.0' in metrics
            assert 'slipstream_rejected_requests_total{error="TooManyRequests"} 1.0' in metrics
            assert 'slipstream_key_requests_total{key="once",result="admitted"} 1.0' in metrics
            assert 'slipstream_key_requests_total{key="once",result="over_rate"} 1.0' in metrics
            assert 'slipstream_key_in_flight_sequences{key="once"} 0.0' in metrics


async def test_a_changed_configuration_lets_in_other_keys_and_keeps_what_a_key_has_used() -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:

        def configured(gateway: dict[str, object]) -> FleetConfig:
            return config_of(spec, std, gateway=gateway)

        async with live(configured(keys(once={"requests_per_minute": 1}, leaked={}))) as fleet:
            await asked(fleet, "ONCE")
            await asked(fleet, "LEAKED")
            fleet.service.apply(settings_of(configured(keys(once={"requests_per_minute": 2}, new={}))))
            with pytest.raises(openai.AuthenticationError):
                await asked(fleet, "LEAKED")
            await asked(fleet, "NEW")
            with pytest.raises(openai.RateLimitError):  # a larger bucket does not come filled
                await asked(fleet, "ONCE")
            fleet.service.apply(settings_of(configured({"listen": "127.0.0.1:0"})))
            assert await asked(fleet, "ANYONE") == ("spec-0", "code", "speculative")


async def test_a_changed_file_of_keys_is_taken_in_and_a_bad_one_is_not(tmp_path: Path) -> None:
    async with vllm_like(Drafts(20, 60)) as spec, vllm_like() as std:
        list_of_keys, fleet_file = tmp_path / "keys.yaml", tmp_path / "fleet.yaml"

        def write(*names: str) -> None:
            list_of_keys.write_text(json.dumps({"keys": keys(**{name: {} for name in names})["keys"]}))

        nodes = [{"name": "spec-0", "url": spec.url, "pool": "speculative"}]
        nodes.append({"name": "std-0", "url": std.url, "pool": "standard"})
        free = {"listen": "127.0.0.1:0"}
        fleet_file.write_text(json.dumps({"gateway": free | {"keys_file": "keys.yaml"}, "admin": free, "nodes": nodes}))
        write("first")
        async with live(load(fleet_file), path=fleet_file) as fleet:

            async def status(key: str) -> int:
                url, headers = f"{fleet.base_url}/models", {"authorization": f"Bearer {key}"}
                async with fleet.session.get(url, headers=headers) as response:
                    return response.status

            async def second_is_let_in() -> bool:
                return await status("SECOND") == 200

            async def a_bad_file_was_told() -> bool:
                return "keys.yaml" in str((await fleet.admin("/fleet"))["config"])

            assert [await status("FIRST"), await status("SECOND")] == [200, 401]
            write("second")
            await eventually_async(second_is_let_in)
            assert await status("FIRST") == 401
            list_of_keys.write_text('{"keys": [{"id": "first"}]}')
            await eventually_async(a_bad_file_was_told)
            assert [await status("FIRST"), await status("SECOND"), await status("")] == [401, 200, 401]

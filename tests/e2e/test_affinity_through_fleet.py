"""Conversations find their node again, through the whole service; and observing can be ended while it runs."""

from __future__ import annotations

from typing import Any

from live_service import Live, live
from slipstream.config import FleetConfig
from slipstream.core.policy import Reason
from slipstream.settings import settings_of
from vllm_like_node import MODEL, VllmLike, vllm_like

LONG = "Here is a long document. " + "It says many things at great length. " * 60


def config_of(*nodes: VllmLike, **routing: Any) -> FleetConfig:
    return FleetConfig.model_validate(
        {
            "gateway": {"listen": "127.0.0.1:0"},
            "admin": {"listen": "127.0.0.1:0"},
            "control": {"stale_after_s": 60.0},
            "routing": routing,
            "nodes": [{"name": f"n{n}", "url": node.url, "pool": "standard"} for n, node in enumerate(nodes)],
        }
    )


async def ask(fleet: Live, *turns: str, session: str | None = None, **fields: Any) -> tuple[str, str]:
    """Node and reason of one answered request."""
    answer = await fleet.client.chat.completions.with_raw_response.create(
        model=MODEL,
        messages=[{"role": "user", "content": turn} for turn in turns],
        extra_headers={} if session is None else {"x-session-id": session},
        extra_body=fields,
    )
    assert answer.parse().choices[0].message.content == "Yes."
    return answer.headers["x-slipstream-node"], answer.headers["x-slipstream-reason"]


async def test_conversations_keep_their_node_by_whatever_names_them() -> None:
    async with vllm_like() as one, vllm_like() as other, live(config_of(one, other)) as fleet:
        by_session = {await ask(fleet, f"turn {n}", session="s") for n in range(12)}
        by_key = {await ask(fleet, f"turn {n}", prompt_cache_key="k") for n in range(12)}
        by_prefix = {await ask(fleet, LONG, *map(str, range(n))) for n in range(12)}
        assert len(by_session) == len(by_key) == len(by_prefix) == 1
        assert by_session | by_key | by_prefix <= {("n0", "no_speculator"), ("n1", "no_speculator")}
        without = {node for node, _ in [await ask(fleet, f"turn {n}") for n in range(24)]}
        assert without == {"n0", "n1"}


async def test_without_affinity_conversations_are_spread_like_anything() -> None:
    async with vllm_like() as one, vllm_like() as other, live(config_of(one, other, affinity=False)) as fleet:
        assert len({await ask(fleet, LONG, session="s") for _ in range(24)}) == 2


async def test_observing_ends_with_a_reload() -> None:
    async with vllm_like() as one, vllm_like() as other:
        observing = config_of(one, other, mode="observe")
        async with live(observing) as fleet:
            assert {reason for _, reason in [await ask(fleet, "hello") for _ in range(3)]} == {Reason.OBSERVE}
            (decision, *_) = (await fleet.admin("/decisions"))["decisions"]
            assert decision["intended"]["reason"] == Reason.NO_SPECULATOR
            changed = observing.model_copy(update={"routing": config_of(one, other).routing})
            fleet.service.apply(settings_of(changed))
            assert (await ask(fleet, "hello"))[1] == Reason.NO_SPECULATOR
            (decision, *_) = (await fleet.admin("/decisions"))["decisions"]
            assert decision["intended"] is None

"""A node that is dead, late or speaks nonsense: the fleet goes on, and says so."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

from live_service import Live, eventually, live
from recorded_engine import recorded_engine
from slipstream.config import FleetConfig
from slipstream.core.policy import Reason
from vllm_like_node import MODEL, Drafts, VllmLike, vllm_like

CODE = "Write a Python function that reverses a string and returns it."
GARBAGE = b"<html><body>502 Bad Gateway</body></html>"


def config_of(spec: str, std: str, **speculative: Any) -> FleetConfig:
    return FleetConfig.model_validate(
        {
            "gateway": {"listen": "127.0.0.1:0"},
            "admin": {"listen": "127.0.0.1:0"},
            "control": {"poll_interval_s": 0.05, "stale_after_s": 0.5},
            "nodes": [
                {"name": "spec-0", "url": spec, "pool": "speculative", **speculative},
                {"name": "std-0", "url": std, "pool": "standard"},
            ],
        }
    )


async def ask(fleet: Live) -> tuple[str, str]:
    """Node and reason of one answered request."""
    answer = await fleet.client.chat.completions.with_raw_response.create(
        model=MODEL, messages=[{"role": "user", "content": CODE}]
    )
    assert answer.parse().choices[0].message.content == "Yes."
    return answer.headers["x-slipstream-node"], answer.headers["x-slipstream-reason"]


async def reasons_of(fleet: Live) -> dict[str, str]:
    """Of the last decision, why each node was chosen or was not."""
    request_id = fleet.placements()[-1].request_id
    (attempt,) = (await fleet.admin(f"/decisions/{request_id}"))["attempts"]
    return {one["node"]: one["reason"] for one in attempt["candidates"]}


async def advice_of(fleet: Live) -> dict[str, str]:
    return {one["subject"]: one["code"] for one in (await fleet.admin("/advice"))["advice"]}


@pytest.fixture
async def free_port() -> int:
    async with vllm_like() as node:
        return int(node.url.rpartition(":")[2])


@pytest.mark.parametrize("known", [{}, {"engine": "vllm", "models": [MODEL]}])
async def test_a_node_that_is_dead_from_the_start_is_said_to_be_and_the_others_serve(
    free_port: int, known: dict[str, Any]
) -> None:
    async with (
        vllm_like() as std,
        live(config_of(f"http://127.0.0.1:{free_port}", std.url, **known), ready_s=None) as fleet,
    ):
        await eventually(lambda: fleet.node("std-0").usable and fleet.node("spec-0").error is not None)
        expected = Reason.UNHEALTHY if known else Reason.NO_SPECULATOR  # whose models nobody knows is no candidate
        assert await ask(fleet) == ("std-0", expected)
        assert (await reasons_of(fleet))["spec-0"] == Reason.UNHEALTHY
        shown = await fleet.shown("spec-0")
        assert (shown["state"], shown["healthy"], shown["occupancy"]) == ("unhealthy", False, None)
        assert f"http://127.0.0.1:{free_port}" in shown["error"]
        assert await advice_of(fleet) == {"spec-0": "node_unreachable"}
        async with fleet.session.get(f"{fleet.service.gateway_url}/ready") as response:
            assert response.status == 200
            assert await response.json() == {"status": "ready", "usable_nodes": 1}


async def test_an_engine_that_starts_late_is_used_from_its_first_answer_on(free_port: int) -> None:
    async with (
        AsyncExitStack() as later,
        vllm_like() as std,
        live(config_of(f"http://127.0.0.1:{free_port}", std.url), ready_s=None) as fleet,
    ):
        await eventually(lambda: fleet.node("std-0").usable and fleet.node("spec-0").error is not None)
        assert (await ask(fleet))[0] == "std-0"
        spec: VllmLike = await later.enter_async_context(vllm_like(Drafts(20, 60), port=free_port))
        await eventually(lambda: fleet.node("spec-0").fresh)
        assert spec.asked["/metrics"] <= 2
        assert await ask(fleet) == ("spec-0", "speculative")
        assert await advice_of(fleet) == {}
        assert (await fleet.shown("spec-0"))["error"] is None


async def test_a_node_with_garbage_for_metrics_is_said_to_have_it_and_takes_no_speculative_request() -> None:
    async with (
        vllm_like(Drafts(20, 60), metrics=GARBAGE) as spec,
        vllm_like() as std,
        live(config_of(spec.url, std.url, engine="vllm", models=[MODEL]), ready_s=None) as fleet,
    ):
        await eventually(lambda: fleet.node("std-0").usable and fleet.node("spec-0").error is not None)
        assert (await ask(fleet))[0] == "std-0"
        shown = await fleet.shown("spec-0")
        assert (shown["state"], shown["occupancy"], shown["speculator"]) == ("stale", None, None)
        assert shown["error"].startswith(f"{spec.url}/metrics: not a page of Prometheus metrics")
        assert await advice_of(fleet) == {"spec-0": "node_unreadable"}
        # Garbage passes, and one poll later the node is what it is.
        spec.metrics = None
        await eventually(lambda: fleet.node("spec-0").fresh)
        assert await ask(fleet) == ("spec-0", "speculative")
        assert await advice_of(fleet) == {}
        # It comes again: eligibility goes when what was known is old, health stays.
        spec.metrics = GARBAGE
        await eventually(lambda: not fleet.node("spec-0").fresh)
        assert await ask(fleet) == ("std-0", "stale")
        assert await reasons_of(fleet) == {"spec-0": Reason.STALE, "std-0": Reason.STALE}
        assert fleet.node("spec-0").healthy
        assert await advice_of(fleet) == {"spec-0": "node_unreadable"}


async def test_a_node_with_garbage_still_serves_when_no_other_can() -> None:
    async with (
        vllm_like(Drafts(20, 60)) as spec,
        vllm_like() as std,
        live(config_of(spec.url, std.url)) as fleet,
    ):
        spec.metrics = std.metrics = GARBAGE
        await eventually(lambda: not (fleet.node("spec-0").fresh or fleet.node("std-0").fresh))
        assert (await fleet.admin("/fleet"))["blind"] is False  # they answer: it is not the gateway that is at fault
        assert await ask(fleet) == ("std-0", "stale")
        assert await advice_of(fleet) == {"spec-0": "node_unreadable", "std-0": "node_unreadable"}


async def test_a_node_that_says_it_is_not_ready_gets_no_request() -> None:
    async with (
        recorded_engine(dict.fromkeys(("/metrics", "/v1/models", "/version"), 503)) as loading,
        vllm_like() as std,
        live(config_of(loading.url, std.url, engine="vllm", models=[MODEL]), ready_s=None) as fleet,
    ):
        await eventually(lambda: fleet.node("std-0").usable and fleet.node("spec-0").error is not None)
        assert (await ask(fleet))[0] == "std-0"
        assert await advice_of(fleet) == {"spec-0": "node_unreachable"}
        std.metrics = GARBAGE
        await eventually(lambda: not fleet.node("std-0").fresh)
        assert (await ask(fleet))[0] == "std-0"
        assert set(loading.paths()) <= {"/metrics", "/v1/models", "/version"}


async def test_no_node_at_all_is_503_with_a_sentence_and_says_who_is_missing(free_port: int) -> None:
    dead = f"http://127.0.0.1:{free_port}"
    async with live(config_of(dead, dead, models=[MODEL]), ready_s=None) as fleet:
        await eventually(lambda: all(fleet.node(name).error is not None for name in ("spec-0", "std-0")))
        async with fleet.session.post(
            f"{fleet.base_url}/chat/completions",
            json={"model": MODEL, "messages": [{"role": "user", "content": CODE}]},
        ) as response:
            assert response.status == 503
            assert (await response.json())["error"]["code"] == "nothing_usable"
            assert int(response.headers["retry-after"]) > 0
        async with fleet.session.get(f"{fleet.service.gateway_url}/ready") as response:
            assert response.status == 503
        async with fleet.session.get(f"{fleet.service.gateway_url}/health") as response:
            assert response.status == 200
        assert await advice_of(fleet) == {"spec-0": "node_unreachable", "std-0": "node_unreachable"}

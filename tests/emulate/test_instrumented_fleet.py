"""Nodes that are asked for more than clients ask, and clients that do not see it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import product
from typing import Any

import pytest

from emulated_client import CHAT, draft, fault
from live_service import Live, live
from slipstream.config import FleetConfig
from slipstream.emulate import EmulatedNode, emulated
from slipstream.emulate.alphas import Alphas

INSTRUMENTS = ("off", "usage", "engine")
STATISTICS = {"vllm": "summary", "llamacpp": "none", "sglang": "none"}
PROMPT = [{"role": "user", "content": "Write a Python function that sorts a list."}]
PER_RUN = re.compile(rb'"(?:id|created|model)": ?(?:"[^"]*"|\d+)|"\w+_ms": ?[\d.]+|"\w+_per_second": ?[\d.]+')
"""What no two answers have in common."""
REQUESTS: list[dict[str, Any]] = [
    {},
    {"stream": True},
    {"stream": True, "n": 3},
    {"stream": True, "stream_options": {"include_usage": True}},
    {"stream": True, "stream_options": None},
    {"return_spec_tokens_details": True},
    {"stream": True, "return_spec_tokens_details": True},
]


@asynccontextmanager
async def fleet(dialect: str, **settings: Any) -> AsyncIterator[tuple[Live, dict[str, EmulatedNode]]]:
    """Nodes with a speculator, one instrumented in each way, its model called so; and the service before them."""
    statistics = STATISTICS[dialect]
    common = {"alphas": Alphas(0.8), "request_statistics": statistics, "step_s": 0.0, "ttft_s": 0.0} | settings
    async with AsyncExitStack() as stack:
        nodes, sections = {}, []
        for instrument in INSTRUMENTS:
            node = await stack.enter_async_context(emulated(dialect, draft(model=instrument, **common)))
            nodes[instrument] = node
            sections.append({"name": instrument, "url": node.url, "pool": "speculative", "instrument": instrument})
        config = {"gateway": {"listen": "127.0.0.1:0"}, "admin": {"listen": "127.0.0.1:0"}, "nodes": sections}
        yield await stack.enter_async_context(live(FleetConfig.model_validate(config))), nodes


async def answer(fleet: Live, model: str, path: str = CHAT, **fields: Any) -> bytes:
    prompt: dict[str, Any] = {"messages": PROMPT} if path == CHAT else {"prompt": "def sort("}
    body = {"model": model, **prompt, **fields}
    async with fleet.session.post(fleet.service.gateway_url + path, json=body) as response:
        assert response.status == 200, await response.text()
        return await response.read()


@pytest.mark.parametrize("dialect", list(STATISTICS))
async def test_a_client_sees_what_it_would_have_seen(dialect: str) -> None:
    async with fleet(dialect) as (live_fleet, _):
        for path, fields in product((CHAT, "/v1/completions"), REQUESTS):
            seen = {PER_RUN.sub(b"", await answer(live_fleet, model, path, **fields)) for model in INSTRUMENTS}
            assert len(seen) == 1, f"{path} with {fields}"


@pytest.mark.parametrize(
    ("dialect", "stream", "counted", "sampled"),
    [
        ("vllm", True, {"usage", "engine"}, {"usage", "engine"}),
        ("vllm", False, {*INSTRUMENTS}, {*INSTRUMENTS}),
        ("llamacpp", True, {*INSTRUMENTS}, {*INSTRUMENTS}),
        ("sglang", True, {"usage", "engine"}, {"engine"}),
        ("sglang", False, {*INSTRUMENTS}, {"engine"}),
    ],
)
async def test_what_is_asked_for_is_learnt(dialect: str, stream: bool, counted: set[str], sampled: set[str]) -> None:
    async with fleet(dialect) as (live_fleet, nodes):
        for model in INSTRUMENTS:
            await answer(live_fleet, model, stream=stream)
        await live_fleet.drained()
        outcomes = {one.node.name: one.outcome for one in live_fleet.placements() if one.outcome is not None}
    assert {name for name, one in outcomes.items() if one.output_tokens == 30} == counted
    assert {name for name, one in outcomes.items() if one.sample is not None} == sampled
    if stream:
        assert {name for name, one in outcomes.items() if one.latency and one.latency.tpot_s is not None} == counted
    for name in sampled:
        told, sample = nodes[name].record.requests[-1], outcomes[name].sample
        assert sample is not None
        assert (sample.drafted, sample.accepted) == (told.drafted, told.accepted)


async def test_a_stream_that_breaks_off_behind_its_last_token_still_shows_that() -> None:
    async with fleet("vllm", alphas=Alphas(0.0)) as (live_fleet, nodes):
        seen = set()
        for model in INSTRUMENTS:
            await fault(nodes[model], "die", after_events=31)  # the role and 30 tokens, each in a step of its own
            body = await answer(live_fleet, model, stream=True)
            assert b'"finish_reason":"' in body
            assert b'"error"' in body
            seen.add(re.sub(rb"Node '\w+'|,\"system_fingerprint\":\"[^\"]*\"", b"", PER_RUN.sub(b"", body)))
        assert len(seen) == 1


async def test_a_large_answer_is_cut_too_and_its_length_is_right() -> None:
    async with fleet("sglang") as (live_fleet, _):
        body = await answer(live_fleet, "engine", n=400)
    assert len(body) > 100_000
    assert "sglext" not in json.loads(body)

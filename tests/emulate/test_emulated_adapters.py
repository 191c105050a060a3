"""Slipstream's own adapters read emulated engines as they read real ones."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from emulated_client import CHAT, ask, draft, fetch, payloads
from slipstream.core.node import SpeculatorKind
from slipstream.emulate import EmulatedNode, NodeSettings, emulated
from slipstream.emulate.alphas import Alphas
from slipstream.engines.catalogue import ENGINES, read_statistics
from slipstream.engines.detect import PROBE_PATHS, detect
from slipstream.engines.engine import merged

K = 3
STATISTICS = {"vllm": "summary", "llamacpp": "none", "sglang": "none"}
DIALECTS = ["vllm", "llamacpp", "sglang"]


def busy(dialect: str, **settings: Any) -> NodeSettings:
    return draft(k=K, alphas=Alphas(0.7), request_statistics=STATISTICS[dialect], **settings)


async def pages(node: EmulatedNode, dialect: str) -> dict[str, bytes]:
    engine = ENGINES[dialect]
    served = {page.path for page in (*engine.load, *engine.counters, *engine.facts)}
    return {path: await fetch(node, path) for path in served}


async def report(node: EmulatedNode, dialect: str) -> Any:
    """What the adapter makes of all pages."""
    engine, found = ENGINES[dialect], await pages(node, dialect)
    told = [page.read(found[page.path]) for page in (*engine.load, *engine.counters, *engine.facts)]
    whole = told[0]
    for one in told[1:]:
        whole = merged(whole, one)
    return engine.completed(whole)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_engine_is_detected_by_every_page_that_tells(dialect: str) -> None:
    async with emulated(dialect, busy(dialect)) as node:
        found = await pages(node, dialect)
    assert detect(found) is ENGINES[dialect]
    for path in found.keys() & set(PROBE_PATHS):
        assert detect({path: found[path]}) is ENGINES[dialect]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_statistics_of_requests_add_up_to_the_counters(dialect: str, stream: bool) -> None:
    async with emulated(dialect, busy(dialect)) as node:
        samples = []
        for _ in range(20):
            answer = await ask(
                node, stream=stream, stream_options={"include_usage": True}, return_spec_tokens_details=True
            )
            last = [json.dumps(event).encode() for event in payloads(answer.body)[-3:]] if stream else [answer.body]
            statistics = read_statistics(dialect, tuple(last))
            assert statistics.output_tokens == 30
            samples.append(statistics.sample)
        whole = await report(node, dialect)
    known = [sample for sample in samples if sample is not None]
    assert len(known) == 20
    assert whole.counters.drafted == sum(sample.drafted for sample in known)
    accepted = sum(sample.accepted for sample in known)
    if dialect == "sglang":  # its counters lack what the end of the answer cut off the last draft
        accepted = 20 * 30 - sum(sample.verify_steps or 0 for sample in known) - 20
    assert whole.counters.accepted == accepted
    if dialect != "sglang":
        assert whole.counters.accepted == sum(whole.counters.accepted_per_position)
    assert whole.counters.generated_tokens == 20 * 30
    if dialect != "llamacpp":
        assert whole.counters.verify_steps == sum(sample.verify_steps or 0 for sample in known)
        assert whole.counters.drafted == K * whole.counters.verify_steps


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_report_says_what_the_node_is(dialect: str) -> None:
    async with emulated(dialect, busy(dialect, slots=5)) as node:
        await ask(node)
        whole = await report(node, dialect)
    assert whole.engine == dialect
    assert whole.models == ("emulated",)
    assert (whole.running, whole.waiting, whole.speculating, whole.k) == (0, 0, True, K)
    assert whole.version is not None
    if dialect != "vllm":
        assert whole.capacity == 5


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_without_a_speculator_none_is_reported(dialect: str) -> None:
    async with emulated(dialect, NodeSettings(ttft_s=0.001, step_s=0.001, output_tokens=5)) as node:
        answer = await ask(node)
        whole = await report(node, dialect)
    assert whole.speculating is False
    assert whole.counters.generated_tokens == 5
    sample = read_statistics(dialect, (answer.body,)).sample
    assert sample is None or (sample.drafted, sample.accepted) == (0, 0)


async def test_lookup_drafts_in_the_share_of_steps_that_was_set() -> None:
    settings = draft(
        speculator=SpeculatorKind.NGRAM, proposing_share=0.25, alphas=Alphas(0.0), output_tokens=4001, step_s=0.0
    )
    async with emulated("vllm", settings) as node:
        await ask(node)
        whole = await report(node, "vllm")
    assert whole.counters.verify_steps == pytest.approx(1000, abs=100)


async def test_sglang_gives_statistics_only_when_asked() -> None:
    async with emulated("sglang", draft(alphas=Alphas(0.7))) as node:
        plain, asked = await ask(node), await ask(node, return_spec_tokens_details=True)
        streamed = await ask(node, return_spec_tokens_details=True, stream=True)
        page = (await fetch(node, "/metrics")).decode()
        loads = json.loads(await fetch(node, "/v1/loads"))["loads"][0]
        assert "sglext" not in plain.json
        details = [answer["sglext"]["spec_tokens_details"] for answer in (asked.json, payloads(streamed.body)[-1])]
    for one in details:
        assert one["spec_num_proposed_drafts"] == one["spec_verify_ct"] * 4
        assert sum(one["spec_correct_drafts_histogram"]) == one["spec_verify_ct"]
        assert one["spec_accept_length"] == 1 + one["spec_num_correct_drafts"] / one["spec_verify_ct"]
    assert "sglang:generation_tokens_total{" in page
    assert "sglang:spec_num_steps{" in page
    assert loads["max_running_requests"] == 8
    assert loads["speculative"]["accept_length"] > 1


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info", "/model_info", "/get_model_info", "/health"])
async def test_sglang_has_its_pages(path: str) -> None:
    async with emulated("sglang", draft()) as node:
        page = await fetch(node, path)
    if "server_info" in path:
        assert json.loads(page)["speculative_algorithm"] == "EAGLE"


@pytest.mark.parametrize(
    ("dialect", "status"), [("vllm", 200), ("llamacpp", 501), ("sglang", 404)], ids=["vllm", "llamacpp", "sglang"]
)
async def test_metrics_can_be_left_out_as_in_the_engine(dialect: str, status: int) -> None:
    async with (
        emulated(dialect, NodeSettings(metrics=False)) as node,
        aiohttp.ClientSession() as session,
        session.get(f"{node.url}/metrics") as response,
    ):
        assert response.status == status
        assert b"num_requests_running" not in await response.read()


@pytest.mark.parametrize("field", ["min_p", "logit_bias"])
async def test_vllm_refuses_fields_while_it_speculates(field: str) -> None:
    fields: dict[str, Any] = {field: 0.1 if field == "min_p" else {"1": 1}}
    async with emulated("vllm", draft()) as speculating, emulated("vllm", NodeSettings(ttft_s=0, step_s=0)) as plain:
        refused, answered = await ask(speculating, **fields), await ask(plain, **fields)
    assert (refused.status, refused.json["error"]["param"], answered.status) == (400, field, 200)


@pytest.mark.parametrize("dialect", ["llamacpp", "sglang"])
async def test_engines_with_one_model_answer_to_every_name(dialect: str) -> None:
    async with emulated(dialect, draft()) as node:
        answer = await ask(node, model="any")
    assert answer.status == 200
    assert answer.json["model"] == ("any" if dialect == "sglang" else "emulated")


@pytest.mark.parametrize("dialect", ["vllm", "llamacpp", "sglang"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
async def test_each_choice_has_its_text(dialect: str, stream: bool, path: str) -> None:
    async with emulated(dialect, draft()) as node:
        answer = await ask(node, path, n=3, stream=stream, stream_options={"include_usage": True}, max_tokens=8)
        peak = node.engine.peak_running
    events = payloads(answer.body) if stream else [answer.json]
    texts = ["", "", ""]
    for choice in (choice for event in events for choice in event["choices"]):
        part = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
        texts[choice["index"]] += part.get("content") or ""
    assert texts == ["The wheel turns, the crème brûlée waits"] * 3
    usage = next(event["usage"] for event in reversed(events) if event.get("usage"))
    assert usage["completion_tokens"] == 24
    assert peak == 3


async def test_detailed_statistics_have_every_step() -> None:
    async with emulated("vllm", draft(request_statistics="detailed")) as node:
        told = (await ask(node)).json["metrics"]["speculative_decoding"]
    assert len(told["per_step_accepted"]) == told["num_spec_steps"]
    assert sum(told["per_step_accepted"]) == told["num_accepted_draft_tokens"]
    assert sum(told["per_step_drafted"]) == told["num_draft_tokens"]


async def test_timings_come_with_every_token_when_asked() -> None:
    async with emulated("llamacpp", draft()) as node:
        events = payloads((await ask(node, stream=True, timings_per_token=True, max_tokens=5)).body)
    assert [event["timings"]["predicted_n"] for event in events if "timings" in event][-1] == 5
    assert sum("timings" in event for event in events) == 6

"""Pages of engines that were not recorded: written by hand from their sources, see `data/README.md`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recorded_engine import recorded
from slipstream.core.errors import EngineGarbage
from slipstream.core.node import NodeReport, SpeculativeCounters, SpeculatorKind
from slipstream.engines.catalogue import ENGINES
from slipstream.engines.drafter import drafter_name
from slipstream.engines.engine import Engine, merged

EAGLE = "eagle3:qwen3-8b-eagle3"
SGLANG = ENGINES["sglang"]
TRTLLM = ENGINES["trtllm"]
SGLANG_METRICS = recorded("sglang-0.5.23-by-hand", "metrics-busy.txt")
TRTLLM_METRICS = recorded("trtllm-by-hand", "metrics-busy.txt")


def load(engine: Engine, path: str, page: bytes) -> NodeReport:
    return next(one for one in (*engine.load, *engine.counters) if one.path == path).read(page)


def fact(engine: Engine, path: str, page: bytes) -> NodeReport:
    return next(one for one in engine.facts if one.path == path).read(page)


def server_info(**changes: bytes) -> bytes:
    page = recorded("sglang-0.5.23-by-hand", "server-info.json")
    for name, value in changes.items():
        before, _, rest = page.partition(b'"%s":' % name.encode())
        page = before + b'"%s":%s,' % (name.encode(), value) + rest.partition(b",")[2]
    return page


# SGLang


def test_sglang_loads_are_the_sum_of_the_ranks() -> None:
    assert load(SGLANG, "/v1/loads", recorded("sglang-0.5.23-by-hand", "loads-busy.json")) == NodeReport(
        running=5, waiting=1, kv_use=0.04, capacity=48, engine="sglang", version="0.5.23", replicas=2
    )


def test_a_rank_of_sglang_that_leaves_out_its_limit_leaves_the_nodes_unknown() -> None:
    page = b'{"loads":[{"num_running_reqs":1,"num_waiting_reqs":0,"max_running_requests":8},%s]}'
    page %= b'{"num_running_reqs":2,"num_waiting_reqs":3}'
    assert load(SGLANG, "/v1/loads", page) == NodeReport(running=3, waiting=3, engine="sglang", replicas=2)


@pytest.mark.parametrize("page", [b'{"loads":[]}', b'{"loads":[{}]}', b'{"loads":[{"num_running_reqs":-1}]}', b"[]"])
def test_loads_without_a_load_are_garbage(page: bytes) -> None:
    with pytest.raises(EngineGarbage, match="not SGLang's loads"):
        load(SGLANG, "/v1/loads", page)


def test_what_sglang_drafted_and_accepted_follows_from_its_verify_steps() -> None:
    # 1110 tokens of 10 requests, in 400 verify steps of 3 drafted tokens each.
    assert load(SGLANG, "/metrics", SGLANG_METRICS) == NodeReport(
        running=5,
        waiting=1,
        kv_use=0.04,
        counters=SpeculativeCounters(1200, 700, 400, (), 1110),
        engine="sglang",
    )


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        (b"sglang:spec_num_draft_tokens", SpeculativeCounters(None, 700, 400, (), 1110)),
        (b"sglang:num_requests_total", SpeculativeCounters(1200, None, 400, (), 1110)),
        (b"sglang:spec_verify_calls_total", SpeculativeCounters(generated_tokens=1110)),
        (b"sglang:generation_tokens_total", SpeculativeCounters(verify_steps=400)),
    ],
)
def test_without_one_of_its_series_what_follows_from_it_is_unknown(
    missing: bytes, expected: SpeculativeCounters
) -> None:
    page = SGLANG_METRICS.replace(b"\n" + missing + b"{", b"\nsglang:renamed{")
    assert load(SGLANG, "/metrics", page).counters == expected


def test_counts_that_do_not_fit_together_accept_nothing_rather_than_less() -> None:
    page = SGLANG_METRICS.replace(b'"} 400.0', b'"} 2000.0')
    counters = load(SGLANG, "/metrics", page).counters
    assert counters is not None
    assert counters.accepted == 0


def test_ranks_that_draft_differently_leave_what_was_drafted_out() -> None:
    page = SGLANG_METRICS.replace(b'tp_rank="0"} 4.0', b'tp_rank="0"} 5.0', 1)
    counters = load(SGLANG, "/metrics", page).counters
    assert counters is not None
    assert counters.drafted is None


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (
            server_info(),
            NodeReport(
                capacity=48,
                speculating=True,
                k=3,
                speculator_kind=SpeculatorKind.DRAFT,
                version="0.5.23",
                drafter=EAGLE,
            ),
        ),
        (
            recorded("sglang-0.5.23-by-hand", "server-info-none.json"),
            NodeReport(capacity=256, speculating=False, version="0.5.23"),
        ),
        (
            server_info(speculative_adaptive=b"true"),
            NodeReport(
                capacity=48, speculating=True, speculator_kind=SpeculatorKind.DRAFT, version="0.5.23", drafter=EAGLE
            ),
        ),
        (
            server_info(
                speculative_algorithm=b'"NGRAM"', speculative_num_steps=b"null", speculative_draft_model_path=b"null"
            ),
            NodeReport(
                capacity=48,
                speculating=True,
                k=3,
                speculator_kind=SpeculatorKind.NGRAM,
                version="0.5.23",
                drafter="ngram",
            ),
        ),
        (
            b'{"speculative_algorithm":"EAGLE"}',
            NodeReport(speculating=True, speculator_kind=SpeculatorKind.DRAFT, drafter="eagle"),
        ),
    ],
)
def test_sglang_says_what_drafts(page: bytes, expected: NodeReport) -> None:
    assert fact(SGLANG, "/server_info", page) == expected


def test_an_adaptive_draft_length_leaves_accepted_tokens_unknown() -> None:
    told = load(SGLANG, "/metrics", SGLANG_METRICS)
    steady = merged(told, fact(SGLANG, "/server_info", server_info()))
    adaptive = merged(told, fact(SGLANG, "/server_info", server_info(speculative_adaptive=b"true")))
    lookup = merged(told, fact(SGLANG, "/server_info", server_info(speculative_algorithm=b'"NGRAM"')))
    assert SGLANG.completed(steady) == steady
    assert SGLANG.completed(lookup) == lookup
    known = SpeculativeCounters(verify_steps=400, generated_tokens=1110)
    assert SGLANG.completed(adaptive) == replace(adaptive, counters=known)
    assert SGLANG.completed(told) == replace(told, counters=known)
    assert SGLANG.completed(NodeReport(running=1)) == NodeReport(running=1)


@pytest.mark.parametrize(
    ("method", "model", "name"),
    [
        ("EAGLE3", "org/Draft-8B/", "eagle3:Draft-8B"),
        ("NEXTN", None, "nextn"),
        ("MTP", "None", "mtp"),
        ("x" * 99, None, "x" * 64),
    ],
)
def test_a_draft_is_named_by_its_method_and_model(method: str, model: str | None, name: str) -> None:
    assert drafter_name(method, model) == name


# TensorRT-LLM


def test_trtllm_counts_by_position_of_requests_that_ended() -> None:
    assert load(TRTLLM, "/prometheus/metrics", TRTLLM_METRICS) == NodeReport(
        running=3,
        waiting=2,
        kv_use=0.225,
        speculating=True,
        k=3,
        speculator_kind=SpeculatorKind.DRAFT,
        counters=SpeculativeCounters(740, 350, 250, (200, 150, 0), 610),
        engine="trtllm",
        drafter="eagle3:llama-3.1-8b-eagle3",
    )


def test_without_positions_trtllm_has_the_totals_of_its_steps() -> None:
    page = TRTLLM_METRICS.replace(b"\ntrtllm_spec_decode_drafted_tokens_total{", b"\nx{")
    assert load(TRTLLM, "/prometheus/metrics", page).counters == SpeculativeCounters(790, 390, None, (), 610)


@pytest.mark.parametrize(
    ("labels", "speculating", "k", "kind"),
    [
        (b'spec_enabled="true",spec_method="NGram",spec_num_tokens="5"', True, 5, SpeculatorKind.NGRAM),
        (b'spec_enabled="true",spec_method="MTP",spec_num_tokens="1"', True, 1, SpeculatorKind.DRAFT),
        (b'spec_enabled="true",spec_method="Eagle3",spec_num_tokens="None"', True, None, SpeculatorKind.DRAFT),
        (b'spec_enabled="true",spec_method="Eagle3"', True, None, SpeculatorKind.DRAFT),
        (b'spec_enabled="false"', False, None, None),
    ],
)
def test_trtllm_says_what_drafts_in_labels(
    labels: bytes, speculating: bool, k: int | None, kind: SpeculatorKind | None
) -> None:
    page = b"trtllm_num_requests_running 1\ntrtllm_speculative_config_info{%s} 1.0\n" % labels
    report = load(TRTLLM, "/prometheus/metrics", page)
    assert (report.speculating, report.k, report.speculator_kind) == (speculating, k, kind)


@pytest.mark.parametrize(("drafted", "speculating"), [(b"7", True), (b"0", None)])
def test_without_that_series_only_what_was_drafted_tells(drafted: bytes, speculating: bool | None) -> None:
    page = b"trtllm_num_requests_running 1\ntrtllm_spec_decode_num_draft_tokens_total %s\n" % drafted
    assert load(TRTLLM, "/prometheus/metrics", page).speculating is speculating


def test_the_last_step_of_trtllm_tells_its_load() -> None:
    page = recorded("trtllm-by-hand", "metrics.json")
    assert load(TRTLLM, "/metrics", page) == NodeReport(running=3, waiting=2, kv_use=0.225, engine="trtllm")


def test_without_a_step_since_the_last_look_nothing_runs() -> None:
    assert load(TRTLLM, "/metrics", b"[]") == NodeReport(running=0, waiting=0, engine="trtllm")


@pytest.mark.parametrize("blocks", [b"null", b'{"usedNumBlocks":0,"maxNumBlocks":0}'])
def test_a_step_without_blocks_leaves_the_cache_unknown(blocks: bytes) -> None:
    page = b'[{"numActiveRequests":1,"kvCacheStats":%s}]' % blocks
    assert load(TRTLLM, "/metrics", page) == NodeReport(running=1, waiting=0, engine="trtllm")


@pytest.mark.parametrize("page", [b"{}", b'[{"numActiveRequests":-1}]', b"trtllm_num_requests_running 1\n"])
def test_steps_that_are_something_else_are_garbage(page: bytes) -> None:
    with pytest.raises(EngineGarbage, match="not TensorRT-LLM's steps"):
        load(TRTLLM, "/metrics", page)


@pytest.mark.parametrize(
    ("path", "name", "expected"),
    [
        ("/v1/models", "models.json", NodeReport(models=("llama-3.1-8b",))),
        ("/version", "version.json", NodeReport(version="1.2.0")),
        ("/server_info", "server-info.json", NodeReport(capacity=64)),
    ],
)
def test_trtllm_has_its_facts(path: str, name: str, expected: NodeReport) -> None:
    assert fact(TRTLLM, path, recorded("trtllm-by-hand", name)) == expected

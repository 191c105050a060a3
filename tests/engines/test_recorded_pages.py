"""Every recorded page reads to exactly what the engine said."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorded_engine import recorded
from slipstream.core.errors import EngineGarbage
from slipstream.core.node import NodeReport, SpeculativeCounters, SpeculatorKind
from slipstream.engines.catalogue import ENGINES, abort_lag_s, gauge_lag_s
from slipstream.engines.engine import Engine, Page, merged

VLLM = ENGINES["vllm"]
LLAMACPP = ENGINES["llamacpp"]
NOT_DRAFTED = SpeculativeCounters(drafted=0, accepted=0, verify_steps=0)
SMOL = "smollm2-135m-instruct-q4_1.gguf"

VLLM_LOAD = {
    ("vllm-0.32.0-none", "idle"): NodeReport(
        0, 0, 0.0, None, False, None, None, SpeculativeCounters(generated_tokens=0)
    ),
    ("vllm-0.32.0-none", "after"): NodeReport(
        0, 0, 0.0, None, False, None, None, SpeculativeCounters(generated_tokens=48)
    ),
    ("vllm-0.32.0-ngram", "idle"): NodeReport(
        0, 0, 0.0, None, True, 4, None, SpeculativeCounters(0, 0, 0, (0, 0, 0, 0), 0)
    ),
    ("vllm-0.32.0-ngram", "busy"): NodeReport(
        4, 0, 0.005502063273727598, None, True, 4, None, SpeculativeCounters(176, 144, 44, (36, 36, 36, 36), 325)
    ),
    ("vllm-0.32.0-ngram", "after"): NodeReport(
        0, 0, 0.0, None, True, 4, None, SpeculativeCounters(512, 336, 128, (84, 84, 84, 84), 664)
    ),
}
LLAMACPP_LOAD = {
    ("llamacpp-b11549-none", "idle"): NodeReport(0, 0, counters=replace(NOT_DRAFTED, generated_tokens=0)),
    ("llamacpp-b11549-none", "busy"): NodeReport(3, 0, counters=replace(NOT_DRAFTED, generated_tokens=240)),
    ("llamacpp-b11549-none", "after"): NodeReport(0, 0, counters=replace(NOT_DRAFTED, generated_tokens=480)),
    ("llamacpp-b11549-draft", "idle"): NodeReport(0, 0, counters=replace(NOT_DRAFTED, generated_tokens=0)),
    ("llamacpp-b11549-draft", "busy"): NodeReport(
        3, 0, None, None, True, 4, None, SpeculativeCounters(189, 189, 48, (48, 48, 48, 45), 240)
    ),
    ("llamacpp-b11549-draft", "after"): NodeReport(
        0, 0, None, None, True, 4, None, SpeculativeCounters(378, 378, 96, (96, 96, 96, 90), 480)
    ),
    ("llamacpp-b11549-mod", "idle"): NodeReport(0, 0, counters=replace(NOT_DRAFTED, generated_tokens=0)),
    ("llamacpp-b11549-mod", "busy"): NodeReport(
        3, 0, None, None, True, None, SpeculatorKind.NGRAM, SpeculativeCounters(128, 128, 2, (2,) * 64, 240)
    ),
    ("llamacpp-b11549-mod", "after"): NodeReport(
        0, 0, None, None, True, None, SpeculatorKind.NGRAM, SpeculativeCounters(320, 320, 5, (5,) * 64, 480)
    ),
}


@pytest.mark.parametrize(
    ("engine", "folder", "moment", "expected"),
    [(VLLM, *where, replace(report, replicas=1)) for where, report in VLLM_LOAD.items()]
    + [(LLAMACPP, *where, report) for where, report in LLAMACPP_LOAD.items()],
)
def test_a_page_of_metrics_reads_to_the_load_and_counters_on_it(
    engine: Engine, folder: str, moment: str, expected: NodeReport
) -> None:
    page = recorded(folder, f"metrics-{moment}.txt")
    assert engine.load[0].read(page) == replace(expected, engine=engine.name)


@pytest.mark.parametrize(
    ("engine", "path", "folder", "name", "expected"),
    [
        (VLLM, "/v1/models", "vllm-0.32.0-ngram", "models.json", NodeReport(models=("smollm2",))),
        (VLLM, "/version", "vllm-0.32.0-ngram", "version.json", NodeReport(version="0.32.0")),
        (LLAMACPP, "/v1/models", "llamacpp-b11549-mod", "models.json", NodeReport(models=(SMOL,))),
        (LLAMACPP, "/props", "llamacpp-b11549-mod", "props.json", NodeReport(capacity=8, version="b0-unknown")),
        (LLAMACPP, "/slots", "llamacpp-b11549-none", "slots-idle.json", NodeReport(capacity=8, speculating=False)),
        (LLAMACPP, "/slots", "llamacpp-b11549-none", "slots-busy.json", NodeReport(capacity=8, speculating=False)),
        (LLAMACPP, "/slots", "llamacpp-b11549-mod", "slots-idle.json", NodeReport(capacity=8, speculating=True)),
        (
            LLAMACPP,
            "/slots",
            "llamacpp-b11549-mod",
            "slots-busy.json",
            NodeReport(capacity=8, speculating=True, speculator_kind=SpeculatorKind.NGRAM),
        ),
        (
            LLAMACPP,
            "/slots",
            "llamacpp-b11549-draft",
            "slots-busy.json",
            NodeReport(capacity=8, speculating=True, speculator_kind=SpeculatorKind.DRAFT),
        ),
    ],
)
def test_a_page_of_facts_reads_to_what_changes_slowly(
    engine: Engine, path: str, folder: str, name: str, expected: NodeReport
) -> None:
    report = _facts(engine, path, recorded(folder, name))
    assert replace(report, engine=None) == expected


@pytest.mark.parametrize(("name", "running"), [("slots-idle.json", 0), ("slots-busy.json", 3)])
def test_slots_tell_what_runs_when_metrics_are_off(name: str, running: int) -> None:
    report = LLAMACPP.load[1].read(recorded("llamacpp-b11549-draft", name))
    assert (report.running, report.waiting, report.sequences) == (running, None, running)


@pytest.mark.parametrize(
    ("chain", "kind"),
    [
        ("ngram-simple,ngram-mod", SpeculatorKind.NGRAM),
        ("ngram-mod,draft-simple", SpeculatorKind.DRAFT),
        ("draft-mtp", SpeculatorKind.DRAFT),
        ("none", None),
        ("", None),
    ],
)
def test_a_chain_of_speculators_is_lookup_only_when_all_of_it_is(chain: str, kind: SpeculatorKind | None) -> None:
    page = b'[{"speculative":true,"is_processing":true,"params":{"speculative.types":"%s"}}]' % chain.encode()
    assert _facts(LLAMACPP, "/slots", page).speculator_kind == kind


def test_a_server_without_slots_does_not_say_whether_it_speculates() -> None:
    assert _facts(LLAMACPP, "/slots", b"[]") == NodeReport(engine="llamacpp")


def test_aliases_are_models_too_and_none_is_named_twice() -> None:
    page = b'{"data":[{"id":"a","aliases":["a","b"]},{"id":"c"}]}'
    assert _facts(LLAMACPP, "/v1/models", page).models == ("a", "b", "c")


@pytest.mark.parametrize("path", ["/v1/models", "/props", "/slots"])
@pytest.mark.parametrize("page", [b"", b"<html></html>", b"[1]", b'{"data":1}', b"\xff\xfe"])
def test_a_page_of_llamacpp_that_is_something_else_is_garbage(path: str, page: bytes) -> None:
    with pytest.raises(EngineGarbage):
        _facts(LLAMACPP, path, page)


NESTED = b'{"x":' * 100_000 + b"1" + b"}" * 100_000


@pytest.mark.parametrize(("engine", "fact"), [(engine, fact) for engine in (VLLM, LLAMACPP) for fact in engine.facts])
@pytest.mark.parametrize("page", [NESTED, b"[" * 100_000, b'{"data":[{"id":"\xff"}],"version":"\xff","total_slots":1}'])
def test_a_page_of_facts_that_can_not_be_decoded_is_garbage(engine: Engine, fact: Page, page: bytes) -> None:
    with pytest.raises(EngineGarbage, match="not "):
        _facts(engine, fact.path, page.replace(b"1}", b'1,"build_info":"\xff"}'))


PAGES = [page for engine in ENGINES.values() for page in (*engine.load, *engine.counters, *engine.facts)]


@given(st.sampled_from(PAGES), st.binary(max_size=60))
def test_reading_a_page_raises_nothing_but_garbage(page: Page, body: bytes) -> None:
    with suppress(EngineGarbage):
        page.read(body)


@pytest.mark.parametrize("slots", [b"-5", b"0", b"1000001", b"1" + b"0" * 400])
def test_a_number_of_slots_that_no_server_has_is_unknown(slots: bytes) -> None:
    page = b'{"total_slots":%s,"build_info":"b1"}' % slots
    assert _facts(LLAMACPP, "/props", page) == NodeReport(capacity=None, version="b1")


@pytest.mark.parametrize("slots", [1, 1_000_000])
def test_a_number_of_slots_that_a_server_may_have_is_its_capacity(slots: int) -> None:
    assert _facts(LLAMACPP, "/props", b'{"total_slots":%d}' % slots).capacity == slots


@pytest.mark.parametrize(
    ("engine", "path", "page"),
    [
        (VLLM, "/version", b'{"version":"%s"}'),
        (LLAMACPP, "/props", b'{"total_slots":1,"build_info":"%s"}'),
        (ENGINES["sglang"], "/server_info", b'{"version":"%s"}'),
    ],
)
def test_of_a_long_version_no_more_than_64_characters_are_kept(engine: Engine, path: str, page: bytes) -> None:
    assert _facts(engine, path, page % (b"1" * 5000)).version == "1" * 64


def test_a_version_that_is_something_else_is_garbage() -> None:
    with pytest.raises(EngineGarbage, match="version"):
        _facts(VLLM, "/version", b'{"version":null}')


@pytest.mark.parametrize(
    ("name", "field"),
    [
        (b"vllm:num_requests_running", "running"),
        (b"vllm:num_requests_waiting", "waiting"),
        (b"vllm:kv_cache_usage_perc", "kv_use"),
    ],
)
def test_a_vanished_gauge_is_unknown_and_the_rest_stays_known(name: bytes, field: str) -> None:
    whole = recorded("vllm-0.32.0-ngram", "metrics-busy.txt")
    page = whole.replace(b"\n" + name + b"{", b"\nvllm:renamed{")
    unknown = {field: None} | ({"replicas": None} if field == "running" else {})
    assert VLLM.load[0].read(page) == replace(VLLM.load[0].read(whole), **unknown)


def test_a_vanished_counter_is_unknown_and_the_rest_stays_known() -> None:
    page = recorded("llamacpp-b11549-draft", "metrics-after.txt").replace(
        b"\nllamacpp:spec_decode_num_drafts_total ", b"\nx "
    )
    counters = LLAMACPP.load[0].read(page).counters
    assert counters == SpeculativeCounters(378, 378, None, (96, 96, 96, 90), 480)


def test_a_page_without_any_counter_has_none_and_does_not_deny_speculation() -> None:
    report = VLLM.load[0].read(b"vllm:num_requests_running 1\n")
    assert report == NodeReport(running=1, engine="vllm", replicas=1)


def test_a_page_of_another_engine_is_garbage() -> None:
    with pytest.raises(EngineGarbage, match="llamacpp:requests_processing"):
        LLAMACPP.load[0].read(recorded("vllm-0.32.0-none", "metrics-idle.txt"))


@pytest.mark.parametrize("value", [b"NaN", b"+Inf", b"-Inf", b"-1"])
def test_a_gauge_without_a_usable_value_is_unknown(value: bytes) -> None:
    page = b"vllm:num_requests_running %s\nvllm:kv_cache_usage_perc %s\nvllm:num_requests_waiting 2\n" % (value, value)
    report = VLLM.load[0].read(page)
    assert (report.running, report.waiting, report.kv_use) == (None, 2, None)


@pytest.mark.parametrize("value", [b"-1", b"-1e300", b"1e300", b"9007199254740994"])
def test_a_count_that_can_not_be_is_unknown(value: bytes) -> None:
    page = b"vllm:num_requests_running 1\nvllm:num_requests_waiting %s\nvllm:generation_tokens_total %s\n"
    assert VLLM.load[0].read(page % (value, value)) == NodeReport(running=1, engine="vllm", replicas=1)


def test_data_parallel_ranks_are_summed_and_their_kv_use_averaged() -> None:
    page = b"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:num_requests_waiting{engine="1",model_name="m"} 5.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.25
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 10.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 20.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 20.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="m"} 40.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 12.0
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="m"} 1.3e1
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 8.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 4.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 9.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="1"} 4.0
vllm:generation_tokens_total{engine="0",model_name="m"} 100.0
vllm:generation_tokens_total{engine="1",model_name="m"} 200.0
"""
    assert VLLM.load[0].read(page) == NodeReport(
        7, 5, 0.375, None, True, 2, None, SpeculativeCounters(60, 25, 30, (17, 8), 300), engine="vllm", replicas=2
    )


@pytest.mark.parametrize("broken", [b'position="7"', b'position="x"', b'place="1"'])
def test_positions_with_a_gap_are_no_positions(broken: bytes) -> None:
    page = recorded("vllm-0.32.0-ngram", "metrics-busy.txt").replace(b'position="1"', broken)
    report = VLLM.load[0].read(page)
    assert report.counters is not None
    assert report.counters.accepted_per_position == ()
    assert (report.speculating, report.k) == (True, None)


def test_what_one_report_does_not_know_the_other_fills_in() -> None:
    load = NodeReport(running=0, waiting=None, k=4)
    facts = NodeReport(running=9, waiting=2, speculating=False, models=("m",))
    assert merged(load, facts) == NodeReport(running=0, waiting=2, k=4, speculating=False, models=("m",))


def test_lookup_has_no_fixed_draft_length_however_many_positions_were_counted() -> None:
    known = merged(NodeReport(k=12), NodeReport(speculator_kind=SpeculatorKind.NGRAM))
    assert known == NodeReport(k=None, speculator_kind=SpeculatorKind.NGRAM)


def test_quirks_are_said_of_each_engine() -> None:
    assert VLLM.rejects_when_speculating == {"min_p", "logit_bias"}
    assert LLAMACPP.rejects_when_speculating == frozenset()


def test_the_lag_of_gauges_is_known_by_engine_name() -> None:
    assert gauge_lag_s("vllm") == VLLM.gauge_lag_s > gauge_lag_s("llamacpp") > 0.0
    assert abort_lag_s("llamacpp") == LLAMACPP.abort_lag_s > abort_lag_s("vllm") > 0.0
    assert gauge_lag_s(None) == gauge_lag_s("other") == abort_lag_s(None) == abort_lag_s("other") == 0.0


def _facts(engine: Engine, path: str, page: bytes) -> NodeReport:
    return next(fact for fact in engine.facts if fact.path == path).read(page)

"""What recorded responses say of themselves, streamed and not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorded_engine import recorded_payloads
from slipstream.core.acceptance.sample import SpeculationSample
from slipstream.engines.catalogue import ENGINES, read_statistics
from slipstream.engines.engine import ResponseStatistics

LLAMACPP = {
    ("llamacpp-b11549-none", "chat.http"): SpeculationSample(0, 0, 0, 80),
    ("llamacpp-b11549-none", "chat-stream.http"): SpeculationSample(0, 0, 0, 80),
    ("llamacpp-b11549-none", "chat-stream-usage.http"): SpeculationSample(0, 0, 0, 80),
    ("llamacpp-b11549-mod", "chat.http"): SpeculationSample(0, 0, 0, 80),
    ("llamacpp-b11549-mod", "chat-stream.http"): SpeculationSample(64, 64, None, 80),
    ("llamacpp-b11549-mod", "chat-stream-usage.http"): SpeculationSample(64, 64, None, 80),
    ("llamacpp-b11549-draft", "chat.http"): SpeculationSample(63, 63, None, 80),
    ("llamacpp-b11549-draft", "chat-stream.http"): SpeculationSample(63, 63, None, 80),
    ("llamacpp-b11549-draft", "chat-stream-usage.http"): SpeculationSample(63, 63, None, 80),
}
NOTHING = ResponseStatistics()


@pytest.mark.parametrize(("where", "sample"), LLAMACPP.items())
def test_llamacpp_says_what_was_drafted_in_every_response(where: tuple[str, str], sample: SpeculationSample) -> None:
    assert read_statistics("llamacpp", recorded_payloads(*where)) == ResponseStatistics(48, 80, sample)


@pytest.mark.parametrize("name", ["chat.http", "chat-stream-usage.http", "chat-stream-continuous-usage.http"])
def test_vllm_says_what_was_drafted_where_its_usage_is(name: str) -> None:
    statistics = read_statistics("vllm", recorded_payloads("vllm-0.32.0-ngram", name))
    assert statistics == ResponseStatistics(48, 60, SpeculationSample(36, 32, 9, 60))


@pytest.mark.parametrize("name", ["chat-stream.http", "completions-stream.http"])
def test_a_vllm_stream_without_usage_says_nothing(name: str) -> None:
    assert read_statistics("vllm", recorded_payloads("vllm-0.32.0-ngram", name)) == NOTHING


@pytest.mark.parametrize("name", ["chat.http", "chat-stream-usage.http"])
def test_vllm_without_a_speculator_says_its_usage_only(name: str) -> None:
    assert read_statistics("vllm", recorded_payloads("vllm-0.32.0-none", name)) == ResponseStatistics(43, 24)


@pytest.mark.parametrize("name", ["chat.http", "chat-stream-usage.http"])
def test_sglang_says_what_was_drafted_when_asked(name: str) -> None:
    statistics = read_statistics("sglang", recorded_payloads("sglang-0.5.23-by-hand", name))
    assert statistics == ResponseStatistics(48, 60, SpeculationSample(60, 39, 20, 60))


def test_an_sglang_stream_of_several_choices_says_it_of_each() -> None:
    one = b'{"spec_num_proposed_drafts":6,"spec_num_correct_drafts":3,"spec_verify_ct":2}'
    details = b'{"choices":[],"sglext":{"spec_tokens_details":[%s,%s]}}' % (one, one)
    counts = b'{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":12}}'
    expected = ResponseStatistics(1, 12, SpeculationSample(12, 6, 4, 12))
    assert read_statistics("sglang", (details, counts)) == expected


def test_an_sglang_stream_without_usage_still_says_what_was_drafted() -> None:
    details = recorded_payloads("sglang-0.5.23-by-hand", "chat-stream-usage.http")[-2]
    statistics = read_statistics("sglang", (b"{}", details))
    assert statistics == ResponseStatistics(sample=SpeculationSample(60, 39, 20))


def test_sglang_says_nothing_of_drafts_when_not_asked() -> None:
    counts = recorded_payloads("sglang-0.5.23-by-hand", "chat-stream-usage.http")[-1]
    assert read_statistics("sglang", (counts,)) == ResponseStatistics(48, 60)


@pytest.mark.parametrize("name", ["chat.http", "chat-stream-usage.http"])
def test_trtllm_says_its_usage_only(name: str) -> None:
    assert read_statistics("trtllm", recorded_payloads("trtllm-by-hand", name)) == ResponseStatistics(48, 60)


def test_the_last_payload_that_counts_tokens_is_taken() -> None:
    payloads = (b'{"usage":{"completion_tokens":1}}', b'{"usage":{"completion_tokens":2}}', b'{"usage":null}')
    assert read_statistics("vllm", payloads) == ResponseStatistics(None, 2)


def test_an_answer_without_output_still_says_its_prompt() -> None:
    assert read_statistics("llamacpp", (b'{"usage":{"prompt_tokens":7}}',)) == ResponseStatistics(7)


def test_llamacpp_timings_count_the_cached_part_of_the_prompt() -> None:
    payload = b'{"timings":{"cache_n":40,"prompt_n":8,"predicted_n":5}}'
    assert read_statistics("llamacpp", (payload,)) == ResponseStatistics(48, 5, SpeculationSample(0, 0, 0, 5))


def test_llamacpp_timings_without_counts_leave_them_unknown() -> None:
    payload = b'{"usage":{"prompt_tokens":3,"completion_tokens":4},"timings":{}}'
    assert read_statistics("llamacpp", (payload,)) == ResponseStatistics(3, 4, SpeculationSample(0, 0, 0, None))


@pytest.mark.parametrize("engine", [None, "lmdeploy"])
def test_a_response_of_an_engine_that_is_not_known_says_nothing(engine: str | None) -> None:
    assert read_statistics(engine, recorded_payloads("vllm-0.32.0-ngram", "chat.http")) == NOTHING


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"[]",
        b"<html>",
        b'{"usage":[]}',
        b'{"usage":{"completion_tokens":-1}}',
        b'{"usage":{"completion_tokens":"9"}}',
        b'{"usage":{"completion_tokens":1%s}}' % (b"0" * 400),
        b'{"usage":{"completion_tokens":9},"x":"\xff"',
        b'{"x":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"usage":' + b"[" * 100_000,
        b'{"metrics":{"speculative_decoding":{"num_draft_tokens":null}},"timings":7}',
    ],
)
def test_a_response_that_can_not_be_read_says_nothing(engine: str, payload: bytes) -> None:
    assert read_statistics(engine, (payload,)) == NOTHING


FIELDS = st.sampled_from(
    [
        "usage",
        "sglext",
        "spec_tokens_details",
        "spec_verify_ct",
        "timings",
        "metrics",
        "speculative_decoding",
        "completion_tokens",
        "draft_n",
        "x",
    ]
)
DOCUMENTS = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=4) | st.integers(10**300, 10**310),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
)


@pytest.mark.no_cover
@given(st.sampled_from(list(ENGINES)), st.lists(DOCUMENTS.map(lambda document: json.dumps(document).encode())))
def test_reading_json_of_any_shape_never_raises(engine: str, payloads: list[bytes]) -> None:
    read_statistics(engine, tuple(payloads))


@given(st.sampled_from(list(ENGINES)), st.lists(st.binary(max_size=40), max_size=3))
def test_reading_a_response_never_raises(engine: str, payloads: list[bytes]) -> None:
    read_statistics(engine, tuple(payloads))

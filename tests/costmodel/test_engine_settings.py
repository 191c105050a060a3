"""What is emitted keeps the rules that each engine has for its own configuration."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from slipstream.config import load
from slipstream.costmodel.engine_settings import (
    ENGINES,
    DraftRange,
    Plan,
    ceiling_of,
    engine_settings,
    schedule_of,
)
from slipstream.costmodel.errors import ImpossibleInput

FALLING = (DraftRange(1, 8, 4), DraftRange(9, 20, 2), DraftRange(21, 64, 0))


def plan(schedule: tuple[DraftRange, ...] = FALLING, method: str = "eagle3", **more: Any) -> Plan:
    fits: dict[str, Any] = {"admitted_standard": 100, "admitted_speculative": 80}
    return Plan("meta/target", method, "some/head", schedule, **{**fits, **more})


def options(text: str) -> dict[str, str]:
    """The options of the last command of a shell script."""
    words = shlex.split(text.replace("\\\n", " ").splitlines()[-1])
    return {
        word: following if not following.startswith("--") else ""
        for word, following in zip(words, [*words[1:], ""], strict=True)
        if word.startswith("--")
    }


def test_equal_neighbours_are_one_range_from_batch_1_on() -> None:
    assert schedule_of([1, 4, 16, 32, 64], [4, 4, 2, 0, 0]) == (
        DraftRange(1, 15, 4),
        DraftRange(16, 31, 2),
        DraftRange(32, 64, 0),
    )
    assert schedule_of([8], [3]) == (DraftRange(1, 8, 3),)
    assert schedule_of([1, 8], [3, 2], 20) == (DraftRange(1, 7, 3), DraftRange(8, 20, 2))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.data())
def test_a_schedule_keeps_every_best_k_and_has_no_gap(best: list[int], data: st.DataObject) -> None:
    sizes = sorted(data.draw(st.sets(st.integers(1, 99), min_size=len(best), max_size=len(best))))
    schedule = schedule_of(sizes, best)
    Plan("t", "ngram", None, schedule, 1, 1)
    assert schedule[-1].last == sizes[-1]
    for size, k in zip(sizes, best, strict=True):
        assert [one.k for one in schedule if one.first <= size <= one.last] == [k]


@pytest.mark.parametrize(
    ("schedule", "sentence"),
    [
        ((), "begins at batch size 1"),
        ((DraftRange(2, 4, 1),), "begins at batch size 1"),
        ((DraftRange(1, 4, 1), DraftRange(6, 8, 0)), "4 is followed by 6"),
        ((DraftRange(1, 4, -1),), "no fewer than 0"),
        ((DraftRange(1, 0, 1),), "ends behind its beginning"),
    ],
)
def test_a_schedule_that_no_engine_takes_is_refused(schedule: tuple[DraftRange, ...], sentence: str) -> None:
    with pytest.raises(ImpossibleInput, match=sentence):
        plan(schedule)


def test_the_ceiling_is_where_drafting_last_pays_and_never_more_than_fits() -> None:
    assert ceiling_of(plan()) == 20
    assert ceiling_of(plan(admitted_speculative=6)) == 6
    assert ceiling_of(plan((DraftRange(1, 64, 0),))) is None
    assert ceiling_of(plan((DraftRange(1, 4, 2), DraftRange(5, 8, 0), DraftRange(9, 64, 3)))) == 4


def test_vllm_gets_ranges_from_1_on_whose_k_is_within_its_limit() -> None:
    alone, speculative, standard = engine_settings("vllm", plan(tensor_parallel=4))
    whole = options(alone.text)
    settings = json.loads(whole["--speculative-config"])
    assert settings == {
        "method": "eagle3",
        "model": "some/head",
        "num_speculative_tokens": 4,
        "num_speculative_tokens_per_batch_size": [[1, 8, 4], [9, 20, 2], [21, 64, 0]],
    }
    small = options(speculative.text)
    assert json.loads(small["--speculative-config"])["num_speculative_tokens_per_batch_size"] == [[1, 8, 4], [9, 20, 2]]
    assert (small["--max-num-seqs"], small["--max-num-batched-tokens"]) == ("20", "2048")
    large = options(standard.text)
    assert "--speculative-config" not in large
    assert (large["--max-num-seqs"], large["--max-num-batched-tokens"]) == ("100", "8192")
    assert {one["--tensor-parallel-size"] for one in (whole, small, large)} == {"4"}


def test_a_step_has_room_for_what_every_sequence_verifies() -> None:
    schedule = (DraftRange(1, 600, 7),)
    _, speculative, standard = engine_settings("vllm", plan(schedule, admitted_speculative=600, admitted_standard=9000))
    assert options(speculative.text)["--max-num-batched-tokens"] == "4800"
    assert options(standard.text)["--max-num-batched-tokens"] == "9000"


def test_one_k_throughout_needs_no_schedule_and_medusa_can_have_none() -> None:
    one = options(engine_settings("vllm", plan((DraftRange(1, 64, 3),), "ngram"))[0].text)
    assert "num_speculative_tokens_per_batch_size" not in one["--speculative-config"]
    medusa = engine_settings("vllm", plan(method="medusa"))[0]
    assert "num_speculative_tokens_per_batch_size" not in medusa.text
    assert "keeps one K for medusa" in str(medusa)


def test_sglang_adapts_steps_by_batch_size_where_it_can() -> None:
    alone, speculative, standard = engine_settings("sglang", plan())
    script = alone.text.splitlines()
    steps = json.loads(shlex.split(script[0])[1])
    assert steps == {"1": {"candidate_steps": [4]}, "9": {"candidate_steps": [2]}, "21": {"candidate_steps": [0]}}
    given_options = options(alone.text)
    assert int(given_options["--speculative-num-steps"]) in {4, 2, 0}
    assert given_options["--speculative-eagle-topk"] == "1"
    assert given_options["--speculative-num-draft-tokens"] == "5"
    assert given_options["--max-running-requests"] == "80"
    assert options(speculative.text)["--max-running-requests"] == "20"
    assert "--speculative-algorithm" not in options(standard.text)


def test_sglang_gets_the_k_of_the_ceiling_where_it_can_not_adapt() -> None:
    alone, speculative, _ = engine_settings("sglang", plan(method="draft"))
    for one in (alone, speculative):
        assert options(one.text)["--speculative-algorithm"] == "STANDALONE"
        assert options(one.text)["--speculative-num-steps"] == "2"
        assert "--speculative-adaptive" not in one.text
    assert "split the pools" in str(alone)


def test_trtllm_gets_a_schedule_up_to_each_size_and_never_max_concurrency_beside_it() -> None:
    alone, speculative, standard = engine_settings("trtllm", plan())
    settings = yaml.safe_load(str(alone))["speculative_config"]
    assert settings == {
        "decoding_type": "Eagle",
        "max_draft_len": 4,
        "speculative_model_dir": "some/head",
        "draft_len_schedule": {8: 4, 20: 2},
    }
    small = yaml.safe_load(str(speculative))
    assert small["max_batch_size"] == 20
    assert small["max_num_tokens"] == 2048
    assert "speculative_config" not in yaml.safe_load(str(standard))


def test_trtllm_gets_max_concurrency_for_one_k_and_then_none() -> None:
    settings = [
        yaml.safe_load(str(engine_settings("trtllm", plan(schedule))[0]))["speculative_config"]
        for schedule in ((DraftRange(1, 16, 3), DraftRange(17, 64, 0)), (DraftRange(1, 64, 3),))
    ]
    assert settings[0]["max_concurrency"] == 16
    assert "draft_len_schedule" not in settings[0]
    assert "max_concurrency" not in settings[1]


def test_our_own_part_is_a_configuration_that_loads(tmp_path: Any) -> None:
    (found,) = engine_settings("slipstream", plan(pinned=("chat",)))
    nodes = [
        {"name": name, "url": f"http://10.0.0.{number}:8000", "pool": pool}
        for number, (name, pool) in enumerate((("spec-0", "speculative"), ("std-0", "standard")), 1)
    ]
    file = tmp_path / "fleet.yaml"
    file.write_text(f"{found}\n{yaml.safe_dump({'nodes': nodes})}")
    config = load(file)
    assert config.pools.speculative.ceiling == 20
    assert config.routing.pins == {"chat": "standard"}
    assert "pins" not in str(engine_settings("slipstream", plan())[0])


@pytest.mark.parametrize("engine", ENGINES)
def test_where_drafting_never_pays_only_standard_nodes_are_left(engine: str) -> None:
    (only,) = engine_settings(engine, plan((DraftRange(1, 64, 0),)))
    assert "does not pay even for one sequence" in only.title
    assert "speculative" not in only.text


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "slipstream"])
def test_what_has_no_weights_of_its_own_names_no_model(engine: str) -> None:
    for one in engine_settings(engine, Plan("t", "ngram", None, FALLING, 100, 80)):
        assert "model_dir" not in one.text
        assert "draft-model-path" not in one.text
        assert '"model"' not in one.text
        assert "--speculative-num-steps" not in one.text


@pytest.mark.parametrize(
    ("engine", "method", "sentence"),
    [
        ("sglang", "medusa", "SGLang has no speculator of the kind medusa; it has draft, eagle"),
        ("trtllm", "eagle", "TensorRT-LLM's PyTorch backend has no speculator of the kind eagle;"),
        ("tgi", "draft", "settings are written for vllm, sglang, trtllm, slipstream, not for 'tgi'"),
    ],
)
def test_what_an_engine_has_not_is_told(engine: str, method: str, sentence: str) -> None:
    with pytest.raises(ImpossibleInput) as told:
        engine_settings(engine, plan(method=method))
    assert str(told.value).startswith(sentence)

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.acceptance import SpeculationSample, Steps, steps_of
from slipstream.core.node import Speculator, SpeculatorKind

DRAFT = Speculator(SpeculatorKind.DRAFT, 4)
NGRAM = Speculator(SpeculatorKind.NGRAM, 4)


def test_steps_that_the_engine_counted_are_taken() -> None:
    assert steps_of(SpeculationSample(63, 50, 16, 67), DRAFT, 0.5) == Steps(16, 16)


def test_missing_verify_steps_come_from_the_node_then_from_the_draft_length() -> None:
    recorded = SpeculationSample(63, 63, None, 80)
    assert steps_of(recorded, DRAFT, 16 / 63) == Steps(16.0, 16.0)
    assert steps_of(recorded, DRAFT) == Steps(63 / 4, 16.0)
    assert steps_of(recorded, Speculator(SpeculatorKind.DRAFT)) is None


def test_steps_that_proposed_nothing_count_as_decode_steps() -> None:
    assert steps_of(SpeculationSample(40, 30, 10, 81), NGRAM) == Steps(10, 50)
    assert steps_of(SpeculationSample(0, 0, None, 81), NGRAM) == Steps(0.0, 80.0)


def test_an_output_cut_short_inside_a_draft_does_not_lose_verify_steps() -> None:
    assert steps_of(SpeculationSample(40, 38, 10, 41), NGRAM) == Steps(10, 10.0)


def test_without_a_token_count_only_a_speculator_that_always_proposes_tells_its_steps() -> None:
    sample = SpeculationSample(40, 30, 10)
    assert steps_of(sample, DRAFT) == Steps(10, 10)
    assert steps_of(sample, NGRAM) is None


@pytest.mark.parametrize(
    "impossible", [SpeculationSample(4, 5, 1), SpeculationSample(4, -1, 1), SpeculationSample(-4, -4, 1)]
)
def test_impossible_samples_say_nothing(impossible: SpeculationSample) -> None:
    assert steps_of(impossible, DRAFT) is None


@pytest.mark.parametrize("verify_steps", [0, -3])
def test_drafts_without_a_verify_step_say_nothing(verify_steps: int) -> None:
    assert steps_of(SpeculationSample(4, 1, verify_steps), DRAFT, 0.25) is None


@given(
    st.integers(-3, 500), st.integers(-3, 500), st.none() | st.integers(-3, 500), st.none() | st.integers(0, 900),
    st.none() | st.floats(0.01, 1.0), st.sampled_from([DRAFT, NGRAM, Speculator(SpeculatorKind.NGRAM)]),
)  # fmt: skip
def test_steps_are_never_negative_and_never_fewer_than_those_that_proposed(
    drafted: int, accepted: int, verify: int | None, output: int | None, per_drafted: float | None, by: Speculator
) -> None:
    steps = steps_of(SpeculationSample(drafted, accepted, verify, output), by, per_drafted)
    if steps is not None:
        assert 0.0 <= steps.verify <= steps.decode

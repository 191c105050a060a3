"""What `slipstream emulate` makes of a profile, or of a model and its hardware."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slipstream.cli.emulated_pace import Hardware, paced_by_model, paced_by_profile
from slipstream.core.node import SpeculatorKind
from slipstream.costmodel.errors import ImpossibleInput

H100 = Hardware("h100", 1, "vllm", None, "bf16", replicated=False)
MODEL = "Llama-3.1-8B"


@pytest.mark.parametrize(("said", "given", "share"), [(None, None, None), (0.3, None, 0.3), (0.3, 0.7, 0.7)])
def test_a_profile_tells_the_share_of_steps_that_draft_unless_it_is_given(
    tmp_path: Path, said: float | None, given: float | None, share: float | None
) -> None:
    document = {
        "engine": "vllm",
        "version": "1",
        "hardware": "none",
        "model": "m",
        "date": "2026-01-01",
        "form": "linear",
        "coefficients": {"step_s": 0.02, "token_s": 0.001},
    }
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(document if said is None else document | {"proposing_share": said}))
    pace, found = paced_by_profile(str(path), given, 1000)
    assert (found, pace.kv_tokens) == (share, 1000)
    assert pace.rows.decode_row(2, 0, 0)[0] == pytest.approx(0.022)


def test_the_first_articles_line_is_a_profile() -> None:
    pace, _ = paced_by_profile("article-1", None, None)
    assert pace.kv_tokens is None


def test_a_drafter_takes_room_and_time() -> None:
    alone, nothing, _ = paced_by_model(MODEL, H100, "none", None, None)
    beside, kind, share = paced_by_model(MODEL, H100, "eagle3", None, None)
    assert (nothing, kind, share) == (None, SpeculatorKind.DRAFT, 1.0)
    assert alone.kv_tokens is not None
    assert beside.kv_tokens is not None
    assert alone.kv_tokens > beside.kv_tokens > 10_000
    assert beside.rows.decode_row(1, 1, 4)[0] > alone.rows.decode_row(1, 0, 0)[0]
    assert beside.rows.drafter_prefill_row()[-1] > 0.0
    with pytest.raises(ImpossibleInput):
        alone.rows.decode_row(1, 1, 4)


@pytest.mark.parametrize(("given", "share"), [(None, 0.5), (0.2, 0.2)])
def test_lookup_drafts_in_half_of_the_steps_unless_told(given: float | None, share: float) -> None:
    pace, kind, found = paced_by_model(MODEL, H100, "ngram", given, 5000)
    assert (kind, found, pace.kv_tokens) == (SpeculatorKind.NGRAM, share, 5000)


def test_a_draft_model_that_lies_whole_on_each_gpu_takes_more_room() -> None:
    room = []
    for replicated in (False, True):
        on = Hardware("h100", 2, "vllm", None, "bf16", replicated=replicated)
        pace, kind, _ = paced_by_model(MODEL, on, "Llama-3.2-1B", None, None)
        assert kind is SpeculatorKind.DRAFT
        room.append(pace.kv_tokens or 0)
    assert room[0] > room[1] > 0

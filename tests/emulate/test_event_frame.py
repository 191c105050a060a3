"""What is put together from parts made ahead is, byte for byte, what the dialect says of the step."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulated_client import prompt_for
from slipstream.emulate import NodeSettings
from slipstream.emulate.dialects import DIALECTS
from slipstream.emulate.frame import MARK, event_chunk, frame_of
from slipstream.emulate.generation import Generation
from slipstream.emulate.messages import MESSAGES
from slipstream.emulate.request import CHAT, COMPLETIONS
from slipstream.emulate.responses import RESPONSES


def generation(dialect: str, path: str, model: str, **fields: Any) -> Generation:
    body = json.dumps({"model": model, "stream": True, **prompt_for(path, "x"), **fields}).encode()
    request = DIALECTS[dialect].answers[path].read(path, body)
    made = DIALECTS[dialect].answers[path].identify(7)
    return Generation(request, made, model, 1, "chat", 1000, False, request.choices, 4, Random(1), 0.0)


@settings(max_examples=25, deadline=None)
@given(
    dialect=st.sampled_from(list(DIALECTS)),
    path=st.sampled_from([CHAT, COMPLETIONS, MESSAGES, RESPONSES]),
    model=st.text(min_size=1, max_size=8),
    usage=st.booleans(),
    before=st.integers(1, 900),
    tokens=st.integers(1, 65),
)
def test_events_are_those_of_the_dialect(
    dialect: str, path: str, model: str, usage: bool, before: int, tokens: int
) -> None:
    one = generation(dialect, path, model, stream_options={"include_usage": usage})
    answers = DIALECTS[dialect].answers[path]
    frame = frame_of(answers, one)
    if frame is None:
        assert answers.numbered  # each differs in its number too
        return
    one.emitted = before + tokens
    events = answers.stream(one, before, NodeSettings())
    assert frame.chunks(before, one.emitted) == b"".join(event_chunk(event, named=answers.named) for event in events)


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [
        ("vllm", {"n": 2}),
        ("vllm", {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
        ("sglang", {"stream_options": {"continuous_usage_stats": True}}),
        ("sglang", {"model": MARK}),
        ("llamacpp", {"timings_per_token": True}),
    ],
)
def test_events_that_differ_in_more_than_a_text_have_no_frame(dialect: str, fields: dict[str, Any]) -> None:
    one = generation(dialect, CHAT, **{"model": "m"} | fields)
    assert frame_of(DIALECTS[dialect].answers[CHAT], one) is None

"""What is put together from parts made ahead is, byte for byte, what the dialect says of the step."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.emulate import NodeSettings
from slipstream.emulate.dialects import DIALECTS
from slipstream.emulate.frame import MARK, event_chunk, frame_of
from slipstream.emulate.generation import Generation
from slipstream.emulate.request import CHAT, COMPLETIONS, read_completion


def generation(dialect: str, path: str, model: str, **fields: Any) -> Generation:
    prompt = {"messages": [{"role": "user", "content": "x"}]} if path == CHAT else {"prompt": "x"}
    request = read_completion(path, json.dumps({"model": model, "stream": True, **prompt, **fields}).encode())
    made = DIALECTS[dialect].identify(7, request.chat)
    return Generation(request, made, model, 1, "chat", 1000, False, request.choices, 4, Random(1), 0.0)


@settings(max_examples=25, deadline=None)
@given(
    dialect=st.sampled_from(list(DIALECTS)),
    path=st.sampled_from([CHAT, COMPLETIONS]),
    model=st.text(min_size=1, max_size=8),
    usage=st.booleans(),
    before=st.integers(1, 900),
    tokens=st.integers(1, 65),
)
def test_events_are_those_of_the_dialect(
    dialect: str, path: str, model: str, usage: bool, before: int, tokens: int
) -> None:
    one = generation(dialect, path, model, stream_options={"include_usage": usage})
    frame = frame_of(DIALECTS[dialect], one)
    assert frame is not None
    one.emitted = before + tokens
    events = DIALECTS[dialect].stream(one, before, NodeSettings())
    assert frame.chunks(before, one.emitted) == b"".join(event_chunk(msgspec.json.encode(event)) for event in events)


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
    assert frame_of(DIALECTS[dialect], generation(dialect, CHAT, **{"model": "m"} | fields)) is None

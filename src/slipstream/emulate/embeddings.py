"""``/v1/embeddings``: a prefill for each input, and a vector that is the same for the same input."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import hypot
from random import Random
from struct import pack
from typing import Final
from zlib import crc32

import msgspec

from slipstream.emulate.answers import Answers, Json, WriteError
from slipstream.emulate.generation import Generation
from slipstream.emulate.request import Completion, Fields, Inputs, Problem, ProblemKind, completion_of, decode
from slipstream.emulate.settings import NodeSettings

__all__ = ["DIMENSIONS", "EMBEDDINGS", "EmbeddingMembers", "embedding_answers"]

EMBEDDINGS: Final = "/v1/embeddings"
DIMENSIONS: Final = 32


@dataclass(frozen=True, slots=True)
class EmbeddingMembers:
    """What an engine says, by name, in the ``whole`` answer and its ``usage``. ``base64``: vectors are so if asked."""

    whole: tuple[str, ...]
    usage: tuple[str, ...]
    base64: bool


class _Request(msgspec.Struct):
    model: str | None = None
    input: str | list[str | int | list[int]] | None = None
    encoding_format: str | None = None


_decoder: Final = msgspec.json.Decoder(_Request)


def embedding_answers(members: EmbeddingMembers, error: WriteError, identify: Callable[[int], str]) -> Answers:
    """How an engine with such members answers. It never streams."""
    return Answers(
        read=partial(_read, members),
        identify=identify,
        stream=lambda _generation, _before, _settings: iter(()),
        text_event=lambda _generation, _text: None,
        body=partial(_body, members),
        error=error,
        event_a_token=False,
    )


def _read(members: EmbeddingMembers, path: str, body: bytes) -> Completion:
    """Raises `Problem`."""
    asked = decode(_decoder, body)
    if not asked.input:
        raise Problem(ProblemKind.BAD_FIELD, "'input' is required", "input")
    one = isinstance(asked.input, str) or all(isinstance(part, int) for part in asked.input)
    inputs = [asked.input] if one else asked.input
    marks = tuple(crc32(msgspec.json.encode(part)) for part in inputs)
    completion = completion_of(path, Fields(model=asked.model, prompt=asked.input), chat=False)
    return replace(completion, inputs=Inputs(marks, base64=members.base64 and asked.encoding_format == "base64"))


def _body(members: EmbeddingMembers, generation: Generation, _settings: NodeSettings) -> Json:
    request = generation.request
    inputs, tokens = request.inputs, request.prompt_tokens
    assert inputs is not None
    vectors = [_vector(mark) for mark in inputs.marks]
    usage = {
        "prompt_tokens": tokens,
        "total_tokens": tokens,
        "completion_tokens": 0,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
        "reasoning_tokens": 0,
    }
    values = {
        "id": generation.id,
        "object": "list",
        "created": generation.created,
        "model": generation.model,
        "data": [
            {"embedding": _packed(vector) if inputs.base64 else vector, "index": index, "object": "embedding"}
            for index, vector in enumerate(vectors)
        ],
        "usage": {name: usage[name] for name in members.usage},
    }
    return {name: values[name] for name in members.whole}


def _vector(mark: int) -> list[float]:
    """Of length 1."""
    chance = Random(mark)
    numbers = [chance.gauss(0.0, 1.0) for _ in range(DIMENSIONS)]
    length = hypot(*numbers)
    return [number / length for number in numbers]


def _packed(vector: list[float]) -> str:
    return b64encode(pack(f"<{len(vector)}f", *vector)).decode()

"""How an engine answers at one path, as a row of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from slipstream.emulate.generation import Generation
from slipstream.emulate.request import Completion, Problem
from slipstream.emulate.settings import NodeSettings

__all__ = ["Answers", "Json", "WriteError", "usage_of"]

Json = dict[str, Any]
WriteError = Callable[[Problem, NodeSettings], tuple[int, Json]]
"""A problem and the node's settings → an error's status and body."""


@dataclass(frozen=True, slots=True)
class Answers:
    """``read``: a path and a body → what is asked for; raises `Problem`. ``identify``: 128 random bits → an id.

    ``stream``: a generation and the tokens it had before its last step → the events of that step, with the closing ones
    when it is finished. ``text_event``: a generation and a text → the only event of a step between the first and the
    last, or of each of its tokens with ``event_a_token``; ``None`` if it tells more than the text, which is then in one
    place of it. ``body``: a finished generation → the unstreamed answer. ``error`` writes what is not served.
    ``named``: an event's ``type`` stands before it too, and the last one ends a stream; else ``[DONE]`` does.
    ``numbered``: events have a ``sequence_number``, from 0.
    """

    read: Callable[[str, bytes], Completion]
    identify: Callable[[int], str]
    stream: Callable[[Generation, int, NodeSettings], Iterator[Json]]
    text_event: Callable[[Generation, str], Json | None]
    body: Callable[[Generation, NodeSettings], Json]
    error: WriteError
    event_a_token: bool
    named: bool = False
    numbered: bool = False


def usage_of(generation: Generation) -> Json:
    """Tokens of the prompt and of all choices so far."""
    prompt, completion = generation.request.prompt_tokens, generation.emitted * generation.request.choices
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}

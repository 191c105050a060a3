"""``/v1/responses``, as the engines speak OpenAI's Responses dialect: one stream of events, whose members differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from slipstream.emulate.answers import Answers, Json, WriteError
from slipstream.emulate.generation import Generation
from slipstream.emulate.request import (
    Completion,
    Fields,
    Message,
    Part,
    Problem,
    ProblemKind,
    ResponseFormat,
    completion_of,
    decode,
)
from slipstream.emulate.settings import CONTEXT_TOKENS, NodeSettings
from slipstream.emulate.words import text_of, texts_of

__all__ = ["EVERYTHING", "RESPONSES", "ResponseMembers", "response_answers"]

RESPONSES: Final = "/v1/responses"
CONSTANT: Final[Json] = {
    "object": "response",
    "instructions": None,
    "metadata": None,
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "background": False,
    "max_tool_calls": None,
    "previous_response_id": None,
    "prompt": None,
    "reasoning": None,
    "service_tier": "auto",
    "text": None,
    "top_logprobs": None,
    "truncation": "disabled",
    "user": None,
}
EVERYTHING: Final = (
    "id", "created_at", "incomplete_details", "model", "output", "max_output_tokens", "status", "usage", *CONSTANT,
)  # fmt: skip
"""The names of a response that tells all settings it was made with."""


@dataclass(frozen=True, slots=True)
class ResponseMembers:
    """What an engine says, by name: of a response that is ``started``, at the end of a stream (``closing``) and
    unstreamed (``whole``). ``details`` are the members of its usage beside the three counts.

    ``placed``: events are numbered and say which item and part they are of. ``tells_cut``: an answer that came to its
    limit is ``incomplete``. ``not_stored`` is what a follow-up to a response, by its id, is refused with.
    ``statistics``: what the last event has beside the response.
    """

    started: tuple[str, ...]
    closing: tuple[str, ...]
    whole: tuple[str, ...]
    details: Json
    placed: bool
    tells_cut: bool
    not_stored: str
    statistics: Callable[[Generation], Json]


class _Item(msgspec.Struct):
    role: str | None = None
    content: str | list[Part | str] | None = None
    output: str | list[Part | str] | None = None


class _Text(msgspec.Struct):
    format: ResponseFormat | None = None


class _Request(msgspec.Struct):
    model: str | None = None
    input: str | list[_Item] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    text: _Text | None = None
    tools: list[object] | None = None


_decoder: Final = msgspec.json.Decoder(_Request)


def response_answers(members: ResponseMembers, error: WriteError, *, event_a_token: bool) -> Answers:
    """How an engine with such members answers."""
    return Answers(
        read=partial(_read, members),
        identify=lambda bits: f"resp_{bits:032x}",
        stream=partial(_stream, members, event_a_token=event_a_token),
        text_event=partial(_text_event, members),
        body=partial(_body, members),
        error=error,
        event_a_token=event_a_token,
        named=True,
        numbered=members.placed,
    )


def _read(members: ResponseMembers, path: str, body: bytes) -> Completion:
    """Raises `Problem`. Instructions become the first message, a tool's output one of its own; calls are left out."""
    asked = decode(_decoder, body)
    if not asked.input:
        raise Problem(ProblemKind.BAD_FIELD, "'input' is required", "input")
    if asked.previous_response_id is not None:
        message = members.not_stored.format(asked.previous_response_id)
        raise Problem(ProblemKind.UNKNOWN_RESPONSE, message, "previous_response_id")
    items = [_Item(role="user", content=asked.input)] if isinstance(asked.input, str) else asked.input
    messages = [Message("system", asked.instructions)] if asked.instructions else []
    messages += [
        Message(item.role or "tool", item.content or item.output) for item in items if item.role or item.output
    ]
    fields = Fields(
        model=asked.model,
        messages=messages,
        max_tokens=asked.max_output_tokens,
        ignore_eos=asked.ignore_eos,
        stream=asked.stream,
        tools=asked.tools,
        response_format=asked.text.format if asked.text is not None else None,
    )
    return completion_of(path, fields, chat=True)


def _body(members: ResponseMembers, generation: Generation, _settings: NodeSettings) -> Json:
    return _finished(members, generation, members.whole)


def _stream(
    members: ResponseMembers, generation: Generation, before: int, _settings: NodeSettings, *, event_a_token: bool
) -> Iterator[Json]:
    item_id = _item_id(generation)
    if before == 0:
        response = _response(generation, members.started, "in_progress", [], None)
        yield {"type": "response.created", "response": response}
        yield {"type": "response.in_progress", "response": response}
        item = _item(generation, "in_progress", [])
        yield _placed(members, {"type": "response.output_item.added", "item": item})
        part = _part("") if members.placed else {"type": "output_text", "text": ""}
        yield _placed(members, {"type": "response.content_part.added", "item_id": item_id, "part": part})
    for text in texts_of(before, generation.emitted, each=event_a_token):
        yield _text_event(members, generation, text)
    if generation.finished:
        part = _part(text_of(0, generation.emitted))
        yield _placed(members, {"type": "response.output_text.done", "item_id": item_id, "text": part["text"]})
        yield _placed(members, {"type": "response.content_part.done", "item_id": item_id, "part": part})
        item = _item(generation, "completed", [part])
        yield _placed(members, {"type": "response.output_item.done", "item": item})
        response = _finished(members, generation, members.closing)
        yield {"type": "response.completed", "response": response, **members.statistics(generation)}


def _text_event(members: ResponseMembers, generation: Generation, text: str) -> Json:
    return _placed(members, {"type": "response.output_text.delta", "item_id": _item_id(generation), "delta": text})


def _placed(members: ResponseMembers, event: Json) -> Json:
    """With where it belongs: to the only item, and with an item's id to its only part. Texts have probabilities too."""
    if not members.placed:
        return event
    place: Json = {"output_index": 0}
    if "item_id" in event:
        place["content_index"] = 0
    if "part" not in event and "item" not in event:
        place["logprobs"] = []
    return event | place


def _finished(members: ResponseMembers, generation: Generation, names: tuple[str, ...]) -> Json:
    cut = members.tells_cut and generation.finish_reason == "length"
    prompt, output = generation.request.prompt_tokens, generation.emitted
    usage = {"input_tokens": prompt, "output_tokens": output, "total_tokens": prompt + output} | members.details
    items = [_item(generation, "completed", [_part(text_of(0, output))])]
    return _response(generation, names, "incomplete" if cut else "completed", items, usage)


def _response(
    generation: Generation, names: tuple[str, ...], status: str, output: list[Json], usage: Json | None
) -> Json:
    request = generation.request
    values = CONSTANT | {
        "id": generation.id,
        "created_at": generation.created,
        "completed_at": generation.created,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "model": generation.model,
        "output": output,
        "max_output_tokens": request.max_tokens or CONTEXT_TOKENS - request.prompt_tokens,
        "status": status,
        "usage": usage,
    }
    return {name: values[name] for name in names}


def _item(generation: Generation, status: str, content: list[Json]) -> Json:
    item_id = _item_id(generation)
    return {"content": content, "id": item_id, "role": "assistant", "status": status, "type": "message"}


def _part(text: str) -> Json:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _item_id(generation: Generation) -> str:
    return f"msg_{generation.id.removeprefix('resp_')}"

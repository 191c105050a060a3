"""``/v1/messages``, as the engines speak Anthropic's dialect: one stream of events, whose members differ."""

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
from slipstream.emulate.settings import NodeSettings
from slipstream.emulate.words import text_of, texts_of

__all__ = ["MESSAGES", "Members", "anthropic_error", "message_answers"]

MESSAGES: Final = "/v1/messages"
STOP_REASONS: Final = {"stop": "end_turn", "length": "max_tokens", None: None}


@dataclass(frozen=True, slots=True)
class Members:
    """What an engine says, by name: of a ``whole`` message, of one that is ``started``, in the ``delta`` that ends it,
    and in the usage of each. ``prompt_at_start``: a stream's first event knows the prompt's tokens; else it says 0.
    ``needs_limit``: a request without ``max_tokens`` is refused.
    """

    whole: tuple[str, ...]
    whole_usage: tuple[str, ...]
    started: tuple[str, ...]
    started_usage: tuple[str, ...]
    delta: tuple[str, ...]
    delta_usage: tuple[str, ...]
    prompt_at_start: bool
    needs_limit: bool


class _Output(msgspec.Struct):
    format: ResponseFormat | None = None


class _Request(msgspec.Struct):
    model: str | None = None
    system: str | list[Part | str] | None = None
    messages: list[Message] | None = None
    max_tokens: int | None = None
    stream: bool | None = None
    tools: list[object] | None = None
    output_config: _Output | None = None


_decoder: Final = msgspec.json.Decoder(_Request)


def message_answers(
    members: Members, error: WriteError, identify: Callable[[int], str], *, event_a_token: bool
) -> Answers:
    """How an engine with such members answers."""
    return Answers(
        read=partial(_read, members),
        identify=identify,
        stream=partial(_stream, members, event_a_token=event_a_token),
        text_event=_text_event,
        body=partial(_body, members),
        error=error,
        event_a_token=event_a_token,
        named=True,
    )


def anthropic_error(openai: WriteError, problem: Problem, settings: NodeSettings) -> tuple[int, Json]:
    """An error in Anthropic's form, of the type it has elsewhere. A body that can not be read never gets so far: the
    server's framework refuses it, in the form of all paths.
    """
    status, body = openai(problem, settings)
    if problem.kind in (ProblemKind.BAD_JSON, ProblemKind.BAD_FIELD):
        return status, body
    error: Json = body.get("error", body)
    return status, {"type": "error", "error": {"type": error["type"], "message": problem.message}}


def _read(members: Members, path: str, body: bytes) -> Completion:
    """Raises `Problem`. The system prompt becomes the first message, as in the engines."""
    asked = decode(_decoder, body)
    if members.needs_limit and asked.max_tokens is None:
        raise Problem(ProblemKind.BAD_FIELD, "'max_tokens' is required", "max_tokens")
    system = [Message("system", asked.system)] if asked.system and asked.messages else []
    fields = Fields(
        model=asked.model,
        messages=system + (asked.messages or []),
        max_tokens=asked.max_tokens,
        stream=asked.stream,
        tools=asked.tools,
        response_format=asked.output_config.format if asked.output_config is not None else None,
    )
    return completion_of(path, fields, chat=True)


def _body(members: Members, generation: Generation, _settings: NodeSettings) -> Json:
    content = [{"type": "text", "text": text_of(0, generation.emitted)}]
    usage = _usage(generation, members.whole_usage)
    return _message(generation, members.whole, content, usage, generation.finish_reason)


def _stream(
    members: Members, generation: Generation, before: int, _settings: NodeSettings, *, event_a_token: bool
) -> Iterator[Json]:
    if before == 0:
        usage = _usage(generation, members.started_usage) | {"output_tokens": 0}
        if not members.prompt_at_start:
            usage["input_tokens"] = 0
        yield {"type": "message_start", "message": _message(generation, members.started, [], usage, None)}
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for text in texts_of(before, generation.emitted, each=event_a_token):
        yield _text_event(generation, text)
    if generation.finished:
        yield {"type": "content_block_stop", "index": 0}
        ending = _ending(generation.finish_reason)
        delta = {name: ending[name] for name in members.delta}
        yield {"type": "message_delta", "delta": delta, "usage": _usage(generation, members.delta_usage)}
        yield {"type": "message_stop"}


def _text_event(_generation: Generation, text: str) -> Json:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}


def _message(
    generation: Generation, names: tuple[str, ...], content: list[Json], usage: Json, reason: str | None
) -> Json:
    values = {
        "id": generation.id,
        "type": "message",
        "role": "assistant",
        "content": content,
        "model": generation.model,
        **_ending(reason),
        "usage": usage,
    }
    return {name: values[name] for name in names}


def _ending(reason: str | None) -> Json:
    return {"stop_reason": STOP_REASONS[reason], "stop_sequence": None}


def _usage(generation: Generation, names: tuple[str, ...]) -> Json:
    values = {
        "input_tokens": generation.request.prompt_tokens,
        "output_tokens": generation.emitted,
        "cache_read_input_tokens": 0,
    }
    return {name: values[name] for name in names}

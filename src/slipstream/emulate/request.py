"""A request for a completion, read as leniently as engines read it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

import msgspec

from slipstream.core.category import PromptFeatures, window

__all__ = [
    "CHAT",
    "COMPLETIONS",
    "Completion",
    "Fields",
    "Inputs",
    "Message",
    "Part",
    "Problem",
    "ProblemKind",
    "ResponseFormat",
    "completion_of",
    "decode",
    "read_completion",
]

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
CHARACTERS_PER_TOKEN = 4

_T = TypeVar("_T")


class ProblemKind(StrEnum):
    """Why a request is not served."""

    BAD_JSON = "bad_json"
    BAD_FIELD = "bad_field"
    UNKNOWN_MODEL = "unknown_model"
    UNKNOWN_PATH = "unknown_path"
    UNKNOWN_RESPONSE = "unknown_response"
    REJECTED_FIELD = "rejected_field"
    FULL = "full"
    NO_METRICS = "no_metrics"


class Problem(Exception):  # not a SlipstreamError: it is the emulated engine's, and never leaves this package
    """A request that the engine answers with an error. ``param`` names the field at fault, if it is one."""

    def __init__(self, kind: ProblemKind, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.param = param


class Part(msgspec.Struct):
    """A part of a message's content, read for its text."""

    text: str | None = None


class Message(msgspec.Struct):
    """One message of a conversation."""

    role: str
    content: str | list[Part | str] | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class ResponseFormat(msgspec.Struct):
    """What form an answer is to have."""

    type: str | None = None


class Fields(msgspec.Struct):
    """A request's body as OpenAI's completions have it. Requests of other dialects become one, as in the engines."""

    model: str | None = None
    messages: list[Message] | None = None
    prompt: str | list[str | int | list[int]] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    ignore_eos: bool | None = None
    min_p: float | None = None
    logit_bias: Any = None
    tools: list[Any] | None = None
    response_format: ResponseFormat | None = None
    timings_per_token: bool | None = None
    return_spec_tokens_details: bool | None = None


_decoder = msgspec.json.Decoder(Fields)


class Inputs(NamedTuple):
    """What vectors are asked for: a number for each input, the same for the same input, and whether as base64."""

    marks: tuple[int, ...]
    base64: bool


@dataclass(frozen=True, slots=True)
class Completion:
    """What was asked for. ``choices`` counts answers over all prompts. ``max_tokens`` ``None`` = no limit was given.

    ``rejectable`` are the fields in use that an engine may refuse while it speculates. ``inputs``: no tokens are asked
    for but vectors; ``None`` = tokens are.
    """

    chat: bool
    model: str | None
    features: PromptFeatures
    prompt_tokens: int
    choices: int
    max_tokens: int | None
    ignore_eos: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool
    timings_per_token: bool
    spec_tokens_details: bool
    rejectable: frozenset[str]
    inputs: Inputs | None = None


def read_completion(path: str, body: bytes) -> Completion:
    """Read the body of a request to ``path``. Raises `Problem`."""
    return completion_of(path, decode(_decoder, body), chat=path == CHAT)


def decode(decoder: msgspec.json.Decoder[_T], body: bytes) -> _T:
    """A body's fields. Raises `Problem`."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Problem(ProblemKind.BAD_FIELD, str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(ProblemKind.BAD_JSON, str(error)) from None


def completion_of(path: str, fields: Fields, *, chat: bool) -> Completion:
    """What the fields ask for: an answer to their messages in a ``chat``, else to their prompts. Raises `Problem`."""
    if chat and not fields.messages:
        raise Problem(ProblemKind.BAD_FIELD, "'messages' is required", "messages")
    if not chat and fields.prompt is None:
        raise Problem(ProblemKind.BAD_FIELD, "'prompt' is required", "prompt")
    limit = fields.max_completion_tokens if fields.max_tokens is None else fields.max_tokens
    if limit is not None and limit < 1:
        raise Problem(ProblemKind.BAD_FIELD, f"max_tokens must be at least 1, got {limit}", "max_tokens")
    count = 1 if fields.n is None else fields.n
    if count < 1:
        raise Problem(ProblemKind.BAD_FIELD, f"n must be at least 1, got {count}", "n")
    prompts = [_text(message) for message in fields.messages or ()] if chat else _prompts(fields.prompt)
    options = fields.stream_options or _StreamOptions()
    return Completion(
        chat=chat,
        model=fields.model,
        features=_features(path, fields, prompts),
        prompt_tokens=sum(len(text) // CHARACTERS_PER_TOKEN + 1 for text in prompts),
        choices=count if chat else count * len(prompts),
        max_tokens=limit,
        ignore_eos=bool(fields.ignore_eos),
        stream=bool(fields.stream),
        include_usage=bool(options.include_usage),
        continuous_usage=bool(options.continuous_usage_stats),
        timings_per_token=bool(fields.timings_per_token),
        spec_tokens_details=bool(fields.return_spec_tokens_details),
        rejectable=frozenset(name for name in ("min_p", "logit_bias") if getattr(fields, name)),
    )


def _text(message: Message) -> str:
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    return "\n".join(part if isinstance(part, str) else part.text or "" for part in message.content)


def _prompts(prompt: str | list[str | int | list[int]] | None) -> list[str]:
    """Texts of the prompts. One of token numbers becomes a text of as many tokens, since nothing here can decode it."""
    if not isinstance(prompt, list):
        return [prompt or ""]
    if all(isinstance(part, int) for part in prompt):
        return [_filler(len(prompt))]
    return [part if isinstance(part, str) else _filler(len(part) if isinstance(part, list) else 1) for part in prompt]


def _filler(tokens: int) -> str:
    return "." * (max(0, tokens - 1) * CHARACTERS_PER_TOKEN)


def _features(path: str, fields: Fields, prompts: list[str]) -> PromptFeatures:
    messages = fields.messages or []
    users = [text for text, message in zip(prompts, messages, strict=False) if message.role == "user"]
    systems = [text for text, message in zip(prompts, messages, strict=False) if message.role == "system"]
    user = (users[-1] if users else "") if messages else prompts[-1]
    kind = fields.response_format.type if fields.response_format is not None else None
    return PromptFeatures(
        path=path,
        model=fields.model or "",
        has_tools=bool(fields.tools),
        response_format=None if kind == "text" else kind,
        user=window(user),
        user_characters=len(user),
        system=window(systems[0] if systems else ""),
    )

"""What routing needs of a request's body, whatever its dialect."""

from __future__ import annotations

from typing import Final

from msgspec import Raw
from msgspec.structs import astuple

from slipstream.gateway.fields import Message, Opaque, RequestFields, ResponseFormat, StreamOptions

__all__ = ["RequestView"]

_astuple: Final = astuple  # found without a look-up where this is compiled


class RequestView:
    """What routing needs of a request's body. ``None`` is a field that is absent or null.

    The fields are those of OpenAI's completions, as the client sent them; the readers of other dialects fill in the
    same view. Of a ``Raw`` one only ``is_given`` and ``has_effect`` matter: decoding it could take a second. ``user``
    and ``prompt_cache_key`` name who or which conversation asks.
    """

    __slots__ = (
        "best_of",
        "grammar",
        "guided_choice",
        "guided_grammar",
        "guided_json",
        "guided_regex",
        "json_schema",
        "logit_bias",
        "max_completion_tokens",
        "max_output_tokens",
        "max_tokens",
        "messages",
        "min_p",
        "model",
        "n",
        "previous_response_id",
        "prompt",
        "prompt_cache_key",
        "response_format",
        "service_tier",
        "stream",
        "stream_options",
        "structured_outputs",
        "tools",
        "user",
    )

    model: str
    messages: list[Message] | None
    prompt: str | list[str | int | list[int]] | None
    stream: bool | None
    stream_options: StreamOptions | None
    n: int | None
    best_of: int | None
    max_tokens: int | None
    max_completion_tokens: int | None
    max_output_tokens: int | None
    service_tier: str | None
    user: str | None
    prompt_cache_key: str | None
    previous_response_id: str | None
    tools: list[Opaque] | None
    response_format: ResponseFormat | None
    min_p: float | None
    logit_bias: Raw
    json_schema: Raw
    grammar: Raw
    guided_json: Raw
    guided_regex: Raw
    guided_choice: Raw
    guided_grammar: Raw
    structured_outputs: Raw

    def __init__(self, fields: RequestFields) -> None:
        """They are taken all at once: of a class that is not compiled, each costs as much to read as all together."""
        (
            self.model,
            self.messages,
            self.prompt,
            self.stream,
            self.stream_options,
            self.n,
            self.best_of,
            self.max_tokens,
            self.max_completion_tokens,
            self.max_output_tokens,
            self.service_tier,
            self.user,
            self.prompt_cache_key,
            self.previous_response_id,
            self.tools,
            self.response_format,
            self.min_p,
            self.logit_bias,
            self.json_schema,
            self.grammar,
            self.guided_json,
            self.guided_regex,
            self.guided_choice,
            self.guided_grammar,
            self.structured_outputs,
        ) = _astuple(fields)

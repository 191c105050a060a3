"""The dialects that the gateway reads, by path: one row says how a request reads, and how its answer does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from slipstream.gateway import content, embeddings, messages, responses
from slipstream.gateway.body import read_chat, read_completion
from slipstream.gateway.error_shape import ANTHROPIC, OPENAI, RESPONSES, ErrorShape
from slipstream.gateway.tokens import ReadTokens
from slipstream.gateway.view import RequestView

__all__ = ["DIALECTS", "Dialect", "errors_of"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How the requests to one path read, their answers and their errors.

    ``read`` a request's body; raises a RequestError. ``errors`` is the shape in which the client expects them.
    ``decodes``: answering makes tokens, so that speculation could help. ``has_content`` says whether an event carries
    output; ``None``: answers are not read at all. ``ends`` are the types of the events behind which nothing comes,
    beside the ``[DONE]`` of all dialects. ``count_tokens`` reads what the engines' own readers do not know; ``None``:
    they know it. ``identify`` finds the id by which a later request can refer to an answer; ``None``: none can.
    ``prompt_name`` is the JSON name, in quotes, of the prompt in a request's body; empty when no node keeps it cached.
    ``instrumented``: its requests take the fields by which engines are asked for more, where a node's instrument is on.
    """

    read: Callable[[bytes], RequestView]
    errors: ErrorShape = OPENAI
    decodes: bool = True
    has_content: Callable[[bytes], bool] | None = None
    ends: frozenset[str] = frozenset()
    count_tokens: ReadTokens | None = None
    identify: Callable[[bytes], str | None] | None = None
    prompt_name: bytes = b'"messages"'
    instrumented: bool = False


DIALECTS: Final[dict[str, Dialect]] = {
    "/v1/chat/completions": Dialect(read_chat, has_content=content.has_content, ends=content.ENDS, instrumented=True),
    "/v1/completions": Dialect(
        read_completion, has_content=content.has_content, ends=content.ENDS, prompt_name=b'"prompt"', instrumented=True
    ),
    "/v1/messages": Dialect(
        messages.read_messages,
        ANTHROPIC,
        has_content=messages.has_content,
        ends=messages.ENDS,
        count_tokens=messages.count_tokens,
    ),
    "/v1/responses": Dialect(
        responses.read_responses,
        RESPONSES,
        has_content=responses.has_content,
        ends=responses.ENDS,
        count_tokens=responses.count_tokens,
        identify=responses.response_id,
        prompt_name=b'"input"',
    ),
    "/v1/embeddings": Dialect(embeddings.read_embeddings, decodes=False, prompt_name=b""),
}


def errors_of(path: str) -> ErrorShape:
    """The shape of errors that the clients of a path expect. What lies under a dialect's path is of that dialect."""
    dialect = DIALECTS.get(path) or DIALECTS.get("/".join(path.split("/", 3)[:3]))
    return OPENAI if dialect is None else dialect.errors

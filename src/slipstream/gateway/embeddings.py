"""OpenAI's dialect of ``/v1/embeddings``: requests that are answered by a prefill, and decode nothing."""

from __future__ import annotations

from typing import Final

import msgspec

from slipstream.core.errors import InvalidField
from slipstream.gateway.body import check_model, check_prompt, decode_body
from slipstream.gateway.fields import Message, RequestFields
from slipstream.gateway.view import RequestView

__all__ = ["MAX_INPUTS", "read_embeddings"]

MAX_INPUTS: Final = 2048
"""The most inputs in one request, as in OpenAI's API: each is a sequence that a node works on."""


class _Fields(msgspec.Struct, gc=False):
    model: str = ""
    input: str | list[str | int | list[int]] | None = None
    messages: list[Message] | None = None
    user: str | None = None


_decode_fields: Final = msgspec.json.Decoder(_Fields).decode


def read_embeddings(body: bytes) -> RequestView:
    """Read a request to ``/v1/embeddings``. Raises InvalidBody or InvalidField.

    Its inputs count as prompts. In place of them vLLM also takes a conversation, which is one.
    """
    fields = decode_body(body, _decode_fields)
    check_model(fields.model)
    inputs = fields.input
    if inputs is None and fields.messages:
        return RequestView(RequestFields(model=fields.model, messages=fields.messages, user=fields.user))
    check_prompt("input", inputs)
    if isinstance(inputs, list) and not isinstance(inputs[0], int) and len(inputs) > MAX_INPUTS:
        raise InvalidField(
            f"The field 'input' has {len(inputs)} inputs, but at most {MAX_INPUTS} are allowed in one request.", "input"
        )
    return RequestView(RequestFields(model=fields.model, prompt=inputs, user=fields.user))

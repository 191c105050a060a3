"""What is to be asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["PlannedRequest"]


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One chat completion to be sent.

    ``messages`` are OpenAI's (role and content). ``label`` is the sender's own word for the kind of request; it is
    reported and never sent. ``max_tokens`` limits the answer. ``fields`` are further fields of the body
    (``temperature``, for one).
    """

    model: str
    messages: tuple[Mapping[str, Any], ...]
    max_tokens: int
    label: str = ""
    stream: bool = True
    fields: Mapping[str, Any] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """The JSON object to send. Streams are asked for their usage: without it there is no count of tokens."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(self.messages),
            "max_tokens": self.max_tokens,
            "stream": self.stream,
            **self.fields,
        }
        if self.stream:
            body["stream_options"] = {"include_usage": True}
        return body

"""A request field that Slipstream may add, so that an answer says more of itself."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["INCLUDE_USAGE", "AddedField"]


@dataclass(frozen=True, slots=True)
class AddedField:
    """``name`` and ``value`` (JSON) of a field of the request, and what of the answer is there because of it.

    ``answer_key``: a stream then has one chunk more, without choices, that holds this key; an answer that is not
    streamed has this key at its top level. ``streamed_only``: the field is an error, or of no effect, without
    ``stream``. ``unless_prefix``: a client's field whose name begins so may be answered in the same place, so then
    nothing is added; empty = no other field is. ``moved``: members that the engine puts on a stream's last chunk, which
    is then the added one; without it they would be on the chunk before.
    """

    name: str
    value: bytes
    answer_key: str
    streamed_only: bool
    unless_prefix: str = ""
    moved: tuple[str, ...] = ()


INCLUDE_USAGE = AddedField("stream_options", b'{"include_usage":true}', "usage", streamed_only=True)
"""OpenAI's own way to have a stream end with its token counts."""

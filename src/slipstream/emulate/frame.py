"""What stands around the text in the events of a stream: most of them differ in nothing else."""

from __future__ import annotations

from typing import Final

import msgspec

from slipstream.emulate.answers import Answers, Json
from slipstream.emulate.generation import Generation
from slipstream.emulate.words import IN_JSON

__all__ = ["Frame", "event_chunk", "frame_of"]

MARK: Final = "\ufdd0here stands the text\ufdd0"


class Frame:
    """``ahead`` and ``behind`` the text of an event, its ``data:`` and its end included. ``event_a_token``: else there
    is one for all of a step's tokens.
    """

    __slots__ = ("_ahead", "_around", "_behind", "_event_a_token")

    def __init__(self, ahead: bytes, behind: bytes, *, event_a_token: bool) -> None:
        self._ahead = b"\r\n" + ahead
        self._behind = behind + b"\r\n"
        self._around = len(ahead) + len(behind)
        self._event_a_token = event_a_token

    def chunks(self, first: int, last: int) -> bytes:
        """The events, as chunks of HTTP, that bring the tokens ``first`` up to but not ``last``."""
        if last == first + 1:
            text = IN_JSON[first % len(IN_JSON)]
        elif self._event_a_token:
            return b"".join([self.chunks(token, token + 1) for token in range(first, last)])
        else:
            text = b"".join([IN_JSON[index % len(IN_JSON)] for index in range(first, last)])
        return b"%x%b%b%b" % (self._around + len(text), self._ahead, text, self._behind)


def event_chunk(event: Json, *, named: bool) -> bytes:
    """An event as a chunk of HTTP; ``named``: with a line that says its type."""
    data = _start_of(event, named=named) + msgspec.json.encode(event)
    return b"%x\r\n%b\n\n\r\n" % (len(data) + 2, data)


def _start_of(event: Json, *, named: bool) -> bytes:
    return b"event: %b\ndata: " % event["type"].encode() if named else b"data: "


def frame_of(answers: Answers, generation: Generation) -> Frame | None:
    """Of all but the first and the last step; ``None`` where those tell more than a text of one choice."""
    if generation.request.choices > 1 or answers.numbered:
        return None
    event = answers.text_event(generation, MARK)
    if event is None:
        return None
    parts = msgspec.json.encode(event).split(MARK.encode())
    if len(parts) != 2:  # what the client says of itself has the mark in it
        return None
    start = _start_of(event, named=answers.named)
    return Frame(start + parts[0], parts[1] + b"\n\n", event_a_token=answers.event_a_token)

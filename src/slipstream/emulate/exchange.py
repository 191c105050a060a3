"""One completion from request to answer, with what is made to go wrong on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from slipstream.emulate.answers import Answers, Json
from slipstream.emulate.connection import Connection
from slipstream.emulate.engine import Engine
from slipstream.emulate.faults import Die, Stall
from slipstream.emulate.frame import event_chunk, frame_of
from slipstream.emulate.generation import Generation
from slipstream.emulate.reply import Replies

__all__ = ["Exchange"]

DONE = b"e\r\ndata: [DONE]\n\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


class Exchange:
    """``ended`` is called once, with how it ended, unless the client leaves: then who tells of that knows it.

    Of faults only those that are meant for this request come here.
    """

    __slots__ = (
        "_answers",
        "_connection",
        "_die",
        "_ended",
        "_engine",
        "_frame",
        "_held",
        "_keep_alive",
        "_loop",
        "_number",
        "_release",
        "_replies",
        "_room",
        "_stall",
        "_started",
        "generation",
    )  # fmt: skip

    def __init__(
        self,
        connection: Connection,
        answers: Answers,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        generation: Generation,
        replies: Replies,
        ended: Callable[[str], None],
        *,
        keep_alive: bool,
        stall: Stall | None = None,
        die: Die | None = None,
    ) -> None:
        self.generation = generation
        self._connection = connection
        self._answers = answers
        self._engine = engine
        self._loop = loop
        self._replies = replies
        self._ended = ended
        self._keep_alive = keep_alive
        self._frame = frame_of(answers, generation) if generation.request.stream else None
        self._stall = stall
        self._die = die
        self._started = False
        self._number = 0
        self._held: list[bytes] | None = None
        self._release: asyncio.TimerHandle | None = None
        limits = [fault.after_events for fault in (stall, die) if fault is not None]
        self._room = min(limits) if limits else None

    def stepped(self, generation: Generation, before: int) -> None:
        """A step is done: send what it brought."""
        frame, finished = self._frame, generation.finished
        if frame is not None and before > 0 and not finished and self._room is None:
            self._connection.write(frame.chunks(before, generation.emitted))
            return
        if not generation.request.stream:
            if finished:
                body = msgspec.json.encode(self._answers.body(generation, self._engine.settings))
                half = len(body) // 2
                head = self._replies.body_head(len(body), keep_alive=self._keep_alive)
                self._send([head + body[:half], body[half:]])
            elif self._room == 0:
                self._fail([])
            return
        events = self._answers.stream(generation, before, self._engine.settings)
        pieces = [self._event(event) for event in events]
        if finished:
            if not self._answers.named:
                pieces.append(DONE)
            pieces[-1] += LAST_CHUNK
        if not self._started:
            self._started = True
            pieces[0] = self._replies.stream_head(keep_alive=self._keep_alive) + pieces[0]
        self._send(pieces)

    def client_gone(self, linger_s: float) -> None:
        """Stop working for nobody; the slot is kept for so long."""
        self._cancel_release()
        if not self.generation.finished:
            self._engine.abort(self.generation, linger_s)

    def spare(self) -> None:
        """Let nothing more go wrong with it, and end a stall."""
        self._die = None
        self._go_on()

    def _event(self, event: Json) -> bytes:
        if self._answers.numbered:
            event["sequence_number"] = self._number
            self._number += 1
        return event_chunk(event, named=self._answers.named)

    def _go_on(self) -> None:
        self._cancel_release()
        pieces, stall = self._held, self._stall
        self._held = self._stall = self._room = None
        if self._die is not None and stall is not None:
            self._room = self._die.after_events - stall.after_events
        if pieces is not None:
            self._send(pieces)
            self._engine.go_on(self.generation)

    def _send(self, pieces: list[bytes]) -> None:
        if self._room is not None:
            if len(pieces) >= self._room:
                self._fail(pieces)
                return
            self._room -= len(pieces)
        if pieces:
            self._connection.write(b"".join(pieces))
        if self.generation.finished:
            self._ended("completed")
            self._connection.finish(keep_alive=self._keep_alive)

    def _fail(self, pieces: list[bytes]) -> None:
        """As many events are sent as may be; now it stalls or dies."""
        assert self._room is not None
        sent, rest = pieces[: self._room], pieces[self._room :]
        if sent:
            self._connection.write(b"".join(sent))
        die = self._die
        if die is not None and (self._stall is None or die.after_events <= self._stall.after_events):
            if not self.generation.finished:
                self._engine.abort(self.generation)
            self._ended("died")
            self._connection.close(reset=die.reset)
            return
        assert self._stall is not None
        self._held = rest
        self._engine.hold(self.generation)
        if self._stall.seconds is not None:
            self._release = self._loop.call_later(self._stall.seconds, self._go_on)

    def _cancel_release(self) -> None:
        if self._release is not None:
            self._release.cancel()
            self._release = None

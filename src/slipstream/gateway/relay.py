"""A node's answer on its way to the client: held, passed on event by event, ended or broken off, and counted."""

from __future__ import annotations

from typing import Final

from slipstream.core.errors import PlacementError, SlipstreamError
from slipstream.core.outcome import ResponseStatistics
from slipstream.engines.added_field import AddedField
from slipstream.engines.fingerprint import system_fingerprint
from slipstream.gateway.content import error_status
from slipstream.gateway.counting import statistics_of
from slipstream.gateway.dialect import Dialect, errors_of
from slipstream.gateway.framing import framed
from slipstream.gateway.headers import Answer, status_line
from slipstream.gateway.instrument import AddedEvents, without_members
from slipstream.gateway.passage import Passage
from slipstream.gateway.ports import Ports
from slipstream.gateway.reply import reply_problem
from slipstream.gateway.request import Request
from slipstream.gateway.sse import EventStream
from slipstream.gateway.wire import ClientConnection

__all__ = ["HELD_BODY_BYTES", "Relay"]

HELD_BODY_BYTES: Final = 64 * 1024
"""Up to here a body of known length is held until it is whole, so that one cut short can still become a 502. Where
something has to be taken out of it, it is held up to the limit below, whether its length is known or not."""

READ_BODY_BYTES: Final = 4 * 1024 * 1024
"""Longer bodies are not read for statistics."""

_BODILESS: Final = frozenset({204, 304})
_LAST_CHUNK: Final = b"0\r\n\r\n"


class Relay:
    """One request's client, and what has been written to it.

    ``answer`` is the head of the client's answer, ``None`` while there is none. It is written with the first bytes of
    the body, so up to then the client can still get an error instead. ``client`` is ``None`` once it has gone or has
    its answer. ``added`` is what the request asked for beyond its client, who does not get to see it. ``passage`` takes
    whole chunks of a stream past all this, ``None`` = each has to be fed.
    """

    __slots__ = (
        "_added_events",
        "_body_bytes",
        "_chunked",
        "_dialect",
        "_events",
        "_head",
        "_pieces",
        "_ports",
        "_read",
        "_request",
        "added",
        "answer",
        "client",
        "passage",
    )

    def __init__(self, ports: Ports, client: ClientConnection, request: Request, dialect: Dialect | None) -> None:
        """``dialect`` is what the answer is read by, for statistics; ``None``: it is passed through unread."""
        self._ports = ports
        self.client: ClientConnection | None = client
        self._request = request
        self._dialect = dialect
        self._read = dialect is not None and dialect.has_content is not None
        self.added: tuple[AddedField, ...] = ()
        self._added_events: AddedEvents | None = None
        self.answer: Answer | None = None
        self._events: EventStream | None = None
        self._head: bytes | None = None
        self._chunked = False
        self._body_bytes = 0
        self._pieces: list[bytes] = []
        self.passage: Passage | None = None

    def begin(self, answer: Answer, marks: bytes) -> None:
        """The node's answer is the client's. ``marks`` are the header lines that say where it was made and why."""
        self.answer = answer
        request = self._request
        status = answer.status
        if answer.encoded:  # though nobody asked for that
            self._read = False
            self.added = ()
        if answer.events:
            self._events = EventStream(self._dialect)
            self._added_events = AddedEvents(self.added) if self.added else None
        framing = b""
        if status == 204:
            pass  # it has no body, and must not say how long one is
        elif answer.length is not None and not answer.events:
            framing = b"content-length: %d\r\n" % answer.length
        elif status not in _BODILESS and request.method != "HEAD":
            self._chunked = request.chunks
            if self._chunked:
                framing = b"transfer-encoding: chunked\r\n"
            else:
                request.keep_alive = False  # the end of the connection is the end of the body
        self._head = b"%b%b%bx-request-id: %b\r\n%b%b" % (
            status_line(status),
            answer.lines,
            marks,
            request.request_id.encode(),
            framing,
            b"\r\n" if request.keep_alive else b"connection: close\r\n\r\n",
        )
        if answer.events:
            self._write(b"")

    def feed(self, data: bytes) -> str | None:
        """Pass on bytes of the answer's body.

        Returns the id by which later requests can refer to the answer, when these bytes told it.
        """
        events = self._events
        if events is None:
            self._hold_or_write(data)
            return None
        told: str | None = None
        if events.seeking:
            known = events.answer_id
            block = events.feed(data, self._ports.clock())
            if known is None:
                told = events.answer_id
        else:
            block = events.feed(data, 0.0)
        if self._added_events is not None:
            block = self._added_events.feed(block)
        client = self.client
        assert client is not None
        if block:
            client.write(framed(block) if self._chunked else block)
        if self._chunked and self.passage is None and self._added_events is None and not events.seeking:
            self.passage = Passage(events, client.write)
        return told

    def _hold_or_write(self, data: bytes) -> None:
        answer = self.answer
        assert answer is not None
        self._body_bytes += len(data)
        if self._body_bytes <= READ_BODY_BYTES and (self._read or self._head is not None):
            self._pieces.append(data)
        length = answer.length
        if self._head is None:
            self._write_body(data)
        elif self.added:
            if (self._body_bytes if length is None else length) > READ_BODY_BYTES:
                self._write_body(data if length is not None else b"".join((*self._pieces, data)))
        elif length is None or length > HELD_BODY_BYTES:
            self._write_body(data)

    @property
    def incomplete(self) -> bool:
        """Whether what the node sent lacks the end that its dialect's streams have."""
        events, answer = self._events, self.answer
        return (
            self._read and events is not None and answer is not None and answer.status == 200 and not events.terminated
        )

    @property
    def terminated(self) -> bool:
        """Whether a stream has said that it is complete: what is lost behind that is no loss."""
        return self._events is not None and self._events.terminated

    def failure(self) -> int | None:
        """The status of an answer by which its node failed: of a stream, what its error event says, as far as it does.
        ``None``: it did not fail.
        """
        answer, events = self.answer, self._events
        assert answer is not None
        if answer.status >= 400:
            return answer.status
        failed = events.failure() if events is not None and self._read else None
        return None if failed is None else error_status(failed) or answer.status

    @property
    def first_content_at(self) -> float | None:
        """When the first content came, ``None`` when it has not, or is not looked for."""
        return None if self._events is None else self._events.first_content_at

    def end(self) -> None:
        """The answer is whole: write what is left of it. The client still waits for ``finish``."""
        events = self._events
        if events is not None:
            left = self._held_event() + events.held
            if left:
                self._write_body(left)
        elif self._pieces and self._head is not None:
            body = b"".join(self._pieces)
            self._write_body(self._as_asked_for(body) if self.added else body)
        self._write(_LAST_CHUNK if self._chunked else b"")

    def _held_event(self) -> bytes:
        """A whole event that was held back for what might have followed it."""
        return self._added_events.held if self._added_events is not None else b""

    def _as_asked_for(self, body: bytes) -> bytes:
        """A whole body whose head is not written yet, without what its client did not ask for."""
        seen, head = without_members(body, self.added), self._head
        if seen is not body and head is not None:
            length = b"\r\ncontent-length: %d\r\n"
            self._head = head.replace(length % len(body), length % len(seen), 1)
        return seen

    def finish(self) -> None:
        """The client has its answer."""
        self._finish(None, keep_alive=self._request.keep_alive)

    def _finish(self, error: PlacementError | None, *, keep_alive: bool) -> None:
        client, self.client = self.client, None
        if client is not None:
            account = self._request.account
            try:
                if account is not None:
                    account.close(self.status_sent, error)
            finally:  # whatever becomes of what is told of it
                client.finish(keep_alive=keep_alive)

    @property
    def status_sent(self) -> int | None:
        """What the client was answered, ``None`` while it has not been."""
        return None if self.answer is None or self._head is not None else self.answer.status

    def fail(self, error: SlipstreamError) -> None:
        """Answer with an error, nothing having been written."""
        client, self.client = self.client, None
        if client is not None:
            reply_problem(self._ports, client, self._request, error)

    def break_off(self, error: PlacementError) -> None:
        """The answer can not be completed: say so, in whatever way its state still allows."""
        events = self._events
        if self.answer is None or self._head is not None:
            self.fail(error)
        elif events is not None:
            payloads = events.payloads()
            event = errors_of(self._request.path).event(error, payloads[-1] if payloads else b"")
            self._write_body(self._held_event() + (b"\n\n" + event if events.split else event))
            self._write(_LAST_CHUNK if self._chunked else b"")
            self._finish(error, keep_alive=self._request.keep_alive)
        else:  # neither a last chunk nor the promised length: the client sees that something is missing
            self._finish(error, keep_alive=False)

    def statistics(self, engine: str | None) -> ResponseStatistics | None:
        """What the whole answer says of itself; ``None`` when it says nothing, or is not read."""
        dialect = self._dialect
        if dialect is None or not self._read:
            return None
        payloads = self._telling_payloads()
        return statistics_of(self._ports.read_statistics, engine, dialect, payloads) if payloads else None

    def fingerprint(self) -> str | None:
        """What the whole answer says that made it; ``None`` when it does not say, or is not read."""
        return system_fingerprint(self._telling_payloads()) if self._read else None

    def _telling_payloads(self) -> tuple[bytes, ...]:
        """What of the answer tells of itself: its body, or the data of some events."""
        if self._events is not None:
            return self._events.counting_payloads()
        return (b"".join(self._pieces),) if 0 < self._body_bytes <= READ_BODY_BYTES else ()

    def answer_id(self) -> str | None:
        """The id by which later requests can refer to a whole answer that is no stream; ``None`` when it has none."""
        dialect = self._dialect
        if dialect is None or dialect.identify is None or self._events is not None:
            return None
        payloads = self._telling_payloads()
        return dialect.identify(payloads[0]) if payloads else None

    def _write(self, data: bytes) -> None:
        """Write bytes of the answer, behind its head if that is not written."""
        client = self.client
        assert client is not None
        head, self._head = self._head, None
        if head is not None:
            data = head + data
        if data:
            client.write(data)

    def _write_body(self, data: bytes) -> None:
        self._write(framed(data) if self._chunked else data)

"""Who is told of each request that has ended: access log, recording, traces, as an operator configured them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from slipstream.core.errors import SlipstreamError
from slipstream.core.history import History
from slipstream.telemetry.access_log import AccessLog
from slipstream.telemetry.line_file import LineFile
from slipstream.telemetry.recording import Recorder

__all__ = ["LOGS", "Answered", "SinkSettings", "Sinks", "Spans", "TracingNotInstalled"]

LOGS = ("access", "recording")
"""What lines may be lost of."""

Answered = Callable[[History], None]


class TracingNotInstalled(SlipstreamError):
    """The packages that send spans are missing."""


class Span(Protocol):
    """What is kept of one request's trace. ``lines`` are the header lines that its nodes get."""

    lines: bytes

    def end(self, history: History) -> None: ...


class Spans(Protocol):
    """What traces requests: `tracing.Tracer`."""

    sample: float

    def begin(self, lines: bytes, waited_s: float) -> Span | None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """What is written where; ``None`` = nothing is. ``recording_max_bytes`` and ``recording_keep`` as in `LineFile`."""

    access_log: str | None = None
    recording: str | None = None
    recording_max_bytes: int | None = None
    recording_keep: int = 1
    trace_endpoint: str | None = None
    trace_sample: float = 0.0


class Sinks:
    """Opens what the settings name, and keeps it until the end.

    ``answered`` is told of each request that has ended, ``None`` when nobody wants to know; ``tracer`` begins spans,
    ``None`` without tracing. ``draw`` returns uniform numbers in [0, 1), ``clock`` is that of the histories and
    ``wall_clock`` the time of day in seconds since 1970.
    """

    def __init__(
        self,
        settings: SinkSettings,
        *,
        version: str,
        draw: Callable[[], float],
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        """Raises ``CanNotWrite`` or `TracingNotInstalled`, and has then opened nothing."""
        self.answered: Answered | None = None
        self.tracer: Spans | None = None
        self._version = version
        self._draw = draw
        self._began_at = clock()
        self._wall_clock = wall_clock
        self._files: dict[str, dict[str, LineFile]] = {log: {} for log in LOGS}
        self._tracers: dict[str, Spans] = {}
        try:
            self.configure(settings)
        except SlipstreamError:
            self.close()
            raise

    def configure(self, settings: SinkSettings) -> None:
        """Change what is written where, at once. Raises as the constructor does, and then nothing has changed.

        What is no longer named stays open until the end: requests that began before may still be told to it.
        """
        tracer = access = recording = None
        if settings.trace_endpoint is not None:
            tracer = self._tracer(settings.trace_endpoint, settings.trace_sample)
        if settings.access_log is not None:
            access = self._file("access", settings.access_log)
        if settings.recording is not None:
            recording = self._file("recording", settings.recording)
        told: list[Answered] = []
        if access is not None:
            told.append(AccessLog(access, self._wall_clock).answered)
        if recording is not None:
            recording.rotate_at(settings.recording_max_bytes, settings.recording_keep)
            told.append(Recorder(recording, self._began_at, self._wall_clock).answered)
        if tracer is not None:
            tracer.sample = settings.trace_sample
        self.tracer = tracer
        self.answered = _all_of(told)

    @property
    def lost_lines(self) -> dict[str, int]:
        """Lines that were to be written and never will be, by `LOGS`."""
        return {log: sum(file.lost for file in files.values()) for log, files in self._files.items()}

    def reopen(self) -> None:
        """Open every file anew under its name: they were rotated."""
        for file in self._opened():
            file.reopen()

    def close(self) -> None:
        """Write and send what waits, as far as that takes no more than some seconds. Blocks."""
        for file in self._opened():
            file.close()
        for tracer in self._tracers.values():
            tracer.close()

    def _opened(self) -> list[LineFile]:
        return [file for files in self._files.values() for file in files.values()]

    def _file(self, log: str, name: str) -> LineFile:
        file = self._files[log].get(name)
        if file is None:
            file = self._files[log][name] = LineFile(name)
        return file

    def _tracer(self, endpoint: str, sample: float) -> Spans:
        tracer = self._tracers.get(endpoint)
        if tracer is None:
            try:
                from slipstream.telemetry.tracing import Tracer
            except ModuleNotFoundError as error:
                sentence = f"tracing needs the package {error.name}: pip install 'slipstream[otel]'"
                raise TracingNotInstalled(sentence) from None
            tracer = self._tracers[endpoint] = Tracer(
                endpoint, sample, version=self._version, draw=self._draw, wall_clock=self._wall_clock
            )
        return tracer


def _all_of(told: list[Answered]) -> Answered | None:
    """One call for several; the one itself when there is only one, so that nothing is paid for what is off."""
    if len(told) < 2:
        return told[0] if told else None
    first, second = told

    def both(history: History) -> None:
        first(history)
        second(history)

    return both

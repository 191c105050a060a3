"""Who is told of each request that has ended: access log, recording, traces, as an operator configured them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from slipstream.core.errors import SlipstreamError
from slipstream.core.history import History
from slipstream.telemetry.access_log import AccessLog
from slipstream.telemetry.line_file import LineFile
from slipstream.telemetry.recorder import Recorder

__all__ = ["LOGS", "Answered", "SinkSettings", "Sinks", "Spans", "TracingNotInstalled"]

LOGS = ("access", "recording")
"""What lines may be lost of."""

Answered = Callable[[History], None]


class _Logs:
    """The logs that are on, each with the file its lines go to; ``None`` = that log is off.

    ``began_at`` and ``wall_clock`` as in `Sinks` and `Recorder`.
    """

    __slots__ = ("_access_file", "_access_log", "_recorder", "_recording_file", "_wall_clock")

    def __init__(
        self,
        access_file: LineFile | None,
        recording_file: LineFile | None,
        began_at: float,
        wall_clock: Callable[[], float],
    ) -> None:
        self._access_file = access_file
        self._access_log = AccessLog()
        self._recording_file = recording_file
        self._recorder = Recorder(began_at)
        self._wall_clock = wall_clock

    def answered(self, history: History) -> None:
        """A request has ended."""
        now = self._wall_clock()
        if self._access_file is not None:
            self._access_file.write(self._access_log.line(history, now))
        if self._recording_file is not None:
            self._recording_file.write(self._recorder.line(history, now))


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
        """Open it all. Raises ``CanNotWrite`` or `TracingNotInstalled`, and has then closed what was open."""
        self.answered: Answered | None = None
        self.tracer: Spans | None = None
        self._version = version
        self._draw = draw
        self._began_at = clock()
        self._wall_clock = wall_clock
        self._files: dict[str, dict[str, LineFile]] = {log: {} for log in LOGS}
        self._tracers: dict[str, Spans] = {}
        try:
            self.open(settings)
        except SlipstreamError:
            self.close()
            raise
        self.configure(settings)

    def open(self, settings: SinkSettings) -> None:
        """Open what the settings name and is not open. Blocks, and may run in another thread. Raises as the
        constructor does.
        """
        if settings.trace_endpoint is not None and settings.trace_endpoint not in self._tracers:
            self._tracers = {**self._tracers, settings.trace_endpoint: self._new_tracer(settings.trace_endpoint)}
        for log, name in (("access", settings.access_log), ("recording", settings.recording)):
            files = self._files[log]
            if name is not None and name not in files:
                self._files = {**self._files, log: {**files, name: LineFile(name)}}

    def configure(self, settings: SinkSettings) -> None:
        """Change what is written where, at once. The settings' files must be open.

        What is no longer named stays open until the end: requests that began before may still be told to it.
        """
        access = None if settings.access_log is None else self._files["access"][settings.access_log]
        recording = None if settings.recording is None else self._files["recording"][settings.recording]
        if recording is not None:
            recording.rotate_at(settings.recording_max_bytes, settings.recording_keep)
        off = access is None and recording is None
        self.answered = None if off else _Logs(access, recording, self._began_at, self._wall_clock).answered
        self.tracer = None if settings.trace_endpoint is None else self._tracers[settings.trace_endpoint]
        if self.tracer is not None:
            self.tracer.sample = settings.trace_sample

    @property
    def lost_lines(self) -> dict[str, int]:
        """Lines that were to be written and never will be, by `LOGS`."""
        return {log: sum(file.lost for file in files.values()) for log, files in self._files.items()}

    def samples(self) -> dict[tuple[str, ...], float]:
        """``lost_lines`` as a metric."""
        return {(log,): float(lost) for log, lost in self.lost_lines.items()}

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

    def _new_tracer(self, endpoint: str) -> Spans:
        try:
            from slipstream.telemetry.tracing import Tracer
        except ModuleNotFoundError as error:
            sentence = f"tracing needs the package {error.name}: pip install 'slipstream[otel]'"
            raise TracingNotInstalled(sentence) from None
        return Tracer(endpoint, version=self._version, draw=self._draw, wall_clock=self._wall_clock)

"""What an emulated engine is to those who ask it: slots, a queue before them, and steps that come in time."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from slipstream.emulate.counters import Counters
from slipstream.emulate.generation import Generation
from slipstream.emulate.lateness import Lateness
from slipstream.emulate.settings import NodeSettings

__all__ = ["Engine", "Load", "OnStep"]

OnStep = Callable[[Generation, int], None]
"""Called with the generation and the number of tokens it had before the step."""


class Load(NamedTuple):
    """What the engine's pages say of now: sequences, the share of KV cache in use (0..1), and the tokens it holds."""

    running: int
    waiting: int
    kv_use: float
    kv_tokens: int


class Engine(Protocol):
    """Runs generations, first come first served. ``running`` are slots in use, those of requests that were aborted and
    still drain included; ``waiting`` sequences without a slot; ``lateness`` how late steps were written.
    """

    settings: NodeSettings
    counters: Counters
    lateness: Lateness
    peak_running: int

    @property
    def running(self) -> int: ...

    @property
    def waiting(self) -> int: ...

    @property
    def load(self) -> Load: ...

    def generations(self) -> list[Generation]:
        """Those that have a slot, oldest first."""

    def submit(self, generation: Generation, on_step: OnStep) -> None:
        """Take a generation in. Raises `Problem` when as many wait as may."""

    def hold(self, generation: Generation) -> None:
        """Let no further step of it come. It keeps its slot."""

    def go_on(self, generation: Generation) -> None:
        """End a `hold`."""

    def abort(self, generation: Generation, linger_s: float = 0.0) -> None:
        """The client is gone. The slot is kept for ``linger_s`` seconds more."""

    def reset_counters(self) -> None: ...

    def close(self) -> None:
        """No step comes any more."""

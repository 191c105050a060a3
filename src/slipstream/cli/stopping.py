"""How commands that serve are told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["stop_signals"]

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """An event that SIGINT (Ctrl-C), SIGTERM or SIGHUP (the terminal is gone) sets; a second one ends the process.

    To be entered before the command says that it is ready: whoever reads that may send a signal in the same moment.
    """
    loop, told = asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        told.set()
        leave()

    def leave() -> None:
        for number in NUMBERS:
            loop.remove_signal_handler(number)

    for number in NUMBERS:
        loop.add_signal_handler(number, stop)
    try:
        yield told
    finally:
        leave()

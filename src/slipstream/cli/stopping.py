"""How commands that serve are told to stop, and to read their configuration again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["bear_early_reloads", "stop_signals", "unwinding"]


def bear_early_reloads() -> None:
    """SIGHUP does nothing until ``stop_signals`` listens for it: what it asks to read again is only being read. Whoever
    reloads all services at once would else end one that has just been started.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda _number, _frame: None)


@contextmanager
def stop_signals(reload: Callable[[], None] | None = None) -> Iterator[asyncio.Event]:
    """An event that SIGINT (Ctrl-C), SIGTERM or SIGHUP (the terminal is gone) sets; a second one ends the process.

    With ``reload``, SIGHUP calls that: only where the command has lost the terminal that it had does it stop then, and
    once it is to stop, SIGHUP does nothing. A command that was started with nohup is not stopped by SIGHUP. To be
    entered before the command says that it is ready: whoever reads that may send a signal in the same moment.
    """
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    tied_to_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and (reload is None or _has_terminal())

    def stop() -> None:
        told.set()
        leave()
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # as an exception it would come up wherever the loop is just then

    def hang_up() -> None:
        if tied_to_terminal and (reload is None or not _has_terminal()):
            stop()
        elif reload is not None:
            reload()

    def leave() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
        if reload is not None or not tied_to_terminal:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, hang_up)
    try:
        yield told
    finally:
        leave()


@contextmanager
def unwinding() -> Iterator[None]:
    """SIGTERM and SIGHUP end the command as an error would, so that the processes and files that it made for itself go
    with it; the status is the shell's for the signal. A command that was started with nohup is not ended by SIGHUP.
    """

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    mine = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in mine:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_DFL)


def _has_terminal() -> bool:
    """Whether the process can still talk to the terminal that it was started in."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True

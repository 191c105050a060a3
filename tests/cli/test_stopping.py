"""Signals that end a command which serves nobody."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from slipstream.cli.stopping import unwinding


@contextmanager
def leaving(left: list[str]) -> Iterator[None]:
    try:
        yield
    finally:
        left.append("left")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_told_to_end_unwinds(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)
    left: list[str] = []
    try:
        with pytest.raises(SystemExit) as ended, unwinding(), leaving(left):
            signal.raise_signal(number)
        assert ended.value.code == 128 + number
        assert left == ["left"]
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with unwinding():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)

"""One run of an engine's command, which never outlives this process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Self

from slipstream.agent.errors import EngineStartFailed

__all__ = ["EngineProcess"]

LOG_TAIL_BYTES = 8192
LOG_TAIL_LINES = 5


class EngineProcess:
    """An engine that runs under its keeper (`slipstream.agent.keeper`), in a process group of its own.

    ``pid`` is the engine's. Made by `start`.
    """

    def __init__(self, keeper: asyncio.subprocess.Process, pid: int, on_output: Callable[[bytes], None]) -> None:
        self.pid = pid
        self._keeper = keeper
        self._tail = b""
        self._on_output = on_output
        self._reading = asyncio.create_task(self._read_output(), name=f"output of engine {pid}")

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        grace_s: float,
        on_output: Callable[[bytes], None],
    ) -> Self:
        """Run ``command`` with ``environment`` on top of this process's. ``on_output`` gets what it writes.

        ``grace_s``: seconds between TERM and KILL when it is to end. Raises `EngineStartFailed` when it can not be run.
        """
        # -P: a file in the working directory must not stand in for a module.
        words = (sys.executable, "-P", "-m", "slipstream.agent.keeper", f"{grace_s:g}", *command)
        try:
            keeper = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **environment},
                start_new_session=True,  # out of reach of the terminal's Ctrl-C: requests may still have to end
            )
        except (OSError, ValueError) as error:
            reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            raise EngineStartFailed(f"{command[0]} can not be run: {reason}") from error
        assert keeper.stdout is not None
        try:
            report = (await keeper.stdout.readline()).decode().strip()
        except BaseException:
            _hang_up(keeper)
            raise
        if not report.isdigit():
            await keeper.communicate()
            raise EngineStartFailed(f"{command[0]} can not be run: {report.removeprefix('! ') or 'its keeper ended'}")
        return cls(keeper, int(report), on_output)

    async def ended(self) -> str:
        """Wait until it has ended, by itself or not; a clause that says how, with the end of its output."""
        status = await self._keeper.wait()
        if status < 0:
            self._kill()  # the keeper was killed, and can not have seen to it
        await asyncio.wait([self._reading])
        how = f"was ended by {_signal_name(status - 128)}" if status > 128 else f"ended with status {status}"
        return "; ".join([how, *self._last_lines()])

    async def stop(self) -> None:
        """End it and all that it started: TERM, after the grace KILL. Returns when nothing of it is left."""
        _hang_up(self._keeper)
        await self._keeper.wait()
        if self._keeper.returncode is not None and self._keeper.returncode < 0:
            self._kill()
        await asyncio.wait([self._reading])

    def _kill(self) -> None:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(self.pid, signal.SIGKILL)

    def _last_lines(self) -> list[str]:
        lines = [line.strip() for line in self._tail.decode(errors="replace").splitlines()]
        return [line for line in lines if line][-LOG_TAIL_LINES:]

    async def _read_output(self) -> None:
        assert self._keeper.stderr is not None
        while output := await self._keeper.stderr.read(LOG_TAIL_BYTES):
            self._tail = (self._tail + output)[-LOG_TAIL_BYTES:]
            self._on_output(output)


def _hang_up(keeper: asyncio.subprocess.Process) -> None:
    assert keeper.stdin is not None
    keeper.stdin.close()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

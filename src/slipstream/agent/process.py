"""One run of an engine's command, which ends with this process, however that goes, or outlives it if that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from slipstream.agent.errors import EngineStartFailed
from slipstream.agent.output import Output
from slipstream.agent.run_file import Record, life_of

__all__ = ["EngineProcess", "Lasting"]


class Lasting(NamedTuple):
    """That an engine outlives an agent that is killed, and what the run file is to say of it to the next one."""

    run_file: Path
    role: str
    digest: str


class EngineProcess:
    """An engine that runs under its keeper (`slipstream.agent.keeper`), in a process group of its own.

    ``pid`` is the engine's. Made by `start` and `take_over`. ``wait`` waits until the keeper has ended, and gives its
    status, ``None`` when that can not be known; ``hang_up`` tells it to end.
    """

    def __init__(
        self,
        pid: int,
        wait: Callable[[], Awaitable[int | None]],
        hang_up: Callable[[], None],
        output: Output,
    ) -> None:
        self.pid = pid
        self.hang_up = hang_up
        """Have it begin to end, without waiting for that."""
        self._wait = wait
        self._output = output

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        grace_s: float,
        on_output: Callable[[bytes], None],
        lasting: Lasting | None = None,
    ) -> Self:
        """Run ``command`` with ``environment`` on top of this process's. ``on_output`` gets what it writes.

        ``grace_s``: seconds between TERM and KILL when it is to end. ``lasting`` ``None``: it ends with this process,
        however that goes. Raises `EngineStartFailed` when it can not be run.
        """
        told = ("", "", "") if lasting is None else (str(lasting.run_file), lasting.role, lasting.digest)
        # -P: a file in the working directory must not stand in for a module.
        words = (sys.executable, "-P", "-m", "slipstream.agent.keeper", f"{grace_s:g}", *told, *command)
        try:
            said, written = os.pipe()  # where the loop would make a socket, which nobody can open anew
            try:
                output = await Output.of(said, on_output)
                keeper = await asyncio.create_subprocess_exec(
                    *words,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=written,
                    env={**os.environ, **environment},
                    start_new_session=True,  # out of reach of the terminal's Ctrl-C: requests may still have to end
                )
            finally:
                os.close(written)
        except (OSError, ValueError) as error:
            reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            raise EngineStartFailed(f"{command[0]} can not be run: {reason}") from error
        assert keeper.stdout is not None

        def hang_up() -> None:
            assert keeper.stdin is not None
            keeper.stdin.close()
            if lasting is not None:
                with suppress(ProcessLookupError):  # it has ended
                    keeper.terminate()

        report: str | None = None
        try:
            report = (await keeper.stdout.readline()).decode().strip()
        finally:
            if report is None:  # nobody waits for it any more
                hang_up()
        if not report.isdigit():
            await keeper.communicate()
            await output.reading
            raise EngineStartFailed(f"{command[0]} can not be run: {report.removeprefix('! ') or 'its keeper ended'}")
        return cls(int(report), keeper.wait, hang_up, output)

    @classmethod
    async def take_over(cls, record: Record, on_output: Callable[[bytes], None]) -> Self | None:
        """The engine that an agent before this one left running, as if it had been started here, but that its status
        will not be known; ``None`` when it has just ended. Raises `EngineStartFailed` when it can not be heard.
        """
        try:
            ended = os.pidfd_open(record.keeper)
        except ProcessLookupError:
            return None
        try:
            if life_of(record.keeper) != record.since:
                os.close(ended)
                return None
            # Opened anew, the pipe that the keeper writes to has a reader again.
            pipe = os.open(f"/proc/{record.keeper}/fd/2", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            os.close(ended)
            if life_of(record.keeper) != record.since:
                return None
            raise EngineStartFailed(f"process {record.keeper} can not be taken over: {error.strerror}") from error
        output, loop = await Output.of(pipe, on_output), asyncio.get_running_loop()
        gone: asyncio.Future[None] = loop.create_future()

        def note() -> None:
            loop.remove_reader(ended)
            os.close(ended)
            gone.set_result(None)

        async def wait() -> None:
            await asyncio.shield(gone)

        def hang_up() -> None:
            if not gone.done():
                with suppress(ProcessLookupError):  # it has ended
                    signal.pidfd_send_signal(ended, signal.SIGTERM)

        loop.add_reader(ended, note)
        return cls(record.engine, wait, hang_up, output)

    async def ended(self) -> str:
        """Wait until it has ended, by itself or not; a clause that says how, with the end of its output."""
        status = await self._keeper_ended()
        if status is None:
            how = "ended"
        elif status > 128:
            how = f"was ended by {_signal_name(status - 128)}"
        else:
            how = f"ended with status {status}"
        return "; ".join([how, *self._output.last_lines()])

    async def stop(self) -> None:
        """End it and all that it started: TERM, after the grace KILL. Returns when nothing of it is left."""
        self.hang_up()
        await self._keeper_ended()

    async def _keeper_ended(self) -> int | None:
        status = await self._wait()
        if status is None or status < 0:
            self._kill()  # the keeper was killed, or may have been, and then can not have seen to it
        await asyncio.wait([self._output.reading])
        return status

    def _kill(self) -> None:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(self.pid, signal.SIGKILL)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

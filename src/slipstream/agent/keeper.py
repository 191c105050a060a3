"""The process between agent and engine: ``python -m slipstream.agent.keeper GRACE_S RUN_FILE ROLE DIGEST COMMAND…``.

It runs the engine in a process group of its own and ends it with all that it started. When, is one of two:

- without a run file (an empty word), when standard input ends: when the agent says so or is gone, however it went;
- with one, on SIGTERM. The engine then outlives an agent that is killed: the run file tells the next one of it. Where
  that can not be written because the disk is full, the engine runs all the same, and ends as without one.

Standard output carries one line, the engine's process id or ``!`` and why it could not be started. What the engine
writes goes to standard error, and is lost while no agent reads it, be it gone or stopped. The keeper ends with the
engine's status, as a shell would tell it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from slipstream.agent.run_file import Record, life_of, write_record

__all__ = ["main"]

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
NOT_STARTED = 127
FULL = (errno.ENOSPC, errno.EDQUOT)
ERRORS = 2
PIPE_BYTES = 65_536
PATIENCE_S = 1.0
"""How long an agent that reads nothing holds up its engine, once."""


def main(arguments: list[str]) -> int:
    """Run the command until it ends or is to end; returns the status."""
    grace_s, run_file, role, digest, *command = arguments
    libc = ctypes.CDLL(None, use_errno=True)
    # What the engine starts and leaves behind becomes this process's, so that nothing of it is lost sight of.
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave_it_to_the_agent)
    told = _terminations() if run_file else sys.stdin.fileno()
    silent, held = os.pipe()  # an engine that reads its input waits for ever, and does not end as if nobody were there
    # A pipe to an agent would end whoever writes to it when that is gone, and halt it when that is stopped.
    said, written = os.pipe()
    output = _Output(said)
    try:
        engine = subprocess.Popen(
            command,
            stdin=silent,
            stdout=written,
            stderr=written,
            process_group=0,
            preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
        )
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        _report(f"! {reason}")
        return NOT_STARTED
    os.close(silent)
    os.close(written)
    if run_file:
        try:
            own = os.getpid()
            write_record(Path(run_file), Record(own, life_of(own) or "", engine.pid, role, digest))
        except OSError as error:
            trouble = f"the run file {run_file} can not be written: {error.strerror}"
            if error.errno not in FULL:
                _signal_group(engine.pid, signal.SIGKILL)
                engine.wait()
                _report(f"! {trouble}")
                return NOT_STARTED
            # An engine that nobody would find again beats none at all, as long as it ends with its agent.
            run_file, told = "", sys.stdin.fileno()
            os.write(ERRORS, f"{trouble}, so the engine ends with its agent\n".encode())
    _report(str(engine.pid))
    ended = os.pidfd_open(engine.pid)
    if not _wait(ended, told, output, None):
        _signal_group(engine.pid, signal.SIGTERM)
        _wait(ended, None, output, float(grace_s))
    _signal_group(engine.pid, signal.SIGKILL)
    status = engine.wait()
    _end_what_is_left()
    output.pass_on_the_rest()
    os.close(held)
    if run_file:
        with suppress(OSError):  # one of a keeper that has ended counts as none
            Path(run_file).unlink()
    return status if status >= 0 else 128 - status


def _leave_it_to_the_agent(_number: int, _frame: object) -> None:
    """Whoever ends a whole service ends the agent too, which ends this. A handler, unlike ``SIG_IGN``, is not inherited
    by the engine.
    """


def _terminations() -> int:
    """A pipe that can be read once SIGTERM has come."""
    told, tell = os.pipe()

    def note(_number: int, _frame: object) -> None:
        os.write(tell, b"!")

    signal.signal(signal.SIGTERM, note)
    return told


def _report(line: str) -> None:
    with suppress(BrokenPipeError):  # the agent was killed meanwhile
        os.write(sys.stdout.fileno(), (line.replace("\n", " ") + "\n").encode())


def _wait(ended: int, told: int | None, output: _Output, timeout_s: float | None) -> bool:
    """Pass output on until the engine has ended (true), it is to end, or the time is over."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    watched = [ended, output.pipe] if told is None else [ended, output.pipe, told]
    while True:
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        readable, _, _ = select.select(watched, [], [], left_s)
        if output.pipe in readable and not output.pass_on():
            watched.remove(output.pipe)
        if ended in readable or told in readable or (deadline is not None and time.monotonic() >= deadline):
            return ended in readable


class _Output:
    """What the engine writes to a pipe, handed on to the agent. What nobody hears is lost: the engine goes on."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self._patience_s = PATIENCE_S
        os.set_blocking(ERRORS, False)

    def pass_on(self) -> bool:
        """Hand on what there is; false when there never will be more."""
        said = left = os.read(self.pipe, PIPE_BYTES)
        with suppress(BrokenPipeError):
            while left and self._is_heard():
                left = left[os.write(ERRORS, left) :]
        return bool(said)

    def pass_on_the_rest(self) -> None:
        """Whoever else may still have the pipe is not waited for."""
        os.set_blocking(self.pipe, False)
        with suppress(BlockingIOError):
            while self.pass_on():
                pass

    def _is_heard(self) -> bool:
        _, heard, _ = select.select([], [ERRORS], [], self._patience_s)
        self._patience_s = PATIENCE_S if heard else 0.0
        return bool(heard)


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError):  # all of it has ended
        os.killpg(group, number)


def _end_what_is_left() -> None:
    """Kill and reap children until there are none; what they leave behind comes here and is next."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := [int(pid) for pid in children.read_text().split()]:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(-1, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The process between agent and engine: ``python -m slipstream.agent.keeper GRACE_S RUN_FILE ROLE DIGEST COMMAND…``.

It runs the engine in a process group of its own and ends it with all that it started. When, is one of two:

- without a run file (an empty word), when standard input ends: when the agent says so or is gone, however it went;
- with one, on SIGTERM. The engine then outlives an agent that is killed: the run file tells the next one of it.

Standard output carries one line, the engine's process id or ``!`` and why it could not be started. What the engine
writes goes to standard error, and is lost while no agent reads it. The keeper ends with the engine's status, as a shell
would tell it.
"""

from __future__ import annotations

import ctypes
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
ERRORS = 2
PIPE_BYTES = 65_536


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
    # A pipe to an agent that is gone would end whoever writes to it: an engine that outlives its agent writes to this.
    output, written = os.pipe() if run_file else (None, ERRORS)
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
    if run_file:
        os.close(written)
        try:
            own = os.getpid()
            write_record(Path(run_file), Record(own, life_of(own) or "", engine.pid, role, digest))
        except OSError as error:
            _signal_group(engine.pid, signal.SIGKILL)
            engine.wait()
            _report(f"! the run file {run_file} can not be written: {error.strerror}")
            return NOT_STARTED
    _report(str(engine.pid))
    ended = os.pidfd_open(engine.pid)
    if not _wait(ended, told, output, None):
        _signal_group(engine.pid, signal.SIGTERM)
        _wait(ended, None, output, float(grace_s))
    _signal_group(engine.pid, signal.SIGKILL)
    status = engine.wait()
    _end_what_is_left()
    if output is not None:
        _pass_on_the_rest(output)
    os.close(held)
    if run_file:
        Path(run_file).unlink(missing_ok=True)
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


def _wait(ended: int, told: int | None, output: int | None, timeout_s: float | None) -> bool:
    """Pass output on until the engine has ended (true), it is to end, or the time is over."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    watched = [file for file in (ended, told, output) if file is not None]
    while True:
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        readable, _, _ = select.select(watched, [], [], left_s)
        if output is not None and output in readable and not _pass_on(output):
            watched.remove(output)
        if ended in readable or told in readable or (deadline is not None and time.monotonic() >= deadline):
            return ended in readable


def _pass_on(output: int) -> bool:
    """Hand on what there is; false when there never will be more. What nobody hears is lost: the engine goes on."""
    said = left = os.read(output, PIPE_BYTES)
    with suppress(BrokenPipeError):
        while left:
            left = left[os.write(ERRORS, left) :]
    return bool(said)


def _pass_on_the_rest(output: int) -> None:
    """Whoever else may still have the pipe is not waited for."""
    os.set_blocking(output, False)
    with suppress(BlockingIOError):
        while _pass_on(output):
            pass


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

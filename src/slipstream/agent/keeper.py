"""The process between agent and engine: ``python -m slipstream.agent.keeper GRACE_S COMMAND…``.

It runs the engine in a process group of its own and ends it, with all that it started, when its standard input ends:
that is, when the agent says so or is gone, however it went. Standard output carries one line, the engine's process id
or ``!`` and why it could not be started. What the engine writes goes to standard error. The keeper ends with the
engine's status, as a shell would tell it.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["main"]

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
NOT_STARTED = 127


def main(arguments: list[str]) -> int:
    """Run the command until it ends or standard input does; returns the status."""
    grace_s, command = float(arguments[0]), arguments[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    # What the engine starts and leaves behind becomes this process's, so that nothing of it is lost sight of.
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave_it_to_the_agent)
    silent, held = os.pipe()  # an engine that reads its input waits for ever, and does not end as if nobody were there
    try:
        engine = subprocess.Popen(
            command,
            stdin=silent,
            stdout=sys.stderr.fileno(),
            stderr=sys.stderr.fileno(),
            process_group=0,
            preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
        )
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        _report(f"! {reason}")
        return NOT_STARTED
    os.close(silent)
    _report(str(engine.pid))
    ended = os.pidfd_open(engine.pid)
    readable, _, _ = select.select([sys.stdin.fileno(), ended], [], [])
    if ended not in readable:
        _signal_group(engine.pid, signal.SIGTERM)
        select.select([ended], [], [], grace_s)
    _signal_group(engine.pid, signal.SIGKILL)
    status = engine.wait()
    _end_what_is_left()
    os.close(held)
    return status if status >= 0 else 128 - status


def _leave_it_to_the_agent(_number: int, _frame: object) -> None:
    """Whoever ends a whole service ends the agent too, which ends this. A handler, unlike ``SIG_IGN``, is not inherited
    by the engine.
    """


def _report(line: str) -> None:
    sys.stdout.write(line.replace("\n", " ") + "\n")
    sys.stdout.flush()


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

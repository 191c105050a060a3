"""Whether a process is still there."""

from __future__ import annotations

import time
from pathlib import Path


def wait_until_gone(pid: int, deadline_s: float = 10) -> bool:
    """Whether the process ends in time. A process that nobody has reaped yet has ended too."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        if not is_alive(pid):
            return True
        time.sleep(0.01)
    return False


def is_alive(pid: int) -> bool:
    return state_of(pid) not in (None, "Z", "X")


def state_of(pid: int) -> str | None:
    """The kernel's letter for the process's state (``T`` = stopped), ``None`` when there is no such process."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return status.rpartition(")")[2].split()[0]

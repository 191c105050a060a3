"""Where it is written which engine runs, for the agent that comes after one that was killed."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from slipstream.agent.errors import EngineStartFailed

__all__ = ["Record", "command_digest", "held", "left_running", "life_of", "run_file_of_port", "write_record"]


class Record(NamedTuple):
    """An engine that runs. ``keeper`` and ``engine`` are processes, ``since`` is the keeper's `life_of`; ``digest`` is
    that of the engine's command.
    """

    keeper: int
    since: str
    engine: int
    role: str
    digest: str


def run_file_of_port(port: int) -> Path:
    """The run file of the engine on a port, where none is named: one for each user."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    folder = runtime if runtime.is_absolute() and runtime.is_dir() else Path(tempfile.gettempdir())
    return folder / f"slipstream-node-{os.geteuid()}-{port}.json"


def command_digest(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """What tells a command, and what it finds in its environment besides the agent's own, from others."""
    return sha256(json.dumps([list(command), sorted(environment.items())]).encode()).hexdigest()


def life_of(pid: int) -> str | None:
    """Boot and start time of a process, which tell it from a later one with its id; ``None`` = it does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *others = stat.rpartition(")")[2].split()
    return None if state in "ZX" else f"{boot} {others[18]}"


def write_record(path: Path, record: Record) -> None:
    """Replace the run file as a whole; nobody else can read it. Raises ``OSError``."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, (json.dumps(record._asdict()) + "\n").encode())
        os.replace(fresh, path)
    except OSError:
        with suppress(FileNotFoundError):
            fresh.unlink()
        raise
    finally:
        os.close(file)


def left_running(path: Path) -> Record | None:
    """The engine that the run file tells of and whose keeper still runs. ``None`` = none: there is no such file, it is
    of one that has ended, or it is somebody else's or no run file, and then nothing in it is believed.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        about = os.fstat(file)
        if about.st_uid != os.geteuid() or about.st_mode & 0o077:
            return None
        record = Record(**json.loads(os.read(file, 4096)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    finally:
        os.close(file)
    whole = all(type(value) is kind for value, kind in zip(record, (int, str, int, str, str), strict=True))
    return (
        record if whole and min(record.keeper, record.engine) > 1 and life_of(record.keeper) == record.since else None
    )


@contextmanager
def held(path: Path) -> Iterator[None]:
    """One agent at a time has what the run file tells of in hand. The kernel lets go for an agent that is killed.

    Raises `EngineStartFailed` when another agent has it, or the file's folder is not one to write to.
    """
    lock = path.with_name(f"{path.name}.lock")
    try:
        file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise EngineStartFailed(f"the run file {path} can not be had: {error.strerror}") from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EngineStartFailed(
                f"another agent has the engine of the run file {path} in hand: end it, or name another run file"
            ) from None
        yield
    finally:
        os.close(file)

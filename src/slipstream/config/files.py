"""Reading the files that a configuration consists of, without trusting what a path leads to."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from slipstream.core.errors import ConfigError, ConfigProblem

__all__ = ["MAX_BYTES", "read_text", "readable_text"]

MAX_BYTES = 4 * 1024 * 1024
"""More than the largest fleet needs; what is longer is some other file."""


def read_text(path: Path) -> str:
    """The UTF-8 text of a regular file of at most ``MAX_BYTES``.

    Raises ``OSError``, whose ``strerror`` says why, for whatever else the path leads to: a pipe or a device may never
    end. Raises ``UnicodeDecodeError`` for other bytes.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not block the opening
    except ValueError as error:  # a NUL or a surrogate
        raise OSError(errno.EINVAL, "no possible file name") from error
    with open(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "no regular file")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"more than {MAX_BYTES // 1024**2} MiB")
    return content.decode("utf-8")


def readable_text(path: str | Path, hint: str) -> str:
    """As `read_text`; raises ConfigError, with ``hint`` where there is no such file."""
    try:
        return read_text(Path(path))
    except FileNotFoundError as error:
        allowed = f"a file that is there: {hint}"
        raise ConfigError((ConfigProblem(str(path), None, "", "no such file", allowed),)) from error
    except OSError as error:
        found = error.strerror or str(error)
        raise ConfigError((ConfigProblem(str(path), None, "", found, "a file that can be read"),)) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError((ConfigProblem(str(path), line, "", "bytes that are not UTF-8", "UTF-8 text"),)) from error

"""Reading the files that a configuration consists of, without trusting what a path leads to."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

__all__ = ["MAX_BYTES", "read_text"]

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

"""Noticing that files have changed, however they were replaced."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

__all__ = ["FileWatch", "Signature", "signature_of"]

LOOKS_AT_MOST = 10
"""So many looks at changed files are waited for them to rest: what is written all the time is read all the same."""

Signature: TypeAlias = dict[Path, tuple[int, int, int, int] | None]
"""By file: device, inode, size and time of change; ``None`` for one that can not be looked at."""


def signature_of(files: Iterable[Path]) -> Signature:
    """What changes when a file is written to, replaced, or a symbolic link on the way to it is led elsewhere."""
    return {file: _look_at(file) for file in files}


def _look_at(file: Path) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    # The time of change, not that of modification: an editor or a copy may set that one back.
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns


class FileWatch:
    """Tells when a change has come to rest: seen twice alike, since a file may be looked at while it is written. What
    never rests counts after ``LOOKS_AT_MOST`` looks.
    """

    def __init__(self, known: Signature) -> None:
        self._known = known
        self._last = known
        self._looks = 0

    def looked(self, now: Signature) -> bool:
        """Take in one look at the files. Whether there is a change that was not known, and that has waited enough."""
        settled = now == self._last
        self._last = now
        self._looks = 0 if now == self._known else self._looks + 1
        return self._looks > 0 and (settled or self._looks >= LOOKS_AT_MOST)

    def know(self, signature: Signature) -> None:
        """Whatever the files hold in this state has been read."""
        self._known = self._last = signature
        self._looks = 0

"""Room for connections."""

from __future__ import annotations

import resource

__all__ = ["allow_many_connections"]


def allow_many_connections() -> int:
    """Raise this process's limit of open files to the most the system allows it, and return that.

    Each stream takes two descriptors, and the usual soft limit of 1,024 would end at about 500 streams.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard

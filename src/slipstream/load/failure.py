"""Why a server could not be talked to, in words for people."""

from __future__ import annotations

import os
import socket
import ssl

import aiohttp

__all__ = ["failure_words"]


def failure_words(failure: Exception) -> str:
    """What went wrong, as in "Connection refused": what a library adds for its own sake is left out."""
    if not isinstance(failure, aiohttp.ClientConnectorError):
        return str(failure) or type(failure).__name__
    cause = failure.os_error
    if cause.errno is None or isinstance(cause, (socket.gaierror, ssl.SSLError)):
        return cause.strerror or str(cause)
    return os.strerror(cause.errno)

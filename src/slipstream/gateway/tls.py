"""TLS on the listeners and towards nodes, by certificate files."""

from __future__ import annotations

import os
import ssl

__all__ = ["Authorities", "Certificate", "server_context"]

_PROTOCOL = "http/1.1"


def server_context(chain: str, key: str) -> ssl.SSLContext:
    """A listener's side of TLS 1.2 or newer, for HTTP/1.1. ``chain`` is a PEM file of the certificate and those that
    lead to it, ``key`` one of its key.

    Raises OSError, or its subclass ssl.SSLError, when they can not be used.
    """
    context = _bare_context()
    context.load_cert_chain(chain, key, password="")  # "" = fail rather than ask the terminal for one
    return context


def _bare_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # which OpenSSL 1.1.1 lets clients ask for without end
    context.set_alpn_protocols([_PROTOCOL])
    return context


class Certificate:
    """A listener's certificate, which can be renewed while it listens.

    ``context`` is what the listener is made with; each handshake goes on with ``newest``.
    """

    def __init__(self, newest: ssl.SSLContext) -> None:
        self.newest = newest
        self.context = _bare_context()
        self.context.sni_callback = self._go_on

    def _go_on(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self.newest


class Authorities:
    """How nodes' certificates are checked: by the system's authorities, or by those in a file."""

    def __init__(self) -> None:
        self._contexts: dict[str | None, tuple[tuple[int, ...], ssl.SSLContext]] = {}

    def context(self, file: str | None) -> ssl.SSLContext:
        """The context of connections to nodes: their certificates and names are checked. ``None``: by the system's
        authorities, as they were the first time; a file is read again when it has changed, and stands as it was read
        last as long as it can not be used.

        Raises OSError, or its subclass ssl.SSLError, when a file could never be used.
        """
        known = self._contexts.get(file)
        if known is not None and file is None:
            return known[1]
        try:
            state = () if file is None else _state_of(file)
            if known is not None and known[0] == state:
                return known[1]
            context = _checking_context(file)
        except OSError:
            if known is None:
                raise
            return known[1]
        self._contexts[file] = state, context
        return context


def _state_of(file: str) -> tuple[int, ...]:
    """What changes when a file is written to or replaced."""
    found = os.stat(file)
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns


def _checking_context(file: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([_PROTOCOL])
    return context

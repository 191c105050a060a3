"""TLS on the listeners and towards nodes, by certificate files."""

from __future__ import annotations

import ssl

__all__ = ["client_context", "load_certificate", "server_context"]


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """The context of a listener: TLS 1.2 or newer, HTTP/1.1. ``certificate`` is a PEM file with the whole chain.

    Raises OSError or its subclass ssl.SSLError when a file can not be read or the key is not the certificate's.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    load_certificate(context, certificate, key)
    return context


def load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Let new connections of a listener's context see this certificate; those that are open stay as they are.

    What can not be used changes nothing. Raises as ``server_context`` does.
    """
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)  # a failed load would leave half of it
    context.load_cert_chain(certificate, key)


def client_context(authorities: str | None) -> ssl.SSLContext:
    """The context of connections to nodes: their certificates and names are checked.

    ``authorities`` is a PEM file of the certificate authorities to trust, ``None`` for the system's. Raises OSError or
    its subclass ssl.SSLError when the file can not be used.
    """
    context = ssl.create_default_context(cafile=authorities)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context

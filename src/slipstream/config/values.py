"""Values of one key: addresses, urls, secrets. Each check raises ``ValueError`` with what is allowed."""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from slipstream.config.files import read_text

__all__ = [
    "Address",
    "check_authorities",
    "check_certificate",
    "clash",
    "collector_url",
    "is_loopback",
    "is_loopback_name",
    "node_url",
    "parse_address",
    "secret_from_environment",
    "secret_from_file",
]

_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\[\]:\s/]+):(?P<port>[0-9]{1,5})")
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_ANY = {"0.0.0.0", "::"}


class Address(NamedTuple):
    """Where to listen. ``host`` without brackets; port 0 = one that the system chooses."""

    host: str
    port: int


def parse_address(text: str) -> Address:
    """``host:port`` or ``[ipv6]:port``."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535 or not _is_host(match["host"].strip("[]")):
        raise ValueError('an address such as "127.0.0.1:8080" or "[::1]:8080", port 0 to 65535')
    return Address(match["host"].strip("[]"), int(match["port"]))


def _is_host(host: str) -> bool:
    """Whether a host can be looked up: an IP address, or a name of at most 253 characters (RFC 1123; and ``_``)."""
    labels = host.removesuffix(".").split(".")
    if ":" in host or labels[-1].isdigit():  # no name ends in a number
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True
    return len(host) <= 253 and all(_LABEL.fullmatch(label) for label in labels)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on ``host``. Of names, only ``localhost`` is trusted to be."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_loopback_name(host: str) -> bool:
    """Whether a ``Host`` header, with or without port, names this machine and nothing else.

    A page on the web can make its own name lead here, but not call itself so: names under ``localhost`` are nobody's.
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        return is_loopback(name) or name.endswith(".localhost")
    except ValueError:
        return False


def clash(one: Address, other: Address) -> bool:
    """Whether two listeners can not be bound side by side."""
    same_host = one.host == other.host or bool({one.host, other.host} & _ANY)
    return same_host and one.port == other.port != 0


def node_url(text: str) -> str:
    """The url of a node as scheme, host and port, nothing else."""
    allowed = 'an address such as "http://10.0.0.1:8000"'
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(f"{allowed}, port 1 to 65535") from None
    if parts.scheme not in {"http", "https"}:
        raise ValueError(f"{allowed}, with http:// or https:// in front")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"{allowed}, without user or password (a node's key goes under api_key)")
    if re.search(r"[^!-~]", text) or not parts.hostname or not _is_host(parts.hostname) or port == 0:
        raise ValueError(allowed)
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError(f"{allowed}, without a path: the gateway adds /v1/… itself")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port or (443 if parts.scheme == 'https' else 80)}"


def check_certificate(certificate: str, key: str) -> None:
    """Whether a listener can use a certificate and its key, both files. Raises ``ValueError`` when it can not."""
    if "\n" in key:
        raise ValueError("the name of a file: the key itself does not belong here")
    for path in (certificate, key):
        _text(path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")  # "" = never ask for one
    except ssl.SSLError:
        raise ValueError(f"a PEM certificate and its key without a passphrase ({certificate}, {key})") from None


def check_authorities(file: str) -> None:
    """Whether certificates can be checked by the authorities in a file. Raises ``ValueError`` when they can not."""
    _text(file)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except ssl.SSLError:
        raise ValueError(f"a file with PEM certificates ({file})") from None


def _text(path: str) -> str:
    try:
        return read_text(Path(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text"
        raise ValueError(f"a file that can be read ({path}: {reason})") from None


def collector_url(text: str) -> str:
    """The url of an OpenTelemetry collector as scheme, host, port and, if it has one, path."""
    allowed = 'an address such as "http://127.0.0.1:4318"'
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(f"{allowed}, port 1 to 65535") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"{allowed}, without user or password (OTEL_EXPORTER_OTLP_HEADERS is for keys)")
    if parts.scheme not in {"http", "https"} or re.search(r"[^!-~]", text) or parts.query or parts.fragment:
        raise ValueError(allowed)
    if not parts.hostname or not _is_host(parts.hostname) or port == 0:
        raise ValueError(allowed)
    return text.rstrip("/")


def secret_from_environment(name: str) -> str:
    """The secret in an environment variable. The error does not repeat a name that may be the secret."""
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
        raise ValueError("the name of an environment variable, in capitals: the key itself does not belong here")
    return _checked(os.environ.get(name, ""), f"the environment variable {name}")


def secret_from_file(path: str) -> str:
    """The secret in a file, without the line end that editors add."""
    return _checked(_text(path).rstrip("\r\n"), f"the file {path}")


def _checked(secret: str, source: str) -> str:
    if not secret:
        raise ValueError(f"{source} set and not empty")
    if not re.fullmatch(r"[\x21-\x7e]+", secret):
        raise ValueError(f"{source} with one key of printable ASCII characters, without spaces")
    return secret

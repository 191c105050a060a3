"""The page `/version`, which several engines have in one form."""

from __future__ import annotations

import msgspec

from slipstream.core.node import NodeReport
from slipstream.engines.document import read_document
from slipstream.engines.engine import Page

__all__ = ["VERSION", "bounded_version"]

VERSION_CHARACTERS = 64
"""Of what a node says of its version, so much is kept."""


class _Version(msgspec.Struct):
    version: str


_decoder = msgspec.json.Decoder(_Version)


def read_version(page: bytes) -> NodeReport:
    """The engine's version. Raises `EngineGarbage` when the page is something else."""
    return NodeReport(version=bounded_version(read_document(_decoder, page, "the engine's version").version))


def bounded_version(version: str | None) -> str | None:
    """What a page says of the engine's version, as much as is kept; ``None`` when it says nothing."""
    return None if version is None else version[:VERSION_CHARACTERS]


VERSION = Page("/version", read_version)

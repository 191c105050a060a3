"""The page `/version`, which several engines have in one form."""

from __future__ import annotations

import msgspec

from slipstream.core.node import NodeReport
from slipstream.engines.document import read_document
from slipstream.engines.engine import Page

__all__ = ["VERSION"]


class _Version(msgspec.Struct):
    version: str


_decoder = msgspec.json.Decoder(_Version)


def read_version(page: bytes) -> NodeReport:
    """The engine's version. Raises `EngineGarbage` when the page is something else."""
    return NodeReport(version=read_document(_decoder, page, "the engine's version").version)


VERSION = Page("/version", read_version)

"""The page `/v1/models`, which every engine with OpenAI's API has."""

from __future__ import annotations

import msgspec

from slipstream.core.node import NodeReport
from slipstream.engines.document import read_document
from slipstream.engines.engine import Page

__all__ = ["MODELS"]


class _Model(msgspec.Struct):
    id: str
    aliases: list[str] = []


class _Models(msgspec.Struct):
    data: list[_Model]


_decoder = msgspec.json.Decoder(_Models)


def read_models(page: bytes) -> NodeReport:
    """The names that requests may use, aliases included. Raises `EngineGarbage` when the page is something else."""
    models = read_document(_decoder, page, "a list of models").data
    names = (name for model in models for name in (model.id, *model.aliases))
    return NodeReport(models=tuple(dict.fromkeys(names)))


MODELS = Page("/v1/models", read_models)

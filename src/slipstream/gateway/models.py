"""`/v1/models`: what the whole fleet serves, as OpenAI lists it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from slipstream.core.errors import UnknownModel

__all__ = ["model_body", "models_body"]


def _card(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "slipstream"}


def models_body(names: Sequence[str]) -> bytes:
    """The list object. When the models were made is not known, so ``created`` is 0, as the format demands a number."""
    return msgspec.json.encode({"object": "list", "data": [_card(name) for name in names]})


def model_body(names: Sequence[str], name: str) -> bytes:
    """One model's object. Raises UnknownModel."""
    if name not in names:
        raise UnknownModel(f"No node of this fleet serves the model '{name[:200]}'. See /v1/models.", "model")
    return msgspec.json.encode(_card(name))

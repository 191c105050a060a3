"""The dialects an emulated node can speak, by name."""

from __future__ import annotations

from types import MappingProxyType

from slipstream.emulate.llamacpp import LLAMACPP
from slipstream.emulate.sglang import SGLANG
from slipstream.emulate.vllm import VLLM

__all__ = ["DIALECTS"]

DIALECTS = MappingProxyType({dialect.name: dialect for dialect in (VLLM, LLAMACPP, SGLANG)})

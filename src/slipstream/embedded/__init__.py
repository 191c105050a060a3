"""Real llama.cpp nodes on this machine, for `slipstream up`, the demo and tests."""

from slipstream.embedded.fleet import EmbeddedFleet
from slipstream.embedded.node import EmbeddedNode, EmbeddedNodeSpec
from slipstream.embedded.specs import embedded_nodes

__all__ = ["EmbeddedFleet", "EmbeddedNode", "EmbeddedNodeSpec", "embedded_nodes"]

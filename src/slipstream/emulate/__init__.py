"""A node that answers like an engine and fails on command, for those who build what stands in front of engines."""

from slipstream.emulate.node import EmulatedNode, emulated
from slipstream.emulate.settings import CanNotEmulate, NodeSettings

__all__ = ["CanNotEmulate", "EmulatedNode", "NodeSettings", "emulated"]

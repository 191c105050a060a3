"""A node that answers like an engine and fails on command, for those who build what stands in front of engines."""

from slipstream.emulate.node import EmulatedNode, emulated
from slipstream.emulate.settings import CanNotEmulate, CanNotListen, NodeSettings, Pace

__all__ = ["CanNotEmulate", "CanNotListen", "EmulatedNode", "NodeSettings", "Pace", "emulated"]

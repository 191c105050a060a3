"""What can not be calibrated, said in a sentence."""

from __future__ import annotations

from slipstream.core.errors import SlipstreamError

__all__ = ["NodeBusy", "NodeUnusable"]


class NodeUnusable(SlipstreamError):
    """Nothing answers at the address, or it does not answer as a calibration needs."""


class NodeBusy(SlipstreamError):
    """The node has other traffic, or can not tell that it has none: step times would be those of a larger batch."""

"""What can not be measured, said in a sentence."""

from __future__ import annotations

from slipstream.core.errors import SlipstreamError

__all__ = ["ServerUnusable", "TargetsOutOfReach"]


class ServerUnusable(SlipstreamError):
    """Nothing answers at the address, or it does not answer as what is to be measured needs."""


class TargetsOutOfReach(SlipstreamError):
    """Not even a request that is alone on the server meets its targets."""

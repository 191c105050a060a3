"""The data plane's front door: listens, routes requests to exchanges or answers them itself, closes gracefully."""

from __future__ import annotations

from slipstream.gateway.limits import Limits
from slipstream.gateway.ports import Ports

__all__ = ["Gateway"]


class Gateway:
    """OpenAI-compatible HTTP/1.1 server in front of a fleet."""

    def __init__(self, ports: Ports, limits: Limits | None = None) -> None:
        self.ports = ports
        self.limits = limits or Limits()

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Start serving; returns the address bound (``port`` 0 picks a free one). Raises OSError when it can not bind."""
        raise NotImplementedError

    async def close(self, grace_s: float = 30.0) -> None:
        """Stop accepting, let running exchanges end for up to ``grace_s`` seconds, then abort the rest."""
        raise NotImplementedError

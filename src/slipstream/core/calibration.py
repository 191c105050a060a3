"""What a node's profile was measured on, to be held against what the node says that it is now."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Calibration"]


@dataclass(frozen=True, slots=True)
class Calibration:
    """The fingerprint of a profile in use. ``file`` is where it was read from and ``date`` when it was measured, both
    for people. ``speculators`` are the fingerprints of the speculators measured; empty = the profile does not say.
    """

    file: str
    date: str
    engine: str
    version: str
    model: str
    speculators: tuple[str, ...] = ()

"""A fleet's nodes from the few figures that a command line takes."""

from __future__ import annotations

from pathlib import Path

from slipstream.core.request import Pool
from slipstream.embedded.model import find_model
from slipstream.embedded.node import EmbeddedNodeSpec
from slipstream.embedded.speculator import parse_speculator

__all__ = ["embedded_nodes"]


def embedded_nodes(
    *,
    speculative: int = 1,
    standard: int = 1,
    model: Path | None = None,
    speculator: str = "ngram",
    slots: int = 8,
) -> tuple[EmbeddedNodeSpec, ...]:
    """Nodes ``spec-0``, ``spec-1``, … with ``speculator`` and ``std-0``, ``std-1``, … without.

    ``model`` ``None`` = the one that is installed. Raises what `find_model`, `parse_speculator` and `EmbeddedNodeSpec`
    raise.
    """
    file, drafts = find_model(model), parse_speculator(speculator)
    return (
        *(
            EmbeddedNodeSpec(f"spec-{number}", Pool.SPECULATIVE, file, drafts, slots=slots)
            for number in range(speculative)
        ),
        *(EmbeddedNodeSpec(f"std-{number}", Pool.STANDARD, file, slots=slots) for number in range(standard)),
    )

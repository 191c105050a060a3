"""What an engine costs beside the arithmetic: a handful of constants for each."""

from __future__ import annotations

from dataclasses import dataclass, fields

from slipstream.costmodel.errors import ImpossibleInput

__all__ = ["Engine"]

LONGEST_S = 1.0
"""No engine spends more on any one of these."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Constants of one engine, in seconds where the name ends in ``_s``.

    ``layer_s``: gaps between the kernels of a layer, and ``expert_layer_s`` what routing and gathering add to it in a
    layer of experts. ``step_s``: what the host does once a step, ``sequence_s`` once a sequence and step.
    ``collective_s``: start of one all-reduce. ``draft_pass_s``: launch and sampling of one pass of a drafter, on top of
    its arithmetic. ``speculative_step_s``: rejection sampling and bookkeeping of a verify step, and
    ``speculative_token_s`` what comes on top for each drafted token that is verified. ``graph_sequences``: the largest
    batch whose verify step is replayed from a captured graph (``None`` = all); above it each layer of the target, and
    of each pass of its drafter, takes ``eager_layer_s`` more.
    ``interference``: how long running requests wait for others' prompts, as a share of their prefill time, about 1.
    ``expert_efficiency``: share of the dense arithmetic rate that layers of experts reach, 0..1.
    """

    name: str
    layer_s: float
    expert_layer_s: float
    step_s: float
    sequence_s: float
    collective_s: float
    draft_pass_s: float
    speculative_step_s: float
    speculative_token_s: float
    interference: float
    expert_efficiency: float
    graph_sequences: int | None = None
    eager_layer_s: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self) if field.name.endswith("_s")):
            if not 0.0 <= getattr(self, name) <= LONGEST_S:
                raise ImpossibleInput(f"{self.name}: {name} is 0 to {LONGEST_S:g} s, not {getattr(self, name)}")
        if not 0.0 <= self.interference <= 10.0:
            raise ImpossibleInput(f"{self.name}: interference is 0 to 10, not {self.interference}")
        if not 0.001 <= self.expert_efficiency <= 1.0:
            raise ImpossibleInput(f"{self.name}: expert_efficiency is 0.001 to 1, not {self.expert_efficiency}")
        if self.graph_sequences is not None and self.graph_sequences < 0:
            raise ImpossibleInput(f"{self.name}: graph_sequences must not be negative, not {self.graph_sequences}")

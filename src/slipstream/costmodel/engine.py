"""What an engine costs beside the arithmetic: a handful of constants for each."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Engine"]


@dataclass(frozen=True, slots=True)
class Engine:
    """Constants of one engine, all in seconds but the last two.

    ``layer_s``: gaps between the kernels of a layer. ``step_s``: what the host does once a step, ``sequence_s`` once a
    sequence and step. ``collective_s``: start of one all-reduce. ``draft_pass_s``: launch and sampling of one pass of
    a drafter, on top of its arithmetic. ``speculative_step_s``: rejection sampling and bookkeeping of a verify step,
    and ``speculative_sequence_s`` what comes on top for each sequence of it. ``interference``: share of others'
    prefill time that running requests wait for, 0..1. ``expert_efficiency``: share of the dense arithmetic rate that
    expert layers reach, 0..1.
    """

    name: str
    layer_s: float
    step_s: float
    sequence_s: float
    collective_s: float
    draft_pass_s: float
    speculative_step_s: float
    speculative_sequence_s: float
    interference: float
    expert_efficiency: float

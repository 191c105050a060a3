"""What an emulated node is like."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from slipstream.core.errors import SlipstreamError
from slipstream.core.node import SpeculatorKind
from slipstream.emulate.alphas import Alphas
from slipstream.enginemodel.step_times import StepRows

__all__ = ["CONTEXT_TOKENS", "REQUEST_STATISTICS", "CanNotEmulate", "CanNotListen", "NodeSettings", "Pace"]

CONTEXT_TOKENS = 8192
"""The longest sequence the node says it takes, and what KV use is measured by."""

REQUEST_STATISTICS = ("none", "summary", "detailed")
"""What vLLM may be told to say about speculation in each answer."""


class CanNotEmulate(SlipstreamError):
    """The node is described in a way that can not be."""


class CanNotListen(SlipstreamError):
    """The node's address can not be bound."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of a modelled engine: what its steps take, and the tokens that fit into its KV cache (``None`` = no
    limit but the slots).
    """

    rows: StepRows
    kv_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """``speculator`` ``None``: nothing drafts. ``k`` draft tokens a verify step, in a share ``proposing_share`` (0..1)
    of the decode steps; ``None`` = in all with a draft model, in half of them with n-gram lookup. ``ttft_s`` is from a
    free slot to the first token, ``step_s`` between two steps, both in seconds; with a ``pace`` they count for nothing:
    steps then take what the model says for all that runs. ``output_tokens`` is where an answer ends by itself.
    ``queue_limit``: requests that may wait; more are answered with ``queue_status``; ``None`` = any number.
    ``request_statistics`` is vLLM's ``--per-request-spec-decode-metrics``.

    Raises `CanNotEmulate` when a figure is out of its range.
    """

    model: str = "emulated"
    slots: int = 8
    speculator: SpeculatorKind | None = None
    k: int = 4
    alphas: Alphas = field(default_factory=Alphas)
    proposing_share: float | None = None
    ttft_s: float = 0.05
    step_s: float = 0.02
    pace: Pace | None = None
    output_tokens: int = 128
    queue_limit: int | None = None
    queue_status: int = 503
    metrics: bool = True
    request_statistics: str = "none"
    seed: int = 1

    def __post_init__(self) -> None:
        if not self.model:
            raise CanNotEmulate("the model needs a name")
        for name, least in (("slots", 1), ("k", 1), ("output_tokens", 1), ("ttft_s", 0), ("step_s", 0)):
            if not least <= getattr(self, name) < inf:
                raise CanNotEmulate(f"{name} is {getattr(self, name)}, but must be at least {least}, and finite")
        if self.queue_limit is not None and self.queue_limit < 0:
            raise CanNotEmulate(f"queue_limit is {self.queue_limit}, but must be at least 0")
        if self.queue_status not in (429, 503):
            raise CanNotEmulate(f"a full queue answers 429 or 503, not {self.queue_status}")
        if self.proposing_share is not None and not 0.0 <= self.proposing_share <= 1.0:
            raise CanNotEmulate(f"the share of steps that propose is 0..1, not {self.proposing_share:g}")
        if self.request_statistics not in REQUEST_STATISTICS:
            raise CanNotEmulate(
                f"statistics of requests are one of: {', '.join(REQUEST_STATISTICS)}; not {self.request_statistics}"
            )
        if self.request_statistics != "none" and self.speculator is None:
            raise CanNotEmulate("statistics of requests need a speculator, as in vLLM")

    @property
    def share_proposing(self) -> float:
        """Share of decode steps that draft, 0..1."""
        if self.speculator is None:
            return 0.0
        if self.proposing_share is not None:
            return self.proposing_share
        return 0.5 if self.speculator is SpeculatorKind.NGRAM else 1.0

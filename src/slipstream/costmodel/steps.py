"""Single steps, one after another, out of a cost model: rows of times that a simulated engine looks up.

A curve asks for the mean step of an arm; an engine has a step in which some sequences draft, others do not, and a
prompt is on its way beside them. The rows here answer `slipstream.enginemodel.step_times.StepRows`. Each has a time at
0, 1, 2, 4, … 2^21 tokens and is one numpy call over all of them.

Whether an engine that could speculate pays for a step in which nothing is drafted is for the engine to say: a row
without drafts is a standard engine's step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from slipstream.costmodel.arms import verify_step_s
from slipstream.costmodel.costs import RooflineCosts
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.profiles import LinearCosts, TableCosts
from slipstream.costmodel.roofline import Deployment, attention_pair_s, pass_s, standard_step_s
from slipstream.costmodel.speculator import Speculator, drafter_prefill_s

__all__ = ["LinearRows", "RooflineRows", "Row", "TableRows", "step_rows"]

Row: TypeAlias = tuple[float, ...]

_TOKENS: Final = np.array([0, *(1 << power for power in range(22))], float)
_NOTHING: Final = (0.0,) * _TOKENS.size


@dataclass(frozen=True, slots=True)
class RooflineRows:
    """Steps computed from a datasheet and a model card. Without a ``speculator`` nothing can be drafted.

    Keys and values that a prompt's earlier part left are read once a chunk, which is left out beside the arithmetic on
    them; a drafter's pass over a later chunk sees that chunk alone.
    """

    deployment: Deployment
    speculator: Speculator | None
    verified: int | None = None

    @property
    def pair_s(self) -> float:
        model = self.deployment.model
        return attention_pair_s(self.deployment) * (model.caching_layers - model.sliding_layers)

    def decode_row(self, decoding: int, drafting: int, k: int) -> Row:
        _check(decoding, drafting, k)
        if drafting == 0 or k == 0:
            return _row(standard_step_s(self.deployment, decoding, _TOKENS))
        if self.speculator is None:
            raise ImpossibleInput("a node without a speculator can not draft")
        return _row(
            verify_step_s(self.deployment, self.speculator, decoding, drafting, k, _TOKENS, verified=self.verified)
        )

    def prefill_row(self, tokens_beside: int) -> Row:
        """Experts are touched by the prompt's tokens and by those beside, which are taken for unrelated."""
        _check_beside(tokens_beside)
        deployment, model, engine = self.deployment, self.deployment.model, self.deployment.engine
        sequences = 1.0 + tokens_beside
        together = pass_s(deployment, sequences, (tokens_beside + _TOKENS) / sequences, 0.0)
        if tokens_beside:
            added = together - pass_s(deployment, tokens_beside, 1.0, 0.0) + engine.sequence_s
        else:
            added = together + engine.step_s + engine.sequence_s
        seen = np.minimum(_TOKENS / 2.0, model.sliding_window)
        added = added + attention_pair_s(deployment) * model.sliding_layers * _TOKENS * seen
        return _row(added, nothing_at_0=True)

    def drafter_prefill_row(self) -> Row:
        if self.speculator is None:
            return _NOTHING
        return _row(drafter_prefill_s(self.deployment, self.speculator, _TOKENS), nothing_at_0=True)


@dataclass(frozen=True, slots=True)
class LinearRows:
    """Steps on a line. Prompt tokens cost the profile's ``prefill_token_s``, and as much as any other query token
    (``token_s``) where it has none.
    """

    costs: LinearCosts

    @property
    def pair_s(self) -> float:
        return 0.0

    def decode_row(self, decoding: int, drafting: int, k: int) -> Row:
        _check(decoding, drafting, k)
        costs = self.costs
        standard = costs.standard_s(decoding, _TOKENS)
        if drafting == 0 or k == 0:
            return _row(standard)
        drafted = (costs.token_s + costs.draft_token_s) * drafting * k
        return _row(standard + drafted + costs.draft_pass_s * k + costs.overhead_s)

    def prefill_row(self, tokens_beside: int) -> Row:
        _check_beside(tokens_beside)
        token_s = self.costs.prefill_token_s or self.costs.token_s
        whole = 0.0 if tokens_beside else self.costs.step_s
        return _row(whole + token_s * _TOKENS, nothing_at_0=True)

    def drafter_prefill_row(self) -> Row:
        return _NOTHING


@dataclass(frozen=True, slots=True)
class TableRows:
    """Measured steps, interpolated in the logarithm of the batch size and nowhere extended: asked for a batch size or a
    draft length that the table does not have, `decode_row` raises ImpossibleInput naming what it has.

    A table knows one context, and its rows are flat: whether sequences are about as long as those it was measured with
    is for who uses it to see to. Where some sequences draft and others do not, their drafts cost what they cost as a
    batch of their own, but at least their share of what they cost where the whole batch drafts. The table is taken to
    have been measured with its proposing share of every batch drafting.
    """

    costs: TableCosts

    def __post_init__(self) -> None:
        if not self.costs.proposing_share > 0.0:
            raise ImpossibleInput("a table measured at a proposing_share of 0 does not tell what a draft costs")

    @property
    def pair_s(self) -> float:
        return 0.0

    def decode_row(self, decoding: int, drafting: int, k: int) -> Row:
        _check(decoding, drafting, k)
        costs, context = self.costs, self.costs.context_tokens or 1.0
        standard = float(costs.standard_s(decoding, context))
        if drafting == 0 or k == 0:
            return (standard,) * _TOKENS.size
        counted_as = drafting / costs.proposing_share
        alike = max(costs.batch_range[0], min(counted_as, decoding))
        sizes = [alike, decoding]
        own, shared = (costs.speculative_s(sizes, k, context) - costs.standard_s(sizes, context)).tolist()
        return (standard + max(own, shared * counted_as / decoding),) * _TOKENS.size

    def prefill_row(self, tokens_beside: int) -> Row:
        _check_beside(tokens_beside)
        whole = 0.0 if tokens_beside else self.costs.prefill_base_s
        return _row(whole + self.costs.prefill_token_s * _TOKENS, nothing_at_0=True)

    def drafter_prefill_row(self) -> Row:
        return _row(self.costs.drafter_prefill_token_s * _TOKENS)


def step_rows(
    source: Deployment | RooflineCosts | LinearCosts | TableCosts,
) -> RooflineRows | LinearRows | TableRows:
    """The steps of a node whose step times come from ``source``; a bare deployment is a node without a speculator.

    A step's drafts are counted, so the source's ``proposing_share`` is not looked at, except to know at which share a
    table was measured. Rows raise ImpossibleInput for steps that can not be: more sequences that draft than there are,
    a table's range left.
    """
    if isinstance(source, Deployment):
        return RooflineRows(source, None)
    if isinstance(source, RooflineCosts):
        return RooflineRows(source.deployment, source.speculator, source.verified)
    return LinearRows(source) if isinstance(source, LinearCosts) else TableRows(source)


def _check(decoding: int, drafting: int, k: int) -> None:
    if decoding < 1 or not 0 <= drafting <= decoding or k < 0:
        raise ImpossibleInput(
            "a step has 1 or more sequences, of which 0 or more draft 0 or more tokens each, "
            f"not {decoding}, {drafting} and {k}"
        )


def _check_beside(tokens: int) -> None:
    if tokens < 0:
        raise ImpossibleInput(f"there are no {tokens} tokens beside a prompt's")


def _row(seconds: NDArray[np.float64], *, nothing_at_0: bool = False) -> Row:
    times = seconds.tolist()
    if nothing_at_0:
        times[0] = 0.0
    return tuple(times)

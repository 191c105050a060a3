"""``--model published``: the second article's script, number for number, and what it leaves out."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.cli.crossover_answer import Answered, Bill, Found, answer_of
from slipstream.cli.crossover_question import MOST_DRAFTED, Candidate
from slipstream.core.speedup import published_row, published_speedup
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.published import published_curve

__all__ = ["published_answer"]

AS_PRINTED = (
    "The published script charges a verify pass what it charges a standard step, however many tokens it verifies. "
    "With --verify-width each of the B·(K+1) verified tokens costs 0.45 ms, which brings the speedup below 1 "
    "where the article's text has it."
)
CORRECTED = (
    "Each of the B·(K+1) verified tokens is charged 0.45 ms (--verify-width). The published script charges a verify "
    "pass no more than a standard step, and so never falls below 1 at these parameters."
)


def published_answer(
    candidates: Sequence[Candidate], batch_sizes: Sequence[int], *, verify_width: bool, bill: Bill
) -> Found:
    """Raises `ImpossibleInput` for what the script has no place for."""
    answered, printed = [], []
    for candidate in candidates:
        alpha, k = candidate.acceptance.alpha, candidate.k
        if alpha is None:
            raise ImpossibleInput("the published script knows one alpha for all draft positions: give --alpha")
        if candidate.proposing_share is not None:
            raise ImpossibleInput("the published script drafts in every step: it has no share of steps that propose")
        if candidate.traffic_share != 1.0:
            raise ImpossibleInput("the published script serves one kind of request: a category's share means nothing")
        curve = published_curve(alpha, k, batch_sizes, verify_width=verify_width)
        best = _best_k(alpha, batch_sizes, MOST_DRAFTED, verify_width=verify_width)
        answered.append(Answered(candidate, curve, best))
        printed += [str(published_row(alpha, k, batch, verify_width=verify_width)) for batch in batch_sizes]
    title = f"published script{', verify width charged' if verify_width else ''}"
    notes = [CORRECTED if verify_width else AS_PRINTED]

    def best_k(place: int, sizes: Sequence[int], most: int) -> list[int]:
        return _best_k(candidates[place].acceptance.alpha or 0.0, sizes, most, verify_width=verify_width)

    answer = answer_of("published", title, answered, bill, notes, printed=printed)
    return Found(answer, [one.curve for one in answered], best_k)


def _best_k(alpha: float, batch_sizes: Sequence[int], most: int, *, verify_width: bool) -> list[int]:
    """The K of the largest speedup at each batch size, none above ``most``; 0 where nothing drafted is best."""

    def speedup(k: int, batch: int) -> float:
        return published_speedup(alpha, k, batch, verify_width=verify_width)

    return [max(range(most + 1), key=lambda k: speedup(k, batch)) for batch in batch_sizes]

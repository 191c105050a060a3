"""What a node will take for its work: step times by occupancy from a profile, and what follows for one request.

A forecast is plain numbers, made once from a profile; `core.outlook` says what they are worth.
"""

from __future__ import annotations

from typing import Final

from slipstream.core.acceptance import AcceptanceEstimate, mean_acceptance_length_of
from slipstream.core.goodput import Target

__all__ = ["PRESSED", "Company", "Forecast", "Prediction", "Work", "burden", "predict"]

PRESSED: Final = 0.5
"""Share of a node's cache in use above which it is room rather than time that sequences take from one another."""


class Forecast:
    """A kind of node, in seconds and tokens.

    ``steps[n - 1]`` is a decode step of ``n`` sequences, by their mean of cached tokens, at each of ``tokens`` (rising
    from 0): straight lines between them. There are as many as the forecast is valid for. ``drafts[n - 1]`` tokens are
    drafted a sequence, by a share ``proposing_share`` (0..1) of them. ``prefill`` is what prompt tokens add to a step,
    at each of ``tokens``. ``cache_tokens`` is the room for keys and values, ``None`` = no limit.
    """

    __slots__ = ("cache_tokens", "drafts", "prefill", "proposing_share", "steps", "tokens")

    def __init__(
        self,
        tokens: tuple[float, ...],
        steps: tuple[tuple[float, ...], ...],
        drafts: tuple[int, ...],
        proposing_share: float,
        prefill: tuple[float, ...],
        cache_tokens: int | None,
    ) -> None:
        if not steps or len(steps) != len(drafts):
            raise ValueError("a forecast has a row of step times and a draft length for each occupancy, from 1 on")
        if len(tokens) < 2 or any(len(row) != len(tokens) for row in (prefill, *steps)):
            raise ValueError("a forecast's rows have a time for each of its two or more token counts")
        if min(min(row) for row in steps) <= 0.0 or min(prefill) < 0.0:
            raise ValueError("a forecast's steps take some time, and prompts none at least")
        self.tokens = tokens
        self.steps = steps
        self.drafts = drafts
        self.proposing_share = proposing_share
        self.prefill = prefill
        self.cache_tokens = cache_tokens

    @property
    def most(self) -> int:
        """The largest occupancy that it is valid for."""
        return len(self.steps)

    def step_s(self, occupancy: int, context_tokens: float) -> float:
        """A step of ``occupancy`` (1 to `most`) sequences with so many cached tokens each."""
        return _between(self.tokens, self.steps[occupancy - 1], context_tokens)

    def prefill_s(self, prompt_tokens: float) -> float:
        """What a prompt adds to the steps that process it."""
        return _between(self.tokens, self.prefill, prompt_tokens)


class Company:
    """What the sequences of a fleet are like on average: their ``prompt_tokens`` and ``output_tokens`` when they come,
    the ``context_tokens`` that those have in the cache which are there, and ``full_tokens`` that they end with.
    """

    __slots__ = ("context_tokens", "full_tokens", "output_tokens", "prompt_tokens")

    def __init__(self, prompt_tokens: float, output_tokens: float, context_tokens: float, full_tokens: float) -> None:
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.context_tokens = context_tokens
        self.full_tokens = full_tokens


class Work:
    """Requests of one kind: ``prompt_tokens`` and ``output_tokens`` on average, ``acceptance`` on a speculative node
    (``None`` = it does not speculate), and ``target``; and the ``company`` that they are in.
    """

    __slots__ = ("acceptance", "company", "output_tokens", "prompt_tokens", "target")

    def __init__(
        self,
        prompt_tokens: float,
        output_tokens: float,
        company: Company,
        acceptance: AcceptanceEstimate | None,
        target: Target,
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.company = company
        self.acceptance = acceptance
        self.target = target


class Prediction:
    """Latencies of a request, in seconds, were the node's occupancy to stay as it is."""

    __slots__ = ("e2e_s", "tpot_s", "ttft_s")

    def __init__(self, ttft_s: float, tpot_s: float, e2e_s: float) -> None:
        self.ttft_s = ttft_s
        self.tpot_s = tpot_s
        self.e2e_s = e2e_s


def predict(forecast: Forecast, work: Work, occupancy: int) -> Prediction:
    """Such a request on a node, the last of ``occupancy`` (1 to `Forecast.most`) sequences.

    Where as many come as end, each sees as many others begin during its life as run beside it: so a token takes its
    step, and a share of their prompts. Whom the cache has no room for waits until others have ended.
    """
    company = work.company
    running, waiting = occupancy, 0.0
    if forecast.cache_tokens is not None:
        room = max(1.0, forecast.cache_tokens / max(1.0, company.full_tokens))
        if occupancy > room:
            running, waiting = int(room), occupancy - room
    step_s = forecast.step_s(running, company.context_tokens)
    token_s = step_s / _tokens_a_step(forecast, work, running)
    token_s += (running - 1) * forecast.prefill_s(company.prompt_tokens) / company.output_tokens
    wait_s = waiting / running * company.output_tokens * token_s
    # Half a step until one begins, and that one, with the prompt in it.
    ttft_s = wait_s + 1.5 * step_s + forecast.prefill_s(work.prompt_tokens)
    return Prediction(ttft_s, token_s, ttft_s + work.output_tokens * token_s)


def burden(forecast: Forecast, work: Work, occupancy: int, predicted: Prediction) -> float:
    """For how many seconds a sequence of mean length would have to be there to slow the others down as much as one of
    these does.

    A sequence slows the others down by making steps longer while it is there, and once by its prompt. Where they
    wait for room in the cache, by the room that it has for so long.
    """
    company, stay_s = work.company, predicted.e2e_s
    cache = forecast.cache_tokens
    if cache is not None and occupancy * company.full_tokens > PRESSED * cache:
        return stay_s * (work.prompt_tokens + work.output_tokens) / company.full_tokens
    lower = min(occupancy, max(1, forecast.most - 1))
    step_s = forecast.step_s(lower, company.context_tokens)
    longer = 0.0
    if lower < forecast.most:
        longer = max(0.0, forecast.step_s(lower + 1, company.context_tokens) / step_s - 1.0)
    usual = longer + forecast.prefill_s(company.prompt_tokens) / (company.output_tokens * predicted.tpot_s)
    return (stay_s * longer + forecast.prefill_s(work.prompt_tokens)) / usual if usual > 0.0 else stay_s


def _tokens_a_step(forecast: Forecast, work: Work, running: int) -> float:
    k = forecast.drafts[running - 1]
    acceptance = work.acceptance
    if acceptance is None or k == 0:
        return 1.0
    if acceptance.alpha is not None:
        return 1.0 + forecast.proposing_share * (mean_acceptance_length_of(acceptance.alpha, k) - 1.0)
    return 1.0 if acceptance.tokens_per_step is None else acceptance.tokens_per_step


def _between(tokens: tuple[float, ...], row: tuple[float, ...], at: float) -> float:
    """A row's entry at so many tokens: on the line between two, and on the last line beyond."""
    last = len(tokens) - 1
    index = 1
    while index < last and tokens[index] < at:
        index += 1
    low, high = tokens[index - 1], tokens[index]
    return row[index - 1] + (row[index] - row[index - 1]) * ((at - low) / (high - low))

"""``slipstream crossover --emit``: what was found, as an engine's own configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slipstream.cli.crossover_answer import Found
from slipstream.cli.crossover_question import LARGEST_BATCH, Candidate
from slipstream.costmodel.engine_settings import EngineSettings, Plan, engine_settings, schedule_of
from slipstream.costmodel.errors import ImpossibleInput

__all__ = ["emitted"]

KINDS = ("eagle", "eagle3", "medusa", "mtp", "block", "ngram")
HAS_NO_WEIGHTS = ("mtp", "ngram")
MODEL, DRAFT = "MODEL", "DRAFT"
"""Stand for names that only the reader knows."""


def emitted(
    engine: str, found: Found, candidates: Sequence[Candidate], *, target: str | None, draft: str | None, gpus: int
) -> dict[str, Any]:
    """The settings of ``engine`` for the first curve that ever pays, as a document with its text.

    K is chosen by batch size up to the largest that was asked for. Categories for which speculation pays nowhere are
    pinned to the standard pool. Raises `ImpossibleInput` for an engine that is not known or lacks the speculator.
    """
    curves = found.answer["curves"]
    paying = [place for place, curve in enumerate(curves) if any(row["best_k"] for row in curve["rows"])]
    chosen = paying[0] if paying else 0
    candidate, curve = candidates[chosen], curves[chosen]
    fits = curve["admitted"]
    if fits["standard"] == 0:
        raise ImpossibleInput("not one request of that context fits: there is nothing to set up")
    low, high = int(curve["searched_from"]), int(curve["searched_to"])
    top = max(low, min(high, fits["speculative"] if fits["speculative"] is not None else LARGEST_BATCH))
    most_k = max(one.k for one in candidates if one.speculator == candidate.speculator)
    every = range(low, top + 1)
    lengths = [int(k) for k in found.best_k(chosen, every, most_k)]
    asked = {row["batch_size"] for row in curve["rows"]}
    anchors = [
        batch
        for place, batch in enumerate(every)
        if place == 0 or batch in asked or bool(lengths[place]) is not bool(lengths[place - 1])
    ]
    schedule = schedule_of(anchors, [lengths[batch - low] for batch in anchors], top)
    kind = candidate.speculator if candidate.speculator in KINDS else "draft"
    name = found.hub_name
    if kind in HAS_NO_WEIGHTS:
        weights = None
    elif draft is not None or kind != "draft" or name is None:
        weights = draft or DRAFT
    else:
        weights = name(candidate.speculator)
    pinned = [curve["category"] for place, curve in enumerate(curves) if curve["category"] and place not in paying]
    plan = Plan(
        target=MODEL if target is None or name is None else name(target),
        method=kind,
        draft=weights,
        schedule=schedule,
        admitted_standard=LARGEST_BATCH if fits["standard"] is None else fits["standard"],
        admitted_speculative=top if fits["speculative"] is None else fits["speculative"],
        tensor_parallel=gpus,
        pinned=tuple(dict.fromkeys(pinned)),
    )
    settings = engine_settings(engine, plan)
    unknown = (
        [] if fits["standard"] is not None else [f"how many requests fit is not known; {LARGEST_BATCH} stands for it"]
    )
    return {
        "engine": engine,
        "schedule": [[one.first, one.last, one.k] for one in schedule],
        "settings": [{"title": one.title, "text": one.text, "notes": list(one.notes)} for one in settings],
        "text": _text(settings, unknown),
    }


def _text(settings: Sequence[EngineSettings], unknown: list[str]) -> str:
    text = "\n\n".join(map(str, settings))
    placeholders = [word for word in (MODEL, DRAFT) if word in text.replace('"', " ").split()]
    first = [*unknown, *([f"put your own for {' and '.join(placeholders)}"] if placeholders else [])]
    return "\n".join([*(f"# {one}" for one in first), *([""] if first else []), text])

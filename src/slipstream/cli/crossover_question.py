"""What is asked of ``slipstream crossover``: its options as plain values, each refused with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product

from slipstream.cli.option_values import named_values, numbers, share_of, survival_of, whole_numbers
from slipstream.costmodel.errors import ImpossibleInput

__all__ = [
    "LARGEST_BATCH",
    "MOST_DRAFTED",
    "Acceptance",
    "Candidate",
    "acceptances",
    "alphas_of",
    "candidates",
    "given_names",
]

LARGEST_BATCH = 512
MOST_DRAFTED = 16
"""Crossovers are looked for up to the first, the best K up to the second."""
MOST_CURVES = 24


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Either ``alpha`` or the ``survival`` by draft position; ``source`` says where it comes from."""

    alpha: float | None = None
    survival: tuple[float, ...] | None = None
    source: str = "given"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One curve: what drafts, how much of it is kept, how many tokens a step, in which share of the steps, for whom.

    ``proposing_share`` ``None``: 1, or what a profile says. ``traffic_share``: how much of the traffic its category is,
    beside those of the others.
    """

    speculator: str
    acceptance: Acceptance
    k: int
    proposing_share: float | None
    category: str | None = None
    traffic_share: float = 1.0


def acceptances(alpha: str | None, survival: str | None) -> tuple[Acceptance, ...]:
    """Of ``--alpha``, which may be several, or ``--survival``. Raises `ImpossibleInput` for both, or a bad number."""
    if alpha is not None and survival is not None:
        raise ImpossibleInput("give --alpha or --survival, not both: each tells what is accepted")
    if survival is not None:
        return (Acceptance(survival=survival_of("--survival", numbers("--survival", survival))),)
    if alpha is None:
        return ()
    return tuple(Acceptance(alpha=one) for one in alphas_of("--alpha", alpha))


def alphas_of(option: str, text: str) -> tuple[float, ...]:
    """Raises `ImpossibleInput` for one outside 0..1."""
    return tuple(share_of(option, one) for one in numbers(option, text))


def candidates(
    speculators: Iterable[str],
    categories: Iterable[str],
    given: tuple[Acceptance, ...],
    ks: tuple[int, ...] | None,
    proposing_share: float | None,
) -> tuple[Candidate, ...]:
    """Every curve that is asked for: speculators × acceptances or categories × draft lengths.

    A speculator's own values (``eagle3:alpha=0.8,k=5``) come before those given for all. Raises `ImpossibleInput` when
    nothing tells what is accepted, and for more curves than anyone reads.
    """
    if proposing_share is not None:
        share_of("--p", proposing_share)
    of_categories = [_named("--category", text, CATEGORY_KEYS) for text in categories]
    found: list[Candidate] = []
    for text in speculators:
        name, own = _named("--speculator", text, SPECULATOR_KEYS)
        accepted = own.acceptance or given
        everyone: list[tuple[str | None, _Values]] = [(None, _Values((one,))) for one in accepted]
        kept = [*everyone, *of_categories]
        if not kept:
            raise ImpossibleInput("say how much is accepted: --alpha, --survival, --node, or name:alpha=… for each")
        for (category, values), k in product(kept, own.ks or ks or (_k_of(accepted),)):
            share = own.proposing_share if own.proposing_share is not None else proposing_share
            found += [Candidate(name, one, k, share, category, values.traffic_share) for one in values.acceptance]
    if len(found) > MOST_CURVES:
        raise ImpossibleInput(f"{len(found)} curves were asked for, and at most {MOST_CURVES} can be read")
    return tuple(found)


def given_names(**options: object) -> list[str]:
    """Those of ``options`` that were given, as they are written: not given is ``None``, ``False`` or an empty list."""
    given = (name for name, value in options.items() if value is not None and value is not False and value != [])
    return [f"--{name.replace('_', '-')}" for name in given]


DEFAULT_K = 4


def _k_of(accepted: tuple[Acceptance, ...]) -> int:
    """Survival of so many positions was measured at that K."""
    known = next((one.survival for one in accepted if one.survival is not None), None)
    return DEFAULT_K if known is None else len(known)


@dataclass(frozen=True, slots=True)
class _Values:
    acceptance: tuple[Acceptance, ...] = ()
    ks: tuple[int, ...] = ()
    proposing_share: float | None = None
    traffic_share: float = 1.0


_ACCEPTANCE_KEYS: dict[str, Callable[[str], object]] = {
    "alpha": lambda value: Acceptance(alpha=share_of("alpha", numbers("alpha", value)[0])),
    "survival": lambda value: Acceptance(survival=survival_of("survival", numbers("survival", value, "/"))),
}
SPECULATOR_KEYS = _ACCEPTANCE_KEYS | {
    "k": lambda value: whole_numbers("k", value, 0, MOST_DRAFTED),
    "p": lambda value: share_of("p", numbers("p", value)[0]),
}
CATEGORY_KEYS = _ACCEPTANCE_KEYS | {"share": lambda value: share_of("share", numbers("share", value)[0])}


def _named(option: str, text: str, keys: Mapping[str, Callable[[str], object]]) -> tuple[str, _Values]:
    name, values = named_values(option, text, keys)
    acceptance = tuple(one for one in values.values() if isinstance(one, Acceptance))
    if len(acceptance) > 1:
        raise ImpossibleInput(f"{option} {name} takes alpha or survival, not both")
    if option == "--category" and not acceptance:
        raise ImpossibleInput(f"a category says what is accepted in it, as in {name}:alpha=0.7")
    ks, share, traffic = values.get("k", ()), values.get("p"), values.get("share", 1.0)
    assert isinstance(ks, tuple)
    assert isinstance(traffic, float)
    return name, _Values(acceptance, ks, share if isinstance(share, float) else None, traffic)

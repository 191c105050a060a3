"""``--model roofline``, ``linear`` and ``table``: curves from step times that are computed, fitted or measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from os.path import exists
from pathlib import Path
from typing import Any

from slipstream.cli.crossover_answer import Answered, Bill, Found, answer_of, throughput
from slipstream.cli.crossover_question import Acceptance, Candidate
from slipstream.core.speedup import recommendation_of
from slipstream.costmodel.acceptance import AcceptanceCurve, geometric, surviving
from slipstream.costmodel.catalogue import any_model, engine_named, hardware_named, model_named
from slipstream.costmodel.costs import Costs, RooflineCosts
from slipstream.costmodel.curve import Workload, best_k, curve_of, user_throughputs
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.memory import Admitted, admitted
from slipstream.costmodel.mixture import exclusions, heterogeneous
from slipstream.costmodel.model import Model
from slipstream.costmodel.profiles import LinearCosts, TableCosts, article_1, read_profile
from slipstream.costmodel.roofline import Deployment
from slipstream.costmodel.speculator import HEADS, Speculator, draft_model, ngram

__all__ = [
    "Found",
    "costs_from_profile",
    "deployment_of",
    "hub_name",
    "modelled",
    "speculator_of",
]

DEFAULT_CONTEXT = 1024


def deployment_of(
    target: str | None, hardware: str | None, engine: str, gpus: int, weights: str | None, kv_dtype: str
) -> Deployment:
    """Raises `ImpossibleInput` for what no catalogue and no file has."""
    if target is None or hardware is None:
        missing = " and ".join(
            option for option, given in (("--target", target), ("--hardware", hardware)) if given is None
        )
        raise ImpossibleInput(f"the roofline needs {missing}; `slipstream crossover --list` shows what there is")
    model = any_model(target)
    if model.heads % gpus:
        raise ImpossibleInput(
            f"{model.name} has {model.heads} attention heads, which {gpus} GPUs can not share: --tp divides them"
        )
    return Deployment(model, hardware_named(hardware), engine_named(engine), gpus, weights, kv_dtype)


def speculator_of(candidate: Candidate, target: Model, *, sharded: bool) -> Speculator:
    """What the candidate's name means beside ``target``. Raises `ImpossibleInput` for a name that nothing has."""
    name, share = candidate.speculator, candidate.proposing_share
    if name == "ngram":
        if share is None:
            raise ImpossibleInput(
                "ngram proposes only where it finds something: give the share of steps as --p (0.1 to 0.4 was measured)"
            )
        return ngram(share)
    if name in HEADS:
        made = HEADS[name](target)
    else:
        try:
            model = any_model(name)
        except ImpossibleInput as error:
            known = ", ".join([*HEADS, "ngram"])
            raise ImpossibleInput(f"no speculator is called {name}: {known}, or a draft model; {error}") from None
        made = draft_model(model, sharded=sharded)
    return made if share is None else replace(made, proposing_share=share)


def hub_name(name: str) -> str:
    """Where an engine finds the model of that name: a path as it is, one of the catalogue by its name on the hub."""
    return name if exists(name) else model_named(name).source.rpartition(" of ")[2] or name


def costs_from_profile(form: str, profile: str | None) -> LinearCosts | TableCosts:
    """The profile of a file, or ``article-1``. Raises `ImpossibleInput` when it can not be used as ``form``."""
    if profile is None:
        raise ImpossibleInput(f"--model {form} needs --profile FILE, or --profile article-1")
    costs = article_1() if profile == "article-1" else read_profile(Path(profile))
    if isinstance(costs, LinearCosts) is not (form == "linear"):
        other = "table" if form == "linear" else "linear"
        raise ImpossibleInput(f"{profile} holds a {other} profile: use --model {other}")
    return costs


def modelled(
    model: str,
    candidates: Sequence[Candidate],
    batch_sizes: Sequence[int] | None,
    source: Deployment | LinearCosts | TableCosts,
    *,
    context: int | None,
    prompt_tokens: int,
    output_tokens: int,
    sharded: bool,
    bill: Bill,
    request_alphas: tuple[float, ...] = (),
) -> Found:
    """Every candidate's curve. ``batch_sizes`` ``None``: what suits the source.

    Raises `ImpossibleInput` for what can not be computed.
    """
    batches = list(batch_sizes or _batches(source))
    workload = Workload(context if context is not None else _context(source), prompt_tokens, output_tokens)
    answered: list[Answered] = []
    costs_found: list[Costs] = []
    at_admitted = None
    taken: list[str] = []
    for candidate in candidates:
        costs, fits = _costs(source, candidate, workload, sharded=sharded)
        acceptance = acceptance_curve(candidate.acceptance)
        curve = curve_of(candidate.speculator, costs, acceptance, candidate.k, batches, workload, admitted=fits)
        lengths = [row.best_k or 0 for row in curve.rows]
        standard, speculative = (None, None) if fits is None else (fits.standard, fits.speculative)
        answered.append(Answered(candidate, curve, lengths, costs.proposing_share, standard, speculative))
        costs_found.append(costs)
        if isinstance(source, Deployment) and fits is not None and fits.speculator_bytes > 0.0:
            taken.append(_taken(candidate.speculator, source, fits))
        if fits is not None and at_admitted is None:
            at_admitted = _at_admitted(costs, acceptance, candidate.k, workload, fits, bill)
    title, notes = _told(source, workload, sharded=sharded)
    notes += dict.fromkeys(taken)
    answer = answer_of(model, title, answered, bill, notes, at_admitted)
    answer["exclusions"] = _exclusions(
        candidates, costs_found[0], [row.batch_size for row in answered[0].curve.rows], workload
    )
    if request_alphas:
        sizes = [int(row.batch_size) for row in answered[0].curve.rows]
        answer["mixed"] = _mixed(costs_found[0], request_alphas, candidates[0].k, sizes, workload)

    def best(place: int, sizes: Sequence[int], most: int) -> list[int]:
        kept = acceptance_curve(candidates[place].acceptance)
        return [int(k) for k in best_k(costs_found[place], kept, list(sizes), workload, most=most)]

    named = hub_name if isinstance(source, Deployment) else None
    return Found(answer, [one.curve for one in answered], best, named)


def acceptance_curve(acceptance: Acceptance) -> AcceptanceCurve:
    """Tau over K, from whichever of the two was given."""
    return geometric(acceptance.alpha or 0.0) if acceptance.survival is None else surviving(acceptance.survival)


def _costs(
    source: Deployment | LinearCosts | TableCosts, candidate: Candidate, workload: Workload, *, sharded: bool
) -> tuple[Costs, Admitted | None]:
    if isinstance(source, Deployment):
        speculator = speculator_of(candidate, source.model, sharded=sharded)
        return RooflineCosts(source, speculator), admitted(source, speculator, workload.context)
    if candidate.proposing_share is None:
        return source, None
    return replace(source, proposing_share=candidate.proposing_share), None


def _batches(source: Deployment | LinearCosts | TableCosts) -> Sequence[float]:
    if isinstance(source, TableCosts):
        low, high = source.batch_range
        return sorted({batch for batch, _ in source.step_s[0] if low <= batch <= high})
    return (1, 2, 4, 8, 16, 32, 64, 128)


def _context(source: Deployment | LinearCosts | TableCosts) -> float:
    measured = source.context_tokens if isinstance(source, TableCosts) else None
    return DEFAULT_CONTEXT if measured is None else measured


def _at_admitted(
    costs: Costs, acceptance: AcceptanceCurve, k: int, workload: Workload, fits: Admitted, bill: Bill
) -> dict[str, Any] | None:
    """Both arms as full as memory lets them be, where the second half of the published rule can bind."""
    if not fits.standard or not fits.speculative:
        return None
    loads = [fits.standard, fits.speculative]
    standard, speculative = user_throughputs(costs, acceptance, loads, k, workload)
    gain = float(speculative[1] / standard[0])
    tps = {"standard": fits.standard * float(standard[0]), "speculative": fits.speculative * float(speculative[1])}
    return {
        "speedup": gain,
        "standard_aggregate_tps": tps["standard"],
        "speculative_aggregate_tps": tps["speculative"],
        **throughput("standard", tps["standard"], bill),
        **throughput("speculative", tps["speculative"], bill),
        "recommendation": recommendation_of(gain, tps["speculative"], tps["standard"]).value,
    }


def _taken(speculator: str, deployment: Deployment, fits: Admitted) -> str:
    """What of the memory a speculator takes, in a sentence."""
    where = f"{deployment.tensor_parallel} × {deployment.hardware.name}"
    own = f"{fits.speculator_bytes / 1e9:.1f} GB and {fits.speculator_sequence_bytes / 1e9:.2f} GB a request"
    beside = f"{fits.weight_bytes / 1e9:.1f} GB and {fits.sequence_bytes / 1e9:.2f} GB a request"
    return (
        f"{speculator} takes {own}, {deployment.model.name} {beside}, of {fits.usable_bytes / 1e9:.0f} GB on {where}."
    )


def _exclusions(
    candidates: Sequence[Candidate], costs: Costs, batch_sizes: Sequence[float], workload: Workload
) -> list[dict[str, Any]]:
    """Of the first speculator and its first K, which categories to route away at which batch size."""
    speculator, k = candidates[0].speculator, candidates[0].k
    of_one = {one.category: one for one in candidates if (one.speculator, one.k) == (speculator, k) and one.category}
    if not of_one:
        return []
    curves = {str(name): acceptance_curve(one.acceptance) for name, one in of_one.items()}
    shares = {str(name): one.traffic_share for name, one in of_one.items()}
    return [asdict(one) for one in exclusions(costs, curves, shares, k, batch_sizes, workload)]


def _mixed(
    costs: Costs, alphas: Sequence[float], k: int, batch_sizes: Sequence[int], workload: Workload
) -> list[dict[str, Any]]:
    """Batches whose requests' alphas are spread as ``alphas`` are."""
    ranked = sorted(alphas)
    return [
        asdict(
            heterogeneous(costs, [ranked[(2 * i + 1) * len(ranked) // (2 * size)] for i in range(size)], k, workload)
        )
        for size in batch_sizes
    ]


def _told(source: Deployment | LinearCosts | TableCosts, workload: Workload, *, sharded: bool) -> tuple[str, list[str]]:
    """A title, and in sentences what the figures hold for."""
    asked = f"context {workload.context:g}"
    if workload.prompt_tokens:
        asked += f", prompt {workload.prompt_tokens:g}, output {workload.output_tokens:g}"
    if not isinstance(source, Deployment):
        return f"profile of {source.provenance.model}, {asked}", [f"Profile: {source.provenance}."]
    where = f"{source.tensor_parallel} × {source.hardware.name}"
    title = f"{source.model.name} on {where}, {source.engine.name}, {asked}"
    dtypes = f"weights {source.weights}, KV cache {source.kv_dtype}"
    notes = [f"Computed from datasheet and model card: {dtypes}. Measure before you rely on a crossover."]
    if not sharded:
        notes.append("The draft model lies whole on each GPU.")
    return title, notes

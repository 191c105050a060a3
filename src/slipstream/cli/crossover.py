"""``slipstream crossover``: at which batch size speculation stops paying, and whether a draft suits its target."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer

from slipstream.cli.crossover_answer import Bill
from slipstream.cli.crossover_question import (
    MOST_DRAFTED,
    Acceptance,
    Candidate,
    acceptances,
    alphas_of,
    candidates,
    given_names,
)
from slipstream.cli.option_values import whole_numbers
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.rows import MOST_BATCH

__all__ = ["crossover_app"]

BAD_INPUT = 2
MODELS = ("roofline", "linear", "table", "published")
PUBLISHED_BATCHES = (1, 4, 16, 32, 64)
"""Those of the article."""

crossover_app = typer.Typer(
    help="At which batch size speculation stops paying, from what is known of model, draft, hardware and acceptance.",
    invoke_without_command=True,
)

Json = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]


@crossover_app.callback()
def crossover(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Option(help="Where step times come from: roofline, linear, table, or published, an article's script."),
    ] = "roofline",
    target: Annotated[
        str | None,
        typer.Option(help="Model that is served: a name in --list or a folder with config.json."),
    ] = None,
    hardware: Annotated[str | None, typer.Option(help="GPU: a name in --list or a JSON file.")] = None,
    tp: Annotated[int | None, typer.Option(min=1, help="GPUs that share the target; 1 when left out.")] = None,
    engine: Annotated[str | None, typer.Option(help="Engine whose overheads count; vllm when left out.")] = None,
    speculator: Annotated[
        list[str] | None,
        typer.Option(help="What drafts: eagle, eagle3, medusa, mtp, block, ngram or a draft model. Several compare."),
    ] = None,
    alpha: Annotated[
        str | None, typer.Option(help="Per-token acceptance, 0..1. Several, with commas, give a curve each.")
    ] = None,
    survival: Annotated[
        str | None, typer.Option(help="Instead: share of steps that keep draft position 1, 2, …: 0.8,0.6,0.5.")
    ] = None,
    node: Annotated[
        str | None, typer.Option(help="Instead: address of a live engine, whose counters tell acceptance, K and p.")
    ] = None,
    k: Annotated[
        str | None, typer.Option("--k", help="Tokens drafted a step; 4 when left out. Several give a curve each.")
    ] = None,
    p: Annotated[
        float | None, typer.Option("--p", help="Share of a request's steps that draft, 0..1; needed for ngram.")
    ] = None,
    category: Annotated[
        list[str] | None, typer.Option(help="A class of prompts with its own acceptance: code:alpha=0.85. Several.")
    ] = None,
    request_alphas: Annotated[
        str | None, typer.Option(help="Alphas of a sample of requests: adds batches in which they are mixed.")
    ] = None,
    batch: Annotated[
        str | None, typer.Option(help="Batch sizes of the table, with commas; 1 to 128 by twos when left out.")
    ] = None,
    context_tokens: Annotated[
        int | None, typer.Option("--context", min=1, help="Tokens cached for a sequence; 1024 when left out.")
    ] = None,
    prompt: Annotated[
        int | None, typer.Option(min=0, help="Prompt tokens, whose processing then counts in both arms.")
    ] = None,
    output: Annotated[
        int | None, typer.Option(min=1, help="Tokens a request generates; 256 when left out. Needs --prompt as well.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Data type of the target's weights; as published when left out.")
    ] = None,
    kv_dtype: Annotated[str | None, typer.Option(help="Data type of the KV cache; bf16 when left out.")] = None,
    replicated: Annotated[
        bool, typer.Option("--replicated", help="The draft model lies whole on each GPU, not sharded over them.")
    ] = False,
    profile: Annotated[
        str | None, typer.Option(help="Profile of --model linear or table: a JSON file, or article-1.")
    ] = None,
    verify_width: Annotated[
        bool,
        typer.Option("--verify-width", help="With --model published: charge each verified token, as its text does."),
    ] = False,
    price: Annotated[
        float | None, typer.Option(min=0, help="Price of a GPU for an hour, for the cost of a million tokens.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw speedup over batch size into this .png or .svg file.")] = None,
    emit: Annotated[
        str | None, typer.Option(help="Print settings for vllm, sglang, trtllm or slipstream instead of the table.")
    ] = None,
    draft_weights: Annotated[
        str | None, typer.Option(help="Name or path of the speculator's weights, for the settings that --emit prints.")
    ] = None,
    list_known: Annotated[bool, typer.Option("--list", help="List hardware, models, engines and speculators.")] = False,
    as_json: Json = False,
) -> None:
    """Say at which batch size speculation stops paying."""
    with _one_sentence():
        if context.invoked_subcommand is not None:
            _refuse_before(context)
            return
        if list_known:
            _list(as_json=as_json)
            return
        if model not in MODELS:
            raise ImpossibleInput(f"--model is {', '.join(MODELS[:-1])} or {MODELS[-1]}, not {model!r}")
        of_roofline = given_names(
            target=target, hardware=hardware, engine=engine, weights=weights, kv_dtype=kv_dtype, replicated=replicated
        )
        of_steps = given_names(context=context_tokens, prompt=prompt, output=output, request_alphas=request_alphas)
        _refuse_idle(model, of_roofline, "roofline")
        _refuse_idle(model, of_steps, "roofline", "linear", "table")
        _refuse_idle(model, given_names(profile=profile), "linear", "table")
        _refuse_idle(model, given_names(verify_width=verify_width), "published")
        if output is not None and prompt is None:
            raise ImpossibleInput("--output counts only beside the time that a prompt takes: give --prompt, too")
        if price is not None and not isfinite(price):
            raise ImpossibleInput(f"--price is finite, not {price}")
        if price is not None and tp is None and model != "roofline":
            raise ImpossibleInput("--price is that of a GPU: say with --tp how many there are")
        if draft_weights is not None and emit is None:
            raise ImpossibleInput("--draft-weights is for --emit")
        batches = None if batch is None else whole_numbers("--batch", batch, 1, MOST_BATCH)
        asked = _candidates(model, speculator, alpha, survival, node, k, p, category)
        bill = Bill(tp or (1 if model == "roofline" else None), price)
        if model == "published":
            from slipstream.cli.crossover_published import published_answer

            found = published_answer(asked, batches or PUBLISHED_BATCHES, verify_width=verify_width, bill=bill)
        else:
            from slipstream.cli.crossover_modelled import costs_from_profile, deployment_of, modelled

            found = modelled(
                model,
                asked,
                batches,
                deployment_of(
                    target,
                    hardware,
                    "vllm" if engine is None else engine,
                    tp or 1,
                    weights,
                    "bf16" if kv_dtype is None else kv_dtype,
                )
                if model == "roofline"
                else costs_from_profile(model, profile),
                context=context_tokens,
                prompt_tokens=prompt or 0,
                output_tokens=output or 256,
                sharded=not replicated,
                bill=bill,
                request_alphas=() if request_alphas is None else alphas_of("--request-alphas", request_alphas),
            )
        if plot is not None:
            from slipstream.cli.crossover_plot import draw

            draw(found.answer, found.curves, plot)
        if emit is None:
            _show_curves(found.answer, as_json=as_json)
            return
        from slipstream.cli.crossover_emit import emitted

        settings = emitted(emit, found, asked, target=target, draft=draft_weights, gpus=tp or 1)
        print(json.dumps(found.answer | {"emitted": settings}, indent=2) if as_json else settings["text"])


@crossover_app.command()
def qualify(
    target: Annotated[Path, typer.Argument(help="The model that is served: its folder, or a GGUF file.")],
    draft: Annotated[Path, typer.Argument(help="The model that is to draft for it.")],
    alpha: Annotated[float | None, typer.Option(help="Per-token acceptance, 0..1, if it was measured.")] = None,
    k: Annotated[int | None, typer.Option("--k", min=1, help="Draft length of that alpha; 4 when left out.")] = None,
    node: Annotated[str | None, typer.Option(help="Instead: address of a live engine with this pair.")] = None,
    profile: Annotated[
        Path | None, typer.Option(help="Profile of this pair: a JSON file, with an alpha if it tells one.")
    ] = None,
    hardware: Annotated[
        str | None, typer.Option(help="GPU for which both are computed, where no profile tells.")
    ] = None,
    tp: Annotated[int, typer.Option(min=1, help="GPUs that share both.")] = 1,
    as_json: Json = False,
) -> None:
    """Say whether a draft model suits a target: tokenizer, acceptance, speed. Exit status 1 when it does not."""
    with _one_sentence():
        from slipstream.cli.crossover_qualify import qualification, qualification_report

        answer = qualification(target, draft, alpha=alpha, k=k, node=node, profile=profile, hardware=hardware, gpus=tp)
        _show(answer, qualification_report, as_json=as_json)
    if answer["verdict"] == "not qualified":
        raise typer.Exit(1)


@contextmanager
def _one_sentence() -> Iterator[None]:
    """What can not be computed is one sentence and exit status 2."""
    try:
        yield
    except ImpossibleInput as error:
        typer.echo(f"slipstream crossover: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from None


def _refuse_before(context: typer.Context) -> None:
    """An option before the sub-command is none of it, and would do nothing."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            command = context.invoked_subcommand
            raise ImpossibleInput(
                f"{parameter.opts[0]} stands before {command} and means nothing there: {command} has options of its own"
            )


def _refuse_idle(model: str, options: list[str], *models: str) -> None:
    """An option that would do nothing with ``model`` is refused: ``options``, where given, are for ``models``."""
    if options and model not in models:
        raise ImpossibleInput(f"{options[0]} means nothing with --model {model}; it is for {' and '.join(models)}")


def _candidates(
    model: str,
    speculators: list[str] | None,
    alpha: str | None,
    survival: str | None,
    node: str | None,
    k: str | None,
    p: float | None,
    categories: list[str] | None,
) -> tuple[Candidate, ...]:
    given = acceptances(alpha, survival)
    ks = None if k is None else whole_numbers("--k", k, 0, MOST_DRAFTED)
    if node is not None:
        if given:
            raise ImpossibleInput("give --node or what is accepted, not both")
        from slipstream.cli.node_counters import counted_by

        counted = counted_by(node)
        known = {"alpha": counted.alpha} if counted.survival is None else {"survival": counted.survival}
        given = (Acceptance(**known, source=counted.source),)
        ks, p = ks or (counted.k,), counted.proposing_share if p is None else p
    if not speculators and model == "roofline":
        raise ImpossibleInput(
            "say with --speculator what drafts, as in --speculator eagle3; --list shows what there is"
        )
    return candidates(speculators or ["draft"], categories or [], given, ks, p)


def _list(*, as_json: bool) -> None:
    from slipstream.cli.crossover_catalogue import catalogue, catalogue_report

    _show(catalogue(), catalogue_report, as_json=as_json)


def _show_curves(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(answer, indent=2))
        return
    from slipstream.cli.crossover_report import crossover_report

    _show(answer, crossover_report, as_json=False)


def _show(answer: dict[str, Any], report: Callable[[dict[str, Any]], object], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(answer, indent=2))
        return
    from rich.console import Console

    Console().print(report(answer))

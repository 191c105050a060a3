"""``slipstream emulate``: a node that answers like an engine, and fails on command."""

from __future__ import annotations

import json
from typing import Annotated

import typer
import uvloop

from slipstream.cli.crossover_question import given_names
from slipstream.cli.stopping import stop_signals
from slipstream.core.node import SpeculatorKind
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.emulate import CanNotEmulate, CanNotListen, NodeSettings, Pace, emulated
from slipstream.emulate.alphas import Alphas, parse_alphas

__all__ = ["emulate"]

TTFT_MS = 50.0
STEP_MS = 20.0


def emulate(
    dialect: Annotated[str, typer.Option(help="Engine to answer like: vllm, llamacpp or sglang.")] = "vllm",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 = any free one.")] = 8000,
    model: Annotated[str, typer.Option(help="Name of the model it serves.")] = "emulated",
    slots: Annotated[int, typer.Option(min=1, help="Sequences it works on at once; others wait.")] = 8,
    queue_limit: Annotated[
        int | None, typer.Option(min=0, help="Requests that may wait, no limit when left out; more are refused.")
    ] = None,
    queue_status: Annotated[int, typer.Option(help="Status of a refusal: 429 or 503.")] = 503,
    speculator: Annotated[
        str,
        typer.Option(help="What drafts: none, ngram or draft; with --target none or what crossover takes."),
    ] = "none",
    k: Annotated[int, typer.Option("--k", min=1, max=64, help="Tokens it drafts a verify step.")] = 4,
    alpha: Annotated[
        str, typer.Option(help="Per-token acceptance, 0..1: one for all, by category, or both: 0.6,code=0.85.")
    ] = "0.6",
    alpha_spread: Annotated[
        float, typer.Option(help="Standard deviation of the acceptance between requests of a category.")
    ] = 0.0,
    proposing_share: Annotated[
        float | None,
        typer.Option(help="Share of steps that draft, 0..1; 1 or what a profile says when left out, with ngram 0.5."),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Profile that tells what steps take: a JSON file, or article-1.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Instead: model whose steps are computed; a name in crossover --list or a folder."),
    ] = None,
    hardware: Annotated[str | None, typer.Option(help="With --target: GPU, by name or from a JSON file.")] = None,
    tp: Annotated[int | None, typer.Option(min=1, help="With --target: GPUs that share it; 1 when left out.")] = None,
    engine: Annotated[
        str | None, typer.Option(help="With --target: engine whose overheads count; vllm when left out.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="With --target: data type of its weights.")] = None,
    kv_dtype: Annotated[
        str | None, typer.Option(help="With --target: data type of the KV cache; bf16 when left out.")
    ] = None,
    replicated: Annotated[
        bool, typer.Option("--replicated", help="With --target: the draft model lies whole on each GPU.")
    ] = False,
    kv_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens its KV cache holds; no limit with --profile, computed with --target."),
    ] = None,
    ttft_ms: Annotated[
        float | None, typer.Option(help="Time from a free slot to the first token; 50 when left out.")
    ] = None,
    step_ms: Annotated[
        float | None, typer.Option(help="Time of a decode step: 1 token and the accepted ones; 20 when left out.")
    ] = None,
    output_tokens: Annotated[int, typer.Option(min=1, help="Length at which an answer ends by itself.")] = 128,
    metrics: Annotated[bool, typer.Option(help="Whether it serves metrics.")] = True,
    per_request_spec_decode_metrics: Annotated[
        str, typer.Option(help="vLLM's option of that name: none, summary or detailed.")
    ] = "none",
    seed: Annotated[int, typer.Option(help="With the same one each category's requests draw the same.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help='Print {"url": …} when it is ready, for programs.')] = False,
) -> None:
    """Serve a node that answers like an engine, until Ctrl-C or SIGTERM. POST /emulate/faults makes it fail."""
    try:
        _refuse_idle(
            profile,
            target,
            of_target=given_names(
                hardware=hardware, tp=tp, engine=engine, weights=weights, kv_dtype=kv_dtype, replicated=replicated
            ),
            of_pace=given_names(kv_tokens=kv_tokens),
            without_pace=given_names(ttft_ms=ttft_ms, step_ms=step_ms),
        )
        pace: Pace | None = None
        if target is not None:
            from slipstream.cli.emulated_pace import Hardware, paced_by_model

            runs_on = Hardware(hardware, tp or 1, engine or "vllm", weights, kv_dtype or "bf16", replicated=replicated)
            pace, kind, proposing_share = paced_by_model(target, runs_on, speculator, proposing_share, kv_tokens)
        else:
            kind = _speculator(speculator)
            if profile is not None:
                from slipstream.cli.emulated_pace import paced_by_profile

                pace, proposing_share = paced_by_profile(profile, proposing_share, kv_tokens)
        settings = NodeSettings(
            model=model,
            slots=slots,
            speculator=kind,
            k=k,
            alphas=_alphas(alpha, alpha_spread),
            proposing_share=proposing_share,
            ttft_s=(TTFT_MS if ttft_ms is None else ttft_ms) / 1000,
            step_s=(STEP_MS if step_ms is None else step_ms) / 1000,
            pace=pace,
            output_tokens=output_tokens,
            queue_limit=queue_limit,
            queue_status=queue_status,
            metrics=metrics,
            request_statistics=per_request_spec_decode_metrics,
            seed=seed,
        )
        uvloop.run(_serve(dialect, settings, host, port, as_json=as_json))
    except (CanNotEmulate, CanNotListen, ImpossibleInput) as error:
        typer.echo(error, err=True)
        raise typer.Exit(1 if isinstance(error, CanNotListen) else 2) from None


async def _serve(dialect: str, settings: NodeSettings, host: str, port: int, *, as_json: bool) -> None:
    async with emulated(dialect, settings, host=host, port=port) as node:
        ready = (
            json.dumps({"url": node.url}) if as_json else f"{dialect} node with model {settings.model} on {node.url}"
        )
        with stop_signals() as told:
            print(ready, flush=True)
            await told.wait()


def _refuse_idle(
    profile: str | None,
    target: str | None,
    *,
    of_target: list[str],
    of_pace: list[str],
    without_pace: list[str],
) -> None:
    """Raises `CanNotEmulate` for options that would count for nothing."""
    if profile is not None and target is not None:
        raise CanNotEmulate("give --profile or --target, not both: each tells what steps take")
    if of_target and target is None:
        raise CanNotEmulate(f"{', '.join(of_target)} only counts beside --target")
    if of_pace and target is None and profile is None:
        raise CanNotEmulate(f"{', '.join(of_pace)} only counts beside --profile or --target")
    if without_pace and not (target is None and profile is None):
        raise CanNotEmulate(f"{', '.join(without_pace)} only counts without --profile and --target: they tell the pace")


def _speculator(name: str) -> SpeculatorKind | None:
    if name == "none":
        return None
    try:
        return SpeculatorKind(name)
    except ValueError:
        raise CanNotEmulate(f"a speculator is none, ngram or draft, not {name!r}") from None


def _alphas(text: str, spread: float) -> Alphas:
    try:
        return parse_alphas(text, spread)
    except ValueError as error:
        raise CanNotEmulate(f"--alpha: {error}") from None

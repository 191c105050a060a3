"""``slipstream emulate``: a node that answers like an engine, and fails on command."""

from __future__ import annotations

import json
from typing import Annotated

import typer
import uvloop

from slipstream.cli.stopping import stop_signals
from slipstream.core.node import SpeculatorKind
from slipstream.emulate import CanNotEmulate, CanNotListen, NodeSettings, emulated
from slipstream.emulate.alphas import Alphas, parse_alphas

__all__ = ["emulate"]


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
    speculator: Annotated[str, typer.Option(help="What drafts: none, ngram or draft.")] = "none",
    k: Annotated[int, typer.Option("--k", min=1, max=64, help="Tokens it drafts a verify step.")] = 4,
    alpha: Annotated[
        str, typer.Option(help="Per-token acceptance, 0..1: one for all, by category, or both: 0.6,code=0.85.")
    ] = "0.6",
    alpha_spread: Annotated[
        float, typer.Option(help="Standard deviation of the acceptance between requests of a category.")
    ] = 0.0,
    proposing_share: Annotated[
        float | None, typer.Option(help="Share of steps that draft, 0..1; 1 when left out, with ngram 0.5.")
    ] = None,
    ttft_ms: Annotated[float, typer.Option(help="Time from a free slot to the first token.")] = 50.0,
    step_ms: Annotated[float, typer.Option(help="Time of a decode step: 1 token and the accepted ones.")] = 20.0,
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
        settings = NodeSettings(
            model=model,
            slots=slots,
            speculator=_speculator(speculator),
            k=k,
            alphas=_alphas(alpha, alpha_spread),
            proposing_share=proposing_share,
            ttft_s=ttft_ms / 1000,
            step_s=step_ms / 1000,
            output_tokens=output_tokens,
            queue_limit=queue_limit,
            queue_status=queue_status,
            metrics=metrics,
            request_statistics=per_request_spec_decode_metrics,
            seed=seed,
        )
        uvloop.run(_serve(dialect, settings, host, port, as_json=as_json))
    except (CanNotEmulate, CanNotListen) as error:
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

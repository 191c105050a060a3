"""``slipstream bench``: what a server is worth to those who wait for it, measured from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.bench_options import Question

__all__ = ["bench"]


def bench(
    words: Annotated[
        list[str],
        typer.Argument(help="The server's URL, or with --compare two of NAME=URL; targets may stand here, too."),
    ],
    rate: Annotated[float | None, typer.Option(help="Requests a second, on average.")] = None,
    arrivals: Annotated[
        str | None,
        typer.Option(help="poisson, constant, gamma:cv=2 or bursts:times=4,burst=5,every=30; poisson when left out."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="Arrivals and lengths of a trace (Azure, Mooncake, BurstGPT); --rate plays it faster."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Instead of a rate: so many at once, each after the one before.")
    ] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, help="Requests to send, with the warm-up; 100, or the whole trace.")
    ] = None,
    duration: Annotated[str | None, typer.Option(help="Instead: how long requests arrive, as 60s or 5m.")] = None,
    warm_up: Annotated[
        int | None, typer.Option(min=0, help="The first requests, not counted; a tenth when left out.")
    ] = None,
    prompt_tokens: Annotated[
        str | None,
        typer.Option(help="512, 100-900, exponential:mean=200 or lognormal:mean=350,p95=900; 512 when left out."),
    ] = None,
    output_tokens: Annotated[str | None, typer.Option(help="In the same way; 128 when left out.")] = None,
    categories: Annotated[
        str, typer.Option(help="Kinds of prompts with their shares, as code=2,chat=1; names are the gateway's.")
    ] = "chat",
    goodput: Annotated[
        list[str] | None,
        typer.Option(help="Targets: ttft:500 tpot:50 e2el:5000, milliseconds or with a unit; all must be met."),
    ] = None,
    find_max: Annotated[
        bool, typer.Option("--find-max", help="Look for the highest rate at which enough requests meet the targets.")
    ] = False,
    attainment: Annotated[
        float,
        typer.Option(min=0.01, max=1.0, help="Share of requests that must meet them for --find-max to go higher."),
    ] = 0.9,
    points: Annotated[int, typer.Option(min=1, help="Most rates that --find-max measures.")] = 16,
    compare: Annotated[
        list[str] | None,
        typer.Option(help="NAME=URL, twice: send parts of one plan to both in turn, and tell the difference."),
    ] = None,
    parts: Annotated[
        int | None,
        typer.Option(min=2, help="Parts of the plan to --compare by; 10 when left out, if it is long enough."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model to ask for; the first that it names.")] = None,
    ignore_eos: Annotated[
        bool,
        typer.Option("--ignore-eos/--no-ignore-eos", help="Ask for answers of full length, as most engines can."),
    ] = True,
    api_key_variable: Annotated[
        str | None, typer.Option(help="Environment variable with the API key to send; none when left out.")
    ] = None,
    admin: Annotated[
        list[str] | None,
        typer.Option(help="Admin API of a gateway under load, to see how much runs: URL, or NAME=URL of two."),
    ] = None,
    timeout: Annotated[str, typer.Option(help="How long one answer may take.")] = "10m",
    seed: Annotated[
        int, typer.Option(min=0, help="The same one gives requests of the same lengths at the same times.")
    ] = 1,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this .png or .svg file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Send load to an OpenAI-compatible server and measure goodput and latencies, with intervals.

    Exit status 0: measured; 1: the server can not be measured; 2: bad options; 3: the generator fell behind; 4: targets
    that no request meets; 5: too few requests to tell; 130: interrupted.
    """
    from slipstream.cli.bench_run import run  # numbers are loaded by who measures, not by who asks for help

    run(
        Question(
            words=tuple(words),
            goodput=tuple(goodput or ()),
            compare=tuple(compare or ()),
            find_max=find_max,
            rate=rate,
            arrivals=arrivals,
            trace=trace,
            concurrency=concurrency,
            requests=requests,
            duration=duration,
            warm_up=warm_up,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            categories=categories,
            attainment=attainment,
            points=points,
            parts=parts,
            model=model,
            ignore_eos=ignore_eos,
            api_key_variable=api_key_variable,
            admin=tuple(admin or ()),
            timeout=timeout,
            seed=seed,
            plot=plot,
            as_json=as_json,
        )
    )

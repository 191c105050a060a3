"""``slipstream calibrate``: where speculation stops paying on this deployment, measured on its own engines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.admin_client import TokenFile
from slipstream.cli.calibrate_question import Question

__all__ = ["calibrate"]


def calibrate(
    standard: Annotated[str | None, typer.Option(help="URL of a node without a speculator.")] = None,
    speculative: Annotated[
        list[str] | None, typer.Option(help="URL of one with; several times for several draft lengths.")
    ] = None,
    node: Annotated[
        str | None, typer.Option(help="URL of one node in place of two, measured in both roles: --agent changes them.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option(help="Of --node: URL of its agent (`slipstream node`), which leaves it as it was.")
    ] = None,
    agent_token_file: Annotated[
        Path | None,
        typer.Option(help="File with the agent's token; the variable SLIPSTREAM_AGENT_TOKEN when left out."),
    ] = None,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Start two llama.cpp nodes on this machine and take those.")
    ] = False,
    gguf: Annotated[
        Path | None, typer.Option(help="Of --embedded nodes: file to serve; SmolLM2-135M when left out.")
    ] = None,
    slots: Annotated[int, typer.Option(min=1, max=256, help="Of --embedded nodes: sequences at once.")] = 8,
    speculator: Annotated[
        str | None,
        typer.Option(help="What drafts, where the engine does not say: draft or ngram; embedded also draft:PATH."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="How long it may take, what matters most first; 5m, or 2m of --embedded nodes.")
    ] = None,
    largest: Annotated[
        int | None, typer.Option(min=1, help="Largest batch size; what the nodes take, or 64, when left out.")
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(
            help="Tokens of a prompt; several, as 256,2048, share the ceiling. 256, or 64 of --embedded nodes."
        ),
    ] = None,
    categories: Annotated[str, typer.Option(help="Kinds of prompts, in turn; names are the gateway's.")] = "code,chat",
    output_tokens: Annotated[int, typer.Option(min=16, help="Tokens of an answer.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="How often each batch size is visited at most.")] = 10,
    model: Annotated[str | None, typer.Option(help="Model to ask for; the first that each names.")] = None,
    api_key_variable: Annotated[
        str | None, typer.Option(help="Environment variable with the nodes' API key; none when left out.")
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Measure even where others use the nodes, or might.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="Write the profile into this file.")] = None,
    form: Annotated[str, typer.Option(help="Of the profile: table or linear.")] = "table",
    hardware: Annotated[str | None, typer.Option(help="What the nodes run on, for the profile: 1x H100 SXM.")] = None,
    engine_version: Annotated[
        str | None, typer.Option(help="For the profile, where the engine does not tell it.")
    ] = None,
    flags: Annotated[str, typer.Option(help="The engine's flags, for whoever reads the profile.")] = "",
    apply: Annotated[
        str | None, typer.Option(help="Admin URL of a running gateway that takes over the ceiling.")
    ] = None,
    token_file: TokenFile = None,
    seed: Annotated[int, typer.Option(min=0, help="The same one gives the same prompts.")] = 1,
    plot: Annotated[Path | None, typer.Option(help="Draw the curves into this .png or .svg file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Measure a speculative node against a standard one: step times, acceptance, where speculation stops paying.

    Exit status 0: measured; 1: a node can not be measured; 2: bad options; 3: a node has other traffic; 5: too few
    requests to tell; 130: interrupted.
    """
    from slipstream.cli.calibrate_run import run  # numbers are loaded by who measures, not by who asks for help

    run(
        Question(
            standard=standard,
            speculative=tuple(speculative or ()),
            node=node,
            agent=agent,
            agent_token_file=agent_token_file,
            embedded=embedded,
            gguf=gguf,
            slots=slots,
            speculator=speculator,
            budget=budget,
            largest=largest,
            context=context,
            categories=categories,
            output_tokens=output_tokens,
            rounds=rounds,
            model=model,
            api_key_variable=api_key_variable,
            shared=shared,
            output=output,
            form=form,
            hardware=hardware,
            engine_version=engine_version,
            flags=flags,
            apply=apply,
            token_file=token_file,
            seed=seed,
            plot=plot,
            as_json=as_json,
        )
    )

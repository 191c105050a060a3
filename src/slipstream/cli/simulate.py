"""``slipstream simulate``: what policies are worth on a fleet that is described in a file, in virtual time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from slipstream.cli.simulate_question import changes_of, grid_of, narrowed, seeds_of
from slipstream.core.errors import ConfigError
from slipstream.costmodel.errors import ImpossibleInput

__all__ = ["simulate"]

BAD_INPUT = 2
INTERRUPTED = 130


def simulate(
    scenario: Annotated[Path, typer.Argument(help="Fleet, traffic, targets and policies, as in examples/.")],
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Simulate this policy of the scenario, or the bound; several by repeating; all left out."),
    ] = None,
    seed: Annotated[
        str | None, typer.Option(help="Seeds instead of those of the scenario, several with commas.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Instead: how many, counted from 1; two give intervals.")
    ] = None,
    window: Annotated[
        float | None, typer.Option(help="Seconds of traffic that count, instead of the scenario's.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A change, as ceiling=12; docs/reference/scenario.md has all.")
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(help="Every combination of changes: rate=40,60,80,ceiling=8..16:4 (first..last:step)."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes to run on; as many as there are cores when left out.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also by class, category and node; of a sweep, every point in full.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Simulate a fleet under several policies, and say what each is worth."""
    with _one_sentence():
        from slipstream.cli.simulate_answer import answer_of
        from slipstream.cli.simulate_report import missing_sentence, simulate_report
        from slipstream.cli.simulate_runs import jobs_for, made
        from slipstream.scenarios import read_scenario
        from slipstream.sim.sweep import Point, points_of

        grid = grid_of(sweep or ())
        changes = changes_of(settings or ())
        if window is not None:
            changes["window_s"] = window
        for name in grid:
            if name in changes:
                raise ImpossibleInput(f"--sweep varies {name}, which is set to one value as well")
        wanted = seeds_of(seed, seeds)
        points = [
            Point(values, narrowed(read_scenario(scenario, changes={**changes, **values}), policy or (), wanted))
            for values in points_of(grid)
        ]
        processes = jobs or jobs_for(points)
        runs = made(points, processes)
        answer = answer_of(points, runs, processes)
    if as_json:
        print(json.dumps(answer, indent=2))
    else:
        Console().print(simulate_report(answer, verbose=verbose))
    if runs.missing:
        total = len(runs.missing) + len(runs.trials)
        typer.echo(f"slipstream simulate: {missing_sentence(answer['missing'], total)}", err=True)
        raise typer.Exit(INTERRUPTED)


@contextmanager
def _one_sentence() -> Iterator[None]:
    """What can not be simulated is one sentence for each problem, and exit status 2."""
    from slipstream.sim.sweep import TrialFailed

    try:
        yield
    except ConfigError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(BAD_INPUT) from None
    except (ImpossibleInput, TrialFailed) as error:
        typer.echo(f"slipstream simulate: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from None

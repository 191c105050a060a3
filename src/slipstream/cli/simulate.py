"""``slipstream simulate``: what policies are worth on a fleet that is described in a file, in virtual time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType

from slipstream.cli.crossover_question import given_names
from slipstream.cli.picture import check_picture
from slipstream.cli.simulate_question import Question, baseline_of, changes_of, grid_of, seeds_of
from slipstream.cli.stopping import unwinding
from slipstream.core.errors import ConfigError
from slipstream.costmodel.errors import ImpossibleInput

__all__ = ["simulate"]

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130


def simulate(
    scenario: Annotated[Path, typer.Argument(help="Fleet, traffic, targets and policies, as in examples/.")],
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A policy of the scenario, or bound; several by repeating, all when left out."),
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
    compare: Annotated[
        bool, typer.Option("--compare", help="Also what each policy has more than the first one, seed by seed.")
    ] = False,
    baseline: Annotated[str | None, typer.Option(help="Instead: more than this policy.")] = None,
    replay: Annotated[
        list[Path] | None,
        typer.Option(help="Recorded traffic, decisions.jsonl, in place of the scenario's; several by repeating."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw goodput over load, or what is swept, and latency into this .png or .svg file."),
    ] = None,
    events: Annotated[
        Path | None,
        typer.Option(help="Write what happens as JSON lines; of several runs each into NAME-POLICY-SEED."),
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
    with _one_sentence(), unwinding():
        question = Question(
            scenario,
            tuple(policy or ()),
            seeds_of(seed, seeds),
            changes_of(settings or (), window),
            grid_of(sweep or ()),
        )
        if replay:
            idle = given_names(sweep=sweep, compare=compare, baseline=baseline, plot=plot, events=events)
            if idle or verbose:
                raise ImpossibleInput(f"{(idle or ['--verbose'])[0]} means nothing with --replay")
            _replay(question, replay, jobs, as_json=as_json)
            return
        _simulate(question, baseline, plot, events, jobs, compare=compare, verbose=verbose, as_json=as_json)


def _simulate(
    question: Question,
    baseline: str | None,
    plot: Path | None,
    events: Path | None,
    jobs: int | None,
    *,
    compare: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    from slipstream.cli.simulate_answer import answer_of
    from slipstream.cli.simulate_events import event_files
    from slipstream.cli.simulate_report import missing_sentence, scenario_title, simulate_report
    from slipstream.cli.simulate_runs import jobs_for, made
    from slipstream.sim.sweep import collect

    if plot is not None:
        check_picture(plot)
    points = question.points()
    wanted = len(points)
    compared = baseline_of(points[0].scenario, baseline) if compare or baseline is not None else None
    if events is not None and question.grid:
        raise ImpossibleInput("--events is for single runs: give one value with --set instead of several with --sweep")
    files = event_files(events, points[0].scenario, question.file)
    if plot is not None and not question.grid:
        points += question.loads()
    processes = jobs or jobs_for(points)
    runs = made(points, processes, files)
    results = collect(points, runs.trials)
    answer = answer_of(results[:wanted], points, runs, processes, compared)
    if plot is not None:
        from slipstream.cli.simulate_plot import draw

        draw(scenario_title(answer["scenario"]), results, results[wanted - 1], plot)
    _show(answer, lambda told: simulate_report(told, verbose=verbose), as_json=as_json)
    if runs.missing:
        sentence = missing_sentence(answer["missing"], len(runs.missing) + len(runs.trials))
        typer.echo(f"slipstream simulate: {sentence}", err=True)
        raise typer.Exit(INTERRUPTED)


def _replay(question: Question, files: Sequence[Path], jobs: int | None, *, as_json: bool) -> None:
    from slipstream.cli.simulate_replay import replay_report, replayed

    _show(replayed(question.points()[0].scenario, files, jobs), replay_report, as_json=as_json)


def _show(answer: Mapping[str, Any], report: Callable[[Mapping[str, Any]], RenderableType], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(answer, indent=2))
    else:
        Console().print(report(answer))


@contextmanager
def _one_sentence() -> Iterator[None]:
    """What can not be simulated is one sentence for each problem, and exit status 2."""
    from slipstream.sim.recorded import NothingToReplay
    from slipstream.sim.sweep import TrialFailed
    from slipstream.telemetry.recording import RecordingUnreadable

    try:
        yield
    except ConfigError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(BAD_INPUT) from None
    except (ImpossibleInput, RecordingUnreadable, NothingToReplay) as error:
        typer.echo(f"slipstream simulate: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from None
    except TrialFailed as error:
        typer.echo(f"slipstream simulate: {error}", err=True)
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        typer.echo("slipstream simulate: interrupted before anything was finished", err=True)
        raise typer.Exit(INTERRUPTED) from None

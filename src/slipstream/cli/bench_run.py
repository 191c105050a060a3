"""A question to ``slipstream bench`` from its words to its answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from secrets import randbits
from time import monotonic
from typing import Any, TypeVar

import typer
import uvloop
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

from slipstream.bench.compare import Arm, alternated, compared, warm_up_of
from slipstream.bench.errors import ServerUnusable, TargetsOutOfReach
from slipstream.bench.find_max import find_max
from slipstream.bench.measurement import measured
from slipstream.bench.measures import Measures, measures_of
from slipstream.bench.report import comparison_document, search_document, target_document
from slipstream.bench.running import RunningSource, admin_source, engine_source
from slipstream.bench.samples import samples_of
from slipstream.bench.server import Sight, look_at
from slipstream.bench.verdict import Status, Verdict, is_out_of_reach, out_of_reach, verdict_of, verdict_of_search
from slipstream.cli.bench_asked import Asked, asked_of
from slipstream.cli.bench_options import Question
from slipstream.cli.bench_report import bench_report
from slipstream.cli.descriptors import allow_many_connections
from slipstream.cli.drawn_bar import drawn_bar
from slipstream.cli.stopping import stop_signals
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.load import LoadResult
from slipstream.workload.errors import ImpossibleWorkload, TraceUnreadable
from slipstream.workload.plan import Plan

__all__ = ["run"]


_Found = TypeVar("_Found")


class _Stopped(Exception):
    """Told to stop before anything was measured."""


def run(question: Question) -> None:
    """Measure, print, and exit with the status that says how it went."""
    try:
        asked = asked_of(question)
        allow_many_connections()
        answer, verdict = uvloop.run(_answered(asked))
        if question.as_json:
            print(json.dumps(answer, indent=2))
        else:
            Console(highlight=False).print(bench_report(answer))
    except (ImpossibleInput, ImpossibleWorkload, TraceUnreadable) as error:
        raise _ended(Status.IMPOSSIBLE, str(error)) from None
    except ServerUnusable as error:
        raise _ended(Status.UNUSABLE, str(error)) from None
    except TargetsOutOfReach as error:
        raise _ended(Status.OUT_OF_REACH, str(error)) from None
    except _Stopped:
        raise _ended(Status.INTERRUPTED, "interrupted before anything was measured") from None
    if verdict.sentences:
        raise _ended(verdict.status, *verdict.sentences)


def _ended(status: Status, *sentences: str) -> typer.Exit:
    for sentence in sentences:
        typer.echo(f"slipstream bench: {sentence}", err=True)
    return typer.Exit(int(status))


async def _answered(asked: Asked) -> tuple[dict[str, Any], Verdict]:
    started_at = monotonic()
    with stop_signals() as stop:
        async with drawn_bar(_Shown, MofNCompleteColumn()) as shown:
            plan = asked.traffic.plan(asked.rate)
            asked.warm_up_of(len(plan))
            sights = [await _unless(_looked_at(asked, url, plan), stop) for _, url in asked.servers]
            if asked.find_max:
                answer, verdict = await _searched(asked, sights[0], stop, shown)
            elif len(sights) == 2:
                answer, verdict = await _compared(asked, plan, sights, stop, shown)
            else:
                answer, verdict = await _measured(asked, plan, sights[0], stop, shown)
    wall_s = monotonic() - started_at
    rate = shown.ended / wall_s if wall_s > 0.0 else None
    return {
        "title": asked.title,
        **answer,
        "run": {"requests": shown.ended, "wall_s": wall_s, "requests_per_s": rate, "seed": asked.traffic.seed},
        "verdict": {"status": int(verdict.status), "sentences": list(verdict.sentences)},
    }, verdict


async def _looked_at(asked: Asked, url: str, plan: Plan) -> Sight:
    """Raises ServerUnusable also where a target needs what the server does not say."""
    sight = await look_at(
        url,
        asked.model,
        plan,
        seed=_prompt_seed(),
        headers=asked.headers,
        fields=asked.fields,
        timeout_s=asked.timeout_s,
    )
    if asked.target.tpot_s is not None and not sight.counts_tokens:
        raise ServerUnusable(
            f"{url} sends no usage with its streams, so that its tokens are not known: there is no TPOT to hold "
            "against the target tpot"
        )
    return sight


async def _measured(
    asked: Asked, plan: Plan, sight: Sight, stop: asyncio.Event, shown: _Shown
) -> tuple[dict[str, Any], Verdict]:
    [(name, url)] = asked.servers
    shown.begin(asked.load, len(plan))
    async with _running(asked, name, sight) as running:
        measurement = await measured(
            sight.server,
            plan,
            warm_up=asked.warm_up_of(len(plan)),
            seed=_prompt_seed(),
            stop=stop,
            concurrency=asked.concurrency,
            running=running,
            on_result=shown.advance,
        )
    samples = samples_of(measurement, asked.target)
    target = target_document(name, url, sight.server.model, samples, measurement.running)
    verdict = verdict_of(
        [measures_of(samples)],
        list(target["errors"]),
        interrupted=measurement.interrupted,
        in_flight=measurement.in_flight,
    )
    if asked.plot is not None:
        from slipstream.cli.bench_plot import draw_latencies

        draw_latencies(asked.title, {name: samples}, asked.plot)
    return {"targets": [target]}, verdict


async def _compared(
    asked: Asked, plan: Plan, sights: Sequence[Sight], stop: asyncio.Event, shown: _Shown
) -> tuple[dict[str, Any], Verdict]:
    names = [(name, url, sight.server.model) for (name, url), sight in zip(asked.servers, sights, strict=True)]
    parts = asked.parts_of(len(plan))
    shown.begin(f"{names[0][0]} and {names[1][0]} in turn", 2 * len(plan))
    async with _running(asked, names[0][0], sights[0]) as first, _running(asked, names[1][0], sights[1]) as second:
        pairs = await alternated(
            (Arm(names[0][0], sights[0].server, first), Arm(names[1][0], sights[1].server, second)),
            plan,
            parts=parts,
            warm_up=warm_up_of(len(plan) // parts, asked.warm_up_of(len(plan)) / len(plan)),
            seed=_prompt_seed(),
            stop=stop,
            concurrency=asked.concurrency,
            on_result=shown.advance,
        )
    if not pairs:
        raise _Stopped
    comparison = compared(pairs, asked.target, interrupted=len(pairs) < parts)
    document = comparison_document(names, comparison)
    verdict = verdict_of(
        comparison.measures,
        [error for target in document["targets"] for error in target["errors"]],
        interrupted=comparison.interrupted,
        in_flight=0,
    )
    if asked.plot is not None:
        from slipstream.cli.bench_plot import draw_latencies

        drawn = {name: samples for (name, _, _), samples in zip(names, comparison.samples, strict=True)}
        draw_latencies(asked.title, drawn, asked.plot)
    return document, verdict


async def _searched(asked: Asked, sight: Sight, stop: asyncio.Event, shown: _Shown) -> tuple[dict[str, Any], Verdict]:
    if is_out_of_reach(sight.alone, asked.target):
        raise TargetsOutOfReach(out_of_reach(sight.alone, asked.target))
    alone_s = min(result.latency.e2e_s for result in sight.alone if result.latency is not None)

    async def measure_at(rate: float) -> Measures | None:
        plan = asked.traffic.plan(rate)
        shown.begin(f"at {rate:.3g} requests a second", len(plan))
        measurement = await measured(
            sight.server,
            plan,
            warm_up=asked.warm_up_of(len(plan)),
            seed=_prompt_seed(),
            stop=stop,
            on_result=shown.advance,
        )
        return None if measurement.interrupted else measures_of(samples_of(measurement, asked.target))

    search = await find_max(
        measure_at,
        start=asked.rate or 1.0 / alone_s,
        attainment=asked.attainment,
        narrow=asked.narrow,
        most_points=asked.points,
        lowest=0.1 / alone_s,
    )
    if not search.points:
        raise _Stopped
    document = search_document(search, asked.attainment)
    if asked.plot is not None:
        from slipstream.cli.bench_plot import draw_search

        draw_search(asked.title, document["points"], asked.attainment, asked.plot)
    return {"find_max": document}, verdict_of_search(search, asked.attainment)


@asynccontextmanager
async def _running(asked: Asked, name: str, sight: Sight) -> AsyncIterator[RunningSource | None]:
    """Raises ImpossibleInput where the admin API that was named does not answer."""
    admin = asked.admins.get(name)
    if admin is None:
        async with engine_source(sight.server.root_url, asked.api_key) as source:
            yield source
        return
    async with admin_source(admin, asked.admin_token) as source:
        if source is None:
            raise ImpossibleInput(f"no admin API answers at {admin}")
        yield source


def _prompt_seed() -> int:
    """Another one each time: what an earlier run has left in a cache of prefixes must not make this one faster.
    Arrivals and lengths have the seed that was asked for.
    """
    return randbits(48)


async def _unless(work: Coroutine[Any, Any, _Found], stop: asyncio.Event) -> _Found:
    """What the work finds. Raises `_Stopped` when told to stop before."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not working.done():
        working.cancel()
        await asyncio.wait((working,))
        raise _Stopped
    return await working


class _Shown:
    """How many requests have ended, as a bar."""

    def __init__(self, progress: Progress) -> None:
        self.ended = 0
        self.begun = 0
        self._before = 0
        self._progress = progress
        self._task = progress.add_task("looking at the server", total=None)

    def begin(self, what: str, requests: int) -> None:
        """Another load of so many requests."""
        self.begun += 1
        self._before = self.ended
        self._progress.reset(self._task, total=requests, description=what)

    def advance(self, _result: LoadResult) -> None:
        """One has ended."""
        self.ended += 1

    def draw(self) -> None:
        """Bring the bar up to date."""
        if self.begun:
            self._progress.update(self._task, completed=self.ended - self._before)
        self._progress.refresh()

"""A question to ``slipstream calibrate`` from its options to its answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from textwrap import fill
from time import monotonic

import typer
import uvloop
from rich.console import Console
from rich.progress import Progress

from slipstream.agent.errors import AgentError
from slipstream.calibrate.errors import NodeBusy, NodeUnusable
from slipstream.calibrate.findings import Findings, findings_of
from slipstream.calibrate.measured_profile import profile_document
from slipstream.calibrate.node import CalibratedNode, known_node
from slipstream.calibrate.plan import CalibrationPlan, batch_sizes
from slipstream.calibrate.report import Status, Verdict, calibration_document, verdict_of
from slipstream.calibrate.run import Terms, calibrate, calibrate_in_turn
from slipstream.cli.admin_client import AdminUnreachable, fetch, reading
from slipstream.cli.calibrate_asked import Asked, asked_of
from slipstream.cli.calibrate_question import Question
from slipstream.cli.calibrate_report import calibrate_report
from slipstream.cli.descriptors import allow_many_connections
from slipstream.cli.drawn_bar import drawn_bar
from slipstream.cli.local_fleet import local_nodes
from slipstream.cli.node_roles import node_roles
from slipstream.cli.override import sentence
from slipstream.cli.stopping import stop_signals
from slipstream.core.request import Pool
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.profiles import profile_of
from slipstream.embedded.errors import EmbeddedError
from slipstream.telemetry.logs import configure_logs

__all__ = ["run"]

LARGEST = 64
"""Where no node says how many sequences it takes."""


def run(question: Question) -> None:
    """Measure, print, and exit with the status that says how it went."""
    try:
        asked = asked_of(question)
        configure_logs("warning", "console")
        allow_many_connections()
        findings, left = uvloop.run(_found(asked))
    except ImpossibleInput as error:
        raise _ended(Status.IMPOSSIBLE, str(error)) from None
    except NodeBusy as error:
        raise _ended(Status.BUSY, str(error)) from None
    except (NodeUnusable, EmbeddedError, AgentError) as error:
        raise _ended(Status.UNUSABLE, str(error)) from None
    verdict = verdict_of(findings)
    answer = {
        "title": _title(findings),
        **calibration_document(findings),
        "verdict": {"status": int(verdict.status), "sentences": list(verdict.sentences)},
    }
    if question.plot is not None:
        from slipstream.cli.calibrate_plot import draw

        draw(answer, question.plot)
    status, told = _handed_on(asked, findings, verdict)
    if question.as_json:
        print(json.dumps(answer, indent=2))
    else:
        Console(highlight=False).print(calibrate_report(answer))
        for one in told:
            print(fill(one, Console().width, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False))
    if left:
        status = max(status, Status.UNUSABLE)
    if verdict.sentences or status is not Status.MEASURED:
        raise _ended(
            status, *verdict.sentences, *left, *(told if question.as_json and status is not verdict.status else ())
        )


def _title(findings: Findings) -> str:
    drafting, plain = findings.observed.speculative[0].node.name, findings.observed.standard.node.name
    return f"{drafting} with and without its speculator" if drafting == plain else f"{drafting} against {plain}"


def _ended(status: Status, *sentences: str) -> typer.Exit:
    for one in sentences:
        typer.echo(f"slipstream calibrate: {one}", err=True)
    return typer.Exit(int(status))


def _handed_on(asked: Asked, findings: Findings, verdict: Verdict) -> tuple[Status, list[str]]:
    """The profile into its file and the ceiling to the gateway, as was asked for: the status, and what there is to say.

    Of a calibration that did not come to its end nothing is applied.
    """
    question, told, status = asked.question, [], verdict.status
    if question.output is not None:
        try:
            document = profile_document(
                findings,
                asked.form,
                hardware=asked.hardware,
                date=datetime.now(UTC).date().isoformat(),
                engine_version=question.engine_version,
                flags=question.flags,
            )
            profile_of(document, str(question.output))  # what could not be read must not be written
            question.output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        except (ValueError, ImpossibleInput) as error:
            told.append(f"no profile: {error}")
            status = max(status, Status.UNUSABLE)
        except OSError as error:
            told.append(f"no profile: {question.output} can not be written: {error.strerror}")
            status = max(status, Status.UNUSABLE)
        else:
            told.append(f"profile  {question.output}")
    if question.apply is not None:
        if findings.ceiling is None or verdict.status is not Status.MEASURED:
            told.append("nothing was applied, since no ceiling is sure")
            if any(curve.batch_sizes[:1] == curve.untold[:1] for curve in findings.speculative[0].curves):
                status = max(status, Status.TOO_FEW)  # not that speculation does not pay: whether it does is not known
        else:
            try:
                told.append(_applied(question, findings.ceiling, findings.observed.plan))
            except AdminUnreachable as error:
                told.append(f"the ceiling was not applied: {error}")
                status = max(status, Status.UNUSABLE)
    return status, told


def _applied(question: Question, ceiling: int, plan: CalibrationPlan) -> str:
    url = str(question.apply)
    body = {
        "kind": "pool_ceiling",
        "subject": Pool.SPECULATIVE.value,
        "value": ceiling,
        "note": f"slipstream calibrate, plan {plan.fingerprint}",
        "measured": True,
    }
    with reading(url):
        return sentence(fetch(url, "/overrides", question.token_file, method="POST", body=body)["override"])


async def _found(asked: Asked) -> tuple[Findings, list[str]]:
    """What was measured, and in sentences what is not as it was before."""
    question = asked.question
    with stop_signals() as stop:
        async with AsyncExitStack() as stack:
            standard_url, speculative_urls = asked.standard, asked.speculative
            if question.embedded:
                started = local_nodes(model=question.gguf, speculator=asked.drafts, slots=question.slots)
                drafting, plain = await stack.enter_async_context(started)
                speculative_urls, standard_url = (drafting["url"],), plain["url"]

            async def known(url: str, *, drafts: bool) -> CalibratedNode:
                kind = asked.speculator_kind if drafts else None
                node = await known_node(url, model=question.model, api_key=asked.api_key, speculator_kind=kind)
                stack.callback(node.close)
                return node

            roles = None
            if question.agent is not None:
                roles = await stack.enter_async_context(node_roles(question.agent, asked.agent_token))
            nodes = [await known(standard_url, drafts=False)]
            nodes += [await known(url, drafts=True) for url in speculative_urls]
            plan = CalibrationPlan(
                batch_sizes(question.largest or _capacity(nodes)),
                asked.contexts,
                asked.categories,
                question.output_tokens,
                question.rounds,
                question.seed,
            )
            progress = await stack.enter_async_context(drawn_bar(lambda bar: _Shown(bar, asked.budget_s)))
            terms = Terms(asked.budget_s, question.shared, stop, progress.say)
            if roles is None:
                return findings_of(await calibrate(nodes[0], nodes[1:], plan, terms)), []

            async def in_role(drafts: bool) -> CalibratedNode:
                await roles.take(Pool.SPECULATIVE if drafts else Pool.STANDARD)
                return await known(standard_url, drafts=drafts)

            left = []
            try:
                observed = await calibrate_in_turn(nodes[0], in_role, plan, terms)
            finally:
                progress.say(f"the node becomes {roles.before} again")
                try:
                    await roles.take(roles.before)
                except NodeUnusable as error:
                    left.append(f"it is not as it was: {error}")
            return findings_of(observed), left


def _capacity(nodes: Sequence[CalibratedNode]) -> int:
    return min((node.facts.capacity for node in nodes if node.facts.capacity), default=LARGEST)


class _Shown:
    """The progress bar: how much of the budget is used up, and what is measured."""

    def __init__(self, progress: Progress, budget_s: float) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=budget_s)
        self._began_at = monotonic()
        self._what = ""

    def say(self, what: str) -> None:
        """What is measured from now on."""
        self._what = what

    def draw(self) -> None:
        """Bring the bar up to date."""
        self._progress.update(self._task, completed=monotonic() - self._began_at, description=self._what)
        self._progress.refresh()

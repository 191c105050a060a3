"""What is asked of ``slipstream calibrate``, checked against itself before anything is started or sent."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from slipstream.calibrate.measured_profile import Form
from slipstream.cli.bench_question import seconds_of
from slipstream.cli.calibrate_question import Question
from slipstream.cli.node import TOKEN_VARIABLE as AGENT_TOKEN_VARIABLE
from slipstream.cli.option_values import whole_numbers
from slipstream.cli.picture import check_picture
from slipstream.config.values import secret_from_file
from slipstream.core.node import SpeculatorKind
from slipstream.costmodel.errors import ImpossibleInput

__all__ = ["Asked", "asked_of"]

MOST_CONTEXT = 1_000_000
ELSEWHERE, EMBEDDED = ("5m", "256"), ("2m", "64")
"""Budget and context where none is given; on the cores of this machine, prompts take long."""


@dataclass(frozen=True, slots=True)
class Asked:
    """``standard`` is empty where the nodes are to be started here, and the only node where its agent changes its role.
    ``speculator_kind``: ``None`` = as reported.
    """

    standard: str
    speculative: tuple[str, ...]
    agent_token: str | None
    speculator_kind: SpeculatorKind | None
    drafts: str
    budget_s: float
    contexts: tuple[int, ...]
    categories: tuple[str, ...]
    api_key: str | None
    form: Form
    hardware: str
    question: Question


def asked_of(question: Question) -> Asked:
    """Raises `ImpossibleInput` with a sentence."""
    budget, context = EMBEDDED if question.embedded else ELSEWHERE
    contexts = dict.fromkeys((question.context or context).split(","))  # the first one asked for stays the first
    by_size = [whole_numbers("--context", text, 1, MOST_CONTEXT)[0] for text in contexts]
    categories = tuple(dict.fromkeys(name.strip() for name in question.categories.split(",") if name.strip()))
    if not categories:
        raise ImpossibleInput("--categories names at least one kind of prompt, as in code,chat")
    if question.form not in ("table", "linear"):
        raise ImpossibleInput(f"--form is table or linear, not {question.form!r}")
    if question.plot is not None:
        check_picture(question.plot)
    if question.output is not None and not question.output.parent.is_dir():
        raise ImpossibleInput(f"{question.output} can not be written: {question.output.parent} is no folder")
    return Asked(
        standard="" if question.embedded else _urls(question),
        speculative=question.speculative,
        agent_token=None if question.agent is None else _agent_token(question.agent_token_file),
        speculator_kind=_kind(question),
        drafts=question.speculator or "ngram",
        budget_s=seconds_of("--budget", question.budget or budget),
        contexts=tuple(by_size),
        categories=categories,
        api_key=_api_key(question.api_key_variable),
        form=cast("Form", question.form),
        hardware=_hardware(question),
        question=question,
    )


def _urls(question: Question) -> str:
    """The standard node's, or that of the only one."""
    if question.gguf is not None:
        raise ImpossibleInput("--gguf only counts beside --embedded")
    if question.node is not None or question.agent is not None:
        return _with_agent(question)
    if question.standard is None or not question.speculative:
        raise ImpossibleInput("give --standard URL and --speculative URL, or --node URL and --agent URL, or --embedded")
    urls = [_root(url) for url in (question.standard, *question.speculative)]
    _check_urls(*urls)
    if len(set(urls)) < len(urls):
        raise ImpossibleInput(
            f"{max(urls, key=urls.count)} is given twice: each node has a URL of its own; one in both roles is --node"
        )
    return question.standard


def _with_agent(question: Question) -> str:
    if question.node is None or question.agent is None:
        raise ImpossibleInput("--node URL is the node, and --agent URL what changes its role: give both")
    if question.standard is not None or question.speculative:
        raise ImpossibleInput("--node is measured in both roles: leave --standard and --speculative out")
    _check_urls(_root(question.node), question.agent)
    return question.node


def _agent_token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(AGENT_TOKEN_VARIABLE) or None
    try:
        return secret_from_file(str(file))
    except ValueError as error:
        raise ImpossibleInput(f"--agent-token-file needs {error}") from None


def _check_urls(*urls: str) -> None:
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise ImpossibleInput(f"a node's URL is http://HOST:PORT, not {url!r}")


def _root(url: str) -> str:
    return url.rstrip("/").removesuffix("/v1")


def _kind(question: Question) -> SpeculatorKind | None:
    if question.embedded:
        if question.standard is not None or question.speculative or question.node is not None:
            raise ImpossibleInput("--embedded starts nodes of its own: leave --standard, --speculative and --node out")
        return SpeculatorKind.NGRAM if question.speculator in (None, "ngram") else SpeculatorKind.DRAFT
    if question.speculator is None:
        return None
    if question.speculator not in tuple(SpeculatorKind):
        raise ImpossibleInput(f"--speculator is {' or '.join(SpeculatorKind)}, not {question.speculator!r}")
    return SpeculatorKind(question.speculator)


def _hardware(question: Question) -> str:
    """What it runs on; empty where nobody has to know."""
    if question.hardware:
        return question.hardware
    if question.embedded:
        return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    if question.output is not None:
        raise ImpossibleInput("a profile says what it holds for: give --hardware, as in --hardware '1x H100 SXM'")
    return ""


def _api_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise ImpossibleInput(f"the environment variable {variable} with the API key is not set")
    return key

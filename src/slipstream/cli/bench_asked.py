"""What is asked of ``slipstream bench``, understood and checked against itself before anything is sent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from slipstream.cli.admin_client import TOKEN_VARIABLE
from slipstream.cli.bench_options import Question
from slipstream.cli.bench_question import (
    Traffic,
    Words,
    lengths_of,
    process_of,
    read_words,
    seconds_of,
    shares_of,
    target_of,
    trace_rate,
)
from slipstream.cli.crossover_question import given_names
from slipstream.cli.picture import check_picture
from slipstream.core.goodput import Target
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.workload.traces import read_trace

__all__ = ["Asked", "asked_of"]

REQUESTS = 100
PARTS = 10
WARM_UP_SHARE = 0.1
NARROW = 0.05


@dataclass(frozen=True, slots=True)
class Asked:
    """``servers`` by name: one, or the two to compare. ``rate`` a second, ``None`` = the trace's own, that at
    ``concurrency``, or to be found. ``load`` and ``title`` are for people.
    """

    servers: tuple[tuple[str, str], ...]
    target: Target
    traffic: Traffic
    rate: float | None
    concurrency: int | None
    warm_up: int | None
    find_max: bool
    attainment: float
    points: int
    parts: int | None
    model: str | None
    headers: Mapping[str, str]
    api_key: str | None
    fields: Mapping[str, Any]
    admins: Mapping[str, str]
    admin_token: str | None
    timeout_s: float
    plot: Path | None
    load: str
    title: str
    narrow: float = NARROW

    def warm_up_of(self, requests: int) -> int:
        """How many of so many do not count. Raises `ImpossibleInput` where none would."""
        warm_up = round(requests * WARM_UP_SHARE) if self.warm_up is None else self.warm_up
        if warm_up >= requests:
            raise ImpossibleInput(f"a warm-up of {warm_up} leaves nothing of {requests} requests to be counted")
        return warm_up

    def parts_of(self, requests: int) -> int:
        """Of a plan to compare by. Raises `ImpossibleInput` for more than there are requests."""
        parts = max(2, min(PARTS, requests // 10)) if self.parts is None else self.parts
        if parts > requests:
            raise ImpossibleInput(f"{requests} requests can not be sent in {parts} parts")
        return parts


def asked_of(question: Question) -> Asked:
    """Raises `ImpossibleInput`, and of traffic ImpossibleWorkload and TraceUnreadable, with a sentence."""
    words = read_words([*question.compare, *question.words])
    servers = _servers(question, words)
    target = target_of([*question.goodput, *words.targets])
    _check_load(question)
    if question.find_max and target == Target():
        raise ImpossibleInput("--find-max needs targets, as in --goodput ttft:500 tpot:50")
    if question.plot is not None:
        check_picture(question.plot)
    api_key = _api_key(question.api_key_variable)
    traffic = _traffic(question)
    load = _load(question, traffic)
    return Asked(
        servers=servers,
        target=target,
        traffic=traffic,
        rate=question.rate,
        concurrency=question.concurrency,
        warm_up=question.warm_up,
        find_max=question.find_max,
        attainment=question.attainment,
        points=question.points,
        parts=question.parts,
        model=question.model,
        headers={} if api_key is None else {"authorization": f"Bearer {api_key}"},
        api_key=api_key,
        fields={"ignore_eos": True} if question.ignore_eos else {},
        admins=_admins(question.admin, servers),
        admin_token=os.environ.get(TOKEN_VARIABLE) or None,
        timeout_s=seconds_of("--timeout", question.timeout),
        plot=question.plot,
        load=load,
        title=f"{servers[0][1] if len(servers) == 1 else ' and '.join(name for name, _ in servers)}: {load}",
    )


def _servers(question: Question, words: Words) -> tuple[tuple[str, str], ...]:
    if words.named:
        if words.urls or len(words.named) != 2 or words.named[0][0] == words.named[1][0]:
            raise ImpossibleInput("--compare takes two servers with names of their own, as in --compare A=URL B=URL")
        if question.find_max:
            raise ImpossibleInput("--find-max looks at one server, and --compare at two")
        return words.named
    if question.compare or len(words.urls) != 1:
        raise ImpossibleInput("give one server as http://HOST:PORT, or two with --compare A=URL B=URL")
    if question.parts is not None:
        raise ImpossibleInput("--parts only counts beside --compare")
    return ((urlsplit(words.urls[0]).netloc, words.urls[0]),)


def _check_load(question: Question) -> None:
    """That exactly one thing says how requests come, and nothing contradicts it."""
    if question.rate is not None and not 0.0 < question.rate <= 1e6:
        raise ImpossibleInput(f"--rate is above 0 and at most a million a second, not {question.rate:g}")
    if question.concurrency is not None:
        idle = given_names(
            rate=question.rate,
            arrivals=question.arrivals,
            duration=question.duration,
            find_max=question.find_max,
            trace=question.trace,
        )
        if idle:
            raise ImpossibleInput(f"{idle[0]} means nothing with --concurrency: requests follow on answers")
        return
    if question.trace is not None:
        idle = given_names(
            arrivals=question.arrivals, prompt_tokens=question.prompt_tokens, output_tokens=question.output_tokens
        )
        if idle:
            raise ImpossibleInput(f"{idle[0]} means nothing with --trace, which has its own")
        return
    if question.rate is None and not question.find_max:
        raise ImpossibleInput("say how requests come: --rate, --concurrency, --trace or --find-max")


def _traffic(question: Question) -> Traffic:
    trace = None if question.trace is None else read_trace(question.trace)
    requests = question.requests
    if requests is None and question.duration is None and trace is None:
        requests = REQUESTS
    return Traffic(
        process=process_of(question.arrivals or "poisson"),
        categories=shares_of(question.categories),
        prompt=lengths_of("--prompt-tokens", question.prompt_tokens or "512"),
        output=lengths_of("--output-tokens", question.output_tokens or "128"),
        trace=trace,
        requests=requests,
        duration_s=None if question.duration is None else seconds_of("--duration", question.duration),
        seed=question.seed,
    )


def _load(question: Question, traffic: Traffic) -> str:
    if question.find_max:
        return f"the highest rate that {question.attainment:.0%} bear"
    if question.concurrency is not None:
        return f"{question.concurrency} at once"
    if traffic.trace is not None:
        return f"{question.trace}, {question.rate or trace_rate(traffic.trace):.3g} requests a second"
    return f"{question.arrivals or 'poisson'} arrivals, {question.rate:g} requests a second"


def _api_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise ImpossibleInput(f"the environment variable {variable} with the API key is not set")
    return key


def _admins(texts: tuple[str, ...], servers: tuple[tuple[str, str], ...]) -> dict[str, str]:
    admins: dict[str, str] = {}
    names = [name for name, _ in servers]
    for text in texts:
        name, _, url = text.partition("=")
        if text.startswith(("http://", "https://")) and len(names) == 1:
            name, url = names[0], text
        if name not in names or not url.startswith(("http://", "https://")):
            raise ImpossibleInput(f"--admin is the URL of an admin API, or NAME=URL beside --compare, not {text!r}")
        admins[name] = url
    return admins

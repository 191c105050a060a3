"""The server under load: where it is, what it is sent, and whether it answers in a way that can be measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import msgspec

from slipstream.bench.errors import ServerUnusable
from slipstream.load import CHARACTERS_PER_TOKEN, LoadResult, PlannedRequest, drive, failure_words, made_prompt
from slipstream.load.driver import Level
from slipstream.workload.plan import Plan

__all__ = ["ALONE", "Server", "Sight", "asked", "base_url_of", "look_at"]

ALONE = 4
"""Requests that are sent one after another before anything is measured; the first one finds the server cold."""
MODELS_TIMEOUT_S = 10.0
FEWEST_CHARACTERS, MOST_CHARACTERS = 1.0, 12.0
"""Per token: what a server's count may say of made text, and still be believed."""


@dataclass(frozen=True, slots=True)
class Server:
    """``base_url`` is what an OpenAI client would be given (``http://HOST:PORT/v1``). ``fields`` go into every body.
    ``timeout_s`` is for one whole answer. ``characters_per_token`` is how long prompts are made.
    """

    base_url: str
    model: str
    headers: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 600.0
    characters_per_token: float = CHARACTERS_PER_TOKEN

    @property
    def root_url(self) -> str:
        """Where its pages for operators are."""
        return self.base_url.removesuffix("/v1")


@dataclass(frozen=True, slots=True)
class Sight:
    """A server that can be measured, and what a few requests met that were alone on it. ``counts_tokens``: its answers
    say how many tokens they have, without which there is no TPOT.
    """

    server: Server
    alone: Sequence[LoadResult]
    counts_tokens: bool


def base_url_of(url: str) -> str:
    """An address with or without the ``/v1`` at its end."""
    url = url.rstrip("/")
    return url if url.endswith("/v1") else f"{url}/v1"


def asked(server: Server, plan: Plan, seed: int, *, arm: int = 0, arms: int = 1) -> Callable[[int], PlannedRequest]:
    """The request at each position of a plan. Prompts of different ``arm`` of ``arms`` begin differently, in case that
    the same engine works behind them.
    """

    def request_at(position: int) -> PlannedRequest:
        category = plan.categories[plan.category[position]]
        characters = round(int(plan.prompt_tokens[position]) * server.characters_per_token)
        prompt = made_prompt(category, characters, position * arms + arm, seed)
        message = {"role": "user", "content": prompt}
        return PlannedRequest(
            server.model, (message,), int(plan.output_tokens[position]), category, fields=server.fields
        )

    return request_at


async def look_at(
    url: str,
    model: str | None,
    plan: Plan,
    *,
    seed: int,
    headers: Mapping[str, str],
    fields: Mapping[str, Any],
    timeout_s: float,
) -> Sight:
    """Ask for the model, unless it is told, and send the plan's first requests one after another, with prompts of
    ``seed`` and of the number after it.

    Raises `ServerUnusable` when nothing answers, or not with a stream of content, or with an error.
    """
    base_url = base_url_of(url)
    found = await _first_model(base_url, headers, needed=model is None)
    server = Server(base_url, model or found, headers, fields, timeout_s)
    cold = await _alone(server, plan, 1, seed=seed)
    counted = cold[0].prompt_tokens
    if counted:
        prompt = cold[0].request.messages[0]["content"]
        characters = min(max(len(prompt) / counted, FEWEST_CHARACTERS), MOST_CHARACTERS)
        server = replace(server, characters_per_token=characters)
    alone = await _alone(server, plan, ALONE - 1, seed=seed + 1)
    return Sight(server, alone, counts_tokens=all(result.output_tokens is not None for result in alone))


async def _alone(server: Server, plan: Plan, count: int, seed: int) -> list[LoadResult]:
    request_at = asked(server, plan, seed)
    requests = [request_at(position % len(plan)) for position in range(count)]
    results = await drive(
        server.base_url, requests, [Level(1, count)], headers=server.headers, timeout_s=server.timeout_s
    )
    for result in results:
        if result.error is not None:
            hint = ""
            if result.status == 400 and "ignore_eos" in server.fields:
                hint = "; a server that does not know ignore_eos needs --no-ignore-eos"
            raise ServerUnusable(f"{server.base_url} does not answer a request as needed: {result.error}{hint}")
        if result.latency is None or result.latency.ttft_s is None:
            raise ServerUnusable(f"{server.base_url} ends its streams without any content, so nothing can be timed")
    return results


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


async def _first_model(base_url: str, headers: Mapping[str, str], *, needed: bool) -> str:
    """Empty where it does not say, and need not."""
    timeout = aiohttp.ClientTimeout(total=MODELS_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
            session.get(f"{base_url}/models") as response,
        ):
            status, body = response.status, await response.read()
    except TimeoutError:
        raise ServerUnusable(f"{base_url}/models did not answer within {MODELS_TIMEOUT_S:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise ServerUnusable(f"nothing answers at {base_url}: {failure_words(error)}") from None
    if not needed:
        return ""
    try:
        models = msgspec.json.decode(body, type=_Models).data if status == 200 else []
    except (msgspec.MsgspecError, UnicodeDecodeError):
        models = []
    if not models:
        raise ServerUnusable(f"{base_url}/models names no model (status {status}): say which with --model")
    return models[0].id

"""What tests ask emulated nodes, and how they look at the answers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import aiohttp

from slipstream.core.node import SpeculatorKind
from slipstream.emulate import EmulatedNode, NodeSettings

__all__ = [
    "CHAT",
    "Answer",
    "ask",
    "clear_faults",
    "draft",
    "events_in",
    "fault",
    "fetch",
    "outline",
    "payloads",
    "prompt_for",
    "shape",
    "state",
    "text_in",
]

CHAT = "/v1/chat/completions"


def draft(**settings: Any) -> NodeSettings:
    """A node with a draft model, in a hurry."""
    fast: dict[str, Any] = {"speculator": SpeculatorKind.DRAFT, "ttft_s": 0.001, "step_s": 0.001, "output_tokens": 30}
    return NodeSettings(**fast | settings)


@dataclass(frozen=True)
class Answer:
    """A whole answer; names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def prompt_for(path: str, text: str = "Hello!") -> dict[str, Any]:
    """What a request to the path must have beside its model."""
    messages = [{"role": "user", "content": text}]
    by_path: dict[str, dict[str, Any]] = {
        CHAT: {"messages": messages},
        "/v1/messages": {"messages": messages, "max_tokens": 1000},
        "/v1/responses": {"input": text},
        "/v1/embeddings": {"input": [text, text[::-1]]},
    }
    return by_path.get(path, {"prompt": text})


async def ask(node: EmulatedNode, path: str = CHAT, headers: dict[str, str] | None = None, **fields: Any) -> Answer:
    """A completion; the model and a prompt are filled in."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            node.url + path, json={"model": node.settings.model, **prompt_for(path), **fields}, headers=headers
        ) as response,
    ):
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status, headers, await response.read())


async def fetch(node: EmulatedNode, path: str) -> bytes:
    """A page, which must be there."""
    async with aiohttp.ClientSession() as session, session.get(node.url + path) as response:
        assert response.status == 200, await response.text()
        return await response.read()


async def state(node: EmulatedNode) -> Any:
    """What the node says it has seen."""
    return json.loads(await fetch(node, "/emulate/state"))


async def fault(node: EmulatedNode, kind: str, **fields: Any) -> None:
    """Put a fault in force."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{node.url}/emulate/faults", json={"kind": kind, **fields}) as response,
    ):
        assert response.status == 200, await response.text()


async def clear_faults(node: EmulatedNode) -> None:
    async with aiohttp.ClientSession() as session, session.delete(f"{node.url}/emulate/faults") as response:
        assert response.status == 200


def payloads(body: bytes) -> list[Any]:
    """The data of each event, which must end with ``[DONE]``."""
    *events, rest = body.decode().split("\n\n")
    assert rest == ""
    assert events[-1] == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events[:-1]]


def text_in(events: list[Any]) -> str:
    """The content of all chunks, one after another."""
    deltas = [choice.get("delta", {"content": choice.get("text")}) for event in events for choice in event["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


def events_in(body: bytes) -> list[Any]:
    """The data of each event of a stream whose events say twice what they are, once in the line before their data."""
    *events, rest = body.decode().split("\n\n")
    assert rest == ""
    told = [event.removeprefix("event: ").split("\ndata: ") for event in events]
    assert [name for name, _ in told] == [json.loads(data)["type"] for _, data in told]
    return [json.loads(data) for _, data in told]


def shape(value: Any) -> Any:
    """Names in their order, and of which kind each value is."""
    if isinstance(value, dict):
        return [(name, shape(one)) for name, one in value.items()]
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def outline(events: Iterable[Any]) -> list[Any]:
    """The shapes of events, those in a row that are alike once."""
    return [one for one, _ in groupby(shape(event) for event in events)]

"""A node that looks like vLLM to the gateway, and counts for itself what it is given."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from recorded_engine import recorded
from scripted_node import Call, ScriptedNode, answer, scripted_node

__all__ = ["MODEL", "Drafts", "VllmLike", "vllm_like"]

MODEL = "smollm2"
K = 4
FOLDER = "vllm-0.32.0-ngram"


@dataclass(frozen=True)
class Drafts:
    """What each answer of the node drafts: ``steps`` verify steps of 4 tokens, ``accepted`` tokens of them in all."""

    steps: int
    accepted: int

    @property
    def output_tokens(self) -> int:
        return self.steps + self.accepted + 1


@dataclass
class VllmLike:
    """``drafts`` ``None``: no speculator. ``gate``: while it is cleared, requests are taken in and not answered.

    ``in_flight`` and ``peak`` count requests at the node; ``prompts`` those begun, by their text; ``asked`` its pages.
    ``metrics`` replaces the page of that name.
    """

    drafts: Drafts | None = None
    metrics: bytes | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    in_flight: int = 0
    peak: int = 0
    finished: int = 0
    prompts: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    node: ScriptedNode = field(init=False)

    def __post_init__(self) -> None:
        self.gate.set()

    @property
    def url(self) -> str:
        return self.node.url

    async def __call__(self, call: Call) -> None:
        self.asked[call.target] += 1
        match call.target:
            case "/metrics":
                await answer(body=self.page() if self.metrics is None else self.metrics)(call)
            case "/v1/models":
                await answer(body=recorded(FOLDER, "models.json"))(call)
            case "/version":
                await answer(body=recorded(FOLDER, "version.json"))(call)
            case "/v1/chat/completions":
                await self._complete(call)
            case _:
                await answer(404)(call)

    async def _complete(self, call: Call) -> None:
        self.prompts[json.loads(call.body)["messages"][-1]["content"]] += 1
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        await self.gate.wait()
        self.in_flight -= 1
        self.finished += 1
        await answer(body=json.dumps(self._answer()).encode())(call)

    def _answer(self) -> dict[str, object]:
        fields: dict[str, object] = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": MODEL,
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"},
            ],
            "usage": {"prompt_tokens": 5, "completion_tokens": 65, "total_tokens": 70},
        }
        if self.drafts is not None:
            tokens = self.drafts.output_tokens
            fields["usage"] = {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens}
            fields["metrics"] = {
                "speculative_decoding": {
                    "num_spec_steps": self.drafts.steps,
                    "num_draft_tokens": self.drafts.steps * K,
                    "num_accepted_draft_tokens": self.drafts.accepted,
                }
            }
        return fields

    def page(self) -> bytes:
        """The recorded page, with the figures of this node."""
        if self.drafts is None:
            page = recorded("vllm-0.32.0-none", "metrics-idle.txt")
            return _with(page, num_requests_running=self.in_flight, generation_tokens_total=65 * self.finished)
        return _with(
            recorded(FOLDER, "metrics-idle.txt"),
            num_requests_running=self.in_flight,
            generation_tokens_total=self.drafts.output_tokens * self.finished,
            spec_decode_num_drafts_total=self.drafts.steps * self.finished,
            spec_decode_num_draft_tokens_total=self.drafts.steps * K * self.finished,
            spec_decode_num_accepted_tokens_total=self.drafts.accepted * self.finished,
        )


def _with(page: bytes, **figures: int) -> bytes:
    for name, value in figures.items():
        page, found = re.subn(
            rb"^(vllm:%b(?:\{[^}]*\})?) .*$" % name.encode(), rb"\g<1> %d.0" % value, page, flags=re.MULTILINE
        )
        assert found == 1, name
    return page


@asynccontextmanager
async def vllm_like(
    drafts: Drafts | None = None, metrics: bytes | None = None, port: int = 0, kind: type[VllmLike] = VllmLike
) -> AsyncIterator[VllmLike]:
    """Such a node, listening for as long as the block lasts; ``port`` 0 = a free one; ``kind`` what it is like."""
    behaviour = kind(drafts, metrics)
    async with scripted_node(behaviour, port=port) as node:
        behaviour.node = node
        yield behaviour

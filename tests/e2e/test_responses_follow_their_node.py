"""`/v1/responses` by follow-up, through the whole service: the state of a response is on one node and nowhere else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
import pytest

from live_service import Live, live
from scripted_node import Call, answer, scripted_node
from slipstream.config import FleetConfig
from slipstream.core.policy import Reason
from vllm_like_node import MODEL, VllmLike


class Storing(VllmLike):
    """Keeps the responses that it makes, and knows no others."""

    name = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.stored: list[str] = []

    async def __call__(self, call: Call) -> None:
        if not call.target.startswith("/v1/responses"):
            await super().__call__(call)
        elif call.method == "POST":
            before = json.loads(call.body).get("previous_response_id")
            if before is None or before in self.stored:
                self.stored.append(f"resp_{self.name}_{len(self.stored)}")
                await answer(body=json.dumps(_response(self.stored[-1])).encode())(call)
            else:
                await answer(404, b'{"error": {"message": "never heard of it", "code": "wrong_node"}}')(call)
        elif call.target.rpartition("/")[2] in self.stored:
            await answer(body=json.dumps(_response(call.target.rpartition("/")[2])).encode())(call)
        else:
            await answer(404, b'{"error": {"message": "never heard of it", "code": "wrong_node"}}')(call)


def _response(response_id: str) -> dict[str, object]:
    text = {"type": "output_text", "text": "Yes.", "annotations": []}
    message = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [text]}
    return {"id": response_id, "object": "response", "created_at": 1, "model": MODEL, "output": [message]}


@asynccontextmanager
async def fleet_of_two() -> AsyncIterator[Live]:
    one, other = Storing(), Storing()
    one.name, other.name = "n0", "n1"
    async with scripted_node(one) as one.node, scripted_node(other) as other.node:
        config = FleetConfig.model_validate(
            {
                "gateway": {"listen": "127.0.0.1:0"},
                "admin": {"listen": "127.0.0.1:0"},
                "control": {"stale_after_s": 60.0},
                "nodes": [
                    {"name": node.name, "url": node.url, "pool": "standard", "max_in_flight": 100}
                    for node in (one, other)
                ],
            }
        )
        async with live(config) as fleet:
            yield fleet


async def ask(fleet: Live, previous: str | None = None) -> tuple[str, str, str]:
    """Id of the response, the node that made it and the reason of the decision."""
    extra = {} if previous is None else {"previous_response_id": previous}
    raw = await fleet.client.responses.with_raw_response.create(model=MODEL, input="Go on.", extra_body=extra)
    return raw.parse().id, raw.headers["x-slipstream-node"], raw.headers["x-slipstream-reason"]


async def test_follow_ups_go_to_the_node_that_holds_what_they_refer_to() -> None:
    async with fleet_of_two() as fleet:
        begun = [await ask(fleet) for _ in range(16)]
        assert {node for _, node, _ in begun} == {"n0", "n1"}
        for response_id, node, _ in begun:
            following = await ask(fleet, response_id)
            assert following[1:] == (node, Reason.AFFINITY)
            assert (await ask(fleet, following[0]))[1] == node
            assert (await fleet.client.responses.retrieve(response_id)).id == response_id
        await fleet.drained()


async def test_what_nobody_holds_is_not_found_and_the_error_says_why() -> None:
    async with fleet_of_two() as fleet:
        with pytest.raises(openai.NotFoundError, match="No node is known to hold the response 'resp_x'") as unknown:
            await ask(fleet, "resp_x")
        assert (unknown.value.code, unknown.value.param) == ("response_not_found", "previous_response_id")
        with pytest.raises(openai.NotFoundError, match="No node is known"):
            await fleet.client.responses.retrieve("resp_x")
        response_id, node, _ = await ask(fleet)
        fleet.service.dispatcher.fleet.drain(node, 0.0)
        with pytest.raises(openai.NotFoundError, match=f"held by node '{node}', which is being drained"):
            await ask(fleet, response_id)
        assert all(one.decision.node == node for one in fleet.placements())

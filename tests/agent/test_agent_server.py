"""The agent over HTTP: who may ask, what is told when, what a command answers."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web

from agent_rig import Rig, rig
from node_pages import serving
from slipstream.agent.engine import EngineHook
from slipstream.agent.errors import CanNotListen, HookFailed, ProbeFailed
from slipstream.agent.server import serve_agent
from slipstream.agent.warm_up import WarmUp
from slipstream.core.request import Pool

JSON = {"content-type": "application/json"}


async def asked(
    one: Rig, method: str, path: str, body: str | None = None, headers: dict[str, str] = JSON
) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, one.url + path, data=body, headers=headers) as response,
    ):
        return response.status, await response.json()


async def lines(response: aiohttp.ClientResponse) -> AsyncIterator[Any]:
    async for line in response.content:
        yield json.loads(line)


async def test_a_watch_tells_the_state_at_once_then_each_change_in_order_and_a_heartbeat() -> None:
    async with (
        rig(serve=True) as one,
        aiohttp.ClientSession() as session,
        session.get(f"{one.url}/watch?interval_s=0.05") as response,
    ):
        assert response.content_type == "application/x-ndjson"
        told = lines(response)
        first = await anext(told)
        assert (first["role"], first["transition"], first["healthy"]) == ("speculative", None, True)
        version = first["version"]
        while (beat := await anext(told))["version"] != version:  # its last requests still end
            version = beat["version"]
        assert beat["time"] == 1_000_000.0
        assert (await asked(one, "POST", "/speculation", '{"active": false}'))[0] == 202
        phases: list[str | None] = [None]
        while (state := await anext(told))["role"] == "speculative" or state["transition"] is not None:
            assert state["version"] >= version
            version = state["version"]
            if state["transition"] != phases[-1]:
                phases.append(state["transition"])
        assert phases == [None, "draining", "stopping", "starting", "warming"]
        assert (state["role"], state["draining"]) == ("standard", False)


async def test_a_change_is_written_to_a_watch_before_anything_else_happens() -> None:
    """Not timed: between the change and its line nothing is waited for but the turns that it takes to be written."""
    async with (
        rig(serve=True) as one,
        aiohttp.ClientSession() as session,
        session.get(f"{one.url}/watch?interval_s=60") as response,
    ):
        told = lines(response)
        await anext(told)
        counted = one.agent.published.count
        one.agent.drain()
        assert one.agent.published.count == counted + 1
        version = one.state.version
        while (state := await anext(told))["version"] < version:
            pass  # readings before the command
        assert state["draining"]


async def test_whoever_leaves_before_a_watch_begins_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    async with rig(serve=True) as one:
        address = urlsplit(one.url)
        for _ in range(20):
            with socket.create_connection((address.hostname, address.port)) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.sendall(b"GET /watch HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert (await asked(one, "GET", "/health"))[0] == 200
    assert caplog.records == []


async def test_a_watch_ends_with_the_agent() -> None:
    async with rig() as one:
        served = serve_agent(one.agent, "127.0.0.1", 0, None)
        one.url = await served.__aenter__()
        async with aiohttp.ClientSession() as session, session.get(f"{one.url}/watch") as response:
            told = lines(response)
            await anext(told)
            closing = asyncio.create_task(served.__aexit__(None, None, None))
            async for _ in told:
                pass
            await closing


async def test_commands_answer_with_the_state_or_with_a_sentence() -> None:
    async with rig(serve=True) as one:
        status, state = await asked(one, "POST", "/drain", "{}")
        assert (status, state["draining"]) == (200, True)
        status, state = await asked(one, "POST", "/resume")
        assert (status, state["draining"]) == (200, False)
        status, state = await asked(one, "POST", "/speculation", '{"active": true}')
        assert (status, state["transition"]) == (200, None)
        status, state = await asked(one, "POST", "/speculation", '{"active": false, "holder": "a"}')
        assert (status, state["transition"], state["holder"]) == (202, "draining", "a")
        status, refusal = await asked(one, "POST", "/speculation", '{"active": true}')
        assert status == 409
        assert refusal["error"]["code"] == "switching"
        status, refusal = await asked(one, "POST", "/drain", '{"holder": "b"}')
        assert (status, refusal["error"]["code"]) == (409, "held")
        assert refusal["error"]["type"] == "invalid_request_error"
        assert await asked(one, "GET", "/health") == (200, {"status": "ok"})
        assert (await asked(one, "GET", "/state", None, {"host": "spec-0.localhost:9100"}))[0] == 200
        await one.switched()


UNDOABLE: list[tuple[str, str, str | None, dict[str, str], int, str]] = [
    ("POST", "/speculation", "{}", JSON, 400, "the command can not be read: .*active"),
    ("POST", "/speculation", '{"active": "on"}', JSON, 400, "the command can not be read"),
    ("POST", "/drain", "\xff", JSON, 400, "the command can not be read"),
    ("POST", "/drain", '{"holder": ""}', JSON, 400, "holder is a name"),
    ("POST", "/drain", "{}", {"content-type": "text/plain"}, 415, "content-type: application/json"),
    ("POST", "/drain", "[" * 17_000, JSON, 413, "Request Entity Too Large"),
    ("GET", "/drain", None, {}, 405, "/drain does not take GET, but POST"),
    ("GET", "/metrics", None, {}, 404, "there is no /metrics; there are /state"),
    ("GET", "/watch?interval_s=0", None, {}, 400, r"interval_s is a number of seconds from 0\.01 to 60"),
    ("GET", "/watch?interval_s=soon", None, {}, 400, "interval_s is a number"),
    ("GET", "/state", None, {"host": "evil.example"}, 403, "only to localhost"),
    ("GET", "/state", None, {"host": "[::"}, 403, "only to localhost"),
    ("GET", "/state", None, {"host": "localhost.evil.example"}, 403, "only to localhost"),
]


async def test_what_can_not_be_done_is_an_error_with_a_sentence() -> None:
    async with rig(serve=True) as one:
        for method, path, body, headers, status, sentence in UNDOABLE:
            found, answer = await asked(one, method, path, body, headers)
            assert found == status, answer
            assert re.search(sentence, answer["error"]["message"]), answer
        assert not one.state.draining


async def test_with_a_token_only_its_bearer_is_heard_by_any_name() -> None:
    async with rig(serve=True, token="secret") as one:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic secret"}):
            status, refusal = await asked(one, "POST", "/drain", "{}", JSON | headers)
            assert (status, refusal["error"]["code"]) == (401, "invalid_token")
        bearer = {"authorization": "Bearer secret", "host": "node-1.example:9100"}
        assert (await asked(one, "GET", "/state", None, bearer))[0] == 200
        assert (await asked(one, "GET", "/health", None, {"host": "node-1.example"}))[0] == 200
        assert not one.state.draining


async def test_a_port_that_is_taken_is_an_error_with_the_address() -> None:
    async with rig(serve=True, wait=False) as one:
        port = int(one.url.rpartition(":")[2])
        with pytest.raises(CanNotListen, match=rf"can not listen on 127\.0\.0\.1:{port} \(agent\): Address already in"):
            await serve_agent(one.agent, "127.0.0.1", port, None).__aenter__()


async def test_small_requests_bear_the_engines_key_and_what_refuses_them_is_told() -> None:
    seen: list[str | None] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("authorization"))
        model = (await request.json())["model"]
        if model == "good":
            return web.json_response({"choices": [{"text": "hello"}]})
        if model == "slow":
            await asyncio.Event().wait()
        if model == "endless":
            response = web.StreamResponse()
            await response.prepare(request)
            with suppress(ConnectionError):
                while True:
                    await response.write(b"x" * 65_536)
        return web.json_response({"error": "no memory"}, status=500)

    async with serving({"/v1/completions": answer}) as url:
        warm_up = WarmUp(url, "key")
        await warm_up.run("good", 5.0)
        assert set(seen) == {"Bearer key"}
        with pytest.raises(ProbeFailed, match=r"answered a small request with status 500: .*no memory"):
            await warm_up.run("bad", 5.0)
        with pytest.raises(ProbeFailed, match=r"answered a small request with status 200: x{200}$"):
            await warm_up.run("endless", 5.0)
        with pytest.raises(ProbeFailed, match=r"did not answer 2 small requests in 0\.05 s"):
            await warm_up.run("slow", 0.05)
    with pytest.raises(ProbeFailed, match="can not be reached"):
        await warm_up.run("good", 5.0)


async def test_a_hook_url_is_told_whether_speculation_is_to_be_active() -> None:
    told: list[object] = []

    async def switch(request: web.Request) -> web.Response:
        told.append(await request.json())
        if len(told) == 3:
            raise web.HTTPFound("/elsewhere")
        return web.Response(status=204 if len(told) < 3 else 503, text=None if len(told) < 3 else "\x1b[31mbusy")

    async def elsewhere(_request: web.Request) -> web.Response:
        return web.Response()

    async with serving({"/switch": switch, "/elsewhere": elsewhere}) as url:
        hook = EngineHook(url=f"{url}/switch")
        assert hook.switchable
        await hook.start(Pool.SPECULATIVE, 5.0)
        await hook.start(Pool.STANDARD, 5.0)
        with pytest.raises(HookFailed, match="/switch answered with status 302: 302: Found"):  # and did not switch it
            await hook.start(Pool.STANDARD, 5.0)
        with pytest.raises(HookFailed, match="/switch answered with status 503: busy"):
            await hook.start(Pool.STANDARD, 5.0)
    assert told[:2] == [{"active": True}, {"active": False}]
    with pytest.raises(HookFailed, match="/switch can not be reached"):
        await hook.start(Pool.STANDARD, 5.0)

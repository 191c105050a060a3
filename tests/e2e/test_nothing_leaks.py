"""Prompts, answers and keys are in no log, no recording, no metric and no page, whatever happens to a request."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from live_service import UNMEASURED_ENVIRONMENT, command
from scripted_node import Call, answer, close
from slipstream.core.keys import digest_of
from vllm_like_node import MODEL, Drafts, VllmLike, vllm_like

PROMPT = "marker-of-a-prompt-3f9a"
KEYS = {
    "TEAM_KEY": "sk-marker-of-a-clients-key-17c2-0123456789",
    "ADMIN_TOKEN": "marker-of-the-admin-token-77b1-0123456789",
    "NODE_KEY": "marker-of-a-nodes-key-52d8-0123456789",
}
HASHED_KEY = "sk-marker-of-a-hashed-key-90ee-0123456789"
WRONG_KEY = "sk-marker-of-a-wrong-key-4d4d-0123456789"
ANSWER = "marker-of-an-answer-c0de"
SECRETS = [PROMPT, ANSWER, HASHED_KEY, WRONG_KEY, *KEYS.values()]
TIMEOUT_S = 60.0


@dataclass
class Telling(VllmLike):
    """Repeats the prompt in whatever it says, and refuses or hangs up when the prompt says so."""

    async def __call__(self, call: Call) -> None:
        call.target = call.target.partition("?")[0]
        await super().__call__(call)

    async def _complete(self, call: Call) -> None:
        text = json.loads(call.body)["messages"][-1]["content"]
        assert call.headers["authorization"] == f"Bearer {KEYS['NODE_KEY']}"
        if "hang up" in text:
            await close()(call)
        elif "refuse" in text:
            await answer(429, json.dumps({"error": {"message": f"too much: {text}"}}).encode())(call)
        elif "object" in text:
            await answer(400, json.dumps({"error": {"message": f"not that: {text}"}}).encode())(call)
        else:
            await super()._complete(call)

    def _answer(self) -> dict[str, object]:
        fields = super()._answer()
        fields["choices"] = [{"index": 0, "message": {"role": "assistant", "content": ANSWER}, "finish_reason": "stop"}]
        return fields


def configuration(folder: Path, spec: str, std: str, level: str, style: str) -> Path:
    file = folder / "fleet.yaml"
    digest = digest_of(HASHED_KEY.encode()).hex()
    sections = {
        "gateway": {
            "listen": "127.0.0.1:0",
            "queue": {"timeout_s": 0.2},
            "keys": [
                {"id": "team-a", "env": "TEAM_KEY"},
                {"id": "team-b", "hash": f"sha256:{digest}", "requests_per_minute": 1, "pool": "standard"},
            ],
        },
        "admin": {"listen": "127.0.0.1:0", "token": {"env": "ADMIN_TOKEN"}},
        "nodes": [
            {"name": "spec-0", "url": spec, "pool": "speculative", "api_key": {"env": "NODE_KEY"}},
            {"name": "std-0", "url": std, "pool": "standard", "api_key": {"env": "NODE_KEY"}},
        ],
        "log": {"level": level, "format": style, "access": "access.jsonl"},
        "record": {"file": "decisions.jsonl"},
    }
    file.write_text(json.dumps(sections))
    return file


def files_in(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def chat(text: str, **more: object) -> str:
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": f"{text} {PROMPT}"}]} | more)


REQUESTS: list[tuple[int, dict[str, str], str]] = [
    (200, bearer(KEYS["TEAM_KEY"]), chat("Write a Python function that reverses a string.")),
    (200, bearer(KEYS["TEAM_KEY"]) | {"x-session-id": PROMPT, "cookie": PROMPT}, chat("Hello", user=PROMPT)),
    (200, {"x-api-key": HASHED_KEY}, chat("Hello")),
    (429, {"x-api-key": HASHED_KEY}, chat("Hello")),
    (401, bearer(WRONG_KEY), chat("Hello")),
    (401, {"x-api-key": WRONG_KEY}, chat("Hello")),
    (401, {"authorization": WRONG_KEY}, chat("Hello")),
    (401, {}, chat("Hello")),
    (400, bearer(KEYS["TEAM_KEY"]), f'{{"model": "{MODEL}", "messages": [{PROMPT}]}}'),
    (400, bearer(KEYS["TEAM_KEY"]), json.dumps({"model": MODEL, "messages": PROMPT})),
    (400, bearer(KEYS["TEAM_KEY"]), chat("Hello", n=PROMPT)),
    (400, bearer(KEYS["TEAM_KEY"]), json.dumps({"model": MODEL, PROMPT: 1})),
    (400, bearer(KEYS["TEAM_KEY"]), chat("object")),
    (502, bearer(KEYS["TEAM_KEY"]), chat("hang up")),
    (429, bearer(KEYS["TEAM_KEY"]), chat("refuse")),
    (404, bearer(KEYS["TEAM_KEY"]), chat("Hello", model="unknown")),
    (431, bearer(KEYS["TEAM_KEY"]) | {"x-long": PROMPT * 2000}, chat("Hello")),
]
UNREADABLE = [
    f"GET /v1/models HTTP/1.1\r\nHost: x\r\nX-Api-Key: {KEYS['TEAM_KEY']}\r\nContent-Length: {PROMPT}\r\n\r\n",
    f"{PROMPT}\r\n\r\n",
    f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n{KEYS['TEAM_KEY']} : x\r\n\r\n",
]


@pytest.mark.parametrize("style", ["json", "console"])
async def test_no_prompt_and_no_key_is_where_it_does_not_belong(style: str, tmp_path: Path) -> None:
    level = "debug"  # it writes all that the others do
    async with vllm_like(Drafts(20, 60), kind=Telling) as spec, vllm_like(kind=Telling) as std:
        file = configuration(tmp_path, spec.url, std.url, level, style)
        process = await asyncio.create_subprocess_exec(
            *command("serve", "-c", str(file)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=UNMEASURED_ENVIRONMENT | KEYS | {"PYTHONUNBUFFERED": "1"},
        )
        shown: dict[str, str] = {}
        try:
            assert process.stdout is not None
            async with asyncio.timeout(TIMEOUT_S):
                gateway, admin = re.findall(r"http://[\d.:]+", (await process.stdout.readline()).decode())
                async with aiohttp.ClientSession() as session:
                    await _ready(session, gateway)
                    for number, (status, headers, body) in enumerate(REQUESTS):
                        shown[f"answer {number}"] = await _ask(session, gateway, status, headers, body, f"id-{number}")
                    for text in UNREADABLE:
                        shown[f"answer to {text[:3]}"] = await _send(gateway, text)
                    for path in (
                        "/metrics",
                        "/fleet",
                        "/decisions?limit=1000",
                        "/advice",
                        "/health",
                        "/decisions/id-0",
                    ):
                        async with session.get(admin + path, headers=bearer(KEYS["ADMIN_TOKEN"])) as response:
                            assert response.status == 200
                            shown[path] = await response.text()
                for words in (["status"], ["status", "--json"], ["explain", "id-0"], ["explain", "id-13", "--json"]):
                    shown[" ".join(words)] = await _command([*words, "--url", admin])
        finally:
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(TIMEOUT_S):
                output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
    shown |= {"standard output": output.decode(), "standard error": errors.decode()}
    shown |= files_in(tmp_path)
    assert {(place, secret) for place, text in shown.items() for secret in SECRETS if secret in text} == set()
    # It would have been seen: these places tell of the same requests.
    assert "team-a" in shown["access.jsonl"]
    assert "id-0" in shown["decisions.jsonl"]
    assert "id-0" in shown["/decisions?limit=1000"]
    assert "key team-a" in " ".join(shown["explain id-0"].split())
    assert spec.prompts.total() + std.prompts.total() == 3


async def _ready(session: aiohttp.ClientSession, gateway: str) -> None:
    while True:
        async with session.get(f"{gateway}/ready") as response:
            if (await response.json()).get("usable_nodes") == 2:
                return
        await asyncio.sleep(0.02)


async def _ask(
    session: aiohttp.ClientSession, gateway: str, status: int, headers: dict[str, str], body: str, request_id: str
) -> str:
    """What a client is told, less what is its own: its answer, and a node's words on its own request."""
    url = f"{gateway}/v1/chat/completions?key={WRONG_KEY}"
    async with session.post(url, data=body, headers=headers | {"x-request-id": request_id}) as response:
        text = await response.text()
        assert response.status == status, text
        return str(response.headers) + text.replace(ANSWER, "").replace(f"object {PROMPT}", "").replace(
            f"refuse {PROMPT}", ""
        )


async def _send(gateway: str, text: str) -> str:
    host, port = gateway.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(text.encode())
    told = (await reader.read()).decode()
    writer.close()
    assert " 400 " in told.splitlines()[0]
    return told


async def _command(words: list[str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *command(*words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=UNMEASURED_ENVIRONMENT | {"SLIPSTREAM_ADMIN_TOKEN": KEYS["ADMIN_TOKEN"]},
    )
    printed = (await process.communicate())[0].decode()
    assert process.returncode == 0, printed
    return printed

"""Sends a real gateway byte streams that are nearly HTTP, and judges what its clients and its node see.

``make fuzz MINUTES=10`` runs it for long; what behaved in a new way on the way is kept in ``tests/gateway/corpus``.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import time
from collections.abc import Iterator
from itertools import islice, pairwise, repeat, takewhile
from pathlib import Path
from typing import Any

import uvloop

from gateway_rig import Rig, rig
from scripted_node import ScriptedNode, answer, chunked, raw, scripted_node
from slipstream.core.category import Categorizer
from slipstream.core.category_rules import DEFAULT_RULES
from slipstream.gateway.limits import Limits
from slipstream.gateway.reading import RequestReader
from strict_http import Ambiguous, StrictAnswer, read_answers, read_requests

__all__ = ["CORPUS", "Fuzzer", "Misbehaved", "corpus", "mutated"]

CORPUS = Path(__file__).parent / "gateway" / "corpus"
LIMITS = Limits(
    max_body_bytes=20_000,
    max_header_bytes=2000,
    connect_s=30,
    client_head_s=0.25,
    idle_s=0.25,
    client_keep_alive_s=0.25,
    first_byte_streamed_s=5,
    first_byte_unstreamed_s=5,
)
WAIT_S = 15.0
LEARNT_BYTES = 2000
RIG_LIFE = 100
"""Streams that one gateway gets before its books are closed and another takes over."""

STATUSES = {200, 204, 400, 404, 405, 408, 413, 431, 502, 503}
BODY = b'{"model":"m","prompt":"x"}'
POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
WORDS = [
    *(b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\0", b" ", b"\t", b":", b";", b",", b"\x0b", b"\x7f", b"\xff", b"#", b"?"),
    *(b"0", b"1", b"-1", b"+1", b"0x1a", b"1a", b"1A", b"ffffffffffffffff", b"18446744073709551642", b"26", b"026"),
    *(b"Content-Length: 26\r\n", b"Content-Length: 0\r\n", b"Content-Length: 5\r\n", b"content-length : 26\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"transfer-encoding: gzip, chunked\r\n", b"Transfer-Encoding: identity\r\n"),
    *(b"Transfer-Encoding:\tchunked\t\r\n", b"Transfer-Encoding:\r\n chunked\r\n", b" folded\r\n", b"Host: y\r\n"),
    *(b"Connection: close\r\n", b"Connection: keep-alive, close\r\n", b"Connection: content-length, host\r\n"),
    *(b"Connection: Upgrade\r\nUpgrade: h2c\r\n", b"Expect: 100-continue\r\n", b"X-Request-Id: a b\r\n"),
    *(b"0\r\n\r\n", b"0\r\nA: b\r\n\r\n", b"0;a=b\r\n\r\n", b"1a\r\n", b"1a;x\r\n", b"1a \r\n", b"1\r\nx\r\n"),
    *(b"POST ", b"GET ", b"HEAD ", b"CONNECT ", b"OPTIONS ", b"PRI ", b" HTTP/1.0", b" HTTP/1.1", b" HTTP/0.9"),
    *(b"/v1/completions", b"/v1/x", b"/health", b"http://a/v1/x", b"*", b"/v1/../x", b"x" * 3000, b"x" * 21_000),
    *(BODY, POST, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"),
]


class Misbehaved(AssertionError):
    """The gateway did what it never may."""


def corpus() -> list[bytes]:
    """The streams kept, in an order that does not change."""
    return [path.read_bytes() for path in sorted(CORPUS.glob("*.http"))]


def mutated(draw: random.Random, seeds: list[bytes]) -> bytes:
    """A stream made of one to three of the seeds by up to eight small changes."""
    data = bytearray(b"".join(draw.choices(seeds, k=draw.choice((1, 1, 2, 3)))))
    for _ in range(draw.randrange(9)):
        at = draw.randrange(len(data) + 1)
        end = min(len(data), at + draw.choice((1, 1, 2, 8, 40)))
        match draw.randrange(8):
            case 0:
                data[at:at] = draw.choice(WORDS)
            case 1:
                data[at:end] = draw.choice(WORDS)
            case 2:
                data[at:end] = b""
            case 3:
                data[at:at] = data[at:end]
            case 4:
                data[at:end] = draw.randbytes(end - at)
            case 5:
                other = draw.choice(seeds)
                data[at:] = other[draw.randrange(len(other) + 1) :]
            case 6:
                data[at:end] = data[at:end].swapcase()
            case _:  # at a line's end, where most of the grammar is
                line = data.find(b"\r\n", at)
                if line >= 0:
                    data[line : line + draw.choice((0, 1, 2))] = draw.choice(WORDS)
    return bytes(data[:40_000])


def pieces(draw: random.Random, data: bytes) -> list[bytes]:
    """The stream cut as a network could: not at all, anywhere, or at every byte."""
    if draw.random() < 0.4 or len(data) < 2:
        return [data]
    if len(data) < 600 and draw.random() < 0.2:
        return [data[at : at + 1] for at in range(len(data))]
    cuts = sorted({0, len(data), *(draw.randrange(len(data)) for _ in range(draw.randrange(1, 6)))})
    return [data[start:end] for start, end in pairwise(cuts)]


async def exchanged(gateway: Rig, parts: list[bytes]) -> bytes:
    """What a client that sends these pieces is sent until the connection ends. Raises Misbehaved if it does not."""
    reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
    received = bytearray()
    waits_left = 3  # a single long one may be the fault of a machine that stood still
    try:
        for part in parts:
            if not writer.is_closing():
                writer.write(part)
                await asyncio.sleep(0)
        while waits_left:
            try:
                async with asyncio.timeout(WAIT_S):
                    while data := await reader.read(65536):
                        received += data
                return bytes(received)
            except TimeoutError:
                waits_left -= 1
    except ConnectionError:
        return bytes(received)  # it was closed while bytes were on their way to it
    finally:
        writer.close()
    raise Misbehaved("the connection hangs")


class Fuzzer:
    """Streams by one seed. ``learning``: what behaves in a new way becomes a seed too."""

    def __init__(self, seed: int, seeds: list[bytes], *, learning: bool) -> None:
        self.draw = random.Random(seed)
        self.seeds = seeds
        self.learning = learning
        self.executions = 0
        self.behaviours: set[object] = set()
        self.learnt: list[bytes] = []
        self._fatal: list[Any] = []

    async def run(self, executions: int, workers: int, until: float | None = None) -> None:
        """Send so many new streams, several at a time, or fewer if the loop's clock reaches ``until``."""
        loop = asyncio.get_running_loop()
        await self._send(takewhile(lambda _: until is None or loop.time() < until, repeat(None, executions)), workers)

    async def replay(self, streams: list[bytes], workers: int) -> None:
        """Send these streams, several at a time, each cut in some way."""
        await self._send(iter(streams), workers)

    async def _send(self, streams: Iterator[bytes | None], workers: int) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._unhandled)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(self._work(streams))
        finally:
            loop.set_exception_handler(None)
        if self._fatal:
            raise Misbehaved(f"not caught: {self._fatal[0]!r}")

    def _unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._fatal.append(context.get("exception") or context.get("message"))

    async def _work(self, streams: Iterator[bytes | None]) -> None:
        """Send from what is left of the streams; ``None`` stands for a new one."""
        reader = RequestReader(Categorizer(DEFAULT_RULES, "chat"), frozenset({"chat"}), {}, trusting=True).read
        sent = RIG_LIFE
        while sent == RIG_LIFE:
            sent = 0
            async with scripted_node(answer()) as node, rig(node.url, limits=LIMITS, reader=reader) as gateway:
                for data in islice(streams, RIG_LIFE):
                    sent += 1
                    if data is None and self.draw.random() < 0.15:
                        await self._answer(gateway, node)
                    else:
                        await self._requests(gateway, node, mutated(self.draw, self.seeds) if data is None else data)

    async def _requests(self, gateway: Rig, node: ScriptedNode, data: bytes) -> None:
        """Send a client's stream and judge. Raises Misbehaved."""
        node.calls.clear()
        parts = pieces(self.draw, data)
        expected = read_requests(data)
        try:
            received = await exchanged(gateway, parts)
            answers = _judged(received, [request.method for request in expected])
            if len(answers) > len(expected) + 1:
                raise Misbehaved(f"{len(answers)} answers to {len(expected)} requests")
            allowed = iter(expected)
            for call in node.calls:
                seen = (call.method, call.target, call.body)
                if not any(seen == (request.method, request.target, request.body) for request in allowed):
                    raise Misbehaved(f"the node saw a request that nobody sent: {seen!r}")
            if self._fatal:
                raise Misbehaved(f"not caught: {self._fatal[0]!r}")
        except Misbehaved as misbehaved:
            raise Misbehaved(f"{misbehaved}, with {parts!r}") from None
        self._learn(data, (*map(_sign, answers[-1:]), len(answers) > 1, min(len(node.calls), 2)))

    async def _answer(self, gateway: Rig, node: ScriptedNode) -> None:
        """Let a node's answer be nearly HTTP; the next one, to another client, must be unharmed. Raises Misbehaved."""
        data = mutated(self.draw, ANSWERS)
        behaviour = raw(*pieces(self.draw, data), close=self.draw.random() < 0.7)
        node.behaviours = [behaviour, answer(body=b'{"unharmed":1}')]
        settled = len(gateway.books.settled)
        try:
            answers = _judged(await exchanged(gateway, [POST]), ["POST"])
            if not answers and len(gateway.books.settled) == settled:
                return  # the gateway was so busy that it took the client for an idle one
            if len(answers) > 1 or len(gateway.books.settled) != settled + 1:
                raise Misbehaved(f"{len(answers)} answers, {len(gateway.books.settled) - settled} settled")
            node.behaviours = node.behaviours[-1:]
            after = _judged(await exchanged(gateway, [POST]), ["POST"])
            if any((one.status, one.body) != (200, b'{"unharmed":1}') for one in after):
                raise Misbehaved(f"the next answers are {after!r}")
        except Misbehaved as misbehaved:
            raise Misbehaved(f"{misbehaved}, with the answer {data!r}") from None
        finally:
            node.behaviours = [answer()]
        self.executions += 1

    def _learn(self, data: bytes, behaviour: object) -> None:
        self.executions += 1
        if self.learning and behaviour not in self.behaviours and len(data) <= LEARNT_BYTES:
            self.behaviours.add(behaviour)
            if data not in self.seeds:
                self.seeds.append(data)
                self.learnt.append(data)


ANSWERS = [
    b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{"a": 1}',
    b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{"a": 1}\r\n0\r\n\r\n',
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%b%b0\r\nA: b\r\n\r\n"
    % (chunked(b"data: {}\n\n"), chunked(b"data: [DONE]\n\n")),
    b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nx",
]


def _judged(received: bytes, methods: list[str]) -> list[StrictAnswer]:
    try:
        answers, _ = read_answers(received, methods)
    except Ambiguous as ambiguous:
        raise Misbehaved(f"an answer can not be read ({ambiguous}): {received!r}") from None
    return answers


def _sign(given: StrictAnswer) -> tuple[int, str]:
    """What kind of answer it is; of a refusal's sentence the part that tells why."""
    try:
        error = json.loads(given.body)["error"]
    except (ValueError, KeyError, TypeError):
        return given.status, ""
    return given.status, error["message"] if error["code"] == "malformed_request" else error["code"]


async def _fuzz(minutes: float, seed: int, workers: int) -> None:
    fuzzer = Fuzzer(seed, corpus(), learning=True)
    loop = asyncio.get_running_loop()
    started = loop.time()
    try:
        await fuzzer.replay(corpus(), workers)
        await fuzzer.run(10**12, workers, started + 60 * minutes)
    finally:
        for data in fuzzer.learnt:
            (CORPUS / f"{hashlib.sha256(data).hexdigest()[:12]}.http").write_bytes(data)
        print(  # noqa: T201 - a command's output
            f"{fuzzer.executions} executions in {loop.time() - started:.0f} s, {len(fuzzer.behaviours)} behaviours, "
            f"{len(fuzzer.learnt)} streams kept; seed {seed}"
        )


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=10)
    arguments.add_argument("--seed", type=int, default=time.monotonic_ns())
    arguments.add_argument("--workers", type=int, default=48)
    given = arguments.parse_args()
    uvloop.run(_fuzz(given.minutes, given.seed, given.workers))

"""Long runs of the whole gateway before nodes that misbehave: does anything leak, hang or end unsaid?

    python -m benchmarks.endurance aborts  [--count 1000]
    python -m benchmarks.endurance streams [--clients 2000] [--minutes 10]
    python -m benchmarks.endurance chaos   [--clients 40] [--minutes 20] [--seed 1]

`aborts`: clients leave at random moments, before the first token, in a stream and in answers that are not streamed.
`streams`: so many streams of ten events a second at once, all the time. `chaos`: nodes die, stall, restart, lie and
come back while clients come and leave; every answer must be whole, or say that it is not. Gateway and nodes are
processes of their own. The exit status is 1 when anything was found.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final, cast

import aiohttp
import uvloop

from slipstream.load.answer import StreamedAnswer, WholeAnswer

ABORT_LAG_S: Final = 5.0
"""How long after the last client left the books must be empty: a poll, and the slowest abort lag of an engine."""
HANG_S: Final = 30.0
PROMPTS: Final = (
    "Write a Python function that merges two sorted lists.\n```python\ndef merge(a, b):\n```",
    "Hello! How was your day?",
    "Translate into German: The river is wide and slow.",
    "What is 17 * 23 + 4? Think step by step.",
    "Summarize the following text: the fleet sailed at dawn.",
)


@dataclass
class Process:
    """A program started here. ``start`` again after it was killed."""

    command: tuple[str, ...]
    log: Path
    running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.running = subprocess.Popen(self.command, stdout=log, stderr=log)

    def send(self, number: int) -> None:
        if self.running is not None:
            self.running.send_signal(number)

    def end(self) -> int | None:
        """Stop it and return its exit status."""
        if self.running is None:
            return None
        self.running.send_signal(signal.SIGCONT)
        self.running.terminate()
        try:
            return self.running.wait(45)
        except subprocess.TimeoutExpired:
            self.running.kill()
            return self.running.wait()

    @property
    def resident_mb(self) -> float:
        assert self.running is not None
        pages = int(Path(f"/proc/{self.running.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    @property
    def descriptors(self) -> int:
        assert self.running is not None
        return len(os.listdir(f"/proc/{self.running.pid}/fd"))


@dataclass
class Stage:
    """A gateway and its nodes, running."""

    gateway: Process
    url: str
    admin: str
    nodes: dict[str, tuple[Process, str]]
    session: aiohttp.ClientSession
    faults: list[str] = field(default_factory=list)
    """Sentences of what was found to be wrong."""

    async def fleet(self) -> list[dict[str, Any]]:
        async with self.session.get(f"{self.admin}/fleet") as response:
            nodes: list[dict[str, Any]] = (await response.json())["nodes"]
            return nodes

    async def in_flight(self) -> int:
        return sum(node["own"] for node in await self.fleet())

    async def empties(self, within_s: float) -> float | None:
        """How long until no request is on the books; ``None`` when that took too long."""
        began = monotonic()
        while await self.in_flight():
            if monotonic() - began > within_s:
                return None
            await asyncio.sleep(0.02)
        return monotonic() - began


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def ended(processes: list[Process]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.end()


@contextlib.asynccontextmanager
async def stage(nodes: dict[str, tuple[str, ...]], settings: str = "", node_settings: str = "") -> AsyncIterator[Stage]:
    """Nodes by name with the command of each (``{port}`` is filled in), and a gateway before them.

    The pool of a node is told by its name. ``settings`` and ``node_settings`` are further YAML of the gateway's
    configuration and of each node's section.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started: dict[str, tuple[Process, str]] = {}
        lines = []
        for node, command in nodes.items():
            port = free_port()
            process = Process(tuple(part.format(port=port) for part in command), folder / f"{node}.log")
            started[node] = (process, f"http://127.0.0.1:{port}")
            pool = "speculative" if node.startswith("spec") else "standard"
            address = f"http://127.0.0.1:{port}"
            lines.append(f"  - {{name: {node}, url: '{address}', pool: {pool}, engine: vllm{node_settings}}}")
        gateway_port, admin_port = free_port(), free_port()
        config = folder / "fleet.yaml"
        config.write_text(
            f"gateway: {{listen: '127.0.0.1:{gateway_port}'}}\nadmin: {{listen: '127.0.0.1:{admin_port}'}}\n"
            f"{settings}nodes:\n" + "\n".join(lines) + "\n"
        )
        gateway = Process((sys.executable, "-m", "slipstream", "serve", "-c", str(config)), folder / "gateway.log")
        with ended([gateway, *(process for process, _ in started.values())]):
            for process, _ in started.values():
                process.start()
            gateway.start()
            connector = aiohttp.TCPConnector(limit=0, force_close=False)
            async with aiohttp.ClientSession(connector=connector) as session:
                made = Stage(
                    gateway, f"http://127.0.0.1:{gateway_port}", f"http://127.0.0.1:{admin_port}", started, session
                )
                await until_usable(made, len(nodes))
                yield made
                status = gateway.end()
                gateway.running = None
                if status != 0:
                    made.faults.append(f"the gateway ended with status {status}")
                said = gateway.log.read_text()
                if "Traceback" in said:
                    made.faults.append("the gateway's log has a traceback:\n" + said[said.index("Traceback") :][:4000])


async def until_usable(made: Stage, nodes: int) -> None:
    deadline = monotonic() + 60
    while monotonic() < deadline:
        with contextlib.suppress(aiohttp.ClientError, KeyError):
            if sum(node["healthy"] and node["fresh"] for node in await made.fleet()) == nodes:
                return
        await asyncio.sleep(0.1)
    raise SystemExit("the fleet did not come up")


def emulated(*options: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "slipstream", "emulate", "--port", "{port}", *options)


# Clients that leave


async def ask(made: Stage, chance: random.Random, leave_after_s: float | None, tokens: int) -> str:
    """One request; what became of it in a word, or in a sentence when it should not be."""
    streamed = chance.random() < 0.6
    body = {
        "model": "emulated",
        "messages": [{"role": "user", "content": f"{chance.random()} {chance.choice(PROMPTS)}"}],
        "stream": streamed,
        "max_tokens": tokens,
    }
    name = f"endurance-{chance.getrandbits(64):x}"
    try:
        async with asyncio.timeout(HANG_S):
            return await _answer(made, name, body, leave_after_s, streamed=streamed)
    except TimeoutError:
        return f"an answer did not end within {HANG_S:g} s (streamed: {streamed}): {await explained(made, name)}"


async def explained(made: Stage, name: str) -> str:
    """What the gateway knows of a request, and its node of the requests that it has not ended."""
    async with made.session.get(f"{made.admin}/decisions/{name}") as response:
        attempts = (await response.json()).get("attempts", [])
    told = [{key: one[key] for key in ("node", "reason", "ending", "age_s")} for one in attempts]
    if not told or told[-1]["node"] is None:
        return str(told)
    seen = await state(made, told[-1]["node"])
    running = [one for one in seen["requests"] if one["ended_at_s"] is None and name in one["headers"].values()]
    return f"{told}; at the node, whose faults are {seen['faults']}: {running or 'unknown'}"


async def _answer(made: Stage, name: str, body: dict[str, Any], leave_after_s: float | None, *, streamed: bool) -> str:
    try:
        async with asyncio.timeout(leave_after_s):
            async with made.session.post(
                f"{made.url}/v1/chat/completions", json=body, headers={"x-request-id": name}
            ) as response:
                if not streamed or response.status != 200:
                    whole = WholeAnswer(response.status, await response.read())
                    if whole.error is None:
                        return "whole"
                    said = whole.error.startswith("status 4") or whole.error.startswith("status 5")
                    return f"said error {response.status}" if said and "no JSON" not in whole.error else whole.error
                answer = StreamedAnswer()
                async for data in response.content.iter_any():
                    answer.feed(data, 0.0)
                answer.end(0.0)
                if answer.error is None:
                    return "whole"
                return answer.error if "ended before" in answer.error else "said error in the stream"
    except TimeoutError:
        if leave_after_s is None:
            raise
        return "left"
    except aiohttp.ClientPayloadError as error:
        # A whole answer has its length: what is cut short can not be taken for one. A stream has to say so.
        return "cut short" if not streamed else f"a stream was cut without a word: {error}"
    except aiohttp.ClientError as error:
        return f"no answer: {error!r}"


async def aborts(options: argparse.Namespace) -> list[str]:
    """So many clients leave at random moments; the books must be empty soon after the last."""
    chance = random.Random(options.seed)
    node = emulated("--slots", "16", "--ttft-ms", "60", "--step-ms", "8", "--output-tokens", "40")
    spec = (*node, "--speculator", "draft", "--alpha", "0.8")
    settings = "pools: {speculative: {short_output_tokens: 0}}\n"
    async with stage({"spec-0": spec, "std-0": node}, settings) as made:
        before = made.gateway.descriptors
        ends: Counter[str] = Counter()
        slots = asyncio.Semaphore(30)

        async def one() -> None:
            async with slots:
                ends[await ask(made, chance, chance.uniform(0.0, 0.35), 60)] += 1

        await asyncio.gather(*(one() for _ in range(options.count)))
        took = await made.empties(ABORT_LAG_S)
        if took is None:
            made.faults.append(f"{await made.in_flight()} requests are still on the books after {ABORT_LAG_S} s")
        busy = {name: (await state(made, name))["in_flight"] for name in made.nodes}
        if any(busy.values()):
            made.faults.append(f"nodes still work on requests whose clients left: {busy}")
        made.faults += unexpected(ends)
        print(
            f"{options.count} requests: {dict(ends)}; the books were empty {shown(took)} after the last "
            f"client left; open upstream requests {busy}; descriptors {before} -> {made.gateway.descriptors}"
        )
    return made.faults


async def state(made: Stage, name: str) -> dict[str, Any]:
    async with made.session.get(f"{made.nodes[name][1]}/emulate/state") as response:
        seen: dict[str, Any] = await response.json()
        return seen


def shown(seconds: float | None) -> str:
    return "not" if seconds is None else f"{seconds:.3f} s"


GOOD: Final = ("whole", "left", "said error", "cut short")


def unexpected(ends: Counter[str]) -> list[str]:
    return [f"{count} times: {end}" for end, count in ends.items() if not end.startswith(GOOD)]


# Many streams


class Reader(asyncio.Protocol):
    """Asks for one stream after another on one connection, and counts events."""

    def __init__(self, request: bytes, seen: Counter[str], now: Callable[[], float]) -> None:
        self.request, self.seen, self.now = request, seen, now
        self.tail = b""
        self.last = now()
        self.transport: asyncio.Transport | None = None
        self.leaving = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.last = self.now()
        self.seen["events"] += data.count(b"data: {")
        self.seen["errors"] += data.count(b'"error"')
        self.tail = (self.tail + data)[-40:]
        if self.tail.endswith(b"0\r\n\r\n"):
            self.seen["whole" if b"[DONE]" in self.tail else "unfinished"] += 1
            self.tail = b""
            assert self.transport is not None
            if self.leaving:
                self.transport.close()
            else:
                self.transport.write(self.request)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.leaving:
            self.seen["lost"] += 1


def compiled_mock() -> Path:
    """The engine that costs least: what is measured is the gateway."""
    mock = Path(tempfile.mkdtemp()) / "mock"
    subprocess.run(["cc", "-O2", "-o", str(mock), str(Path(__file__).with_name("mock_upstream.c"))], check=True)
    return mock


async def streams(options: argparse.Namespace) -> list[str]:
    """Streams of 300 events, ten a second each, one after another on each of so many connections."""
    mock = await asyncio.to_thread(compiled_mock)
    body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": PROMPTS[0]}]}).encode()
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    )
    seen: Counter[str] = Counter()
    node = (str(mock), "{port}", "300", "100000")
    settings = "log: {level: warning}\n"
    loop = asyncio.get_running_loop()
    async with stage({"std-0": node}, settings, f", max_in_flight: {options.clients}") as made:
        host, _, port = made.url.removeprefix("http://").partition(":")
        readers = []
        began = monotonic()
        for _ in range(options.clients):
            _, reader = await loop.create_connection(
                lambda: Reader(head % len(body) + body, seen, loop.time), host, int(port)
            )
            readers.append(reader)
            await asyncio.sleep(5.0 / options.clients)
        memory: list[float] = []
        while (minutes := (monotonic() - began) / 60) < options.minutes:
            await asyncio.sleep(min(30.0, options.minutes * 60 / 4))
            memory.append(made.gateway.resident_mb)
            print(
                f"{minutes:5.1f} min  {memory[-1]:6.1f} MB  {made.gateway.descriptors} descriptors  {dict(seen)}",
                flush=True,
            )
        elapsed = monotonic() - began
        silent = sum(loop.time() - reader.last > 5 for reader in readers)
        rate = seen["events"] / elapsed / options.clients
        for reader in readers:
            reader.leaving = True
        await made.empties(45)  # the last streams end
        print(
            f"{options.clients} streams for {elapsed / 60:.1f} min: {dict(seen)}, {rate:.2f} events a second each, "
            f"memory {memory[0]:.0f} MB first, {max(memory):.0f} MB most, {memory[-1]:.0f} MB last; "
            f"on the books at the end {await made.in_flight()}"
        )
        if silent:
            made.faults.append(f"{silent} streams were silent for 5 s")
        made.faults += [f"{seen[kind]} {kind}" for kind in ("errors", "unfinished", "lost") if seen[kind]]
        if max(memory) > 300:
            made.faults.append(f"the gateway took {max(memory):.0f} MB")
        if memory[-1] > memory[len(memory) // 4] * 1.05 + 2:
            made.faults.append(f"memory grew from {memory[len(memory) // 4]:.0f} to {memory[-1]:.0f} MB")
    return made.faults


# Trouble


async def chaos(options: argparse.Namespace) -> list[str]:
    """Nodes get into trouble at random while clients come and leave."""
    chance = random.Random(options.seed)
    node = emulated("--slots", "16", "--ttft-ms", "30", "--step-ms", "8", "--output-tokens", "60")
    spec = (*node, "--speculator", "draft", "--alpha", "0.5,code=0.85")
    settings = "pools: {speculative: {short_output_tokens: 0}}\ncontrol: {stale_after_s: 1.0}\nlog: {level: error}\n"
    nodes = {"spec-0": spec, "spec-1": spec, "std-0": node, "std-1": node}
    async with stage(nodes, settings) as made:
        ends: Counter[str] = Counter()
        troubles: Counter[str] = Counter()
        until = monotonic() + options.minutes * 60

        async def client(number: int) -> None:
            own = random.Random(options.seed * 1000 + number)
            while monotonic() < until:
                leave = own.uniform(0.0, 0.6) if own.random() < 0.15 else None
                ends[await ask(made, own, leave, own.choice((5, 40, 80)))] += 1
                await asyncio.sleep(own.expovariate(10))

        async def report() -> None:
            while monotonic() < until:
                await asyncio.sleep(60)
                print(
                    f"{(until - monotonic()) / 60:5.1f} min left  {made.gateway.resident_mb:.0f} MB  "
                    f"{sum(ends.values())} requests {dict(ends)}",
                    flush=True,
                )

        reporting = asyncio.create_task(report())
        trouble = asyncio.create_task(make_trouble(made, chance, troubles, until))
        await asyncio.gather(*(client(number) for number in range(options.clients)))
        await trouble
        reporting.cancel()
        took = await made.empties(2 * ABORT_LAG_S)
        if took is None:
            made.faults.append(f"{await made.in_flight()} requests are still on the books")
        for name in made.nodes:
            seen = await state(made, name)
            if seen["in_flight"]:
                made.faults.append(f"{name} still works on {seen['in_flight']} requests")
        states = {row["name"]: row["state"] for row in await made.fleet()}
        if set(states.values()) != {"ready"}:
            made.faults.append(f"not every node came back: {states}")
        made.faults += unexpected(ends)
        print(
            f"{sum(ends.values())} requests in {options.minutes:g} min: {dict(ends.most_common())}\n"
            f"troubles {dict(troubles.most_common())}; books empty after {shown(took)}; "
            f"nodes {states}; gateway {made.gateway.resident_mb:.0f} MB, {made.gateway.descriptors} descriptors"
        )
    return made.faults


FAULTS: Final[tuple[dict[str, Any], ...]] = (
    {"kind": "refuse", "seconds": 1.5},
    {"kind": "stall", "after_events": 0, "seconds": 3.0, "requests": 2},
    {"kind": "stall", "after_events": 5, "seconds": 3.0, "requests": 2},
    {"kind": "die", "after_events": 0, "requests": 3},
    {"kind": "die", "after_events": 4, "requests": 3},
    {"kind": "die", "after_events": 3, "reset": True, "requests": 3},
    {"kind": "status", "status": 500, "body": {"error": {"message": "boom"}}, "requests": 3},
    {"kind": "status", "status": 503, "body": "busy", "requests": 3},
    {"kind": "status", "status": 429, "body": {"error": {"message": "slow down"}}, "requests": 3},
    {"kind": "status", "status": 400, "body": {"error": {"message": "no"}}, "requests": 1},
    {"kind": "split", "bytes": 7, "gap_ms": 0.2, "requests": 3},
    {"kind": "lie_in_metrics", "running": 200},
    {"kind": "lie_in_metrics", "factor": 0.0},
    {"kind": "freeze_metrics"},
    {"kind": "garbage_metrics"},
    {"kind": "reset_counters"},
    {"kind": "slow_drain", "seconds": 1.0},
)


async def make_trouble(made: Stage, chance: random.Random, troubles: Counter[str], until: float) -> None:
    """One trouble after another, on a node at a time or two, until shortly before the end; then all is well again."""
    while monotonic() < until - 10:
        name = chance.choice(list(made.nodes))
        process, url = made.nodes[name]
        kind = chance.choice(("kill", "slam", "stop", "fault", "fault", "fault", "fault"))
        if kind in ("kill", "slam"):
            troubles["killed and restarted" if kind == "kill" else "replaced by what closes every connection"] += 1
            process.send(signal.SIGKILL)
            await asyncio.to_thread(process.running.wait if process.running else (lambda: None))
            async with slammed(url) if kind == "slam" else contextlib.nullcontext():
                await asyncio.sleep(chance.uniform(0.2, 2.0))
            process.start()
        elif kind == "stop":
            troubles["stopped and continued"] += 1
            process.send(signal.SIGSTOP)
            await asyncio.sleep(chance.uniform(0.2, 3.0))
            process.send(signal.SIGCONT)
        else:
            fault = chance.choice(FAULTS)
            troubles[fault["kind"]] += 1
            await tell(made, url, fault)
            await asyncio.sleep(chance.uniform(0.2, 3.0))
            if chance.random() < 0.7:
                await tell(made, url, None)
        await asyncio.sleep(chance.uniform(0.0, 1.0))
    for _, url in made.nodes.values():
        await tell(made, url, None)


@contextlib.asynccontextmanager
async def slammed(url: str) -> AsyncIterator[None]:
    """At a node's address every connection is closed as soon as it is made, as by a proxy before nothing."""

    async def close(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    host, _, port = url.removeprefix("http://").partition(":")
    async with await asyncio.start_server(close, host, int(port)):
        yield


async def tell(made: Stage, url: str, fault: dict[str, Any] | None) -> None:
    """Put a fault in force, or end all; a node that is down has none."""
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        timeout = aiohttp.ClientTimeout(total=3)
        if fault is None:
            async with made.session.delete(f"{url}/emulate/faults", timeout=timeout):
                pass
        else:
            async with made.session.post(f"{url}/emulate/faults", json=fault, timeout=timeout):
                pass


def main() -> int:
    """Run one of them and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", choices=("aborts", "streams", "chaos"))
    parser.add_argument("--count", type=int, default=1000, help="requests of `aborts`")
    parser.add_argument("--clients", type=int, default=0, help="at once; 2000 for `streams`, 40 for `chaos`")
    parser.add_argument("--minutes", type=float, default=0.0, help="10 for `streams`, 20 for `chaos`")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    runs = {"aborts": (aborts, 30, 0.0), "streams": (streams, 2000, 10.0), "chaos": (chaos, 40, 20.0)}
    run, clients, minutes = runs[options.run]
    options.clients = options.clients or clients
    options.minutes = options.minutes or minutes
    faults = uvloop.run(run(options))
    for fault in faults:
        print(f"FOUND: {fault}")
    print("nothing found" if not faults else f"{len(faults)} found")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

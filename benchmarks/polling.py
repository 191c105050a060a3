"""CPU cost of polling 100 vLLM nodes every 100 ms: `python benchmarks/polling.py`.

Every node answers the recorded 57 kB page of metrics. The nodes live in another process, and only this process's CPU
time counts. vLLM's polls would be stretched to 250 ms to spare the engine; here they are not: it is 1,000 a second.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast
from unittest import mock

import uvloop

from slipstream.control.poller import Timing
from slipstream.control.supervisor import Supervisor
from slipstream.core.fleet import Fleet
from slipstream.core.node import NodeSpec
from slipstream.core.request import Pool
from slipstream.engines import reader
from slipstream.engines.catalogue import ENGINES
from slipstream.engines.scrape import Scraper

DATA = Path(__file__).parent.parent / "tests" / "engines" / "data" / "vllm-0.32.0-ngram"
WARM_UP_S = 2.0


class Nodes(asyncio.Protocol):
    """Answers every request line by the table of whole answers."""

    answers: dict[bytes, bytes]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to answer on."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """One read holds one request: the poller sends the next only after the answer."""
        self.transport.write(self.answers[data.split(b" ", 2)[1]])


def serve_nodes(count: int, ready: Connection) -> None:
    """Listen on ``count`` free ports, send them through ``ready``, and serve until terminated."""
    files = {b"/metrics": "metrics-busy.txt", b"/v1/models": "models.json", b"/version": "version.json"}
    bodies = {path: (DATA / name).read_bytes() for path, name in files.items()}
    Nodes.answers = {
        path: b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body for path, body in bodies.items()
    }

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        servers = [await loop.create_server(Nodes, "127.0.0.1", 0) for _ in range(count)]
        ready.send([server.sockets[0].getsockname()[1] for server in servers])
        await asyncio.Event().wait()

    uvloop.run(serve())


async def poll(ports: list[int], interval_s: float, seconds: float) -> None:
    """Poll the nodes on ``ports`` for ``seconds`` and print what it cost."""
    clock = asyncio.get_running_loop().time
    nodes = [NodeSpec(f"node-{port}", f"http://127.0.0.1:{port}", Pool.SPECULATIVE, engine="vllm") for port in ports]
    fleet = Fleet(nodes, clock())
    supervisor = Supervisor(fleet, lambda node: Scraper(node.url), Timing(interval_s=interval_s), clock=clock)
    supervisor.start(nodes)
    pollers = supervisor.pollers.values()
    await asyncio.sleep(WARM_UP_S)
    polls, missed = sum(p.polls for p in pollers), sum(p.missed for p in pollers)
    started, used = time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    wall, cpu = time.perf_counter() - started, time.process_time() - used
    polls, missed = sum(p.polls for p in pollers) - polls, sum(p.missed for p in pollers) - missed
    await supervisor.stop()
    stale = sum(not node.fresh or node.report is None or node.report.running != 4 for node in fleet.nodes())
    print(f"{len(ports)} nodes every {interval_s * 1e3:.0f} ms: {polls / wall:.0f} polls/s")
    print(f"cpu         {cpu / wall:.2f} of a core (target 0.50)")
    print(f"per poll    {cpu / polls * 1e6:.0f} us (target 500)")
    print(f"missed      {missed} of {polls + missed} deadlines")
    print(f"wrong       {stale} nodes without a fresh and right report")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--interval", type=float, default=0.1, help="seconds between polls of a node")
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    here, there = multiprocessing.Pipe()
    nodes = multiprocessing.get_context("spawn").Process(target=serve_nodes, args=(options.nodes, there), daemon=True)
    nodes.start()
    free = {
        name: replace(engine, load=tuple(replace(page, cost_s=0.0) for page in engine.load))
        for name, engine in ENGINES.items()
    }
    try:
        with mock.patch.object(reader, "ENGINES", free):
            uvloop.run(poll(here.recv(), options.interval, options.seconds))
    finally:
        nodes.terminate()
        nodes.join()


if __name__ == "__main__":
    main()

"""CPU cost of an emulated node: 2,000 streams of 10 events a second each, read by another process.

`python -m benchmarks emulate`. Only this process's CPU time counts: taking requests in, and what each event costs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
from time import monotonic, process_time
from typing import NamedTuple, cast

import uvloop

from slipstream.emulate import EmulatedNode, NodeSettings, emulated
from slipstream.emulate.dialects import DIALECTS

ENDING = b"0\r\n\r\n"


class Streams(asyncio.Protocol):
    """Asks for one stream a connection and counts what comes: events, and streams that are still running."""

    def __init__(self, tokens: int, counts: list[int], whole: asyncio.Event) -> None:
        self.request = json.dumps(
            {
                "messages": [{"role": "user", "content": "x"}],
                "stream": True,
                "max_tokens": tokens,
                "ignore_eos": True,
            }
        ).encode()
        self.counts = counts
        self.whole = whole
        self.tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(self.request)
        cast("asyncio.Transport", transport).write(head + self.request)

    def data_received(self, data: bytes) -> None:
        """Count; the last stream's end ends it all."""
        self.counts[0] += data.count(b"data: ")
        self.tail = (self.tail + data)[-len(ENDING) :]
        self.counts[1] -= self.tail == ENDING
        if not self.counts[1]:
            self.whole.set()


def read_streams(
    url: str, streams: int, tokens: int, processors: set[int], events: multiprocessing.SimpleQueue[int]
) -> None:
    """Open all streams over a second, read them to the end, and tell how many events there were."""
    os.sched_setaffinity(0, processors)

    async def read() -> int:
        host, _, port = url.removeprefix("http://").partition(":")
        loop, counts, whole = asyncio.get_running_loop(), [0, streams], asyncio.Event()
        for _ in range(streams):
            await loop.create_connection(lambda: Streams(tokens, counts, whole), host, int(port))
            await asyncio.sleep(1.0 / streams)
        await whole.wait()
        return counts[0]

    events.put(uvloop.run(read()))


class Reading(NamedTuple):
    """Events that came, and what this process took for them."""

    events: int
    wall_s: float
    cpu_s: float


async def read_by_another(node: EmulatedNode, streams: int, tokens: int) -> Reading:
    """Serve so many streams to another process, which has the other processors, if there are any, for itself."""
    ours = os.sched_getaffinity(0)
    first = {min(ours)}
    context = multiprocessing.get_context("spawn")
    events: multiprocessing.SimpleQueue[int] = context.SimpleQueue()
    reader = context.Process(target=read_streams, args=(node.url, streams, tokens, ours - first or first, events))
    os.sched_setaffinity(0, first)
    try:
        reader.start()
        began, used = monotonic(), process_time()
        count = await asyncio.to_thread(events.get)
        wall_s, cpu_s = monotonic() - began, process_time() - used
        reader.join()
    finally:
        os.sched_setaffinity(0, ours)
    return Reading(count, wall_s, cpu_s)


async def measure(dialect: str, streams: int, tokens: int) -> None:
    """Serve them and print what it took."""
    async with emulated(dialect, NodeSettings(slots=streams, ttft_s=0.1, step_s=0.1)) as node:
        read = await read_by_another(node, streams, tokens)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{dialect:9} {streams} streams, peak {node.record.peak_in_flight}: {read.events} events in "
        f"{read.wall_s:.1f} s, {1e6 * read.cpu_s / read.events:.1f} us of CPU an event, "
        f"{read.cpu_s / read.wall_s:.0%} of a core, at most {memory:.0f} MB"
    )


def main() -> None:
    """Measure each dialect."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=100)
    options = parser.parse_args()
    for dialect in DIALECTS:
        uvloop.run(measure(dialect, options.streams, options.tokens))


if __name__ == "__main__":
    main()

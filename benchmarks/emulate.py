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
import select
import socket
from time import monotonic, process_time, sleep
from typing import NamedTuple

import uvloop

from slipstream.emulate import EmulatedNode, NodeSettings, emulated
from slipstream.emulate.dialects import DIALECTS

ENDING = b"0\r\n\r\n"


def read_streams(
    url: str, streams: int, tokens: int, processors: set[int], events: multiprocessing.SimpleQueue[int]
) -> None:
    """Open all streams over a second, read them to the end, and tell how many events there were.

    It looks every millisecond: a reader that waits for what comes is woken by who writes it, in whose time that is.
    """
    os.sched_setaffinity(0, processors)
    host, _, port = url.removeprefix("http://").partition(":")
    body = json.dumps(
        {"messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": tokens, "ignore_eos": True}
    ).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    ready, open_streams, endings = select.epoll(), dict[int, socket.socket](), dict[int, bytes]()
    count = opened = 0
    began = monotonic()
    while opened < streams or open_streams:
        while opened < streams and monotonic() >= began + opened / streams:
            stream = socket.create_connection((host, int(port)))
            stream.sendall(request)
            open_streams[stream.fileno()], endings[stream.fileno()] = stream, b""
            ready.register(stream, select.EPOLLIN)
            opened += 1
        sleep(0.001)
        for descriptor, _ in ready.poll(0):
            data = open_streams[descriptor].recv(65536)
            if not data:
                raise RuntimeError("the node closed a stream that had not ended")
            count += data.count(b"data: ")
            endings[descriptor] = (endings[descriptor] + data)[-len(ENDING) :]
            if endings[descriptor] == ENDING:
                open_streams.pop(descriptor).close()
    events.put(count)


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

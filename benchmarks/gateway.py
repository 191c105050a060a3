"""The data plane alone before one engine: placing costs nothing, so parsing, forwarding and answering are measured.

    python benchmarks/gateway.py --port 8080 --upstream http://127.0.0.1:9201

Point any load generator at it. `--profile FILE` writes cProfile's statistics when the process is ended with SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import signal
from collections.abc import Collection
from pathlib import Path

import uvloop

from slipstream.core.dispatch import Placement
from slipstream.core.errors import SlipstreamError
from slipstream.core.keys import KeyPolicy
from slipstream.core.node import NodeSpec
from slipstream.core.node_state import NodeState
from slipstream.core.outcome import Outcome, ResponseStatistics
from slipstream.core.policy import Decision, Reason
from slipstream.core.request import Pool, RequestShape, TrafficClass
from slipstream.gateway.headers import RequestHead
from slipstream.gateway.ports import Ports
from slipstream.gateway.server import Gateway


class OneNode:
    """Dispatcher, fleet and observer in one, with nothing in them."""

    def __init__(self, url: str) -> None:
        self.node = NodeSpec("node-0", url, Pool.STANDARD)
        self.state = NodeState(self.node, 0.0)
        self.decision = Decision(self.node.name, Pool.STANDARD, Reason.NO_SPECULATOR, 0, 0.5, 0.0)

    def place(
        self,
        shape: RequestShape,
        request_id: str,
        now: float,
        avoid: Collection[str] = (),
        may_wait: bool = False,
        before: int = 0,
        queued_s: float | None = None,
    ) -> Placement:
        return Placement(request_id, shape, self.decision, self.state, 1)

    def settle(self, placement: Placement, outcome: Outcome, now: float) -> None: ...

    def took(self, placement: Placement, now: float) -> None: ...

    def answering(self, placement: Placement, now: float) -> None: ...

    def remember_response(self, placement: Placement, response_id: str, now: float) -> None: ...

    def models(self) -> tuple[str, ...]:
        return ("m",)

    def usable_nodes(self) -> int:
        return 1

    def finished(self, placement: Placement, outcome: Outcome, now: float) -> None: ...

    def rejected(self, error: SlipstreamError, path: str, now: float) -> None: ...

    def decided(self, seconds: float) -> None: ...

    def waited(self, traffic_class: TrafficClass, seconds: float, *, served: bool) -> None: ...


def read(path: str, body: bytes, head: RequestHead, policy: KeyPolicy | None) -> RequestShape:
    """The least a request's reader can do."""
    return RequestShape("m", "code", streamed=b'"stream": true' in body)


def read_nothing(engine: str | None, payloads: tuple[bytes, ...]) -> ResponseStatistics:
    """No statistics."""
    return NO_STATISTICS


NO_STATISTICS = ResponseStatistics()


async def serve(port: int, url: str) -> None:
    """Serve until SIGTERM or SIGINT."""
    one = OneNode(url)
    gateway = Gateway(Ports(dispatcher=one, fleet=one, reader=read, read_statistics=read_nothing, observer=one))
    host, port = await gateway.listen("127.0.0.1", port)
    print(f"gateway before {url}: http://{host}:{port}")
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await ended.wait()
    await gateway.close(1.0)


def main() -> None:
    """Parse arguments and serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--upstream", default="http://127.0.0.1:9201", help="the engine's base URL")
    parser.add_argument("--profile", type=Path, help="write a cProfile here")
    args = parser.parse_args()
    profile = cProfile.Profile()
    if args.profile:
        profile.enable()
    uvloop.run(serve(args.port, args.upstream))
    if args.profile:
        profile.disable()
        profile.dump_stats(args.profile)


if __name__ == "__main__":
    main()

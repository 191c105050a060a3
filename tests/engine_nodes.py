"""Real llama.cpp nodes for tests. Mark whatever uses them with ``@pytest.mark.engine``."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from slipstream.config import FleetConfig
from slipstream.core.request import Pool
from slipstream.embedded.model import find_model, model_name
from slipstream.embedded.node import SLEEPING_THREADS, EmbeddedNodeSpec, worker_command
from slipstream.embedded.port import reserve_port
from slipstream.embedded.speculator import NO_SPECULATOR, parse_speculator
from slipstream.service import loopback_config

__all__ = ["EngineNode", "children_of", "engine_nodes", "engine_of", "polled_config"]


@dataclass(frozen=True, slots=True)
class EngineNode:
    """An engine that has no agent: a process of the test's own."""

    spec: EmbeddedNodeSpec
    port: int
    process: subprocess.Popen[bytes]

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def model(self) -> str:
        return model_name(self.spec.model)


@contextmanager
def engine_nodes(
    speculative: int = 1, standard: int = 1, slots: int = 8, speculator: str = "ngram"
) -> Iterator[tuple[EngineNode, ...]]:
    """Nodes ``spec-0``, ``spec-1``, … and ``std-0``, ``std-1``, … that serve the installed model."""
    model, drafts = find_model(), parse_speculator(speculator)
    specs = [EmbeddedNodeSpec(f"spec-{n}", Pool.SPECULATIVE, model, drafts, slots) for n in range(speculative)]
    specs += [EmbeddedNodeSpec(f"std-{n}", Pool.STANDARD, model, NO_SPECULATOR, slots) for n in range(standard)]
    with ExitStack() as stack:
        nodes = tuple(stack.enter_context(_started(spec)) for spec in specs)
        for node in nodes:
            assert node.process.stdout is not None
            assert node.process.stdout.readline(), f"{node.name} ended with status {node.process.wait()}"
        yield nodes


@contextmanager
def _started(spec: EmbeddedNodeSpec) -> Iterator[EngineNode]:
    with reserve_port() as reservation:
        port = reservation.getsockname()[1]
        with subprocess.Popen(
            worker_command(spec, port),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **SLEEPING_THREADS},
            start_new_session=True,
        ) as process:
            try:
                yield EngineNode(spec, port, process)
            finally:
                process.kill()


def polled_config(nodes: Sequence[EngineNode], **sections: object) -> FleetConfig:
    """The configuration of a fleet that asks these engines itself."""
    described = [
        {"name": node.name, "url": node.url, "pool": node.spec.pool.value, "engine": "llamacpp"}
        | ({"speculator": node.spec.speculator.choice.value} if node.spec.pool is Pool.SPECULATIVE else {})
        for node in nodes
    ]
    return loopback_config(described, 0, 0, **sections)


def children_of(pid: int) -> list[int]:
    """The processes that it has started and that have not been reaped; none once it has ended."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # of its threads, one may end meanwhile
                found += map(int, (thread / "children").read_text().split())
    return found


def engine_of(url: str) -> int | None:
    """The engine at ``url`` that an agent in this process has in hand; ``None`` = there is none."""
    port = f"--port={url.rpartition(':')[2]}"
    for keeper in children_of(os.getpid()):  # whose command has the engine's in it
        with suppress(FileNotFoundError, ProcessLookupError):
            if port in Path(f"/proc/{keeper}/cmdline").read_text().split("\0"):
                return next(iter(children_of(keeper)), None)
    return None

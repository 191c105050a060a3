"""One embedded node: how it is described, and the process it runs in."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from slipstream.core.request import Pool
from slipstream.embedded.errors import EngineNotInstalled, NodeStartFailed, UnusableSpec
from slipstream.embedded.model import model_name
from slipstream.embedded.port import LOOPBACK, reserve_port
from slipstream.embedded.speculator import NO_SPECULATOR, EmbeddedSpeculator

__all__ = ["SLEEPING_THREADS", "EmbeddedNode", "EmbeddedNodeSpec", "NodeState", "worker_command"]

INSTALL_COMMAND = "pip install xllamacpp==2026.10.11549"
LOG_TAIL_BYTES = 8192
LOG_TAIL_LINES = 8

SLEEPING_THREADS = {"OMP_WAIT_POLICY": "passive"}
"""llama.cpp's threads wait for one another by spinning, which on busy cores takes the time of those they wait for: two
nodes of two threads on two cores answered four requests in 68 s, and in 2 s with threads that sleep."""


class NodeState(StrEnum):
    """Where a node is in its life."""

    STARTING = "starting"
    READY = "ready"
    DOWN = "down"
    """Its process ended; it will be started again."""
    FAILED = "failed"
    """It could not be started again, and nobody tries any more."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class EmbeddedNodeSpec:
    """A node to run on this machine.

    ``model`` comes from `find_model`, ``speculator`` from `parse_speculator`. ``slots`` is how many sequences the node
    works on at once, ``context_per_slot`` the tokens each may have, prompt and answer together. ``port`` ``None`` = a
    free one.

    Raises:
        UnusableSpec: a figure is out of range.
    """

    name: str
    pool: Pool
    model: Path
    speculator: EmbeddedSpeculator = NO_SPECULATOR
    slots: int = 8
    threads: int = 1
    context_per_slot: int = 1024
    port: int | None = None

    def __post_init__(self) -> None:
        for field, least, most in (("slots", 1, 256), ("threads", 1, 256), ("context_per_slot", 64, 1 << 20)):
            value = getattr(self, field)
            if not least <= value <= most:
                raise UnusableSpec(f"Node {self.name}: {field} is {value}, and must be between {least} and {most}.")
        if self.port is not None and not 1 <= self.port <= 65535:
            raise UnusableSpec(f"Node {self.name}: port is {self.port}, and must be between 1 and 65535.")


def worker_command(spec: EmbeddedNodeSpec, port: int) -> tuple[str, ...]:
    """The words that start a node's process, which listens on ``port``: see `slipstream.embedded.worker`."""
    return (
        sys.executable,
        "-P",  # a file in the working directory must not stand in for a module
        "-m",
        "slipstream.embedded.worker",
        f"--model={spec.model}",
        f"--name={model_name(spec.model)}",
        f"--port={port}",
        f"--slots={spec.slots}",
        f"--threads={spec.threads}",
        f"--context-per-slot={spec.context_per_slot}",
        f"--speculator={spec.speculator}",
    )


class EmbeddedNode:
    """A node and, one after the other, the processes it runs in. All of them listen on the same port.

    ``pid`` is the running process's, ``None`` between two of them. ``port`` is ``None`` until the first start, unless
    the spec names one. ``starts`` counts processes that became ready; ``ready_s`` is how long the last of them took,
    ``None`` before the first. ``failure`` says why the node is ``FAILED``. ``on_change`` is called after every change
    of state.
    """

    def __init__(self, spec: EmbeddedNodeSpec, on_change: Callable[[EmbeddedNode], None] | None = None) -> None:
        self.spec = spec
        self.state = NodeState.STOPPED
        self.pid: int | None = None
        self.port = spec.port
        self.starts = 0
        self.ready_s: float | None = None
        self.failure: NodeStartFailed | None = None
        self._on_change = on_change
        self._reservation: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._log: asyncio.Task[None] | None = None
        self._log_tail = b""

    @property
    def name(self) -> str:
        """The node's name in the fleet."""
        return self.spec.name

    @property
    def pool(self) -> Pool:
        """The pool it belongs to."""
        return self.spec.pool

    @property
    def url(self) -> str:
        """Scheme, host and port; from the first start on, and the same through all later ones."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def model(self) -> str:
        """The model's name, as clients ask for it."""
        return model_name(self.spec.model)

    @property
    def log_lines(self) -> tuple[str, ...]:
        """The last lines of llama.cpp's log, oldest first. They stay until the next process."""
        lines = self._log_tail.decode(errors="replace").splitlines()
        return tuple(line for line in lines if line.strip())[-LOG_TAIL_LINES:]

    async def start(self, timeout_s: float) -> None:
        """Start a process, and return when it serves. On any other outcome, cancellation too, no process is left.

        Raises:
            EngineNotInstalled: the package with llama.cpp's server is missing.
            PortTaken: the port that the spec names is in use.
            NodeStartFailed: the process ended first, or was not ready after ``timeout_s`` seconds.
        """
        if find_spec("xllamacpp") is None:
            raise EngineNotInstalled(f"The embedded engine is not installed: run `{INSTALL_COMMAND}`.")
        if self._reservation is None:
            self._reservation = reserve_port(self.spec.port)
            self.port = self._reservation.getsockname()[1]
        self._enter(NodeState.STARTING)
        began = time.monotonic()
        try:
            await self._become_ready(timeout_s)
        except BaseException:
            await self._end(grace_s=0)
            self._enter(NodeState.DOWN)
            raise
        self.ready_s = time.monotonic() - began
        self.starts += 1
        self._enter(NodeState.READY)

    async def ended(self) -> int:
        """Wait until the process has ended and its log is read. Returns its status, negative = the signal."""
        status = await self._reap()
        self._enter(NodeState.DOWN)
        return status

    def give_up(self, failure: NodeStartFailed) -> None:
        """Record why the node is not started again."""
        self.failure = failure
        self._enter(NodeState.FAILED)

    async def stop(self, grace_s: float) -> None:
        """End the process: TERM, and KILL after ``grace_s`` seconds. The port is given back. May be called again."""
        await self._end(grace_s)
        if self._reservation is not None:
            self._reservation.close()
            self._reservation = None
        if self.state is not NodeState.FAILED:
            self._enter(NodeState.STOPPED)

    def _enter(self, state: NodeState) -> None:
        if state is not self.state:
            self.state = state
            if self._on_change is not None:
                self._on_change(self)

    async def _become_ready(self, timeout_s: float) -> None:
        process = await self._spawn()
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self.pid = process.pid
        self._log_tail = b""
        self._log = asyncio.create_task(self._read_log(process.stderr), name=f"log of {self.name}")
        try:
            async with asyncio.timeout(timeout_s):
                report = await process.stdout.readline()
        except TimeoutError:
            await self._end(grace_s=0)
            raise NodeStartFailed(f"Node {self.name} was not ready after {timeout_s:g} s.", self.log_lines) from None
        if not report:
            status = await self._reap()
            raise NodeStartFailed(f"Node {self.name} ended with status {status} before it was ready.", self.log_lines)

    async def _end(self, grace_s: float) -> None:
        process = self._process
        if process is None:
            return
        if process.returncode is None and grace_s > 0:
            process.terminate()
            try:
                async with asyncio.timeout(grace_s):
                    await process.wait()
            except TimeoutError:
                pass  # what TERM did not end, KILL does
        if process.returncode is None:
            process.kill()
        await self._reap()

    async def _reap(self) -> int:
        assert self._process is not None
        assert self._log is not None
        status = await self._process.wait()
        await asyncio.wait([self._log])  # unlike a bare await, does not cancel the reader with the waiter
        self._process = self.pid = None
        return status

    async def _spawn(self) -> asyncio.subprocess.Process:
        assert self.port is not None
        try:
            return await asyncio.create_subprocess_exec(
                *worker_command(self.spec, self.port),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **SLEEPING_THREADS},
                # Ctrl-C reaches every process of the terminal's group: the nodes must outlive the gateway's draining.
                start_new_session=True,
            )
        except OSError as error:
            raise NodeStartFailed(f"Node {self.name} could not be started: {error.strerror}.", ()) from error

    async def _read_log(self, stream: asyncio.StreamReader) -> None:
        while chunk := await stream.read(LOG_TAIL_BYTES):
            self._log_tail = (self._log_tail + chunk)[-LOG_TAIL_BYTES:]

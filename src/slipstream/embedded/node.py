"""One embedded node: how it is described, and the command that runs it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from slipstream.core.request import Pool
from slipstream.embedded.errors import EngineNotInstalled, UnusableSpec
from slipstream.embedded.model import model_name
from slipstream.embedded.speculator import NO_SPECULATOR, EmbeddedSpeculator

__all__ = ["SLEEPING_THREADS", "EmbeddedNodeSpec", "worker_command"]

INSTALL_COMMAND = "pip install xllamacpp==2026.10.11549"

SLEEPING_THREADS = {"OMP_WAIT_POLICY": "passive"}
"""llama.cpp's threads wait for one another by spinning, which on busy cores takes the time of those they wait for: two
nodes of two threads on two cores answered four requests in 68 s, and in 2 s with threads that sleep."""


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
    """The words that start a node's process, which listens on ``port``: see `slipstream.embedded.worker`.

    Raises:
        EngineNotInstalled: the package with llama.cpp's server is missing.
    """
    if find_spec("xllamacpp") is None:
        raise EngineNotInstalled(f"The embedded engine is not installed: run `{INSTALL_COMMAND}`.")
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

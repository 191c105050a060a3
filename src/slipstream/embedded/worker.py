"""One llama.cpp server in a process of its own: ``python -m slipstream.embedded.worker``.

The parent speaks to it through the three standard streams. Standard output carries one JSON line, written when the
server listens: ``{"port", "pid", "ready_s"}``. Standard error is the log. Standard input carries nothing: its end means
that the parent has gone, and ends the worker.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

import xllamacpp

from slipstream.embedded.errors import EmbeddedError
from slipstream.embedded.speculator import EmbeddedSpeculator, SpeculatorChoice, parse_speculator

__all__ = ["server_parameters"]

DRAFT_K = 4
"""Tokens drafted per verify step, by a draft model always and by n-gram lookup at most."""

NGRAM_MATCH = 3
"""llama.cpp's default looks up the last 24 tokens and drafts 48 to 64, which drafts next to nothing in an answer of 64.
Looking up 3 and drafting 1 to 4, text that repeats the prompt is drafted from its first line on, and free text hardly
ever: tokens per step 2.4 for edits, 1.9 for retrieval, 1.7 for code, 1.1 for mathematics, 1.0 for chat."""

HTTP_THREADS = 64
"""A kept-alive connection holds one of the server's threads while it idles, for 5 s. The default is slots + 4, and more
are made too late: 24 connections opened at once kept `/metrics` from answering for 8 s."""

VERBOSITY_WARNINGS = 2
PR_SET_PDEATHSIG = 1


def server_parameters(
    model: Path,
    name: str,
    *,
    port: int = 0,
    slots: int = 8,
    threads: int = 1,
    context_per_slot: int = 1024,
    speculator: EmbeddedSpeculator,
) -> xllamacpp.CommonParams:
    """llama.cpp's parameters of a node on the CPU. ``port`` 0 = any free one; ``context_per_slot`` counts tokens."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    parameters.model_alias = {name}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.reuse_port = port != 0  # the parent keeps the port bound, see port.py
    parameters.n_threads_http = HTTP_THREADS
    parameters.n_parallel = slots
    parameters.n_ctx = slots * context_per_slot
    # One cache, of which each slot has its share. Slots with caches of their own are computed in one pass only where
    # they are neighbours: four of eight that are not took 83 ms a step so, and take 53.
    parameters.kv_unified = True
    parameters.kv_unified_per_slot = context_per_slot
    parameters.n_gpu_layers = 0
    parameters.fit_params = False  # asks what fits on a GPU
    parameters.cache_ram_mib = 0  # would grow to 8 GiB beside the slots' own caches
    parameters.cache_idle_slots = False
    parameters.endpoint_metrics = True
    parameters.endpoint_slots = True
    parameters.cors_origins = "http://127.0.0.1"  # not "*": any page in the browser could use the node
    parameters.cors_origins_explicit = True
    parameters.ui = False
    parameters.verbosity = VERBOSITY_WARNINGS
    draft = parameters.speculative.draft
    for processors in (
        parameters.cpuparams,
        parameters.cpuparams_batch,
        draft.cpuparams,
        draft.cpuparams_batch,
    ):
        processors.n_threads = threads
    types = xllamacpp.common_speculative_type
    match speculator.choice:
        case SpeculatorChoice.NONE:
            parameters.speculative.types = [types.COMMON_SPECULATIVE_TYPE_NONE]
        case SpeculatorChoice.NGRAM:
            parameters.speculative.types = [types.COMMON_SPECULATIVE_TYPE_NGRAM_MOD]
            ngram = parameters.speculative.ngram_mod
            ngram.n_match, ngram.n_min, ngram.n_max = NGRAM_MATCH, 1, DRAFT_K
        case SpeculatorChoice.DRAFT:
            parameters.speculative.types = [types.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
            draft.mparams.path = str(speculator.draft_model)
            draft.n_max = DRAFT_K
    return parameters


def main() -> int:
    """Serve until standard input ends. Returns the exit status, 1 when the server could not start."""
    started = time.monotonic()
    _die_with_parent()
    report = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever llama.cpp prints, only the report is the report
    arguments = _arguments()
    try:
        parameters = server_parameters(
            arguments.model,
            arguments.name,
            port=arguments.port,
            slots=arguments.slots,
            threads=arguments.threads,
            context_per_slot=arguments.context_per_slot,
            speculator=parse_speculator(arguments.speculator),
        )
        server = xllamacpp.Server(parameters)
    except (EmbeddedError, RuntimeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    port = int(server.listening_address.rpartition(":")[2])
    ready = {"port": port, "pid": os.getpid(), "ready_s": round(time.monotonic() - started, 3)}
    try:
        report.write(json.dumps(ready) + "\n")
        report.close()
        while os.read(sys.stdin.fileno(), 4096):
            pass
    except BrokenPipeError:
        pass  # the parent went while the model was loaded
    # Not returned from, nor left by an exception: the server's destructor waits for requests in flight, and nobody is
    # left to read them.
    os._exit(0)


def _die_with_parent() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="slipstream.embedded.worker", description="One llama.cpp server.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--name", required=True, help="the model's name for clients")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--context-per-slot", type=int, default=1024)
    parser.add_argument("--speculator", default="none", help="none, ngram or draft:PATH")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

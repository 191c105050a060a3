"""A sweep over 512 batch sizes, 17 draft lengths and 8 contexts; and `slipstream crossover` from the shell.

python -m benchmarks.crossover
"""

from __future__ import annotations

import subprocess
import sys
from resource import RUSAGE_CHILDREN, getrusage
from time import process_time

import numpy as np

from slipstream.costmodel.acceptance import geometric
from slipstream.costmodel.catalogue import engine_named, hardware_named, model_named
from slipstream.costmodel.costs import RooflineCosts
from slipstream.costmodel.curve import sweep
from slipstream.costmodel.roofline import Deployment
from slipstream.costmodel.speculator import eagle_head

CONTEXTS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
PUBLISHED = ("--model", "published", "--alpha", "0.72", "--k", "4")
ROOFLINE = ("--target", "Llama-3.3-70B", "--hardware", "H100", "--tp", "4", "--speculator", "eagle3:alpha=0.7")


def sweep_ms(target: str) -> float:
    """Milliseconds of CPU, the best of ten runs."""
    model = model_named(target)
    deployment = Deployment(model, hardware_named("H100"), engine_named("vllm"), tensor_parallel=8)
    costs, acceptance = RooflineCosts(deployment, eagle_head(model)), geometric(0.7)
    best = float("inf")
    for _ in range(10):
        start = process_time()
        sweep(costs, acceptance, np.arange(1, 513), np.arange(17), CONTEXTS)
        best = min(best, process_time() - start)
    return best * 1e3


def command_ms(*arguments: str) -> float:
    """Milliseconds of CPU of the whole process, the best of five runs."""
    best = float("inf")
    for _ in range(5):
        before = getrusage(RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "slipstream", "crossover", *arguments], check=True, stdout=subprocess.DEVNULL
        )
        after = getrusage(RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best * 1e3


def main() -> None:
    """Print what each takes."""
    for target in ("Llama-3.3-70B", "Qwen3-235B-A22B"):
        print(f"sweep of 512 × 17 × 8, {target}: {sweep_ms(target):.1f} ms")
    for name, arguments in (("published", PUBLISHED), ("roofline", ROOFLINE)):
        print(f"slipstream crossover --model {name}: {command_ms(*arguments):.0f} ms")


if __name__ == "__main__":
    main()

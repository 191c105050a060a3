"""Every benchmark, or those named: `python -m benchmarks [NAME ...]`, names as below."""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks import (
    acceptance,
    affinity,
    body,
    category,
    crossover,
    decision,
    emulate,
    emulated_node,
    keys,
    polling,
    predictive,
    real_engine,
    ruler,
    simulator,
    telemetry,
)

BENCHMARKS: dict[str, Callable[[], None]] = {
    "decision": decision.main,
    "affinity": affinity.main,
    "acceptance": acceptance.main,
    "category": category.main,
    "body": body.main,
    "keys": keys.main,
    "telemetry": telemetry.main,
    "polling": polling.main,
    "emulate": emulate.main,
    "emulated-node": emulated_node.main,
    "crossover": crossover.main,
    "simulator": simulator.main,
    "predictive": predictive.main,
    "real-engine": real_engine.main,
    "ruler": lambda: ruler.main([]),
}


def main(names: list[str]) -> int:
    """Run the benchmarks named, or all."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    sys.argv[1:] = []
    for name in names or BENCHMARKS:
        print(f"== {name}", flush=True)
        BENCHMARKS[name]()
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

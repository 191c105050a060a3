"""The page that tells how engines are asked tells it of every engine, and as it is."""

from __future__ import annotations

import re
from pathlib import Path

from slipstream.control.poller import Timing
from slipstream.engines.catalogue import ENGINES
from slipstream.engines.engine import Engine
from slipstream.engines.reader import COUNTERS_INTERVAL_S, poll_interval_s

NAMES = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp", "trtllm": "TensorRT-LLM"}
PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "routing.md"


def shown(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def row(engine: Engine) -> tuple[str, ...]:
    load = engine.load[0]
    beside = engine.counters[0] if engine.counters else None
    interval = poll_interval_s(Timing().interval_s, load.cost_s, beside.cost_s if beside else 0.0)
    return (
        NAMES[engine.name],
        f"`{load.path}`, {shown(interval)}",
        f"`{beside.path}`, {shown(COUNTERS_INTERVAL_S)}" if beside else "the same",
        f"{engine.gauge_lag_s:g} s",
        f"{engine.abort_lag_s:g} s",
    )


def test_each_engine_has_its_row() -> None:
    lines = re.findall(r"^\| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    told = [cells for cells in (tuple(line.split(" | ")) for line in lines) if cells[0] in NAMES.values()]
    assert told == [row(engine) for engine in ENGINES.values()]

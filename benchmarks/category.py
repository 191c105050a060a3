"""What a request costs before routing: reading its body, its category, its shape. Budget: 8 µs for parse and category.

    python benchmarks/category.py

Prints microseconds of processor time a request: for one typical body, and mean and 99th percentile over the labelled
prompts of tests/core/data (each the least of several runs, so that other work on the machine counts little).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from slipstream.core.category import Categorizer
from slipstream.core.category_rules import DEFAULT_CATEGORY, DEFAULT_RULES
from slipstream.gateway.body import features_of, read_chat, shape_of, traffic_class_of
from slipstream.gateway.view import RequestView

PATH = "/v1/chat/completions"
PROMPTS = Path(__file__).parent.parent / "tests" / "core" / "data" / "labelled_prompts.jsonl"
TYPICAL = (
    b'{"model":"m","messages":[{"role":"system","content":"You are a helpful assistant."},'
    b'{"role":"user","content":"Write a Python function that merges two sorted lists.\\n\\n'
    b'```python\\ndef merge(a, b):\\n```"}],"max_tokens":256,"temperature":0.7,"stream":true}'
)


def microseconds(work: Callable[[], object], calls: int = 20, repeats: int = 25) -> float:
    """Least processor time of one call, over ``repeats`` runs of ``calls`` calls."""
    best = math.inf
    for _ in range(repeats):
        start = time.process_time_ns()
        for _ in range(calls):
            work()
        best = min(best, time.process_time_ns() - start)
    return best / calls / 1000


def main() -> None:
    categorizer = Categorizer(DEFAULT_RULES, DEFAULT_CATEGORY)

    def category_of(view: RequestView) -> str:
        return categorizer.categorize(features_of(PATH, view))

    def whole(body: bytes) -> object:
        view = read_chat(body)
        return shape_of(view, category_of(view), traffic_class_of(view))

    view = read_chat(TYPICAL)
    features = features_of(PATH, view)
    steps: dict[str, Callable[[], object]] = {
        "read_chat": lambda: read_chat(TYPICAL),
        "features_of": lambda: features_of(PATH, view),
        "categorize": lambda: categorizer.categorize(features),
        "shape_of": lambda: shape_of(view, "code", traffic_class_of(view)),
        "all of it": lambda: whole(TYPICAL),
    }
    print("typical body")
    for name, work in steps.items():
        print(f"  {name:24} {microseconds(work, calls=1000):6.2f} µs")

    prompts = [json.loads(line)["prompt"] for line in PROMPTS.read_text(encoding="utf-8").splitlines()]
    bodies = [
        json.dumps(
            {"model": "m", "messages": [{"role": "user", "content": prompt}], "max_tokens": 256}, ensure_ascii=False
        ).encode()
        for prompt in prompts
    ]
    views = [read_chat(body) for body in bodies]
    print(f"labelled prompts ({len(prompts)})            mean      p99")
    report("category (with features)", [partial(category_of, view) for view in views])
    report("all of it", [partial(whole, body) for body in bodies])


def report(name: str, works: Sequence[Callable[[], object]]) -> None:
    costs = sorted(microseconds(work) for work in works)
    print(f"  {name:24} {sum(costs) / len(costs):6.2f} µs {costs[math.ceil(0.99 * len(costs)) - 1]:6.2f} µs")


if __name__ == "__main__":
    main()

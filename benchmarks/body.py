"""How long the event loop waits while a body of 28 MB is read in a thread beside it, by what is in the body.

python -m benchmarks.body
"""

from __future__ import annotations

import asyncio
import json
from time import perf_counter
from typing import Any

import uvloop

from slipstream.core.errors import RequestError
from slipstream.gateway.body import read_chat, read_completion

SIZE = 28_000_000
MESSAGE = {"role": "user", "content": "a"}
TICK_S = 0.001


def bodies() -> dict[str, bytes]:
    """What a client could send, and what one could that means harm."""

    def chat(content: Any = "a", **fields: Any) -> bytes:
        return json.dumps({"model": "m", "messages": [MESSAGE | {"content": content}], **fields}).encode()

    image = {"type": "image_url", "image_url": {"url": "data:" + "A" * SIZE}}
    return {
        "one text": chat("hello world " * (SIZE // 12)),
        "one text, escaped": chat("é" * (SIZE // 6)),
        "one text, not ascii": json.dumps({"model": "m", "prompt": "é" * (SIZE // 2)}, ensure_ascii=False).encode(),
        "an image": chat([image]),
        "250,000 messages": chat(messages=[MESSAGE | {"content": "x" * 70}] * 249_990),
        "tiny messages": chat(messages=[MESSAGE] * (SIZE // 34)),
        "logit_bias": chat(logit_bias=dict.fromkeys(map(str, range(SIZE // 12)), 1)),
        "tools": chat(tools=[{}] * (SIZE // 4)),
        "tokens": json.dumps({"model": "m", "prompt": [1] * (SIZE // 3)}).encode(),
    }


def read(body: bytes) -> str:
    """Whether a body is taken."""
    try:
        (read_completion if b'"prompt"' in body[:40] else read_chat)(body)
    except RequestError:
        return "refused"
    return "read"


async def longest_wait(body: bytes) -> tuple[float, str]:
    """Seconds, the least of five runs, and what became of the body."""
    loop = asyncio.get_running_loop()
    least, became = float("inf"), ""
    for _ in range(5):
        before, worst = perf_counter(), 0.0
        reading = loop.run_in_executor(None, read, body)
        while not reading.done():
            await asyncio.sleep(TICK_S)
            now = perf_counter()
            before, worst = now, max(worst, now - before - TICK_S)
        least, became = min(least, worst), await reading
    return least, became


async def measure() -> None:
    """Print the table."""
    print(f"{'body':<22}{'MB':>5}{'longest wait ms':>17}")
    for name, body in bodies().items():
        waited_s, became = await longest_wait(body)
        print(f"{name:<22}{len(body) / 1e6:>5.0f}{waited_s * 1e3:>17.1f}  {became}")


def main() -> None:
    """Measure on the loop that the gateway runs on."""
    uvloop.run(measure())


if __name__ == "__main__":
    main()

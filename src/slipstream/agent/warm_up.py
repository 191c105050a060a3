"""Small requests that make an engine compile and cache what it needs, and show that it answers."""

from __future__ import annotations

import asyncio

import aiohttp

from slipstream.agent.errors import ProbeFailed
from slipstream.agent.output import legible

__all__ = ["WarmUp"]

PROMPTS = (
    "Write a function that adds two numbers.",
    "Repeat this: one two three, one two three, one two three.",
)
OUTPUT_TOKENS = 8
LONGEST_ANSWER = 256 * 1024
SAID = 200


class WarmUp:
    """Sends the requests to the engine at ``url``; ``api_key`` goes along as a bearer token."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self._url = f"{url.rstrip('/')}/v1/completions"
        self._headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}

    async def run(self, model: str, timeout_s: float) -> None:
        """Have ``model`` answer each prompt. Raises `ProbeFailed` when one is not answered within ``timeout_s``."""
        try:
            async with (
                asyncio.timeout(timeout_s),
                aiohttp.ClientSession(headers=self._headers, timeout=aiohttp.ClientTimeout(total=None)) as session,
            ):
                for prompt in PROMPTS:
                    await self._ask(session, model, prompt)
        except TimeoutError:
            raise ProbeFailed(f"{self._url} did not answer {len(PROMPTS)} small requests in {timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ProbeFailed(f"{self._url} can not be reached: {error}") from error

    async def _ask(self, session: aiohttp.ClientSession, model: str, prompt: str) -> None:
        body = {"model": model, "prompt": prompt, "max_tokens": OUTPUT_TOKENS, "temperature": 0}
        async with session.post(self._url, json=body) as response:
            answer = bytearray()
            async for piece in response.content.iter_any():
                answer += piece
                if len(answer) > LONGEST_ANSWER:  # of no engine: something else has its address
                    break
            if not response.ok or b'"choices"' not in answer:
                words = legible(bytes(answer))[:SAID]
                raise ProbeFailed(f"{self._url} answered a small request with status {response.status}: {words}")

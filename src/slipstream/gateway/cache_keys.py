"""What of a request a node's KV cache may hold already, as numbers: its conversation, and how its prompt begins."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

__all__ = ["BLOCK_BYTES", "MAX_BLOCKS", "cache_keys", "session_number"]

BLOCK_BYTES: Final = 1024
"""A kilobyte is some 250 tokens. Less than that in common is not worth a fuller node."""

MAX_BLOCKS: Final = 8
"""Prompts alike in so many blocks are one conversation, or share all that matters; what follows is not looked at."""


def session_number(session: bytes) -> int:
    """A conversation as a number from 0 to 2^64 - 1, evenly spread, and the same in every process."""
    return int.from_bytes(blake2b(session, digest_size=8).digest(), "big")


def cache_keys(
    model: str, session: int | None, cache_key: str | None, user: str | None, prompt_name: bytes, body: bytes
) -> tuple[int, ...]:
    """The keys by which affinity looks for a request's node, the most telling first.

    They are the conversation's number (`session_number`), the client's ``prompt_cache_key``, the prompt's first blocks,
    the longest beginning before the shorter ones, and at last ``user``, who may have many conversations.

    ``prompt_name`` is the JSON name, in quotes, behind which the prompt stands in ``body``. Its bytes are taken as they
    are, so that a prompt is compared with its images and tools, and nothing is decoded for it. Only whole blocks count,
    so a prompt under a kilobyte has none. Each key holds for one model.

    Keys other than the session's come from Python's own hash, whose secret is drawn anew for each process: nobody can
    make requests that collide.
    """
    keys = []
    if session is not None:
        keys.append(hash((model, session)))
    if cache_key:
        keys.append(hash((model, "prompt_cache_key", cache_key)))
    start = body.find(prompt_name) if len(body) > BLOCK_BYTES else -1
    if start >= 0 and len(body) - start >= BLOCK_BYTES:
        key = hash(model)
        blocks = []
        for end in range(start + BLOCK_BYTES, min(len(body), start + MAX_BLOCKS * BLOCK_BYTES) + 1, BLOCK_BYTES):
            key = hash((key, body[end - BLOCK_BYTES : end]))
            blocks.append(key)
        blocks.reverse()
        keys += blocks
    if user:
        keys.append(hash((model, "user", user)))
    return tuple(keys)

"""What the admin API answers: JSON, and errors as sentences."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

__all__ = ["answer", "problem"]


def answer(data: dict[str, Any], status: int = 200) -> web.Response:
    """An answer of JSON."""
    return web.Response(body=msgspec.json.encode(data), status=status, content_type="application/json")


def problem(status: int, sentence: str) -> web.Response:
    """An error, in the shape that all have here."""
    return answer({"error": {"message": sentence}}, status)

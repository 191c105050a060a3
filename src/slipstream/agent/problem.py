"""An error as an answer: OpenAI's error object, with a sentence for a person and a word for a program."""

from __future__ import annotations

import msgspec
from aiohttp import web

__all__ = ["problem"]


def problem(status: int, sentence: str, code: str) -> web.Response:
    """``{"error": {"message", "type", "param", "code"}}``."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    error = {"message": sentence, "type": kind, "param": None, "code": code}
    return web.Response(status=status, body=msgspec.json.encode({"error": error}), content_type="application/json")

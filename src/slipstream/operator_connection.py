"""A connection to what operators ask, the admin API or an agent, whatever comes over it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

__all__ = ["OperatorConnection"]

_CLIENTS_FAULTS = (HttpProcessingError, web.RequestPayloadError)


class OperatorConnection(web.RequestHandler):
    """As aiohttp's, but bytes that are no request get an answer like all others and leave no trace in the log.

    aiohttp would log them with the lines they stand in, and these may be a token, or whatever a scanner sends.
    """

    __slots__ = ("_problem",)

    def __init__(self, server: web.Server, problem: Callable[[int, str], web.Response]) -> None:
        """``problem`` makes the answer of a status and a sentence.

        A compressed body stays as it came: no operator sends one, and it would be as large as its sender likes.
        """
        self._problem = problem
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type] # none is kept: as aiohttp's own runners say so
            auto_decompress=False,
        )

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to bytes that are no request; aiohttp's own where the fault is ours."""
        if not isinstance(exc, _CLIENTS_FAULTS):
            return super().handle_error(request, status, exc, message)
        response = self._problem(
            status, "the bytes received are not an HTTP/1.1 request, or have a line that is too long"
        )
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log a fault, unless it is the client's."""
        if not isinstance(kw.get("exc_info"), _CLIENTS_FAULTS):
            super().log_exception(*args, **kw)

"""Structured logs on standard error. Prompts, answers and keys are not logged; the filter here is the second lock."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Literal, TextIO

import structlog

__all__ = ["configure_logs", "without_secrets"]

_SECRET_KEYS = frozenset({"api_key", "authorization", "body", "cookie", "headers", "messages", "prompt", "response"})


def without_secrets(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A log entry whose fields that could hold a prompt, an answer or a key are blanked."""
    for key in _SECRET_KEYS.intersection(event):
        event[key] = "(not logged)"
    return event


def configure_logs(level: str, style: Literal["console", "json"], stream: TextIO | None = None) -> None:
    """Set up structlog, and the standard library's logging with it, for the whole process.

    ``level`` is the least that is written, ``stream`` standard error unless given. Called once, by the command line.
    """
    target = sys.stderr if stream is None else stream
    threshold = logging.getLevelNamesMapping()[level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        without_secrets,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if style == "json"
        else structlog.dev.ConsoleRenderer(
            colors=target.isatty(),
            exception_formatter=structlog.dev.plain_traceback,  # the default shows local variables: prompts and keys
        )
    )
    tracebacks = [structlog.processors.format_exc_info] if style == "json" else []
    structlog.configure(
        processors=[*shared, *tracebacks, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(file=target),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *tracebacks, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(threshold, logging.WARNING), force=True)

"""Logs are structured and keep secrets."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from slipstream.telemetry import configure_logs


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:], root.level = handlers, level


def test_json_lines_have_level_time_event_and_fields() -> None:
    stream = io.StringIO()
    configure_logs("info", "json", stream)
    structlog.get_logger().info("node is back", node="spec-0", after_s=1.5)
    entry = json.loads(stream.getvalue())
    assert entry.pop("timestamp").endswith("Z")
    assert entry == {"event": "node is back", "level": "info", "node": "spec-0", "after_s": 1.5}


def test_lines_below_the_level_are_not_written() -> None:
    stream = io.StringIO()
    configure_logs("warning", "console", stream)
    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("loud", node="a")
    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()
    assert "node=a" in stream.getvalue()


@pytest.mark.parametrize("style", ["json", "console"])
def test_prompts_and_keys_are_never_written(style: str) -> None:
    stream = io.StringIO()
    configure_logs("debug", "json" if style == "json" else "console", stream)
    structlog.get_logger().error("oops", prompt="my secret", api_key="sk-1", headers={"authorization": "sk-2"})
    written = stream.getvalue()
    assert not [secret for secret in ("my secret", "sk-1", "sk-2") if secret in written]
    assert "(not logged)" in written


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_traceback_shows_no_local_variables(style: str) -> None:
    stream = io.StringIO()
    configure_logs("info", "json" if style == "json" else "console", stream)
    prompt = "secret"[::-1]
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        structlog.get_logger().exception("failed")
    assert "ZeroDivisionError" in stream.getvalue()
    assert prompt not in stream.getvalue()


@pytest.mark.parametrize("style", ["json", "console"])
def test_warnings_of_libraries_come_out_the_same_way(style: str) -> None:
    stream = io.StringIO()
    configure_logs("info", "json" if style == "json" else "console", stream)
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        logging.getLogger("asyncio").exception("task failed")
    logging.getLogger("asyncio").info("chatter"[:])
    assert "task failed" in stream.getvalue()
    assert "ZeroDivisionError" in stream.getvalue()
    assert "chatter\n" not in stream.getvalue()
    if style == "json":
        assert json.loads(stream.getvalue())["level"] == "error"

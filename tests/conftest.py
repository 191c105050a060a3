"""What every test leaves behind as it was."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

COMPILED = [Path(__file__).parent / folder for folder in ("core", "enginemodel", "gateway", "sim")]
"""Folders of which ``make compiled`` tries every test."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where coverage is measured, leave out what is tried there and not measured: once is enough, on what users run."""
    if config.getoption("cov_source", default=None):
        kept = [item for item in items if item.get_closest_marker("no_cover") is None or not compiled(item.path)]
        config.hook.pytest_deselected(items=list({*items} - {*kept}))
        items[:] = kept


def compiled(file: Path) -> bool:
    return any(file.is_relative_to(folder) for folder in COMPILED)


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """Commands set the process's logs up. Run in this process, they would leave it a stream that is closed by then, on
    which the tests after them would fail.
    """
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
        for handler in logging.root.handlers[:]:
            if type(handler) is logging.StreamHandler:  # pytest's own are of other types
                logging.root.removeHandler(handler)
        logging.root.setLevel(logging.WARNING)

"""What every test leaves behind as it was."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog


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

"""What is installed is what is tested."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

import slipstream.core.fleet
import slipstream.core.policy.threshold
import slipstream.gateway.exchange
from slipstream.core.outcome import Ending, Outcome
from slipstream.core.request import RequestShape


@pytest.mark.skipif("SLIPSTREAM_EXPECT_COMPILED" not in os.environ, reason="this run is of the pure Python package")
def test_the_hot_path_is_compiled_where_it_should_be() -> None:
    for module in (slipstream.core.fleet, slipstream.core.policy.threshold, slipstream.gateway.exchange):
        assert Path(module.__file__ or "").suffix == ".so", module.__name__


@pytest.mark.skipif("SLIPSTREAM_EXPECT_COMPILED" not in os.environ, reason="this run is of the pure Python package")
def test_what_is_remembered_of_each_request_is_nothing_for_the_collector_of_garbage() -> None:
    for remembered in (Outcome(Ending.COMPLETED), RequestShape("m", "chat")):
        assert not gc.is_tracked(remembered), type(remembered).__name__


@pytest.mark.skipif("SLIPSTREAM_EXPECT_COMPILED" in os.environ, reason="this run is of the compiled package")
def test_the_development_environment_runs_the_source_as_it_is_written() -> None:
    assert slipstream.core.fleet.__file__ is not None
    assert Path(slipstream.core.fleet.__file__).suffix == ".py"

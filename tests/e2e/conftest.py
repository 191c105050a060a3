"""The whole product on the loop it runs on, before real engines that tests share unless they kill them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

import pytest
import uvloop

from engine_nodes import EngineNode, engine_nodes


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def shared_fleet() -> Iterator[tuple[EngineNode, ...]]:
    """One speculative node (n-gram) and one standard one. Tests leave them idle."""
    with engine_nodes() as nodes:
        yield nodes

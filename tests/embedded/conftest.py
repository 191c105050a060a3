from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_nodes import EngineNode, engine_nodes


@pytest.fixture(scope="package")
def shared_fleet() -> Iterator[tuple[EngineNode, ...]]:
    with engine_nodes() as nodes:
        yield nodes


@pytest.fixture
def bad_model(tmp_path: Path) -> Path:
    """A file that begins like a model and is none."""
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00\x00" + bytes(100))
    return path

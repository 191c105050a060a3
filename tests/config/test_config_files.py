"""A path may lead to anything; only a text of a sane size is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slipstream.config import load
from slipstream.config.files import MAX_BYTES, read_text
from slipstream.core.errors import ConfigError

NODE = "nodes: [{name: a, url: 'http://h:1', pool: standard, api_key: {file: %s}}]\n"


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_text_is_read_up_to_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("ä" * (MAX_BYTES // 2))
    assert len(read_text(file)) == MAX_BYTES // 2
    file.write_text("ä" * (MAX_BYTES // 2) + "b")
    with pytest.raises(OSError, match="more than 4 MiB"):
        read_text(file)


def test_what_is_no_regular_file_is_refused_and_not_waited_for(pipe: Path) -> None:
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(ConfigError, match="found no regular file; allowed: a file that can be read"):
            load(path)
    with pytest.raises(ConfigError, match="found Is a directory"):
        load(pipe.parent)
    with pytest.raises(ConfigError, match="found no possible file name"):
        load("a\0b")


def test_a_key_file_that_is_no_regular_file_is_refused(pipe: Path) -> None:
    file = pipe.parent / "fleet.yaml"
    for path in ("pipe", "/dev/zero", '"a\\0b"', "."):
        file.write_text(NODE % path)
        with pytest.raises(ConfigError, match=r"nodes\[0\]\.api_key\.file: found no usable key") as caught:
            load(file)
        assert len(caught.value.problems) == 1


def test_a_long_comment_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    with open(file, "wb") as sparse:
        sparse.write(b"#")
        sparse.truncate(50_000_000)
    with pytest.raises(ConfigError, match="found more than 4 MiB"):
        load(file)

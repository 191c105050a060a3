"""A change of a file is noticed once it has come to rest, whichever way it was made."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from slipstream.control.watch import LOOKS_AT_MOST, FileWatch, Signature, signature_of


def write(file: Path) -> None:
    file.write_text("another text")


def write_keeping_size_and_time(file: Path) -> None:
    found = file.stat()
    file.write_text("TEXT")
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))


def replace(file: Path) -> None:
    other = file.with_suffix(".new")
    other.write_text("text")
    other.replace(file)


def remove(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("change", [write, write_keeping_size_and_time, replace, remove])
def test_every_way_to_change_a_file_shows(change: Callable[[Path], None], tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("text")
    before = signature_of([file])
    assert signature_of([file]) == before
    change(file)
    assert signature_of([file]) != before


def test_the_swap_of_a_link_that_leads_to_the_directory_shows(tmp_path: Path) -> None:
    """So a Kubernetes ConfigMap is brought up to date."""
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "fleet.yaml").write_text("text")
    (tmp_path / "..data").symlink_to("v1")
    file = tmp_path / "fleet.yaml"
    file.symlink_to("..data/fleet.yaml")
    before = signature_of([file])
    (tmp_path / "..new").symlink_to("v2")
    (tmp_path / "..new").replace(tmp_path / "..data")
    assert signature_of([file]) != before


FILE = Path("fleet.yaml")


def seen(time: int) -> Signature:
    return {FILE: (1, 1, 1, time)}


ONE, TWO, THREE = seen(1), seen(2), seen(3)


def test_a_change_counts_when_it_was_seen_twice_alike_and_only_once_it_is_read() -> None:
    watch = FileWatch(ONE)
    assert [watch.looked(now) for now in (ONE, TWO, THREE, THREE)] == [False, False, False, True]
    watch.know(THREE)
    assert [watch.looked(now) for now in (THREE, THREE)] == [False, False]


def test_a_change_that_is_taken_back_before_it_rests_is_none() -> None:
    watch = FileWatch(ONE)
    assert [watch.looked(now) for now in (TWO, ONE, ONE)] == [False, False, False]


def test_a_file_that_never_rests_is_read_all_the_same_and_then_waited_for_anew() -> None:
    watch = FileWatch(ONE)
    times = range(2, 2 + LOOKS_AT_MOST)
    assert [watch.looked(seen(time)) for time in times] == [False] * (LOOKS_AT_MOST - 1) + [True]
    watch.know(seen(times[-1]))
    assert [watch.looked(seen(time)) for time in (50, 51)] == [False, False]

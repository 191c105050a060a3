"""Lines reach the disk in order and whole, or are counted as lost; whoever writes never waits."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slipstream.telemetry.line_file import HANDED_OVER_BYTES, CanNotWrite, LineFile

FLUSH_S = 0.01


def until(condition: Callable[[], bool], deadline_s: float = 10.0) -> None:
    """Wait until a condition holds; fails when it does not in time."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)


@contextmanager
def line_file(path: Path, **settings: int) -> Iterator[LineFile]:
    lines = LineFile(str(path), flush_s=FLUSH_S, **settings)
    try:
        yield lines
    finally:
        lines.close()


def test_lines_are_written_soon_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with line_file(path) as lines:
        for number in range(1000):
            lines.write(b"%d\n" % number)
        until(lambda: path.read_bytes().count(b"\n") == 1000)
        assert path.read_text().split() == [str(number) for number in range(1000)]
        assert lines.lost == 0


def test_much_is_written_without_waiting_until_it_is_time(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = LineFile(str(path), flush_s=3600.0)
    try:
        for _ in range(HANDED_OVER_BYTES // 1000 + 50):
            lines.write(b"x" * 999 + b"\n")
        until(lambda: path.stat().st_size >= HANDED_OVER_BYTES)
    finally:
        lines.close()
    assert path.stat().st_size == (HANDED_OVER_BYTES // 1000 + 50) * 1000


def test_closing_writes_what_waits_and_a_new_start_appends(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for _ in range(2):
        with line_file(path) as lines:
            lines.write(b"one\n")
    assert path.read_bytes() == b"one\none\n"
    assert path.stat().st_mode & 0o007 == 0


@pytest.mark.parametrize("name", ["missing/log", ".", "\0"])
def test_a_file_that_can_not_be_opened_is_said(tmp_path: Path, name: str) -> None:
    with pytest.raises(CanNotWrite, match="can not write to"):
        LineFile(f"{tmp_path}/{name}")


def test_a_pipe_that_nobody_reads_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CanNotWrite):
        LineFile(str(tmp_path / "pipe"))


def test_a_reader_that_stands_still_costs_lines_and_no_time(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    line = b"x" * 999 + b"\n"
    with line_file(path, max_waiting_bytes=100_000) as lines:
        for _ in range(2000):  # 2 MB: far more than a pipe and the waiting room hold
            lines.write(line)
        assert lines.dropped >= 2000 - (100_000 + 1_100_000) // 1000
        kept = 2000 - lines.lost
        os.set_blocking(reader, True)
        with open(reader, "rb") as file:
            assert file.read(kept * 1000) == line * kept


def test_a_full_disk_costs_lines_that_are_counted() -> None:
    lines = LineFile("/dev/full", flush_s=FLUSH_S)
    lines.write(b"one\n")
    lines.write(b"two\n")
    until(lambda: lines.lost == 2)
    lines.close()


def test_a_line_that_the_disk_took_in_part_is_finished_when_there_is_room_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    script = (
        "import resource, signal, sys, time\n"
        "from slipstream.telemetry.line_file import LineFile\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (15, resource.RLIM_INFINITY))\n"
        "lines = LineFile(sys.argv[1], flush_s=0.01)\n"
        "for word in (b'aaaaaaaaa', b'bbbbbbbbb', b'ccccccccc', b'ddddddddd'):\n"
        "    lines.write(word + b'\\n')\n"
        "while lines.lost < 2: time.sleep(0.01)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
        "lines.write(b'eeeeeeeee\\n')\n"
        "lines.close()\n"
        "print(lines.lost)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1:] == ["2"], done.stderr
    assert path.read_text().split() == ["aaaaaaaaa", "bbbbbbbbb", "eeeeeeeee"]


def test_a_file_that_was_moved_away_is_opened_anew(tmp_path: Path) -> None:
    path, old = tmp_path / "log", tmp_path / "log.old"
    with line_file(path) as lines:
        lines.write(b"before\n")
        until(lambda: path.read_bytes() == b"before\n")
        path.rename(old)
        until(path.exists)
        lines.write(b"after\n")
        until(lambda: path.read_bytes() == b"after\n")
    assert old.read_bytes() == b"before\n"


def test_reopening_changes_the_file_before_the_next_line(tmp_path: Path) -> None:
    path, old = tmp_path / "log", tmp_path / "log.old"
    with line_file(path) as lines:
        lines.write(b"before\n")
        until(lambda: path.read_bytes() == b"before\n")
        path.rename(old)
        lines.reopen()
        lines.write(b"after\n")
    assert (old.read_bytes(), path.read_bytes()) == (b"before\n", b"after\n")


def test_reopening_goes_on_in_the_old_file_while_the_name_leads_nowhere(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with line_file(folder / "log") as lines:
        folder.rename(tmp_path / "moved")
        lines.reopen()
        lines.write(b"one\n")
        until(lambda: (tmp_path / "moved" / "log").read_bytes() == b"one\n")


def test_that_no_new_file_can_be_opened_is_said_once_and_then_that_one_was(tmp_path: Path) -> None:
    folder, moved = tmp_path / "logs", tmp_path / "moved"
    folder.mkdir()
    with capture_logs() as said, line_file(folder / "log") as lines:
        folder.rename(moved)
        for number in range(3):  # each is written, to the old file
            lines.reopen()
            lines.write(b"%d\n" % number)
            until(lambda: (moved / "log").read_text().endswith(f"{number}\n"))  # noqa: B023 - it is called here only
        assert [entry["event"] for entry in said] == ["lines.refused"]
        folder.mkdir()
        lines.reopen()
        lines.write(b"new\n")
        until(lambda: (folder / "log").exists() and (folder / "log").read_bytes() == b"new\n")
    assert [entry["event"] for entry in said] == ["lines.refused", "lines.written_again"]


def test_a_file_is_moved_before_it_grows_too_long(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with line_file(path) as lines:
        lines.rotate_at(10, keep=2)
        for word in ("first", "second", "third", "fourth"):
            lines.write(word.encode() + b"\n")
            until(lambda word=word: path.exists() and path.read_text() == f"{word}\n")  # type: ignore[misc]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["log", "log.1", "log.2"]
    assert [(tmp_path / name).read_text() for name in ("log", "log.1", "log.2")] == ["fourth\n", "third\n", "second\n"]


def test_a_pipe_or_device_is_never_moved(tmp_path: Path) -> None:
    pipe, device = tmp_path / "pipe", tmp_path / "device"
    os.mkfifo(pipe)
    device.symlink_to("/dev/null")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    heard = b""
    for name in (pipe, device):
        with line_file(name) as lines:
            lines.rotate_at(10, keep=2)
            for word in (b"first\n", b"second\n", b"third\n"):
                lines.write(word)
                if name == pipe:
                    until(lambda: bool(select.select([reader], [], [], 0)[0]))
                    heard += os.read(reader, 100)
                else:
                    until(lambda: not lines._lines)
            assert lines.lost == 0
    os.close(reader)
    assert heard == b"first\nsecond\nthird\n"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["device", "pipe"]


def test_standard_output_is_never_moved(tmp_path: Path) -> None:
    script = (
        "from slipstream.telemetry.line_file import LineFile\n"
        "lines = LineFile('-', flush_s=0.01)\n"
        "lines.rotate_at(10, 2)\n"
        "while lines._taken_bytes < 12 * 20:\n"
        "    if not lines._lines:\n"
        "        lines.write(b'eleven here\\n')\n"
        "lines.close()\n"
        "print('lost', lines.lost)\n"
    )
    with open(tmp_path / "out", "wb") as out:
        done = subprocess.run([sys.executable, "-c", script], stdout=out, timeout=60, cwd=tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "out").read_text().endswith("eleven here\nlost 0\n")
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


def test_standard_output_is_written_to_and_left_open() -> None:
    script = (
        "from slipstream.telemetry.line_file import LineFile\n"
        "lines = LineFile('-')\n"
        "lines.write(b'line\\n')\n"
        "lines.reopen()\n"
        "lines.close()\n"
        "print('still open')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "line\nstill open\n", done.stderr


def test_closing_ends_the_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    with line_file(tmp_path / "log"):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before

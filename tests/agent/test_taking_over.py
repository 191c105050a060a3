"""An engine outlives an agent that is killed, and the next one takes it over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway_rig import eventually
from process_life import is_alive, wait_until_gone
from slipstream.agent import process
from slipstream.agent.engine import EngineHook, OwnEngine, Variants
from slipstream.agent.errors import EngineStartFailed
from slipstream.agent.process import EngineProcess
from slipstream.agent.run_file import (
    Record,
    command_digest,
    held,
    left_running,
    life_of,
    run_file_of_port,
    write_record,
)
from slipstream.core.request import Pool

TALKS = "i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i; echo $i > said; sleep 0.01; done; echo no GPU; exit 3"
"""Writes without end, and would end if that failed."""
COMMAND = ("sh", "-e", "-c", TALKS)


@contextmanager
def kept(*words: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A keeper, started as an agent starts it, and its engine's process."""
    with subprocess.Popen(
        [sys.executable, "-P", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as keeper:
        assert keeper.stdout is not None
        yield keeper, int(keeper.stdout.readline())


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def engine(run_file: Path, command: tuple[str, ...] = COMMAND, told: list[bytes] | None = None) -> OwnEngine:
    told = [] if told is None else told
    return OwnEngine(Variants((*command, "drafts"), command), grace_s=10.0, on_output=told.append, run_file=run_file)


@contextmanager
def orphan(run_file: Path, command: tuple[str, ...] = COMMAND) -> Iterator[Record]:
    """An engine in the role standard, as an agent that was killed leaves it."""
    words = ("10", str(run_file), "standard", command_digest(command, {}), *command)
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "slipstream.agent.keeper", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as keeper:
        assert keeper.stdout is not None
        assert keeper.stderr is not None
        pid = int(keeper.stdout.readline())
        keeper.stdout.close()
        keeper.stderr.close()
        try:
            record = left_running(run_file)
            assert record is not None
            assert (record.keeper, record.engine, record.role) == (keeper.pid, pid, "standard")
            yield record
        finally:
            keeper.kill()
            wait_until_gone(pid)


async def test_it_goes_on_without_an_agent_and_the_next_one_has_it_as_its_own(tmp_path: Path) -> None:
    run_file, told = tmp_path / "engine.json", list[bytes]()
    with orphan(run_file) as left:
        said = tmp_path / "said"
        await eventually(lambda: said.exists() and int(said.read_text() or 0) > 5)  # to nobody
        assert run_file.stat().st_mode & 0o777 == 0o600
        one = engine(run_file, told=told)
        assert await one.take_over() is Pool.STANDARD
        await one.start(Pool.STANDARD, 1.0)
        assert one.pid == left.engine
        await eventually(lambda: told != [])
        await one.stop()
        assert not is_alive(left.engine)
        assert wait_until_gone(left.keeper)
        assert not run_file.exists()
        await one.start(Pool.SPECULATIVE, 1.0)
        assert one.pid not in (None, left.engine)
        again = left_running(run_file)
        assert again is not None
        assert (again.role, again.engine) == ("speculative", one.pid)
        one.hang_up()
        assert (await one.ended()).startswith("was ended by SIGTERM")
        await one.stop()
        one.hang_up()


async def test_how_it_ended_is_told_with_the_end_of_its_output_as_far_as_that_can_be_known(tmp_path: Path) -> None:
    run_file = tmp_path / "engine.json"
    with orphan(run_file):
        one = engine(run_file)
        assert await one.take_over() is Pool.STANDARD
        (tmp_path / "stop").touch()
        how = await one.ended()
        assert how.startswith("ended; ")
        assert how.endswith("; no GPU")
        one.hang_up()
        await one.stop()


async def test_all_that_it_says_is_passed_on_though_it_ends_at_once(tmp_path: Path) -> None:
    told: list[bytes] = []
    one = engine(tmp_path / "engine.json", ("sh", "-c", "head -c 200000 /dev/zero; echo end"), told)
    await one.start(Pool.STANDARD, 1.0)
    await one.ended()
    assert b"".join(told) == bytes(200_000) + b"end\n"
    await one.stop()


@pytest.mark.parametrize("run_file", ["", "engine.json"])
def test_it_goes_on_while_an_agent_that_is_stopped_reads_nothing(tmp_path: Path, run_file: str) -> None:
    words = ("sh", "-c", "head -c 1000000 /dev/zero; touch done; exec sleep 1000")
    with kept("-m", "slipstream.agent.keeper", "10", run_file, "standard", "digest", *words) as (keeper, engine):
        assert keeper.stdin is not None
        deadline = time.monotonic() + 20.0
        while not (tmp_path / "done").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if run_file:
            keeper.terminate()
        else:
            keeper.stdin.close()
        assert wait_until_gone(engine)


async def test_asked_for_in_the_other_role_it_is_stopped_first(tmp_path: Path) -> None:
    run_file = tmp_path / "engine.json"
    with orphan(run_file) as left:
        one = engine(run_file)
        await one.take_over()
        await one.stop()
        await one.start(Pool.STANDARD, 1.0)
        assert one.pid != left.engine
        await one.stop()


async def test_when_its_keeper_is_killed_it_ends_too(tmp_path: Path) -> None:
    run_file = tmp_path / "engine.json"
    with orphan(run_file) as left:
        one = engine(run_file)
        await one.take_over()
        os.kill(left.keeper, signal.SIGKILL)
        await one.ended()
        assert wait_until_gone(left.engine)


async def test_one_of_another_command_is_neither_taken_over_nor_ended(tmp_path: Path) -> None:
    run_file = tmp_path / "engine.json"
    with orphan(run_file) as left:
        with pytest.raises(EngineStartFailed, match=f"another command started as standard .process {left.engine}.: .*"):
            await engine(run_file, ("sleep", "9")).take_over()
        assert is_alive(left.engine)


async def test_where_there_is_none_there_is_nothing_to_take_over(tmp_path: Path) -> None:
    assert await engine(tmp_path / "nothing").take_over() is None
    assert await EngineHook().take_over() is None
    EngineHook().hang_up()
    own = os.getpid()
    for keeper, since in ((own, "another life"), (2**22 + 1, "none")):
        record = Record(keeper, since, own, "standard", "")
        assert await EngineProcess.take_over(record, lambda _output: None) is None


async def test_one_that_can_not_be_heard_is_not_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a kernel that does not let a process look into others, say; or it ends just then."""
    run_file, opened = tmp_path / "engine.json", os.open

    def closed(path: str, flags: int, mode: int = 0o777) -> int:
        if str(path).endswith("/fd/2"):
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, mode)

    with orphan(run_file) as left:
        monkeypatch.setattr(os, "open", closed)
        with pytest.raises(EngineStartFailed, match=f"process {left.keeper} can not be taken over: Permission denied"):
            await engine(run_file).take_over()
        lives = iter([left.since, None])
        monkeypatch.setattr(process, "life_of", lambda _pid: next(lives))
        assert await EngineProcess.take_over(left, lambda _output: None) is None


@pytest.mark.parametrize(
    "difference",
    [
        {"since": "another boot 17"},  # the process id was given to another
        {"keeper": 2**22 + 1},
        {"keeper": "1"},
        {"engine": -1},
        {"more": 1},
    ],
)
def test_what_is_stale_or_no_run_file_is_ignored_and_replaced(tmp_path: Path, difference: dict[str, Any]) -> None:
    path, own = tmp_path / "engine.json", os.getpid()
    record = Record(own, life_of(own) or "", own, "standard", "digest")
    write_record(path, record)
    assert left_running(path) == record
    path.write_text(json.dumps(record._asdict() | difference))
    assert left_running(path) is None
    write_record(path, record)
    assert left_running(path) == record
    assert os.listdir(tmp_path) == ["engine.json"]


def test_a_run_file_that_others_can_write_or_that_is_none_is_not_believed(tmp_path: Path) -> None:
    path, own = tmp_path / "engine.json", os.getpid()
    write_record(path, Record(own, life_of(own) or "", own, "standard", "digest"))
    path.chmod(0o666)
    assert left_running(path) is None
    path.chmod(0o600)
    for text in ("", "[]", "\0", "{", "[" * 4096, '{"keeper": 1e400}', "\ud800"):
        path.write_bytes(text.encode(errors="surrogatepass"))
        assert left_running(path) is None
    (tmp_path / "link").symlink_to(path)
    assert left_running(tmp_path / "link") is None
    assert left_running(tmp_path) is None


async def test_a_run_file_that_can_not_be_written_is_a_sentence_and_no_engine_runs(tmp_path: Path) -> None:
    (tmp_path / "engine.json").mkdir()
    command = ("sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    with pytest.raises(EngineStartFailed, match=r"^sh can not be run: the run file .* can not be written: Is a direct"):
        await engine(tmp_path / "engine.json", command).start(Pool.STANDARD, 1.0)
    assert not {"pid"} & set(os.listdir(tmp_path)) or not is_alive(int((tmp_path / "pid").read_text() or 2**22))
    assert not [name for name in os.listdir(tmp_path) if name.startswith("engine.json.")]


FULL_DISK = """
import errno, os, sys
from slipstream.agent import keeper

def write_record(path, record):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

keeper.write_record = write_record
sys.exit(keeper.main(sys.argv[1:]))
"""


def test_where_the_disk_is_full_an_engine_runs_all_the_same_and_ends_with_its_agent(tmp_path: Path) -> None:
    words = ("10", str(tmp_path / "e.json"), "standard", "digest", "sleep", "1000")
    with kept("-c", FULL_DISK, *words) as (keeper, engine):
        assert keeper.stdin is not None
        assert keeper.stderr is not None
        assert keeper.stderr.readline().endswith(
            b"can not be written: No space left on device, so the engine ends with its agent\n"
        )
        assert is_alive(engine)
        keeper.stdin.close()
        assert wait_until_gone(engine)
        assert keeper.wait() == 128 + signal.SIGTERM


def test_one_agent_at_a_time_has_an_engine_in_hand(tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    with (
        held(path),
        pytest.raises(EngineStartFailed, match=r"another agent has the engine of the run file .* in hand"),
        held(path),
    ):
        pass
    with held(path):
        pass
    with pytest.raises(EngineStartFailed, match="can not be had: No such file"), held(tmp_path / "nowhere" / "e.json"):
        pass


def test_a_run_file_is_named_by_user_and_port_where_files_of_this_run_belong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"slipstream-node-{os.geteuid()}-8000.json"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert run_file_of_port(8000) == tmp_path / name
    for elsewhere in ("/nowhere", "relative", ""):
        monkeypatch.setenv("XDG_RUNTIME_DIR", elsewhere)
        assert run_file_of_port(8000).name == name
        assert run_file_of_port(8000).is_absolute()

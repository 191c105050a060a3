"""An engine never outlives whoever started it, and nothing that it started does."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import sys
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from gateway_rig import eventually
from process_life import is_alive, wait_until_gone
from slipstream.agent.engine import EngineHook, OwnEngine, Variants
from slipstream.agent.errors import AgentError, EngineStartFailed, HookFailed
from slipstream.agent.hook import run_hook
from slipstream.agent.output import OUTPUT
from slipstream.agent.process import EngineProcess
from slipstream.core.request import Pool

LEAVES_A_CHILD = "(setsid sleep 1000 & echo $! > child); echo serving; exec sleep 1000"


async def started(command: Sequence[str], told: list[bytes] | None = None, *, grace_s: float = 10.0) -> EngineProcess:
    told = [] if told is None else told
    return await EngineProcess.start(command, {"OF_ENGINE": "yes"}, grace_s=grace_s, on_output=told.append)


async def child_of(folder: Path) -> int:
    file = folder / "child"
    await eventually(lambda: file.exists() and file.read_text().strip().isdigit())
    return int(file.read_text())


async def killed(pid: int) -> None:
    """End what still writes to a hook's output, which then ends."""
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not any(task.get_name() == OUTPUT for task in asyncio.all_tasks()))


def children() -> set[int]:
    """Processes that this one has started."""
    found: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
            found.update(map(int, (thread / "children").read_text().split()))
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_it_ends_with_all_that_it_started_and_what_it_writes_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told: list[bytes] = []
    engine = await started(["sh", "-c", LEAVES_A_CHILD], told)
    child = await child_of(tmp_path)
    await eventually(lambda: b"serving\n" in b"".join(told))
    assert os.getpgid(engine.pid) == engine.pid
    assert is_alive(child)
    await engine.stop()
    assert not is_alive(engine.pid)
    assert not is_alive(child)
    await engine.stop()


async def test_what_does_not_heed_term_is_killed_after_the_grace(tmp_path: Path) -> None:
    told: list[bytes] = []
    engine = await started(["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1000; done"], told, grace_s=0.05)
    await eventually(lambda: b"".join(told) == b"deaf\n")
    await engine.stop()
    assert not is_alive(engine.pid)


async def test_how_it_ended_is_told_with_the_end_of_its_output() -> None:
    engine = await started(["sh", "-c", "echo $OF_ENGINE >&2; echo out of memory; exit 3"])
    assert await engine.ended() == "ended with status 3; yes; out of memory"
    engine = await started(["sh", "-c", "kill -SEGV $$"])
    assert await engine.ended() == "was ended by SIGSEGV"


async def test_its_last_words_are_told_without_colours_and_what_else_a_terminal_would_act_on() -> None:
    engine = await started(["printf", r"\033[1;31mERROR\033[0m no GPU\007\r\n\033]0;title\033\\ \377"])
    assert await engine.ended() == "ended with status 0; ERROR no GPU; ]0;title\\ \ufffd"


async def test_its_input_neither_ends_nor_says_anything() -> None:
    engine = await started([sys.executable, "-S", "-c", "import sys; sys.stdin.read()"])
    ending = asyncio.create_task(engine.ended())
    assert await asyncio.wait([ending], timeout=0.1) == (set(), {ending})
    await engine.stop()
    assert await ending == "was ended by SIGTERM"


async def test_a_start_that_is_called_off_leaves_nothing_running(tmp_path: Path) -> None:
    before = children()
    starting = asyncio.create_task(started(["sh", "-c", f"echo $$ > {tmp_path}/child; exec sleep 1000"]))
    await eventually(lambda: children() > before)
    (keeper,) = children() - before
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    assert starting.cancelled()
    await eventually(lambda: keeper not in children())
    file = tmp_path / "child"
    assert not file.exists() or not file.read_text() or wait_until_gone(int(file.read_text()))


async def test_it_is_gone_when_its_keeper_is_killed(tmp_path: Path) -> None:
    engine = await started(["sleep", "1000"])
    os.kill(parent_of(engine.pid), signal.SIGKILL)
    await engine.ended()
    assert wait_until_gone(engine.pid)


@pytest.mark.parametrize("command", [["/nowhere/serve"], ["no\0name"]])
async def test_a_command_that_can_not_be_run_is_an_error_with_the_reason(command: list[str]) -> None:
    with pytest.raises(EngineStartFailed, match=r"can not be run: (No such file or directory|embedded null byte)$"):
        await started(command)


async def hooked() -> None:
    await run_hook(("true",))


async def engine_started() -> None:
    await started(["true"])


@pytest.mark.parametrize("run", [engine_started, hooked])
async def test_where_no_file_can_be_opened_any_more_nothing_is_run_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, run: Callable[[], Awaitable[None]]
) -> None:
    def none_left() -> tuple[int, int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pipe", none_left)
    with pytest.raises(AgentError, match=r"true can not be run: .*Too many open files"):
        await run()


async def test_each_role_has_its_command() -> None:
    told: list[bytes] = []
    engine = OwnEngine(
        Variants(("echo", "with"), ("echo", "without"), {"HOME": "/"}), grace_s=1.0, on_output=told.append
    )
    assert (engine.switchable, engine.outlives) == (True, False)
    assert engine.pid is None
    for role in (Pool.SPECULATIVE, Pool.STANDARD):
        await engine.start(role, 1.0)
        await engine.ended()
        await engine.stop()
    await engine.stop()
    assert told == [b"with\n", b"without\n"]
    one = OwnEngine(Variants(("echo",), None), grace_s=1.0, on_output=told.append)
    assert not one.switchable
    assert (one.words(Pool.SPECULATIVE), one.words(Pool.STANDARD)) == (("echo",), ("echo",))
    with pytest.raises(EngineStartFailed, match="there is no command for the role standard"):
        await one.start(Pool.STANDARD, 1.0)


async def test_a_hook_command_is_told_on_or_off(tmp_path: Path) -> None:
    log = tmp_path / "log"
    hook = EngineHook(("sh", "-c", f"echo $0 >> {log}"))
    assert hook.switchable
    await hook.start(Pool.SPECULATIVE, 5.0)
    await hook.start(Pool.STANDARD, 5.0)
    await hook.stop()
    assert log.read_text() == "on\noff\n"
    assert not EngineHook().switchable
    await EngineHook().start(Pool.STANDARD, 5.0)  # nothing, as there is nothing to be done


@pytest.mark.parametrize(
    ("command", "timeout_s", "sentence"),
    [
        (("sh", "-c", "echo no GPU; exit 4"), 5.0, "sh -c echo no GPU; exit 4 on ended with status 4: no GPU"),
        (("false",), 5.0, "false on ended with status 1: it said nothing"),
        (("/nowhere/switch",), 5.0, "/nowhere/switch can not be run"),
        (("sh", "-c", "exec sleep 1000"), 0.05, r"the hook did not end within 0\.05 s"),
    ],
)
async def test_a_hook_command_that_fails_is_an_error_with_its_words(
    command: tuple[str, ...], timeout_s: float, sentence: str
) -> None:
    with pytest.raises(HookFailed, match=sentence):
        await EngineHook(command).start(Pool.SPECULATIVE, timeout_s)


async def test_what_a_hook_leaves_running_goes_on_and_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a script does that starts an engine in the background."""
    monkeypatch.chdir(tmp_path)
    await run_hook(("sh", "-c", "(sleep 0.01; echo a word; exec sleep 1000) & echo $! > child"))
    child = await child_of(tmp_path)
    try:
        gc.collect(1)  # nobody but the loop knows of its output any more
        await eventually(lambda: Path(f"/proc/{child}/cmdline").read_bytes().startswith(b"sleep\0001000"))
        assert is_alive(child)
    finally:
        await killed(child)
    with pytest.raises(HookFailed, match=r"ended with status 3: no GPU$"):
        await run_hook(("sh", "-c", "rm child; sleep 1000 & echo $! > child; echo no GPU; exit 3"))
    await killed(await child_of(tmp_path))


async def test_a_hook_that_hangs_is_ended_whatever_it_has_left_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hook = EngineHook(("sh", "-c", "setsid sleep 1000 & echo $! > child; exec sleep 1000"))
    async with asyncio.timeout(10.0):
        with pytest.raises(HookFailed, match=r"did not end within 0\.2 s"):
            await hook.start(Pool.SPECULATIVE, 0.2)
    await killed(await child_of(tmp_path))


async def test_a_hook_that_prints_without_end_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(HookFailed, match=r"ended with status 3: no GPU$"):
            await run_hook(("sh", "-c", "head -c 20000000 /dev/zero; echo; echo no GPU; exit 3"))
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


async def test_a_hook_knows_the_role_alone_and_never_ends_by_itself() -> None:
    hook = EngineHook()
    assert hook.words(Pool.STANDARD) == ("standard",)
    ending = asyncio.create_task(hook.ended())
    assert await asyncio.wait([ending], timeout=0.01) == (set(), {ending})
    ending.cancel()


async def test_without_an_interpreter_no_engine_can_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(EngineStartFailed, match=r"^sleep can not be run: No such file or directory$"):
        await started(["sleep", "1"])


async def test_a_signal_without_a_name_is_told_by_its_number() -> None:
    engine = await started(["sh", "-c", "exit 255"])
    assert await engine.ended() == "was ended by signal 127"

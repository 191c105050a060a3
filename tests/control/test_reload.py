"""A configuration is taken in wholly or not at all, when told to or when a file changes, and it is said how it went."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway_rig import eventually
from slipstream.control.reload import Reloader
from slipstream.control.watch import Signature, signature_of
from slipstream.core.errors import ConfigError, ConfigProblem
from slipstream.telemetry.reloads import Reload, Reloads


class Texts:
    """Settings that are the texts of a file and of the file it names, if it names one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reads = 0
        self.applied = [self.read()]

    def read(self) -> tuple[str, ...]:
        self.reads += 1
        text = self.path.read_text()
        if text.startswith("without "):
            raise ConfigError((ConfigProblem(str(self.path), 1, "", text, "a file that is there"),))
        if text.startswith("bad"):
            raise ConfigError((ConfigProblem(str(self.path), 1, "", text, "good"),))
        other = self.path.parent / text
        if not other.is_file():
            return (text,)
        if other.read_text().startswith("bad"):
            raise ConfigError((ConfigProblem(str(other), 1, "", "bad", "good"),))
        return text, other.read_text()

    def read_and_compare(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        settings, before = self.read(), self.applied[-1]
        return settings, (f"{before[-1]} → {settings[-1]}",) if before != settings else ()

    def named(self) -> tuple[Path, ...]:
        return (self.path, self.path.parent / self.path.read_text().removeprefix("without "))

    def files(self, settings: tuple[str, ...]) -> tuple[Path, ...]:
        return (self.path, *(self.path.parent / settings[0] for _ in settings[1:]))


async def soon(_seconds: float) -> None:
    await asyncio.sleep(0.01)


def reloader_of(texts: Texts, known: Signature | None = None) -> Reloader[tuple[str, ...]]:
    return Reloader(
        "fleet.yaml",
        texts.read_and_compare,
        texts.applied.append,
        texts.files,
        texts.named,
        settings=texts.applied[0],
        reloads=Reloads(),
        clock=lambda: 7.0,
        known=known,
        sleep=soon,
    )


@asynccontextmanager
async def watching(reloader: Reloader[tuple[str, ...]]) -> AsyncIterator[None]:
    task = asyncio.create_task(reloader.watch())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def texts(tmp_path: Path) -> Texts:
    path = tmp_path / "fleet.yaml"
    path.write_text("one")
    return Texts(path)


async def test_a_good_file_is_applied_and_what_changed_is_said(texts: Texts) -> None:
    reloader = reloader_of(texts)
    texts.path.write_text("two")
    with capture_logs() as logs:
        assert await reloader.reload("SIGHUP") == Reload("applied", ("one → two",), 7.0)
        assert await reloader.reload("SIGHUP") == Reload("applied", (), 7.0)
    assert texts.applied == [("one",), ("two",), ("two",)]
    assert reloader.reloads.counts == {"applied": 2, "refused": 0}
    told = {"event": "config.reloaded", "log_level": "info", "file": "fleet.yaml", "cause": "SIGHUP"}
    assert logs == [told | {"changed": "one → two"}, told | {"changed": "nothing"}]


async def test_a_bad_file_changes_nothing_and_says_why_in_one_line(texts: Texts) -> None:
    reloader = reloader_of(texts)
    texts.path.write_text("bad words")
    with capture_logs() as logs:
        reload = await reloader.reload("SIGHUP")
    sentence = f"{texts.path}:1: found bad words; allowed: good"
    assert reload == reloader.reloads.last == Reload("refused", (sentence,), 7.0)
    assert texts.applied == [("one",)]
    assert reloader.reloads.counts == {"applied": 0, "refused": 1}
    (line,) = logs
    assert (line["event"], line["log_level"], line["because"]) == ("config.refused", "error", sentence)


async def test_a_changed_file_is_taken_in_once(texts: Texts) -> None:
    reloader = reloader_of(texts)
    async with watching(reloader):
        texts.path.write_text("two")
        await eventually(lambda: ("two",) in texts.applied)
        texts.path.write_text("bad")
        await eventually(lambda: reloader.reloads.counts["refused"] > 0)
        texts.path.write_text("three")
        await eventually(lambda: ("three",) in texts.applied)
    assert texts.applied == [("one",), ("two",), ("three",)]
    assert reloader.reloads.counts == {"applied": 2, "refused": 1}


async def test_files_that_a_configuration_names_are_watched_also_when_it_was_refused_for_one(texts: Texts) -> None:
    other = texts.path.parent / "nodes"
    other.write_text("bad")
    reloader = reloader_of(texts)
    async with watching(reloader):
        texts.path.write_text("nodes")
        await eventually(lambda: reloader.reloads.counts["refused"] == 1)
        other.write_text("good")
        await eventually(lambda: ("nodes", "good") in texts.applied)
        other.write_text("better")
        await eventually(lambda: ("nodes", "better") in texts.applied)


async def test_a_file_that_was_read_because_of_a_signal_is_not_read_again_for_its_change(texts: Texts) -> None:
    reloader = reloader_of(texts)
    texts.path.write_text("two")
    await reloader.reload("SIGHUP")
    async with watching(reloader):
        texts.path.write_text("three")
        await eventually(lambda: ("three",) in texts.applied)
    assert texts.applied == [("one",), ("two",), ("three",)]


async def test_a_file_that_a_configuration_lacks_is_waited_for(texts: Texts) -> None:
    other = texts.path.parent / "nodes"
    reloader = reloader_of(texts)
    async with watching(reloader):
        texts.path.write_text("without nodes")
        await eventually(lambda: reloader.reloads.counts["refused"] == 1)
        other.write_text("bad")
        await eventually(lambda: reloader.reloads.counts["refused"] == 2)


async def test_a_file_that_changes_while_it_is_first_read_is_read_again(texts: Texts) -> None:
    other = texts.path.parent / "nodes"
    other.write_text("good")
    texts.path.write_text("nodes")

    def read_and_change() -> tuple[tuple[str, ...], tuple[str, ...]]:
        found = texts.read_and_compare()
        if texts.reads == 2:
            other.write_text("better")
        return found

    reloader = Reloader(
        "fleet.yaml",
        read_and_change,
        texts.applied.append,
        texts.files,
        texts.named,
        settings=texts.applied[0],
        reloads=Reloads(),
        clock=lambda: 7.0,
        sleep=soon,
    )
    await reloader.reload("SIGHUP")
    assert texts.applied[-1] == ("nodes", "better")


async def test_a_file_that_changed_since_it_was_read_for_the_start_is_read_again(texts: Texts) -> None:
    known = signature_of([texts.path])
    texts.path.write_text("changed before anybody watched")
    async with watching(reloader_of(texts, known)):
        await eventually(lambda: ("changed before anybody watched",) in texts.applied)


async def test_who_asks_while_another_waits_its_turn_need_not_ask(texts: Texts) -> None:
    reloader = reloader_of(texts)
    tasks, seen = [], [reloader.waiting]
    for _ in range(2):
        tasks.append(asyncio.create_task(reloader.reload("SIGHUP")))
        await asyncio.sleep(0)
        seen.append(reloader.waiting)
    await asyncio.gather(*tasks)
    assert [*seen, reloader.waiting] == [False, False, True, False]

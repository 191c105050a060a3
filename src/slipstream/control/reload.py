"""Taking a changed configuration in while requests run: wholly, or not at all with the reason said."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from slipstream.control.watch import FileWatch, signature_of
from slipstream.core.errors import ConfigError
from slipstream.telemetry.reloads import Reload, Reloads

__all__ = ["Reloader"]

LOOK_EVERY_S = 1.0

log = structlog.get_logger(__name__)

Settings = TypeVar("Settings")
Read = TypeVar("Read")


class Reloader(Generic[Settings]):
    """Reads the configuration called ``name`` again when it is told to, or when one of its files has changed.

    ``read`` gives everything that it decides, checked, and in words what it changes, or raises ``ConfigError``; it is
    called in a thread. ``apply`` puts the settings in place, at once and without fail. ``files`` are those that they
    were read from.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], tuple[Settings, Sequence[str]]],
        apply: Callable[[Settings], None],
        files: Callable[[Settings], Sequence[Path]],
        *,
        settings: Settings,
        reloads: Reloads,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._name = name
        self._read = read
        self._apply = apply
        self._files_of = files
        self._files = tuple(files(settings))
        self.reloads = reloads
        self._clock = clock
        self._sleep = sleep
        self._watch = FileWatch(signature_of(self._files))
        self._turn = asyncio.Lock()

    async def reload(self, cause: str) -> Reload:
        """Read the configuration and put it in place, if it is good. ``cause`` is for the log."""
        async with self._turn:
            before = await asyncio.to_thread(signature_of, self._files)
            try:
                settings, changes = await asyncio.to_thread(_undisturbed, self._read)
            except ConfigError as error:
                problems = tuple(map(str, error.problems))
                reload = Reload("refused", problems, self._clock())
                log.error(
                    "config.refused", file=self._name, cause=cause, changed="nothing", because="; ".join(problems)
                )
                # What is wrong may stand in a file that was not one of the configuration's before.
                files = {*self._files, *(Path(problem.file) for problem in error.problems)}
            else:
                self._apply(settings)
                reload = Reload("applied", tuple(changes), self._clock())
                log.info("config.reloaded", file=self._name, cause=cause, changed="; ".join(changes) or "nothing")
                files = set(self._files_of(settings))
            self.reloads.add(reload)
            self._files = tuple(sorted(files))
            # Known files are known as they were before they were read: a change since then will be noticed.
            self._watch.know(signature_of(files) | {file: before[file] for file in files & before.keys()})
            return reload

    async def watch(self) -> None:
        """Reload after each change of a file, until cancelled."""
        while True:
            await self._sleep(LOOK_EVERY_S)
            async with self._turn:
                changed = self._watch.looked(await asyncio.to_thread(signature_of, self._files))
            if changed:
                await self.reload("a file changed")


def _undisturbed(read: Callable[[], Read]) -> Read:
    """Without collections of garbage: a large file becomes so many objects that one would stop the loop for a tenth of
    a second, to find that all are in use.
    """
    gc.disable()
    try:
        return read()
    finally:
        gc.enable()

"""Taking a changed configuration in while requests run: wholly, or not at all with the reason said."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from slipstream.control.watch import FileWatch, Signature, signature_of
from slipstream.core.errors import ConfigError
from slipstream.telemetry.reloads import Reload, Reloads

__all__ = ["Reloader"]

LOOK_EVERY_S = 1.0

log = structlog.get_logger(__name__)

Settings = TypeVar("Settings")
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class _Attempt(Generic[Settings]):
    """``found`` is what ``read`` gave or raised, ``known`` how its files looked before."""

    found: tuple[Settings, Sequence[str]] | ConfigError
    known: Signature


class Reloader(Generic[Settings]):
    """Reads the configuration called ``name`` again when it is told to, or when one of its files has changed.

    ``read`` gives everything that it decides, checked, and in words what it changes, or raises ``ConfigError``;
    ``named`` gives the files that a configuration that can not be used would be read from. Both are called in a thread.
    ``apply`` puts the settings in place, at once and without fail. ``files`` are those that they were read from.
    ``known`` is how they looked before they were read; left out = as they look now.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], tuple[Settings, Sequence[str]]],
        apply: Callable[[Settings], None],
        files: Callable[[Settings], Sequence[Path]],
        named: Callable[[], Sequence[Path]],
        *,
        settings: Settings,
        reloads: Reloads,
        clock: Callable[[], float],
        known: Signature | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._name = name
        self._read = read
        self._apply = apply
        self._files_of = files
        self._named = named
        self._files = tuple(files(settings))
        self.reloads = reloads
        self._clock = clock
        self._sleep = sleep
        self._watch = FileWatch(signature_of(self._files) | (known or {}))
        self._turn = asyncio.Lock()
        self._waiting = False

    @property
    def waiting(self) -> bool:
        """Whether a ``reload`` waits for another to end: it will find whatever there is to find now."""
        return self._waiting

    async def reload(self, cause: str) -> Reload:
        """Read the configuration and put it in place, if it is good. ``cause`` is for the log."""
        self._waiting = True
        async with self._turn:
            self._waiting = False
            attempt = await asyncio.to_thread(_undisturbed, self._attempt)
            found = attempt.found
            if isinstance(found, ConfigError):
                problems = tuple(map(str, found.problems))
                reload = Reload("refused", problems, self._clock())
                log.error(
                    "config.refused", file=self._name, cause=cause, changed="nothing", because="; ".join(problems)
                )
            else:
                settings, changes = found
                self._apply(settings)
                reload = Reload("applied", tuple(changes), self._clock())
                log.info("config.reloaded", file=self._name, cause=cause, changed="; ".join(changes) or "nothing")
            self.reloads.add(reload)
            self._files = tuple(attempt.known)
            self._watch.know(attempt.known)
            return reload

    def _attempt(self) -> _Attempt[Settings]:
        """Read once, or again where it names files that were not looked at before: a change of one in between would
        never be noticed.
        """
        looked_at: Signature = {}
        found: tuple[Settings, Sequence[str]] | ConfigError
        files = set(self._files)
        while True:
            looked_at = {**signature_of(files - looked_at.keys()), **looked_at}
            try:
                found = self._read()
            except ConfigError as error:
                # What is wrong may stand in a file that was not one of the configuration's before, or be its absence.
                files = {*self._files, *(Path(problem.file) for problem in error.problems), *self._named()}
                found = error
            else:
                files = set(self._files_of(found[0]))
            if files <= looked_at.keys():
                return _Attempt(found, {file: looked_at[file] for file in sorted(files)})

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

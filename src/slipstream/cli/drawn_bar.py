"""A progress bar beside work that is timed: drawn between its tasks, never from another thread, which would keep them
waiting for the interpreter.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn

__all__ = ["drawn_bar"]

SHOWN_EVERY_S = 0.5


class _Drawn(Protocol):
    def draw(self) -> None:
        """Bring the bar up to date."""


_Bar = TypeVar("_Bar", bound=_Drawn)


@asynccontextmanager
async def drawn_bar(bar_of: Callable[[Progress], _Bar], *columns: ProgressColumn) -> AsyncIterator[_Bar]:
    """The bar that ``bar_of`` makes, drawn on stderr if that is a terminal; ``columns`` stand before the time."""
    console = Console(stderr=True)
    shown = (TextColumn("{task.description}"), BarColumn(), *columns, TimeElapsedColumn())
    with Progress(
        *shown, console=console, transient=True, auto_refresh=False, disable=not console.is_terminal
    ) as progress:
        bar = bar_of(progress)

        async def drawing() -> None:
            while True:
                bar.draw()
                await asyncio.sleep(SHOWN_EVERY_S)

        task = asyncio.create_task(drawing(), name="progress bar")
        try:
            yield bar
        finally:
            task.cancel()
            await asyncio.wait((task,))

"""Asking the system for the addresses of a host, without making anything wait for the answer."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

__all__ = ["addresses_of"]


async def addresses_of(host: str, port: int) -> tuple[str, ...]:
    """All addresses of ``host`` (hosts file, DNS), sorted. Raises ``OSError`` when it has none or can not be asked for.

    The look-up has a thread of its own, which nobody waits for: the system's may take half a minute to give up, in
    which neither requests nor the end of the process should be held up.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[tuple[str, ...]] = loop.create_future()

    def tell(settle: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended: nobody listens
            loop.call_soon_threadsafe(lambda: None if answer.done() else settle())

    def look_up() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # the second: a name that can not be written in a question
            failure = error if isinstance(error, OSError) else OSError(str(error))
            tell(lambda: answer.set_exception(failure))
        else:
            addresses = tuple(sorted({str(address[0]) for *_, address in found}))
            tell(lambda: answer.set_result(addresses))

    threading.Thread(target=look_up, name=f"look up {host}", daemon=True).start()
    return await answer

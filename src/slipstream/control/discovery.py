"""Which nodes there should be: those that are named, and one for each address that a named host has."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol
from urllib.parse import urlsplit

import structlog

from slipstream.control.keep_running import keep_running
from slipstream.core.node import NodeSpec

__all__ = ["Discovery", "Resolve", "node_at"]

Resolve = Callable[[str, int], Awaitable[tuple[str, ...]]]
"""The addresses of a host, for a port. Raises ``OSError`` when they can not be told."""

log = structlog.get_logger(__name__)


class Changed(Protocol):
    """Told of all nodes there should be now. ``more_to_come``: of some host no address is known yet."""

    def __call__(self, nodes: Sequence[NodeSpec], /, *, more_to_come: bool) -> None: ...


class Discovery:
    """Keeps asking for the addresses of the hosts it was given; ``changed`` gets all nodes whenever they may differ.

    A look-up that fails changes nothing: the addresses known last stand. All methods belong to the thread of the event
    loop.
    """

    def __init__(
        self,
        changed: Changed,
        resolve: Resolve,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._changed = changed
        self._resolve = resolve
        self._sleep = sleep
        self._interval_s = 0.0
        self._named: tuple[NodeSpec, ...] = ()
        self._templates: dict[str, NodeSpec] = {}
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._following: dict[str, asyncio.Task[None]] = {}

    def configure(self, named: Sequence[NodeSpec], templates: Sequence[NodeSpec], interval_s: float) -> None:
        """Nodes as they are, and those to be multiplied by their host's addresses, asked for every ``interval_s``.

        What is known of a host that stays is kept.
        """
        before = self._templates
        self._named = tuple(named)
        self._templates = {template.name: template for template in templates}
        for name in before:
            template = self._templates.get(name)
            if template is None or template.url != before[name].url:
                self._following.pop(name).cancel()
                self._addresses.pop(name, None)
        if interval_s != self._interval_s:
            self._interval_s = interval_s
            for name in tuple(self._following):
                self._following.pop(name).cancel()
        for name in self._templates:
            if name not in self._following:
                self._following[name] = asyncio.create_task(
                    keep_running(f"look up {name}", partial(self._follow, name), sleep=self._sleep)
                )
        self._tell()

    def nodes(self) -> tuple[NodeSpec, ...]:
        """All nodes there should be now. No name and no url is there twice: the first keeps it, named ones before."""
        nodes = list(self._named)
        names, urls = {node.name for node in nodes}, {node.url for node in nodes}
        for name, template in self._templates.items():
            for address in self._addresses.get(name, ()):
                node = node_at(template, address)
                if node.name not in names and node.url not in urls:
                    names.add(node.name)
                    urls.add(node.url)
                    nodes.append(node)
        return tuple(nodes)

    async def stop(self) -> None:
        """Ask no more."""
        tasks = list(self._following.values())
        self._following.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _tell(self) -> None:
        self._changed(self.nodes(), more_to_come=any(name not in self._addresses for name in self._templates))

    async def _follow(self, name: str) -> None:
        failing = False
        url = urlsplit(self._templates[name].url)
        host, port = url.hostname or "", url.port or 80
        while True:
            try:
                found = await self._resolve(host, port)
            except OSError as error:
                if not failing:
                    known = len(self._addresses.get(name, ()))
                    log.warning("discovery.failed", node=name, host=host, error=str(error), addresses_kept=known)
                failing = True
            else:
                if failing:
                    log.info("discovery.recovered", node=name, host=host, addresses=len(found))
                failing = False
                if found != self._addresses.get(name):
                    self._addresses[name] = found
                    log.info("discovery.found", node=name, host=host, addresses=found)
                    self._tell()
            await self._sleep(self._interval_s)


def node_at(template: NodeSpec, address: str) -> NodeSpec:
    """The node at one address of a template's host: the same name for the same address, however it was found."""
    port = urlsplit(template.url).port or 80
    name = f"{template.name}-{re.sub('[^0-9A-Za-z.]', '-', address)}"
    return replace(
        template, name=name, url=f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
    )

"""The two ways in which an agent has its engine in hand: as a process of its own, or by a hook that switches it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from slipstream.agent.errors import EngineStartFailed, HookFailed
from slipstream.agent.hook import run_hook, tell_hook
from slipstream.agent.process import EngineProcess, Lasting
from slipstream.agent.run_file import command_digest, left_running
from slipstream.core.request import Pool

__all__ = ["EngineHook", "EngineInHand", "OwnEngine", "Variants"]


@dataclass(frozen=True, slots=True)
class Variants:
    """The commands that run the engine with and without a speculator; ``None`` where there is just the other one.

    ``environment`` is added to the agent's own.
    """

    speculative: tuple[str, ...] | None
    standard: tuple[str, ...] | None
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self, role: Pool) -> tuple[str, ...] | None:
        """The command of a role; ``None`` when the engine has no such variant."""
        return self.speculative if role is Pool.SPECULATIVE else self.standard


class EngineInHand(Protocol):
    """What the role machine needs of an engine.

    ``owned``: the engine is a process of the agent's, which `start` and `stop` start and end; else it runs anyway, and
    `start` has it switched. ``outlives``: it goes on without its agent, and the next one can take it over.
    ``switchable``: it can be had in both roles.
    """

    @property
    def owned(self) -> bool: ...

    @property
    def outlives(self) -> bool: ...

    @property
    def switchable(self) -> bool: ...

    def words(self, role: Pool) -> tuple[str, ...]:
        """What tells a role's variant from others, for the fingerprint."""
        ...

    async def take_over(self) -> Pool | None:
        """Take in hand the engine that an agent before this one left running: the role that it has, which `start` then
        need not give it; ``None`` = there is none. Raises an `AgentError` when there is, and it is another.
        """
        ...

    async def start(self, role: Pool, timeout_s: float) -> None:
        """Begin to have the engine in ``role``; it may take long to serve after that. Raises an `AgentError`."""
        ...

    async def stop(self) -> None:
        """Have it end. Returns when nothing of it is left; may be called again."""
        ...

    def hang_up(self) -> None:
        """Have it begin to end, without waiting for that: the agent can not wait any more."""
        ...

    async def ended(self) -> str:
        """Wait until a started engine has ended by itself; a clause that says how. Never returns for one not owned."""
        ...


class OwnEngine:
    """An engine that the agent starts and stops. ``on_output`` gets what it writes.

    With a ``run_file`` it outlives an agent that is killed, and the next one finds it by that; without, it ends with
    its agent, however that goes.
    """

    owned = True

    def __init__(
        self,
        variants: Variants,
        *,
        grace_s: float,
        on_output: Callable[[bytes], None],
        run_file: Path | None = None,
    ) -> None:
        self._variants = variants
        self._grace_s = grace_s
        self._on_output = on_output
        self._run_file = run_file
        self._process: EngineProcess | None = None
        self._found: Pool | None = None
        """The role in which an engine was taken over and has not been asked for yet."""

    @property
    def outlives(self) -> bool:
        """Whether there is a run file."""
        return self._run_file is not None

    @property
    def switchable(self) -> bool:
        """Whether there is a command for both roles."""
        return self._variants.speculative is not None and self._variants.standard is not None

    @property
    def pid(self) -> int | None:
        """The engine's process, ``None`` when there is none."""
        return None if self._process is None else self._process.pid

    def words(self, role: Pool) -> tuple[str, ...]:
        """The command of a role, or the only one that there is."""
        variants = self._variants
        return variants.command(role) or variants.speculative or variants.standard or ()

    async def take_over(self) -> Pool | None:
        """Take over what the run file tells of. Raises `EngineStartFailed` when that was started by another command: an
        engine that serves is not ended for what may be a slip of the pen.
        """
        record = None if self._run_file is None else left_running(self._run_file)
        if record is None:
            return None
        found = next((role for role in Pool if self._digest(role) == record.digest), None)
        if found is None:
            raise EngineStartFailed(
                f"the run file {self._run_file} tells of an engine that another command started as {record.role} "
                f"(process {record.engine}): start its agent with that command, or end it by `kill {record.keeper}`"
            )
        self._process = await EngineProcess.take_over(record, self._on_output)
        self._found = None if self._process is None else found
        return self._found

    async def start(self, role: Pool, timeout_s: float) -> None:  # noqa: ARG002 - a process starts at once, or fails to
        """Run the command of ``role``, unless it was taken over as that. Raises `EngineStartFailed` when it can not be
        run.
        """
        found, self._found = self._found, None
        if found is role:
            return
        command, digest = self._variants.command(role), self._digest(role)
        if command is None or digest is None:
            raise EngineStartFailed(f"there is no command for the role {role}")
        self._process = await EngineProcess.start(
            command,
            self._variants.environment,
            grace_s=self._grace_s,
            on_output=self._on_output,
            lasting=None if self._run_file is None else Lasting(self._run_file, role.value, digest),
        )

    async def stop(self) -> None:
        """End the process, if there is one."""
        process, self._process, self._found = self._process, None, None
        if process is not None:
            await process.stop()

    def hang_up(self) -> None:
        """Tell the process to end, if there is one."""
        if self._process is not None:
            self._process.hang_up()

    async def ended(self) -> str:
        """Wait until the process has ended by itself."""
        process = self._process
        assert process is not None
        return await process.ended()

    def _digest(self, role: Pool) -> str | None:
        command = self._variants.command(role)
        return None if command is None else command_digest(command, self._variants.environment)


class EngineHook:
    """An engine that runs without the agent, and is switched by a command or a URL, or by nothing at all.

    ``command`` is run with ``on`` or ``off`` behind it; it has switched the engine when it ends with status 0.
    ``url`` gets ``POST {"active": true|false}``; it has switched it when it answers with a 2xx status.
    """

    owned = False
    outlives = True

    def __init__(self, command: tuple[str, ...] = (), url: str | None = None) -> None:
        self._command = command
        self._url = url

    @property
    def switchable(self) -> bool:
        """Whether there is a hook."""
        return bool(self._command) or self._url is not None

    def words(self, role: Pool) -> tuple[str, ...]:
        """The role alone: how the engine was started is not known."""
        return (role.value,)

    async def take_over(self) -> Pool | None:
        """Nothing: the engine runs anyway, and says itself what it is."""
        return None

    async def start(self, role: Pool, timeout_s: float) -> None:
        """Have the engine switched to ``role`` within ``timeout_s``. Raises `HookFailed`."""
        active = role is Pool.SPECULATIVE
        try:
            async with asyncio.timeout(timeout_s):
                if self._command:
                    await run_hook((*self._command, "on" if active else "off"))
                elif self._url is not None:
                    await tell_hook(self._url, active=active)
        except TimeoutError:
            raise HookFailed(f"the hook did not end within {timeout_s:g} s") from None

    async def stop(self) -> None:
        """Nothing: the engine is not the agent's to stop."""

    def hang_up(self) -> None:
        """Nothing, as `stop`."""

    async def ended(self) -> str:
        """Wait for ever: whether the engine ends is not the agent's to see."""
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await told

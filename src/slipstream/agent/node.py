"""The agent of one node: the role that its engine has, how that changes, and what it says of itself."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import structlog

from slipstream.agent.changes import Changes
from slipstream.agent.engine import EngineInHand
from slipstream.agent.errors import AgentError, CommandRefused, EngineStartFailed, NotDrained, ProbeFailed
from slipstream.agent.hold import Hold
from slipstream.agent.snapshot import SENTENCE, snapshot
from slipstream.agent.view import EngineView
from slipstream.core.backoff import Backoff
from slipstream.core.request import Pool
from slipstream.engines.agent import AgentState, AgentSwitch, Transition

__all__ = ["AgentSettings", "NodeAgent", "Warmer"]

SWITCHES_REMEMBERED = 10

log = structlog.get_logger(__name__)


class Warmer(Protocol):
    """Sends an engine a few small requests. ``run`` raises `ProbeFailed` when they are not answered in time."""

    async def run(self, model: str, timeout_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """``role`` is what the engine is started in. ``ceiling`` counts sequences, ``None`` = none was given. Running
    requests have ``drain_timeout_s`` to end, an engine ``start_timeout_s`` to serve and be warm. ``settle_s`` is how
    long a gateway may take to hear that a node drains, and a request that it had sent before to reach the engine.
    """

    name: str
    role: Pool = Pool.SPECULATIVE
    ceiling: int | None = None
    drain_timeout_s: float = 120.0
    start_timeout_s: float = 600.0
    settle_s: float = 0.25
    backoff: Backoff = field(default_factory=Backoff)


class NodeAgent:
    """Starts and watches one engine, and changes its role by a drained restart (or the hook that it has).

    ``clock`` is monotonic, ``wall_clock`` Unix time, both in seconds. ``published`` is told of each change of `state`.
    All methods belong to the thread of the event loop.
    """

    def __init__(
        self,
        settings: AgentSettings,
        engine: EngineInHand,
        view: EngineView,
        warmer: Warmer,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._view = view
        self._warmer = warmer
        self._clock = clock
        self._wall_clock = wall_clock
        self._role = settings.role if engine.owned else None
        self._transition: Transition | None = None
        self._drained = False
        self._wanted: Pool | None = None
        self._recalled = False
        self._committed = False
        """Whether the switch under way has drained: it can not be called off any more."""
        self._lost: str | None = None
        """Why its own engine, which should run, does not."""
        self._wait_s: float | None = None
        self._up_since: float | None = None
        self._hold = Hold()
        self._switches: deque[AgentSwitch] = deque(maxlen=SWITCHES_REMEMBERED)
        self._minding: asyncio.Task[None] | None = None
        self._events = Changes()
        """Told of each reading, command and loss: what the steps of a switch wait for."""
        self.published = Changes()
        self._last: AgentState | None = None
        self._publish()

    # What it says

    def state(self) -> AgentState:
        """Everything that is known now."""
        now = self._clock()
        state, reading = self._snapshot(), self._view.reading
        age_s = None if reading is None else max(0.0, now - reading.asked_at)
        return msgspec.structs.replace(state, age_s=age_s, readings=self._view.readings, time=self._wall_clock())

    @property
    def role(self) -> Pool | None:
        """The role that the engine has, or has again once it is back; ``None`` = not known yet.

        An engine that is not the agent's tells it itself: somebody else may have switched it. So does one that there
        is in one variant only: whoever gave that one command need not know what it amounts to.
        """
        speculating = self._view.report.speculating
        if speculating is None or (self._engine.owned and self._engine.switchable):
            return self._role
        return Pool.SPECULATIVE if speculating else Pool.STANDARD

    @property
    def lost(self) -> str | None:
        """Why its own engine, which should run, does not; it is started again after a pause. ``None`` = it does run, is
        being started or stopped, or is not the agent's.
        """
        return self._lost

    # What it is told

    def drain(self, by: str | None = None) -> None:
        """Want no new requests until `resume`. Raises `CommandRefused` when somebody else than ``by`` commands."""
        self._hold.take(by, self._clock())
        self._drained = True
        self._tell()

    def resume(self, by: str | None = None) -> None:
        """Want requests again. A switch that still drains is called off; a later one goes on. Raises as `drain`."""
        self._hold.take(by, self._clock())
        self._drained = False
        self._recalled = self._wanted is not None and not self._committed
        self._tell()

    def speculation(self, *, active: bool, by: str | None = None) -> bool:
        """Begin to change the role; ``False`` when it is as wanted already. Raises `CommandRefused` when it can not be
        changed, is being changed, or somebody else than ``by`` commands.
        """
        target = Pool.SPECULATIVE if active else Pool.STANDARD
        if not self._engine.switchable:
            raise CommandRefused(
                "this node was given only one variant of its engine: it has no other role", "one_variant"
            )
        self._hold.check(by, self._clock())
        if self._wanted is not None:
            raise CommandRefused(
                f"this node is already becoming {self._wanted}, and {self._transition} now", "switching"
            )
        self._hold.take(by, self._clock())
        if target is self.role and self._lost is None:
            return False
        self._wanted, self._recalled, self._committed = target, False, False
        if self._transition is None:
            self._transition = "draining"
        self._tell()
        return True

    # Its life

    async def take_over(self) -> None:
        """Take over the engine that an agent before this one left running, if there is one, and ask it once, so that
        what is said from now on is what it says. To be called before `run`. Raises an `AgentError`.
        """
        role = await self._engine.take_over()
        if role is not None:
            self._role = role
            self._view.open()
            await self._view.look()
            log.info("engine.taken_over", node=self._settings.name, role=self.role, answers=self._view.answers)
            self._tell()

    async def run(self, told: asyncio.Event) -> None:
        """Start the engine, keep it running and do what is wanted, until ``told`` to end: running requests may end, and
        then the engine does. Raises an `AgentError` when the engine does not start the first time.

        What else is raised is a fault of the agent's own: an engine that outlives its agent then goes on, as after a
        kill.
        """
        fault = True
        living = asyncio.create_task(self._live(), name="life of the engine")
        watching = asyncio.create_task(self._view.watch(self._tell), name="watch the engine")
        ending = asyncio.create_task(told.wait(), name="wait for the end")
        try:
            await asyncio.wait({living, watching, ending}, return_when=asyncio.FIRST_COMPLETED)
            for task in (living, watching):
                if task.done():
                    task.result()
            await _over(living)
            if self._engine.owned and self._view.answers:
                self._enter("draining")
                await self._events.until(self._is_drained(), self._settings.drain_timeout_s)
            fault = False
        except (AgentError, asyncio.CancelledError):
            fault = False
            raise
        finally:
            await _over(living, watching, ending)
            await self._stop_minding()
            if not fault:
                self._enter("stopping")
                await self._put_down()
            elif self._engine.outlives:
                log.error(
                    "engine.left", node=self._settings.name, why="a fault of the agent; the next one has it again"
                )
            else:
                await self._engine.stop()
            self._view.close()

    async def _live(self) -> None:
        role = self._role
        if self._engine.owned and role is not None and self._view.answers:  # it was taken over, and serves
            await self._engine.start(role, self._settings.start_timeout_s)
            self._up_since = self._clock()
            self._look_after_it()
        elif self._engine.owned and role is not None:
            began = self._clock()
            self._enter("starting")
            try:
                await self._take_up(role)
            finally:
                self._enter(None)
            log.info("engine.ready", node=self._settings.name, role=self.role, took_s=round(self._clock() - began, 3))
        else:
            self._view.open()
        while True:
            await self._events.until(lambda: self._wanted is not None or self._lost is not None)
            if self._wanted is not None:
                await self._switch(self._wanted)
            else:
                await self._start_again()

    async def _start_again(self) -> None:
        """Start an engine that ended by itself, after a pause, until it runs or something else is wanted."""
        role = self._role
        assert role is not None
        while self._lost is not None:
            log.warning("engine.lost", node=self._settings.name, why=self._lost)
            up_since, self._up_since = self._up_since, None
            ran_s = 0.0 if up_since is None else self._clock() - up_since
            self._wait_s = self._settings.backoff.next_wait(self._wait_s, ran_s)
            if await self._events.until(lambda: self._wanted is not None, self._wait_s):
                return
            self._enter("starting")
            try:
                await self._take_up(role)
            except AgentError as error:
                await self._put_down()
                self._lose(str(error))
            self._enter(None)
        log.info("engine.back", node=self._settings.name, role=self.role)

    async def _switch(self, target: Pool) -> None:
        """Change the role, or leave it as it was and say why."""
        was, began, phases = self.role, self._wall_clock(), dict[str, float]()
        why: str | None = None
        log.info("switch.begins", node=self._settings.name, was=was, to=target)
        self._enter("draining")
        try:
            await self._timed(phases, "draining", self._drain())
            self._committed = True
            try:
                await self._change_to(target, phases)
            except AgentError as error:
                why = str(error)
                await self._go_back(was, why, phases)
        except NotDrained as error:
            why = str(error)
        except AgentError as error:
            why = f"{why}; and it could not be started as {was or 'it was'} again: {error}"
            await self._put_down()
            self._lose(why)
        if why is None:
            self._role = target
        ok = why is None
        self._switches.append(AgentSwitch(was, target, began, ok, None if why is None else why[:SENTENCE], phases))
        self._wanted, self._recalled = None, False
        self._enter(None)
        took = {f"{phase}_s": round(seconds, 3) for phase, seconds in phases.items()}
        if ok:
            log.info("switch.done", node=self._settings.name, to=target, **took)
        else:
            log.warning("switch.failed", node=self._settings.name, to=target, why=why, **took)

    async def _drain(self) -> None:
        """Wait until no request runs. Raises `NotDrained` at the deadline, or when the switch is called off."""
        timeout_s, is_drained = self._settings.drain_timeout_s, self._is_drained()
        drained = await self._events.until(lambda: self._recalled or is_drained(), timeout_s)
        if self._recalled:
            raise NotDrained("it was resumed before it had drained")
        if not drained:
            running = self._view.report.sequences
            what = "the engine does not say how many requests run" if running is None else f"{running} requests ran"
            raise NotDrained(f"after {timeout_s:g} s {what}: it goes on as it was")

    async def _change_to(self, role: Pool, phases: dict[str, float]) -> None:
        deadline = self._clock() + self._settings.start_timeout_s
        if self._engine.owned:
            self._enter("stopping")
            await self._timed(phases, "stopping", self._put_down())
        self._enter("starting")
        await self._timed(phases, "starting", self._start(role, deadline))
        self._enter("warming")
        await self._timed(phases, "warming", self._warm(role, deadline))

    async def _go_back(self, role: Pool | None, why: str, phases: dict[str, float]) -> None:
        if role is None:
            raise EngineStartFailed("what it was is not known")
        log.warning("switch.goes_back", node=self._settings.name, to=role, why=why)
        await self._timed(phases, "returning", self._change_to(role, {}))

    async def _take_up(self, role: Pool) -> None:
        deadline = self._clock() + self._settings.start_timeout_s
        await self._start(role, deadline)
        self._enter("warming")
        await self._warm(role, deadline)
        self._role = role

    async def _start(self, role: Pool, deadline: float) -> None:
        """Have the engine in ``role``, and wait until it serves."""
        self._lost = None
        try:
            await self._engine.start(role, deadline - self._clock())
            self._look_after_it()
            self._view.open()
            if not await self._events.until(
                lambda: self._lost is not None or self._serves(role), deadline - self._clock()
            ):
                timeout_s = self._settings.start_timeout_s
                why = self._view.error or "it serves, and does not speculate as it should"
                raise EngineStartFailed(f"the engine did not serve as {role} after {timeout_s:g} s: {why}")
            if self._lost is not None:
                raise EngineStartFailed(self._lost)
        except AgentError:
            await self._put_down()
            raise
        self._up_since = self._clock()

    def _serves(self, role: Pool) -> bool:
        if not self._view.answers:
            return False
        speculating = self._view.report.speculating
        return self._engine.owned or speculating is None or speculating is (role is Pool.SPECULATIVE)

    async def _warm(self, role: Pool, deadline: float) -> None:
        """Have it answer small requests, and look whether it then is what it should be."""
        models = self._view.report.models
        if not models:
            raise ProbeFailed("the engine does not say which model it serves")
        await self._warmer.run(models[0], max(1.0, deadline - self._clock()))
        speculating = self._view.report.speculating
        if self._engine.switchable and speculating is not None and speculating is not (role is Pool.SPECULATIVE):
            active = "is" if speculating else "is not"
            raise ProbeFailed(f"the engine was to be {role}, and says that a speculator {active} active")

    async def _put_down(self) -> None:
        """End the engine, if it is the agent's."""
        if self._engine.owned:
            await self._stop_minding()
            self._view.shut("the agent has stopped the engine")
            self._publish()
            await self._engine.stop()

    def _look_after_it(self) -> None:
        if self._engine.owned:
            self._minding = asyncio.create_task(self._mind(), name="mind the engine")

    async def _mind(self) -> None:
        self._lose(f"the engine {await self._engine.ended()}")

    async def _stop_minding(self) -> None:
        minding, self._minding = self._minding, None
        if minding is not None:
            await _over(minding)

    def _lose(self, why: str) -> None:
        """The agent's own engine does not run, and should."""
        if self._engine.owned:
            self._lost = why[:SENTENCE]
            self._view.shut(self._lost)
        self._tell()

    def _is_drained(self) -> Callable[[], bool]:
        """Whether a reading long enough after now, when new work is stopped, showed no request; or nothing runs."""
        quiet_from = self._clock() + self._settings.settle_s

        def is_drained() -> bool:
            reading = self._view.reading
            if reading is None:
                return not self._view.answers
            return reading.asked_at >= quiet_from + self._view.gauge_lag_s and reading.report.sequences == 0

        return is_drained

    async def _timed(self, phases: dict[str, float], phase: str, work: Awaitable[None]) -> None:
        began = self._clock()
        try:
            await work
        finally:
            phases[phase] = phases.get(phase, 0.0) + self._clock() - began

    # How it becomes known

    def _enter(self, transition: Transition | None) -> None:
        self._transition = transition
        self._tell()

    def _tell(self) -> None:
        self._events.tell()
        self._publish()

    def _publish(self) -> None:
        """A new version for what differs from the last one, if anything does."""
        state = self._snapshot()
        if state != self._last:
            self._last = msgspec.structs.replace(state, version=state.version + 1)
            self.published.tell()

    def _snapshot(self) -> AgentState:
        """The state, but for its age, readings and time, which are no change of it."""
        role = self.role
        return snapshot(
            self._view,
            name=self._settings.name,
            role=role,
            transition=self._transition,
            target=self._wanted,
            draining=self._drained or self._transition is not None or self._wanted is not None,
            switchable=self._engine.switchable,
            holder=self._hold.holder(self._clock()),
            ceiling=self._settings.ceiling,
            words=() if role is None else self._engine.words(role),
            switches=tuple(self._switches),
            version=0 if self._last is None else self._last.version,
        )


async def _over(*tasks: asyncio.Task[Any]) -> None:
    """End tasks; what went wrong in them has been seen to, or does not matter any more."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

"""The agent beside a node's engine: asking and telling it, and hearing from it in place of polling the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from math import inf

import aiohttp
import msgspec
import structlog
from aiohttp.http_exceptions import HttpProcessingError

from slipstream.control.poller import FleetReports, Poller, Timing
from slipstream.core.errors import EngineDown, EngineError, EngineGarbage, EngineUnreachable
from slipstream.core.node import NodeSpec
from slipstream.core.request import Pool
from slipstream.engines.agent import AgentRefused, AgentState, read_state, report_of
from slipstream.engines.document import UNREADABLE

__all__ = ["ASK_AGAIN_S", "BREATH_S", "AgentClient", "AgentWatch", "holder_name"]

ANSWER_S = 5.0
"""How long an agent may take to answer what is not a watch."""
SILENT_AFTER = 3.0
"""Intervals without a word after which an agent counts as silent."""
ASK_AGAIN_S = 1.0
"""Between two tries to hear an agent that is silent."""
BREATH_S = 0.001
"""Between two states: an agent that never stops talking must not be all that the gateway hears."""
LONGEST_LINE = 1024 * 1024

log = structlog.get_logger(__name__)


def holder_name(machine: str, host: str, port: int, chance: int) -> str:
    """The name by which agents know a gateway that listens there: the same after a restart, so that it may go on with
    what it has begun, and one by which a person finds it. ``chance`` tells those apart whose ``port`` is any (0).
    """
    return f"gateway {machine} {host}:{port}" if port else f"gateway {machine} {host} {chance:016x}"


class AgentClient:
    """One agent. ``url`` is scheme, host and port; ``token`` goes along as a bearer token. ``holder`` is who commands,
    by which an agent tells two gateways apart; ``None`` = a person.

    Every method raises `EngineUnreachable` when there is no answer in time and `EngineGarbage` when it is no agent's.
    """

    def __init__(self, url: str, token: str | None = None, *, holder: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._holder = holder
        self._session: aiohttp.ClientSession | None = None

    async def speculation(self, *, active: bool) -> AgentState:
        """Have it begin to change its role; the state tells how that goes. Raises `AgentRefused` when it does not."""
        try:
            async with self._opened().post(
                f"{self._url}/speculation",
                json={"holder": self._holder, "active": active},
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=ANSWER_S),
            ) as response:
                answer = await self._whole(response)
                if response.ok:
                    return self._read(answer)
                raise _refusal(self._url, response.status, answer)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise EngineUnreachable(f"the agent at {self._url} can not be reached: {_reason(error)}") from None

    async def watch(self, interval_s: float = 1.0) -> AsyncGenerator[AgentState, None]:
        """The state now, after each change, and after ``interval_s`` without one, until the agent ends or can not be
        heard any more, which raises. Silence is for whoever listens to notice.
        """
        try:
            async with self._opened().get(
                f"{self._url}/watch",
                params={"interval_s": f"{interval_s:g}"},
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_S),
            ) as response:
                if not response.ok:
                    raise _refusal(self._url, response.status, await self._whole(response))
                async for line in response.content:
                    yield self._read(line)
        except aiohttp.ClientPayloadError:
            raise EngineUnreachable(f"the agent at {self._url} ended in the middle of a word") from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise EngineUnreachable(f"the agent at {self._url} can not be reached: {_reason(error)}") from None
        except HttpProcessingError as error:  # a line without end
            raise EngineGarbage(f"the agent at {self._url} gave no state: {error.message[:100]}") from None

    async def close(self) -> None:
        """Let go of its connections; what is asked later opens others."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(read_bufsize=LONGEST_LINE)
        return self._session

    async def _whole(self, response: aiohttp.ClientResponse) -> bytes:
        """The body, in however many pieces it comes."""
        body = bytearray()
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > LONGEST_LINE:
                raise EngineGarbage(f"the agent at {self._url} gave no state: more than {LONGEST_LINE} bytes")
        return bytes(body)

    def _read(self, body: bytes) -> AgentState:
        try:
            return read_state(body)
        except EngineGarbage as error:
            raise EngineGarbage(f"{self._url} gave {error}") from None


class AgentWatch:
    """Hears one node from its agent and tells the fleet; while the agent is silent, ``poller`` asks the engine.

    Its node's troubles are reported, never raised.
    """

    def __init__(
        self,
        node: NodeSpec,
        fleet: FleetReports,
        client: AgentClient,
        poller: Poller,
        timing: Timing,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._node = node
        self._fleet = fleet
        self.client = client
        """For commands."""
        self._poller = poller
        self._interval_s = timing.interval_s
        self._silence_s = max(timing.timeout_s, SILENT_AFTER * timing.interval_s)
        self._clock = clock
        self._sleep = sleep
        self._last: tuple[int, Pool | None, bool] | None = None
        self._polling: asyncio.Task[None] | None = None
        self.heard = 0
        """States heard so far."""
        self.state: AgentState | None = None
        """The last one; ``None`` = none yet, or the agent is silent."""

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            while True:
                error = await self._watched()
                self._poll_because(error)
                await self._sleep(ASK_AGAIN_S)
                if self._polling is not None and self._polling.done():
                    self._polling.result()  # a fault of ours, which must not stay unseen
        finally:
            self._end_polling()
            await self.client.close()

    async def _watched(self) -> EngineError | AgentRefused:
        """Hear the agent for as long as it speaks; why it does not any more."""
        loop, heard_at = asyncio.get_running_loop(), -inf
        try:
            async with (
                asyncio.timeout(self._silence_s) as patience,
                aclosing(self.client.watch(self._interval_s)) as states,
            ):
                async for state in states:
                    now = loop.time()
                    patience.reschedule(now + self._silence_s)
                    if self._polling is not None:
                        self._end_polling()
                        log.info("agent.answers", node=self._node.name)
                    self._hear(state)
                    if now - heard_at < BREATH_S:
                        await self._sleep(BREATH_S)
                    heard_at = loop.time()
        except TimeoutError:
            return EngineUnreachable(f"its agent said nothing for {self._silence_s:g} s")
        except (EngineError, AgentRefused) as error:
            return error
        return EngineUnreachable("its agent has ended")

    def _poll_because(self, error: EngineError | AgentRefused) -> None:
        """Poll the engine until the agent is heard: that it can be asked is not enough."""
        self.state = self._last = None
        if self._polling is None:
            log.warning("agent.silent", node=self._node.name, error=str(error))
            self._polling = asyncio.create_task(self._poller.run(), name=f"poll {self._node.name}")

    def _end_polling(self) -> None:
        polling, self._polling = self._polling, None
        if polling is not None:
            polling.cancel()  # whatever it waits for, it comes no further: its next step is its end

    def _hear(self, state: AgentState) -> None:
        self.heard += 1
        self.state = state
        now = self._clock()
        if not state.healthy or state.age_s is None:
            why = f"its agent says, {state.transition or 'not healthy'}: {state.error or 'no reason'}"
            self._last = None
            self._fleet.report_failed(self._node.name, now, EngineDown(why))
            return
        known = (state.readings, state.role, state.draining)
        if known == self._last:
            return  # the engine was not asked again: what it said once must not look fresh for ever
        self._last = known
        self._fleet.report(self._node.name, now - state.age_s, now, report_of(state))


class _Problem(msgspec.Struct):
    message: str
    code: str | None = None


class _Refusal(msgspec.Struct):
    error: _Problem


_decoder = msgspec.json.Decoder(_Refusal)


def _refusal(url: str, status: int, body: bytes) -> AgentRefused | EngineGarbage:
    try:
        problem = _decoder.decode(body).error
    except UNREADABLE:
        return EngineGarbage(f"{url} answered with status {status}, and not as an agent does")
    return AgentRefused(f"the agent at {url} answers: {problem.message}", status, problem.code)


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__

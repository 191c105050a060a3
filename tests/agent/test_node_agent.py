"""The role of a node: how it changes, what stops a change, and what is said of it."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from agent_rig import EmulatedInHand, rig
from emulated_client import ask
from node_pages import serving
from recorded_engine import recorded_engine
from slipstream.agent.errors import CommandRefused, EngineStartFailed, ProbeFailed
from slipstream.agent.hold import HOLD_S, Hold
from slipstream.agent.view import EngineView
from slipstream.core.backoff import Backoff
from slipstream.core.request import Pool

SPECULATIVE, STANDARD = Pool.SPECULATIVE, Pool.STANDARD


async def test_a_switch_goes_through_its_phases_in_order_and_the_node_is_the_other_afterwards() -> None:
    async with rig(ceiling=8) as one:
        before = one.state
        assert (before.role, before.transition, before.healthy, before.error) == (SPECULATIVE, None, True, None)
        assert before.speculator is not None
        assert before.engine.kind == "llamacpp"
        assert before.engine.model == "emulated"
        await one.until(lambda: (one.state.running, one.state.speculative_capacity) == (0, 8))
        one.seen.clear()
        assert one.agent.speculation(active=False)
        assert (one.state.transition, one.state.draining) == ("draining", True)
        await one.switched()
        after = one.state
        await one.until(lambda: one.phases()[-1] is None)  # whoever is told hears of it a moment later
        assert one.phases() == ["draining", "stopping", "starting", "warming", None]
        assert [state.version for state in one.seen] == sorted({state.version for state in one.seen})
        assert all(state.draining for state in one.seen[:-1] if state.transition is not None)
        assert not any(state.healthy for state in one.seen if state.transition == "starting")
        assert (after.role, after.speculator, after.healthy, after.draining) == (STANDARD, None, True, False)
        assert after.speculative_capacity == 0
        assert after.fingerprint not in (None, before.fingerprint)
        (switch,) = after.switches
        assert (switch.was, switch.to, switch.ok, switch.why) == (SPECULATIVE, STANDARD, True, None)
        assert list(switch.phases) == ["draining", "stopping", "starting", "warming"]
        assert one.agent.speculation(active=True)
        await one.switched()
        assert one.state.role is SPECULATIVE
        assert one.state.fingerprint == before.fingerprint
        assert one.engine.starts == [SPECULATIVE, STANDARD, SPECULATIVE]


async def test_acceptance_and_counters_are_told_and_are_those_of_the_engine_that_runs() -> None:
    async with rig() as one:
        assert one.engine.node is not None
        await ask(one.engine.node, max_tokens=8)
        await one.until(lambda: (one.state.generated_tokens or 0) >= 8 and one.state.alpha is not None)
        state = one.state
        assert state.speculator is not None
        assert state.alpha is not None
        assert state.tau is not None
        assert 0.0 <= state.alpha <= 1.0 <= state.tau
        assert state.accepted is not None
        assert state.drafted is not None
        assert state.accepted <= state.drafted
        one.agent.speculation(active=False)
        await one.switched()
        assert (one.state.alpha, one.state.tau) == (None, None)


async def test_running_requests_end_before_the_engine_does() -> None:
    async with rig() as one:
        assert one.engine.node is not None
        running = asyncio.create_task(ask(one.engine.node, max_tokens=600))
        await one.until(lambda: one.state.running == 1)
        one.agent.speculation(active=False)
        answer = await running
        assert answer.status == 200
        assert answer.json["usage"]["completion_tokens"] == 600
        await one.switched()
        assert one.state.switches[0].ok


async def test_a_node_that_never_drains_goes_on_as_it_was_at_the_deadline_and_says_so() -> None:
    async with rig(drain_timeout_s=0.05) as one:
        assert one.engine.node is not None
        running = asyncio.create_task(ask(one.engine.node, max_tokens=1000))
        await one.until(lambda: one.state.running == 1)
        one.agent.speculation(active=False)
        await one.switched()
        assert (one.state.role, one.state.draining, one.state.healthy) == (SPECULATIVE, False, True)
        assert one.state.switches[0].why == "after 0.05 s 1 requests ran: it goes on as it was"
        assert one.engine.starts == [SPECULATIVE]
        assert (await running).status == 200


async def test_resume_calls_off_a_switch_that_still_drains() -> None:
    async with rig() as one:
        assert one.engine.node is not None
        running = asyncio.create_task(ask(one.engine.node, max_tokens=600))
        await one.until(lambda: one.state.running == 1)
        one.agent.speculation(active=False)
        one.agent.resume()
        await one.switched()
        assert one.state.switches[0].why == "it was resumed before it had drained"
        assert not one.state.draining
        assert (await running).status == 200


async def test_a_variant_that_does_not_start_leaves_the_node_in_its_old_role() -> None:
    async with rig() as one:
        one.engine.broken.add(STANDARD)
        one.agent.speculation(active=False)
        await one.switched()
        assert (one.state.role, one.state.healthy, one.state.transition) == (SPECULATIVE, True, None)
        (switch,) = one.state.switches
        assert (switch.ok, switch.why) == (False, "serve can not be run: it is broken")
        assert "returning" in switch.phases
        assert one.engine.starts == [SPECULATIVE, STANDARD, SPECULATIVE]


async def test_a_variant_that_is_not_what_it_should_be_is_found_out() -> None:
    async with rig() as one:
        one.engine.lying.add(STANDARD)
        one.agent.speculation(active=False)
        await one.switched()
        assert one.state.switches[0].why == "the engine was to be standard, and says that a speculator is active"
        assert one.state.role is SPECULATIVE


async def test_where_the_old_variant_fails_too_the_node_is_unhealthy_says_both_reasons_and_tries_on() -> None:
    async with rig(backoff=Backoff(0.05, 0.05)) as one:
        one.engine.broken |= {STANDARD, SPECULATIVE}
        one.agent.speculation(active=False)
        await one.switched()
        assert not one.state.healthy
        why = "serve can not be run: it is broken"
        both = f"{why}; and it could not be started as speculative again: {why}"
        assert one.state.switches[0].why == both
        assert one.state.error == both
        await one.until(lambda: one.engine.starts.count(SPECULATIVE) > 3)  # in vain, again and again
        one.engine.broken.clear()
        await one.ready()
        assert one.state.role is SPECULATIVE


async def test_an_engine_that_dies_is_said_to_be_down_at_once_and_started_again() -> None:
    async with rig() as one:
        one.seen.clear()
        await one.engine.die()
        await one.until(lambda: any(not state.healthy for state in one.seen))
        down = next(state for state in one.seen if not state.healthy)
        assert down.error == "the engine was ended by SIGKILL"
        await one.ready()
        assert one.engine.starts == [SPECULATIVE, SPECULATIVE]


async def test_an_engine_that_dies_in_a_switch_is_started_in_the_new_role() -> None:
    async with rig() as one:
        assert one.engine.node is not None
        running = asyncio.create_task(ask(one.engine.node, max_tokens=1000))
        await one.until(lambda: one.state.running == 1)
        one.agent.speculation(active=False)
        await one.until(lambda: one.state.transition == "draining")
        await one.engine.die()
        await asyncio.gather(running, return_exceptions=True)
        await one.switched()
        assert (one.state.role, one.state.switches[0].ok) == (STANDARD, True)


async def test_an_engine_that_is_killed_after_the_drain_comes_back_in_its_old_role() -> None:
    async with rig() as one:
        one.engine.mortal.add(STANDARD)
        one.agent.speculation(active=False)
        await one.switched()
        assert (one.state.role, one.state.healthy, one.state.transition) == (SPECULATIVE, True, None)
        assert one.state.switches[0].why == "the engine was ended by SIGKILL"
        assert one.engine.starts == [SPECULATIVE, STANDARD, SPECULATIVE]


async def test_an_engine_that_is_killed_while_it_is_warmed_comes_back_in_its_old_role() -> None:
    async with rig() as one:
        one.engine.slow.add(STANDARD)
        one.agent.speculation(active=False)
        await one.until(lambda: one.state.transition == "warming")
        await one.engine.die()
        await one.switched()
        assert (one.state.role, one.state.healthy, one.state.transition) == (SPECULATIVE, True, None)
        (switch,) = one.state.switches
        assert not switch.ok
        assert "warming" in switch.phases
        assert one.engine.starts == [SPECULATIVE, STANDARD, SPECULATIVE]


@pytest.mark.parametrize("outlives", [True, False])
async def test_a_fault_of_the_agent_leaves_an_engine_that_outlives_it_and_ends_one_that_does_not(
    monkeypatch: pytest.MonkeyPatch, outlives: bool
) -> None:
    engine = EmulatedInHand()
    engine.outlives = outlives
    async with rig(engine) as one:
        monkeypatch.setattr(EngineView, "acceptance", lambda _view: 1 / 0)
        assert one.running is not None
        with pytest.raises(ZeroDivisionError):
            await one.running
        assert engine.serves is outlives
        monkeypatch.undo()


@pytest.mark.parametrize("drafts", [True, False])
async def test_an_engine_that_there_is_in_one_variant_says_itself_which_that_is(drafts: bool) -> None:
    """Whoever gives one command need not know what it amounts to, and an engine that serves is not ended for it."""
    engine = EmulatedInHand(switchable=False)
    if not drafts:
        engine.lying.add(SPECULATIVE)
    async with rig(engine) as one:
        assert one.state.role is (SPECULATIVE if drafts else STANDARD)
        await engine.die()
        await one.until(lambda: len(engine.starts) > 1)
        await one.ready()
        assert one.state.role is (SPECULATIVE if drafts else STANDARD)


async def test_an_engine_that_was_left_running_is_heard_as_it_is_and_not_drained_and_can_be_switched() -> None:
    engine = EmulatedInHand()
    await engine.start(STANDARD, 1.0)
    engine.left = STANDARD
    async with rig(engine, wait=False) as one:
        assert (one.state.role, one.state.healthy, one.state.draining) == (STANDARD, True, False)
        await one.until(lambda: one.state.readings > 1)
        assert all(state.healthy and not state.draining for state in one.seen)
        assert engine.starts == [STANDARD]
        one.agent.speculation(active=True)
        await one.switched()
        assert (one.state.role, one.engine.starts) == (SPECULATIVE, [STANDARD, SPECULATIVE])
        await engine.die()  # it is looked after as any
        await one.until(lambda: engine.starts == [STANDARD, SPECULATIVE, SPECULATIVE])
        await one.ready()


async def test_an_engine_that_was_left_running_and_ends_is_started_again_in_its_role() -> None:
    engine = EmulatedInHand()
    await engine.start(STANDARD, 1.0)
    engine.left = STANDARD
    with capture_logs() as logs:
        async with rig(engine, wait=False) as one:
            await one.until(lambda: one.state.readings > 1)
            await engine.die()
            await one.until(lambda: engine.starts == [STANDARD, STANDARD])
            await one.ready()
            assert one.state.role is STANDARD
    assert [entry["event"] for entry in logs].count("engine.lost") == 1  # it is not taken over once more


async def test_an_engine_of_one_variant_that_was_left_running_is_taken_over_whatever_it_says_that_it_is() -> None:
    engine = EmulatedInHand(switchable=False)
    engine.lying.add(SPECULATIVE)
    await engine.start(SPECULATIVE, 1.0)
    engine.left = SPECULATIVE
    async with rig(engine, wait=False) as one:
        await one.until(lambda: one.state.readings > 1)
        assert (one.state.role, one.state.healthy, engine.starts) == (STANDARD, True, [SPECULATIVE])


async def test_an_engine_that_was_left_starting_is_waited_for_and_warmed() -> None:
    engine = EmulatedInHand()
    engine.left = STANDARD
    async with rig(engine, wait=False) as one:
        await one.until(lambda: one.state.transition == "starting")
        await engine.start(STANDARD, 1.0)
        await one.until(lambda: one.seen[-1].healthy and not one.seen[-1].draining)
        assert one.phases() == [None, "starting", "warming", None]
        assert (one.state.role, engine.starts) == (STANDARD, [STANDARD])


async def test_a_switch_can_be_wanted_while_the_engine_fails_to_start_again() -> None:
    async with rig(backoff=Backoff(30.0)) as one:
        await one.engine.die()
        await one.until(lambda: not one.state.healthy)
        assert one.agent.speculation(active=False)
        await one.switched()
        assert (one.state.role, one.state.healthy) == (STANDARD, True)


async def test_one_switch_at_a_time_and_none_to_the_role_that_it_has() -> None:
    async with rig() as one:
        assert not one.agent.speculation(active=True)
        assert one.state.transition is None
        one.agent.speculation(active=False)
        with pytest.raises(CommandRefused, match="already becoming standard, and draining now") as refused:
            one.agent.speculation(active=True)
        assert refused.value.code == "switching"
        await one.switched()


async def test_a_node_with_one_variant_has_no_other_role() -> None:
    async with rig(EmulatedInHand(switchable=False)) as one:
        with pytest.raises(CommandRefused, match="only one variant") as refused:
            one.agent.speculation(active=False)
        assert refused.value.code == "one_variant"
        assert not one.state.switchable


async def test_a_drained_node_stays_drained_through_a_switch_until_it_is_resumed() -> None:
    async with rig() as one:
        one.agent.drain()
        assert (one.state.draining, one.state.transition) == (True, None)
        one.agent.speculation(active=False)
        await one.switched()
        assert (one.state.draining, one.state.transition) == (True, None)
        one.agent.resume()
        assert not one.state.draining


async def test_an_engine_that_is_not_the_agents_is_switched_by_its_hook_and_tells_its_role_itself() -> None:
    engine = EmulatedInHand(owned=False)
    await engine.start(STANDARD, 1.0)
    async with rig(engine) as one:
        assert one.state.role is STANDARD
        assert one.agent.speculation(active=True)
        await one.switched()
        assert (one.state.role, one.state.switches[0].ok) == (SPECULATIVE, True)
        assert "stopping" not in one.state.switches[0].phases
        one.engine.broken.add(STANDARD)
        one.agent.speculation(active=False)
        await one.switched()
        assert (one.state.role, one.state.switches[1].ok) == (SPECULATIVE, False)
        assert one.engine.starts == [STANDARD, SPECULATIVE, STANDARD, SPECULATIVE]
        node = one.engine.node
    assert node is not None
    assert one.engine.node is None  # by the rig: the agent itself left it alone


async def test_where_the_engine_does_not_say_what_it_is_the_hook_that_switched_it_is_believed() -> None:
    async def models(_request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m", "owned_by": "llamacpp"}]})

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(text="llamacpp:requests_processing 0\n")

    async def completions(_request: web.Request) -> web.Response:
        return web.json_response({"choices": []})

    async with serving({"/v1/models": models, "/metrics": metrics, "/v1/completions": completions}) as url:
        engine = EmulatedInHand(owned=False)
        engine.port = int(url.rpartition(":")[2])
        async with rig(engine) as one:
            before = one.state
            assert before.role is None

            async def switched(role: Pool, timeout_s: float) -> None:
                engine.starts.append(role)

            engine.start = switched  # type: ignore[method-assign]  # its pages are recorded ones
            assert one.agent.speculation(active=True)
            await one.switched()
            assert (one.state.switches[0].why, one.state.role) == (None, SPECULATIVE)
            assert not one.agent.speculation(active=True)
            assert engine.starts == [SPECULATIVE]


async def test_a_hook_that_switches_nothing_is_found_out_at_the_deadline() -> None:
    engine = EmulatedInHand(owned=False)
    engine.lying.add(SPECULATIVE)
    await engine.start(STANDARD, 1.0)
    async with rig(engine, start_timeout_s=0.3) as one:
        one.agent.speculation(active=True)
        await one.switched()
        why = "the engine did not serve as speculative after 0.3 s: it serves, and does not speculate as it should"
        assert one.state.switches[0].why is not None
        assert one.state.switches[0].why.startswith(why)
        await one.until(lambda: one.state.role is STANDARD)


@pytest.mark.parametrize(
    ("fault", "error", "sentence"),
    [("broken", EngineStartFailed, "can not be run"), ("lying", ProbeFailed, "a speculator is not active")],
)
async def test_an_engine_that_does_not_start_the_first_time_ends_the_agent(
    fault: str, error: type[Exception], sentence: str
) -> None:
    engine = EmulatedInHand()
    getattr(engine, fault).add(SPECULATIVE)
    async with rig(engine, wait=False) as one:
        assert one.running is not None
        with pytest.raises(error, match=sentence):
            await one.running
        assert engine.node is None


async def test_an_engine_that_never_serves_is_given_up_at_the_deadline() -> None:
    class Silent(EmulatedInHand):
        async def start(self, role: Pool, timeout_s: float) -> None:
            self.starts.append(role)

    async with rig(Silent(), wait=False, start_timeout_s=0.05) as one:
        assert one.running is not None
        with pytest.raises(
            EngineStartFailed, match=r"did not serve as speculative after 0\.05 s: .* can not be reached"
        ):
            await one.running


async def test_told_to_end_it_lets_requests_end_before_its_engine_does() -> None:
    async with rig() as one:
        assert one.engine.node is not None
        running = asyncio.create_task(ask(one.engine.node, max_tokens=600))
        await one.until(lambda: one.state.running == 1)
        one.told.set()
        assert (await running).json["usage"]["completion_tokens"] == 600
        assert one.running is not None
        await one.running
        assert not one.engine.serves
        assert one.phases()[-2:] == ["draining", "stopping"]


def test_whoever_commands_is_alone_until_some_time_after_the_last_command() -> None:
    hold = Hold()
    hold.take("a", 0.0)
    hold.take(None, 1.0)  # a person
    assert hold.holder(1.0) == "a"
    with pytest.raises(CommandRefused, match="a commands this node, and alone for another 59 s") as refused:
        hold.take("b", 1.0)
    assert refused.value.code == "held"
    hold.take("a", 50.0)
    with pytest.raises(CommandRefused):
        hold.take("b", HOLD_S)
    assert hold.holder(50.0 + HOLD_S) is None
    hold.take("b", 50.0 + HOLD_S)


async def test_a_second_gateway_is_told_who_commands_the_node() -> None:
    async with rig() as one:
        assert one.agent.speculation(active=False, by="gateway-a")
        with pytest.raises(CommandRefused, match="gateway-a commands this node"):  # not just that it changes
            one.agent.speculation(active=False, by="gateway-b")
        with pytest.raises(CommandRefused, match="already becoming standard"):
            one.agent.speculation(active=False, by="gateway-a")
        await one.switched()
        one.agent.speculation(active=True)
        await one.switched()
        one.agent.drain("gateway-a")
        assert one.state.holder == "gateway-a"
        for command in (one.agent.drain, one.agent.resume):
            with pytest.raises(CommandRefused, match="gateway-a commands this node"):
                command("gateway-b")
        with pytest.raises(CommandRefused, match="gateway-a commands this node"):
            one.agent.speculation(active=False, by="gateway-b")
        assert one.state.draining
        assert one.state.transition is None


async def test_without_a_word_on_what_runs_a_node_can_not_be_drained_and_says_so() -> None:
    pages = {
        "/v1/models": b'{"data": [{"id": "m", "owned_by": "llamacpp"}]}',
        "/metrics": b"llamacpp:tokens_predicted_total 1\n",
    }
    async with recorded_engine(pages) as silent:
        engine = EmulatedInHand(owned=False)
        engine.port = silent.port
        async with rig(engine, drain_timeout_s=0.05) as one:
            assert (one.state.role, one.state.running) == (None, None)
            one.agent.speculation(active=False)
            await one.switched()
            assert one.state.switches[0].why == (
                "after 0.05 s the engine does not say how many requests run: it goes on as it was"
            )


async def test_where_what_it_was_is_not_known_there_is_no_way_back() -> None:
    pages = {
        "/v1/models": b'{"data": [{"id": "m", "owned_by": "llamacpp"}]}',
        "/metrics": b"llamacpp:requests_processing 0\n",
    }
    async with recorded_engine(pages) as idle:
        engine = EmulatedInHand(owned=False)
        engine.port = idle.port
        engine.broken.add(STANDARD)
        async with rig(engine) as one:
            one.agent.speculation(active=False)
            await one.switched()
            why = one.state.switches[0].why
            assert why is not None
            assert why.endswith("; and it could not be started as it was again: what it was is not known")


async def test_an_engine_without_a_model_is_not_warm() -> None:
    engine = EmulatedInHand(owned=False)
    pages = {
        "/slots": b'[{"speculative": false, "is_processing": false}]',
        "/metrics": b"llamacpp:requests_processing 0\n",
    }
    async with recorded_engine(pages) as nameless:
        engine.port = nameless.port

        async def start(role: Pool, timeout_s: float) -> None:
            engine.starts.append(role)
            speculates = b"true" if role is SPECULATIVE else b"false"
            nameless.pages["/slots"] = b'[{"speculative": %b, "is_processing": false}]' % speculates

        engine.start = start  # type: ignore[method-assign]  # its pages are recorded ones
        async with rig(engine) as one:
            one.agent.speculation(active=True)
            await one.switched()
            why = one.state.switches[0].why
            assert why is not None
            assert why.startswith("the engine does not say which model it serves")

"""The log of a run: every request's story, in the order of time."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from simulated_fleets import BULK, INTERACTIVE, THRESHOLD, group, plan, scenario, speculative
from slipstream.sim.events import EventLog
from slipstream.sim.scenario import GatewaySettings, Scenario
from slipstream.sim.simulate import simulate


def lines_of(chosen: Scenario) -> list[bytes]:
    lines: list[bytes] = []
    simulate(chosen, THRESHOLD, 1, events=lines.append)
    return lines


def stories(chosen: Scenario) -> dict[int, list[str]]:
    told: dict[int, list[str]] = defaultdict(list)
    for line in lines_of(chosen):
        event = json.loads(line)
        if "request" in event:
            told[event["request"]].append(event["event"])
    return told


def events(chosen: Scenario, name: str) -> list[dict[str, Any]]:
    return [event for line in lines_of(chosen) if (event := json.loads(line))["event"] == name]


def test_a_request_s_events_have_one_order_of_keys_and_times_to_the_microsecond() -> None:
    lines = lines_of(scenario([group('"a"')], plan([1.0], output_tokens=3)))
    request = '"category":"code","class":"interactive","prompt_tokens":10,"output_tokens":3'
    node = r'"node":"\"a\"-0"'
    assert [line.decode() for line in lines] == [
        f'{{"at_s":1.000000,"event":"arrive","request":0,{request}}}\n',
        f'{{"at_s":1.000000,"event":"place","request":0,{node},"reason":"no_speculator","attempt":1,"occupancy":1}}\n',
        f'{{"at_s":1.010500,"event":"first_token","request":0,{node}}}\n',
        f'{{"at_s":1.030500,"event":"finish","request":0,{node},"output_tokens":3,"drafted":0,"accepted":0}}\n',
    ]


def test_every_way_to_end_is_told() -> None:
    impatient = GatewaySettings(queue_size=2, queue_timeout_s=0.3)
    traffic = plan([0.0, 0.0, 0.0, 0.0], output_tokens=[20, 100, 1, 1])
    told = stories(scenario([group("std", slots=1)], traffic, gateway=impatient))
    assert told[0] == ["arrive", "place", "first_token", "finish"]
    assert told[1] == ["arrive", "queue", "place", "first_token", "finish"]
    assert told[2] == ["arrive", "queue", "expire"]
    assert told[3] == ["arrive", "refuse"]


def test_a_node_that_refuses_is_told_and_what_becomes_of_its_request() -> None:
    traffic = plan([0.0, 0.0, 0.1, 0.1, 0.2], prompt_tokens=60, output_tokens=50)
    told = stories(scenario([group("a", 2, kv_tokens=112, queue_limit=0)], traffic))
    *_, taken, refused = sorted(told.values(), key=len)
    assert taken == ["arrive", "place", "first_token", "finish"]
    assert refused == ["arrive", "place", "full", "place", "full", "queue", "place", "first_token", "finish"]


def test_preemptions_are_told() -> None:
    chosen = scenario([group("std", kv_tokens=128)], plan([0.0, 0.0], prompt_tokens=40, output_tokens=40))
    assert [event["request"] for event in events(chosen, "preempt")] == [1]


def test_saturation_is_told_when_it_begins_and_when_it_ends() -> None:
    chosen = scenario([speculative("spec", ceiling=2), group("std")], plan([0.0, 0.1], output_tokens=100))
    assert [(event["node"], event["saturated"], event["occupancy"]) for event in events(chosen, "saturated")] == [
        ("spec-0", True, 2),
        ("spec-0", False, 1),
    ]


def test_changes_of_capacity_are_told() -> None:
    changing = group("std", 2, capacity_changes=((0.5, 1), (1.0, 2)))
    told = events(scenario([changing], plan([2.0])), "capacity")
    assert [(event["at_s"], event["group"], event["nodes"]) for event in told] == [(0.5, "std", 1), (1.0, "std", 2)]


def test_who_waits_is_told_how_many_do() -> None:
    traffic = plan([0.0, 0.01, 0.02], traffic_class=[INTERACTIVE, BULK, INTERACTIVE], output_tokens=20)
    waiting = events(scenario([group("std", slots=1)], traffic), "queue")
    assert [(event["request"], event["waiting"]) for event in waiting] == [(1, 1), (2, 2)]


def test_the_reference_names_every_event_and_its_keys_in_their_order() -> None:
    page = Path(__file__).parents[2] / "docs/reference/simulate-events.md"
    rows = (
        re.findall(r"`(\w+)`", line.rpartition(" | ")[0]) for line in page.read_text().splitlines() if "| `" in line
    )
    listed = {event: ["at_s", "event", *keys] for event, *keys in rows}
    told: dict[str, list[str]] = {}
    log = EventLog(lambda line: told.update({(event := json.loads(line))["event"]: list(event)}))
    log.arrive(0.0, 0, "code", "interactive", 1, 1)
    log.place(0.0, 0, "n", "probe", 1, 1)
    log.queue(0.0, 0, 1)
    log.first_token(0.0, 0, "n")
    log.preempt(0.0, 0, "n")
    log.finish(0.0, 0, "n", 1, 0, 0)
    log.full(0.0, 0, "n")
    log.refuse(0.0, 0)
    log.expire(0.0, 0)
    log.saturated(0.0, "n", 1, saturated=True)
    log.capacity(0.0, "g", 1)
    log.role(0.0, "n", "standard", "joins")
    assert told == listed

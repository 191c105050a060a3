"""The loop that looks at calibrations."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fleets import MODEL, dispatcher_of, fleet_of, speculative, standard
from slipstream.control.calibrations import LOOK_EVERY_S, Calibrations
from slipstream.core.calibration import Calibration
from slipstream.core.node_state import NodeState

OLD = Calibration("p.json", "2026-11-30", "vllm", "1", MODEL, ("draft-k3",))


class Over(Exception):
    """The test has seen enough."""


async def test_every_node_is_looked_at_and_who_changed_is_told_once() -> None:
    specs = [speculative("s", ceiling=12), replace(speculative("old", ceiling=12), calibration=OLD), standard("t")]
    fleet = fleet_of(*specs)
    told: list[str] = []
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if slept.count(LOOK_EVERY_S) == 2:
            raise Over
        await asyncio.sleep(0)

    def changed(node: NodeState) -> None:
        told.append(node.name)

    calibrations = Calibrations(
        dispatcher_of(fleet), falls_back=lambda: True, changed=changed, clock=lambda: 1.0, sleep=sleep
    )
    with pytest.raises(Over):
        await calibrations.run()
    assert told == ["old"]
    assert slept == [0.0, 0.0, 0.0, LOOK_EVERY_S] * 2
    assert [node.ceiling for node in fleet.nodes()][:2] == [12, 8]

"""What `slipstream roles list` shows."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from slipstream.cli.roles import roles_report

CHANGE = {"node": "spec-0", "pool": "standard", "by": "operator", "age_s": 61.2, "took_s": 4.4, "ok": True, "why": None}
VERDICT = {"reason": "surge", "load": 1.25, "speculative": 2, "wanted": 1, "raised": True, "payoff": None}
PAYOFF = {"gain_tps": 12.0, "dwell_s": 1800.0, "lost_tps": 100.0, "transition_s": 8.0, "pays": True}


def shown(verdict: dict[str, Any] | None, *changes: dict[str, Any]) -> str:
    node = {"name": "spec-0", "pool": "speculative", "state": "ready", "occupancy": 3}
    page = StringIO()
    Console(file=page, width=200, force_terminal=True, no_color=True).print(
        roles_report({"nodes": [node], "verdict": verdict, "changes": list(changes)})
    )
    return page.getvalue()


def test_nodes_what_load_calls_for_and_the_last_changes_are_shown() -> None:
    page = shown(VERDICT | {"payoff": PAYOFF}, CHANGE | {"ok": None}, CHANGE, CHANGE | {"ok": False})
    assert "Load 125% of the fleet's room: 1 of its nodes should be speculative, 2 are (surge)." in page
    assert "A change would gain 12 tokens/s for 1800 s and lose 100 for 8 s. Ceilings are raised meanwhile." in page
    assert [line.split()[-1] for line in page.splitlines()[-3:]] == ["runs", "done", "role"]
    assert "Roles change by hand alone" in shown(None)


@pytest.mark.parametrize("why", ["[/bold] no GPU", "[error] no GPU", "\x1b[2J\x07no GPU"])
def test_an_engines_last_words_are_shown_as_they_are_and_do_nothing(why: str) -> None:
    page = shown(None, CHANGE | {"ok": False, "why": why})
    words = why.replace("\x1b", " ").replace("\x07", " ")
    assert page.rstrip().endswith(words)
    assert "\x1b[2J" not in page

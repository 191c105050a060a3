"""Recordings of traffic, written by hand or from a simulated run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from slipstream.core.outcome import Ending
from slipstream.core.reason import Reason
from slipstream.core.request import Pool, TrafficClass
from slipstream.sim.fate import REASONS, Fate
from slipstream.sim.run import Run
from slipstream.telemetry.recording import FORMAT, RecordedAttempt, RecordedRequest, RecordedShape
from slipstream.workload.plan import CLASSES, NO_LIMIT

NOON = 1_790_000_000.0
"""When the first gateway of a recording starts, in seconds since 1970."""


@dataclass(frozen=True)
class Line:
    """A request as it is recorded: by default one of code that was answered in 2 s by a speculative node."""

    arrival_s: float = 0.0
    duration_s: float = 2.0
    started: float = NOON
    shape: RecordedShape | None = field(default_factory=lambda: RecordedShape("m", "code"))
    pool: Pool | None = Pool.SPECULATIVE
    prompt_tokens: int | None = 40
    output_tokens: int | None = 21
    drafted: int | None = 40
    accepted: int | None = 20
    verify_steps: int | None = 10
    ttft_ms: float | None = 500.0
    ending: Ending = Ending.COMPLETED
    reason: Reason = Reason.SPECULATIVE

    def recorded(self) -> RecordedRequest:
        attempts = () if self.pool is None else (self._attempt(self.pool),)
        return RecordedRequest(
            FORMAT,
            "r",
            self.started + self.arrival_s,
            self.arrival_s,
            self.duration_s,
            None,
            "POST",
            "/v1/chat/completions",
            self.shape,
            attempts,
            200 if attempts else 429,
            None if attempts else "all_full",
        )

    def _attempt(self, pool: Pool) -> RecordedAttempt:
        whole = self.ending is Ending.COMPLETED
        known: dict[str, Any] = {
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "verify_steps": self.verify_steps,
            "ttft_ms": self.ttft_ms if whole else None,
            "e2e_ms": self.duration_s * 1000.0 if whole else None,
        }
        node = "spec-0" if pool is Pool.SPECULATIVE else "std-0"
        return RecordedAttempt(0.0, node, pool, self.reason, 1, 0.5, 0, 8, 256, self.ending, 200, **known)


def write(path: Path, lines: Iterable[Line], *, cut: bool = False) -> Path:
    """``cut``: the last line is not whole."""
    text = b"".join(msgspec.json.encode(line.recorded()) + b"\n" for line in lines)
    path.write_bytes(text[:-20] if cut else text)
    return path


def write_run(path: Path, run: Run) -> Path:
    """A simulated run, as a gateway would have recorded it."""
    plan = run.plan
    lines: list[Line] = []
    for row in range(len(plan)):
        finished = run.fate[row] == Fate.FINISHED
        node = run.nodes[run.node[row]] if run.node[row] >= 0 else None
        speculative = node is not None and node.pool is Pool.SPECULATIVE
        limit, ended = int(plan.output_limit[row]), float(run.ended_s[row])
        first = float(run.first_token_s[row])
        lines.append(
            Line(
                arrival_s=float(plan.arrival_s[row]),
                duration_s=(run.ended_at_s if np.isnan(ended) else ended) - float(plan.arrival_s[row]),
                shape=RecordedShape(
                    "m",
                    plan.categories[plan.category[row]],
                    TrafficClass(CLASSES[plan.traffic_class[row]]),
                    output_limit=None if limit == NO_LIMIT else limit,
                    streamed=True,
                ),
                pool=None if node is None else node.pool,
                prompt_tokens=int(plan.prompt_tokens[row]) if finished else None,
                output_tokens=int(plan.output_tokens[row]) if finished else None,
                drafted=int(run.drafted[row]) if speculative else None,
                accepted=int(run.accepted[row]) if speculative else None,
                verify_steps=int(run.verify_steps[row]) if speculative else None,
                ttft_ms=None if np.isnan(first) else (first - float(plan.arrival_s[row])) * 1000.0,
                ending=Ending.COMPLETED if finished else Ending.CLIENT_GONE,
                reason=REASONS[run.reason[row]] if run.reason[row] >= 0 else Reason.SPECULATIVE,
            )
        )
    return write(path, sorted(lines, key=lambda line: line.arrival_s + line.duration_s))

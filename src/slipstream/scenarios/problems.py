"""What is found impossible while a scenario is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

from slipstream.config.document import Report
from slipstream.core.errors import ConfigProblem
from slipstream.costmodel.errors import ImpossibleInput
from slipstream.enginemodel.settings import ImpossibleEngine
from slipstream.workload.errors import ImpossibleWorkload, TraceUnreadable

__all__ = ["Problems"]

_POSSIBLE: Mapping[str, str] = MappingProxyType(
    {"profiles": "a node that can be built", "nodes": "an engine that can run", "workload": "traffic that can arrive"}
)
"""What is allowed, by the section in which something was found impossible."""


@dataclass(slots=True)
class Problems:
    """What is found impossible while a scenario is built, each with its place."""

    report: Report
    found: list[ConfigProblem] = field(default_factory=list)

    @contextmanager
    def at(self, *place: str | int) -> Iterator[None]:
        """Notes what is raised inside as a problem of ``place``; what is left undone then counts for nothing."""
        try:
            yield
        except (ImpossibleInput, ImpossibleEngine, ImpossibleWorkload) as error:
            self.found.append(self.report(place, f"something that can not be ({error})", _POSSIBLE[str(place[0])]))
        except TraceUnreadable as error:
            what = "a file that is no trace" if error.line is None else "a line that is no request"
            self.found.append(
                ConfigProblem(str(error.file), error.line, "", f"{what} ({error.reason})", "a trace of a known format")
            )

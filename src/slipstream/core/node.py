"""A node of the fleet: what configuration says of it, and what its engine reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from slipstream.core.calibration import Calibration
from slipstream.core.request import Pool

__all__ = ["Instrument", "NodeReport", "NodeSpec", "SpeculativeCounters", "Speculator", "SpeculatorKind"]

DEFAULT_CEILING = 8
DEFAULT_MAX_IN_FLIGHT = 256


class SpeculatorKind(StrEnum):
    """What drafts: a model or trained heads propose at every step, n-gram lookup only when it finds a match."""

    DRAFT = "draft"
    NGRAM = "ngram"


class Instrument(StrEnum):
    """What a node's answers are asked to say of themselves, beyond what clients ask for."""

    OFF = "off"
    """Nothing: no byte is changed."""
    USAGE = "usage"
    """Token counts, of streams."""
    ENGINE = "engine"
    """Token counts, and the engine's own statistics of speculation."""


@dataclass(frozen=True, slots=True)
class Speculator:
    """A node's active speculator.

    ``k`` is the number of tokens it drafts per verify step, ``None`` when it varies. ``drafter`` is its method and
    model in the engine's words, ``None`` where the engine does not say.
    """

    kind: SpeculatorKind
    k: int | None = None
    drafter: str | None = None
    fingerprint: str = field(init=False, compare=False)
    """What acceptance is kept by: the figures of two speculators are never mixed."""

    def __post_init__(self) -> None:
        length = "" if self.k is None else f"-k{self.k}"
        drafter = "" if self.drafter is None else f":{self.drafter}"
        object.__setattr__(self, "fingerprint", f"{self.kind.value}{length}{drafter}")


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node as configured.

    ``url`` is scheme, host and port. ``engine`` is ``vllm``, ``llamacpp``, …; ``None`` = found out by asking.
    ``models`` are the names it serves; empty = found out by asking. ``ceiling`` counts sequences. ``max_in_flight``
    counts sequences; ``None`` = what the engine reports, else 256. ``speculator_kind`` is for engines that do not
    report it; ``None`` = what the engine reports, else draft. ``instrument`` is what its answers are asked to say.
    ``api_key`` is the node's own key, sent as a bearer token. ``authorities`` is a file of those that the certificate
    of an https node is checked by; ``None`` = the system's. ``calibration`` is what its profile was measured on,
    ``None`` = it has none. ``hardware`` and ``replicas`` (engines behind its address) are for what no engine tells;
    ``None`` = not said. ``agent`` is the address of the agent beside its engine (`slipstream node`), ``None`` = it
    has none; ``agent_token`` what that agent wants of whoever asks it.
    """

    name: str
    url: str
    pool: Pool
    engine: str | None = None
    models: tuple[str, ...] = ()
    ceiling: int = DEFAULT_CEILING
    max_in_flight: int | None = None
    speculator_kind: SpeculatorKind | None = None
    instrument: Instrument = Instrument.OFF
    api_key: str | None = field(default=None, repr=False)
    authorities: str | None = None
    calibration: Calibration | None = None
    hardware: str | None = None
    replicas: int | None = None
    agent: str | None = None
    agent_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class SpeculativeCounters:
    """An engine's cumulative counts since its start. ``None`` = the engine does not export that count.

    ``accepted`` excludes the bonus token. ``accepted_per_position[i]`` counts verify steps in which position ``i`` was
    accepted; empty when not exported. ``generated_tokens`` counts all output tokens.
    """

    drafted: int | None = None
    accepted: int | None = None
    verify_steps: int | None = None
    accepted_per_position: tuple[int, ...] = ()
    generated_tokens: int | None = None


@dataclass(slots=True, init=False)
class NodeReport:
    """What an engine said of itself in one poll. ``None`` = it did not say; it never stands for 0 or for no.

    ``running`` and ``waiting`` count sequences. ``kv_use`` is the share of KV cache in use, 0..1. ``capacity`` is the
    number of sequences the engine runs at once. ``speculating`` says whether a speculator is configured and loaded;
    ``k`` is its configured draft length, ``speculator_kind`` what it is, ``drafter`` the name of its method and model.
    ``models`` the names it serves. ``engine`` and ``version`` identify the software.
    ``role`` is the pool that it belongs to now, ``draining`` whether it wants no new requests: the agent beside an
    engine says so. ``replicas`` is how many engines or ranks work in parallel behind the node's address.

    It has an ``__init__`` of its own, since every poll makes one or more (docs/decisions/0005). Nobody changes it.
    """

    running: int | None = None
    waiting: int | None = None
    kv_use: float | None = None
    capacity: int | None = None
    speculating: bool | None = None
    k: int | None = None
    speculator_kind: SpeculatorKind | None = None
    counters: SpeculativeCounters | None = None
    models: tuple[str, ...] | None = None
    engine: str | None = None
    version: str | None = None
    drafter: str | None = None
    role: Pool | None = None
    draining: bool | None = None
    replicas: int | None = None

    def __init__(
        self,
        running: int | None = None,
        waiting: int | None = None,
        kv_use: float | None = None,
        capacity: int | None = None,
        speculating: bool | None = None,  # noqa: FBT001 - a row of data
        k: int | None = None,
        speculator_kind: SpeculatorKind | None = None,
        counters: SpeculativeCounters | None = None,
        models: tuple[str, ...] | None = None,
        engine: str | None = None,
        version: str | None = None,
        drafter: str | None = None,
        role: Pool | None = None,
        draining: bool | None = None,  # noqa: FBT001 - a row of data
        replicas: int | None = None,
    ) -> None:
        self.running = running
        self.waiting = waiting
        self.kv_use = kv_use
        self.capacity = capacity
        self.speculating = speculating
        self.k = k
        self.speculator_kind = speculator_kind
        self.counters = counters
        self.models = models
        self.engine = engine
        self.version = version
        self.drafter = drafter
        self.role = role
        self.draining = draining
        self.replicas = replicas

    @property
    def sequences(self) -> int | None:
        """Sequences the engine works on, waiting ones included; ``None`` when it reported neither count."""
        if self.running is None:
            return None
        return self.running + (self.waiting or 0)

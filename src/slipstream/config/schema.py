"""A fleet's configuration and its sections. Descriptions are the reference: docs and JSON schema are made from them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, model_validator

from slipstream.config.endpoints import Admin, Gateway
from slipstream.config.roles import RolesSection
from slipstream.config.section import Count, EngineName, NodeName, OutputFile, PoolName, Seconds, Secret, Section, Share
from slipstream.config.targets import FleetTargets
from slipstream.config.values import collector_url, node_url
from slipstream.core.acceptance.prior import DEFAULT_ALPHAS
from slipstream.core.category import CategoryRule
from slipstream.core.node import DEFAULT_CEILING

__all__ = [
    "DEFAULT_CATEGORIES",
    "Category",
    "CategoryRuleSection",
    "Control",
    "Discovery",
    "FleetConfig",
    "Log",
    "Node",
    "Polling",
    "Pools",
    "Record",
    "Routing",
    "RoutingRules",
    "SpeculativePool",
    "StandardPool",
    "Tracing",
]


def _pattern(text: str) -> str:
    try:
        CategoryRule("any", pattern=text)
    except ValueError as error:
        raise ValueError(f"a regular expression in Python's syntax ({error})") from None
    return text


def _word(text: str) -> str:
    try:
        CategoryRule("any", words=(text,))
    except ValueError:
        raise ValueError("one word in lower case, without punctuation; phrases go under pattern") from None
    return text


Word = Annotated[str, AfterValidator(_word)]
CategoryName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]


class Polling(Section):
    """How often the engines are asked how they are, and for how long an answer holds."""

    poll_interval_s: Annotated[float, Field(ge=0.01, le=60)] = Field(
        default=0.1,
        description="Seconds between two polls of a node; stretched where a poll costs the engine too much.",
    )
    stale_after_s: Seconds = Field(
        default=1.0, description="Age in seconds of a node's last report from which it is not eligible for speculation."
    )


class Control(Polling):
    """The loop that asks the engines how they are."""

    poll_timeout_s: Annotated[float, Field(gt=0, le=60)] = Field(
        default=1.0, description="Seconds after which a poll counts as failed."
    )


class SpeculativePool(Section):
    """Nodes with a speculator, and when a request may use one."""

    ceiling: Count = Field(
        default=DEFAULT_CEILING, description="Sequences on a node from which it takes no new request."
    )
    alpha_floor: Share = Field(
        default=0.6, description="Per-token acceptance a category must exceed, for draft models and trained heads."
    )
    tokens_per_step_floor: Annotated[float, Field(ge=1)] = Field(
        default=1.3, description="Tokens per step a category must exceed, for n-gram speculators."
    )
    short_output_tokens: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=64, description="A request limited to fewer output tokens is short and goes to the standard pool."
    )
    hysteresis: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=0, description="A saturated node stays saturated until its occupancy is below the ceiling minus this."
    )


class StandardPool(Section):
    """Nodes without a speculator. The pool has no keys of its own."""


class Pools(Section):
    """The two kinds of node."""

    speculative: SpeculativePool = Field(
        default=SpeculativePool(), description="When a request may use a speculative node."
    )
    standard: StandardPool = Field(default=StandardPool(), description="The standard pool; it has no keys.")


class RoutingRules(Section):
    """How decisions are made and kept honest, whatever the requests say."""

    mode: Literal["steer", "observe"] = Field(
        default="steer",
        description="Whether decisions steer requests, or are only recorded (`observe`) while each request goes to the "
        "node with the least of its limit in use, unless an override says otherwise.",
    )
    holdback: Share = Field(
        default=0.0,
        description="Share of eligible requests sent to the standard pool at random, to measure whether speculation "
        "helps; 0.05 is a good value.",
    )
    probe_share: Share = Field(
        default=0.02,
        description="Share of a below-floor category's requests that still speculate, so that it stays measured.",
    )
    probe_interval_s: Seconds = Field(
        default=300.0, description="Seconds after which a below-floor category is probed even when it is rare."
    )
    fallback: bool = Field(
        default=True,
        description="Whether any usable node may take a request when its own pool has none that can; under policy "
        "`predictive` also one that no node can answer in time any more, which else is refused.",
    )
    evidence_half_life_s: Seconds = Field(
        default=600.0, description="Seconds after which measured acceptance counts half."
    )


class Routing(RoutingRules):
    """How decisions are made and kept honest."""

    policy: Literal["threshold", "predictive", "round-robin"] = Field(
        default="threshold",
        description="Who decides: conditions on the request and its node (`threshold`), what the nodes' profiles "
        "foretell for the targets (`predictive`; a node without a valid one is judged by `threshold`), or whoever is "
        "next, as a load balancer that knows nothing (`round-robin`, to compare with).",
    )
    targets: FleetTargets = Field(
        default=FleetTargets(), description="Latencies that count as good, by class, for policy `predictive`."
    )
    affinity: bool = Field(
        default=True,
        description="Whether, within its pool, a request goes to the node that has its conversation or the beginning "
        "of its prompt in the cache.",
    )
    affinity_slack: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=2,
        description="Sequences by which that node may be fuller than the least loaded one; a quarter more than that "
        "one is always allowed.",
    )
    pins: dict[str, PoolName] = Field(
        default_factory=dict, description="Categories whose requests always go to one pool, as category: pool."
    )


class Category(Section):
    """A class of prompts with similar acceptance."""

    prior_alpha: Share = Field(
        default=0.6,
        description="Per-token acceptance assumed until ten requests have been measured; it weighs ten requests.",
    )


DEFAULT_CATEGORIES = {name: Category(prior_alpha=alpha) for name, alpha in DEFAULT_ALPHAS.items()} | {
    "translation": Category()
}


class CategoryRuleSection(Section):
    """A sign by which a request's category is known. All conditions given must hold."""

    category: str = Field(description="Category that a matching request gets.")
    path: str | None = Field(default=None, description="Request path, `*` standing for any run of characters.")
    model: str | None = Field(default=None, description="Model name, `*` standing for any run of characters.")
    has_tools: bool | None = Field(default=None, description="Whether the request offers tools.")
    response_format: str | None = Field(
        default=None, description="Output the client fixed: `json_object`, `json_schema` or `grammar`, or with `*`."
    )
    min_characters: Count | None = Field(default=None, description="Least length of the last user message.")
    words: Annotated[tuple[Word, ...], Field(strict=False)] = Field(
        default=(), description="Words of which at least one must be in the text; cheaper than a pattern."
    )
    min_numbers: Count | None = Field(default=None, description="Least count of numbers in the last user message.")
    pattern: Annotated[str, AfterValidator(_pattern)] | None = Field(
        default=None, description="Regular expression found in the text, upper and lower case alike."
    )
    where: Literal["edges", "opening", "user", "system"] = Field(
        default="edges",
        description="The text that the pattern looks in: the beginning and end of the last user message (edges), its "
        "beginning alone (opening), the first and last 2 KB of it (user), or of the system prompt (system).",
    )

    @model_validator(mode="after")
    def _has_a_sign(self) -> CategoryRuleSection:
        if not self.model_fields_set - {"category", "where"}:
            raise ValueError("at least one condition; what no rule matches gets default_category")
        return self


class Node(Section):
    """One engine endpoint."""

    name: NodeName = Field(description="Unique name: letters, digits, dot, dash and underscore.")
    url: Annotated[str, AfterValidator(node_url)] = Field(description="Scheme, host and port of the engine.")
    pool: PoolName = Field(description="The pool it belongs to.")
    engine: EngineName | None = Field(default=None, description="The engine's kind; left out = found out by asking.")
    resolve: Literal["all"] | None = Field(
        default=None,
        description="`all`: as many nodes as the url's host name has addresses, each called by this name, a dash and "
        "its address; left out = one node.",
    )
    models: tuple[str, ...] = Field(
        default=(), strict=False, description="Model names it serves; left out = found out by asking."
    )
    ceiling: Count | None = Field(
        default=None, description="Its own ceiling in sequences; left out = that of the speculative pool."
    )
    max_in_flight: Count | None = Field(
        default=None, description="Most sequences at once; left out = what the engine reports, else 256."
    )
    speculator: Literal["draft", "ngram"] | None = Field(
        default=None,
        description="What drafts: a draft model or trained heads (draft), or n-gram lookup (ngram); left out = what "
        "the engine reports, else draft.",
    )
    instrument: Literal["off", "usage", "engine"] = Field(
        default="off",
        description="What its answers are asked to say beyond what the client asks for, and what is taken out again on "
        "the way back: token counts of streams (usage), or the engine's statistics of speculation too (engine).",
    )
    ca: str | None = Field(
        default=None,
        description="PEM file of the authorities that the certificate of an https node is checked by, relative to the "
        "configuration file; left out = the system's.",
    )
    api_key: Secret | None = Field(
        default=None, description="The node's own key, sent as a bearer token; by reference only."
    )
    agent: Annotated[str, AfterValidator(node_url)] | None = Field(
        default=None,
        description="Address of the agent beside its engine (`slipstream node`), which is then heard in place of "
        "polling the engine; left out = it has none.",
    )
    agent_token: Secret | None = Field(
        default=None, description="What that agent wants of whoever asks it; by reference only."
    )
    profile: str | None = Field(
        default=None,
        description="Profile that `slipstream calibrate` measured on such a node, relative to the configuration file; "
        "left out = that of the fleet, if it has one.",
    )
    hardware: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="What it runs on, in the words of its profile's `hardware`: no engine tells. When they differ, the "
        "calibration is stale; left out = not said.",
    )
    replicas: Count | None = Field(
        default=None,
        description="Engines or data-parallel ranks behind its url, to be held against its profile's; left out = what "
        "the engine reports.",
    )


class CalibrationRules(Section):
    """What a calibration that no longer holds changes."""

    stale_ceiling: Literal["keep", "default"] = Field(
        default="keep",
        description="The ceiling of a speculative node whose profile no longer holds: as it is (keep), or 8 (default) "
        "in place of a configured one and of one that `slipstream calibrate --apply` set, until it is calibrated "
        "again. A ceiling that an operator set at run time stays.",
    )


class Discovery(Section):
    """Nodes that this file does not name one by one."""

    file: str | None = Field(
        default=None,
        description="File with `nodes` of its own, relative to this one; it may have none. A change of it is a change "
        "of the configuration.",
    )
    resolve_interval_s: Annotated[float, Field(ge=0.1, le=86_400)] = Field(
        default=5.0, description="Seconds between two look-ups of the host names of nodes with `resolve: all`."
    )


class Log(Section):
    """Structured logs, on standard error, and the access log. They never hold prompts, answers or keys."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level that is written."
    )
    format: Literal["console", "json"] = Field(
        default="console", description="Lines for people, or one JSON object a line."
    )
    access: OutputFile | None = Field(
        default=None,
        description="Access log: a file, relative to the configuration, with a JSON object a request; `-` = standard "
        "output; left out = none.",
    )


class Record(Section):
    """Requests, decisions and outcomes, written down for replay."""

    file: OutputFile = Field(description="File, relative to the configuration, that gets a JSON object a request.")
    max_bytes: Annotated[int, Field(ge=1024 * 1024, le=2**40)] = Field(
        default=1024**3, description="Size from which the file is moved to FILE.1, and that to FILE.2."
    )
    keep: Annotated[int, Field(ge=1, le=1000)] = Field(default=3, description="How many such older files are kept.")


class Tracing(Section):
    """Spans of requests, for OpenTelemetry. Needs the extra `slipstream[otel]`."""

    endpoint: Annotated[str, AfterValidator(collector_url)] = Field(
        description="Address of the collector, which takes OTLP over HTTP at /v1/traces."
    )
    sample: Share = Field(
        default=0.01,
        description="Share of requests traced, of those without a traceparent; with one, it says whether.",
    )


def _with_defaults(given: dict[str, Category]) -> dict[str, Category]:
    return DEFAULT_CATEGORIES | given


class FleetConfig(Section):
    """A fleet of inference engines, the gateway before them, and the rules by which requests are placed."""

    model_config = ConfigDict(title="Slipstream fleet")

    gateway: Gateway = Field(default=Gateway(), description="The data plane.")
    admin: Admin = Field(default=Admin(), description="Metrics, fleet, decisions and advice.")
    control: Control = Field(default=Control(), description="The loop that asks the engines how they are.")
    pools: Pools = Field(default=Pools(), description="The two kinds of node.")
    routing: Routing = Field(default=Routing(), description="How decisions are made and kept honest.")
    categories: Annotated[dict[CategoryName, Category], AfterValidator(_with_defaults)] = Field(
        default=DEFAULT_CATEGORIES,
        description="Categories by name, added to the default ones or replacing their prior.",
    )
    default_category: str = Field(default="chat", description="Category of a request that no rule matches.")
    category_rules: tuple[CategoryRuleSection, ...] = Field(
        default=(),
        strict=False,
        description="Own rules, tried in order before the built-in ones; the first that matches wins.",
    )
    trust_category_header: bool = Field(
        default=False, description="Whether a client may name the category itself, in x-slipstream-category."
    )
    trust_class_header: bool = Field(
        default=False, description="Whether a client may name the traffic class itself, in x-slipstream-class."
    )
    discovery: Discovery = Field(default=Discovery(), description="Nodes that this file does not name one by one.")
    nodes: tuple[Node, ...] = Field(
        default=(), strict=False, description="The engine endpoints, at least one unless `discovery.file` names them."
    )
    profile: str | None = Field(
        default=None,
        description="Profile that `slipstream calibrate` measured on nodes like these, relative to this file: when "
        "what runs is no longer what was measured, the advice says so; left out = none.",
    )
    calibration: CalibrationRules = Field(
        default=CalibrationRules(), description="What a calibration that no longer holds changes."
    )
    roles: RolesSection | None = Field(
        default=None,
        description="When nodes with an agent change their roles by themselves; left out = when operators say so.",
    )
    log: Log = Field(default=Log(), description="Structured logs.")
    record: Record | None = Field(
        default=None, description="Requests, decisions and outcomes, written down for replay; left out = nothing is."
    )
    tracing: Tracing | None = Field(default=None, description="Spans for OpenTelemetry; left out = none.")

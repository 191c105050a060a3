"""The sections of a fleet's configuration. Descriptions are the reference: docs and JSON schema are made from them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from slipstream.config.values import (
    Address,
    collector_url,
    node_url,
    parse_address,
    secret_from_environment,
    secret_from_file,
)
from slipstream.core.acceptance.prior import DEFAULT_ALPHAS
from slipstream.core.category import CategoryRule
from slipstream.core.keys import digest_of
from slipstream.core.node import DEFAULT_CEILING
from slipstream.core.request import Pool, TrafficClass

__all__ = [
    "Admin",
    "ApiKey",
    "Category",
    "CategoryRuleSection",
    "Control",
    "Discovery",
    "FleetConfig",
    "Gateway",
    "Log",
    "Node",
    "Pools",
    "Queue",
    "Record",
    "Routing",
    "Secret",
    "Section",
    "SpeculativePool",
    "StandardPool",
    "Timeouts",
    "Tls",
    "Tracing",
]


def _listen(text: str) -> str:
    parse_address(text)
    return text


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


def _output_file(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("the name of a file, or - for standard output")
    return text


Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(gt=0, le=1e9)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
PoolName = Annotated[Pool, Field(strict=False)]
ClassName = Annotated[TrafficClass, Field(strict=False)]
Listen = Annotated[str, AfterValidator(_listen)]
NodeName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
OutputFile = Annotated[str, AfterValidator(_output_file)]
Word = Annotated[str, AfterValidator(_word)]
CategoryName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]


class Section(BaseModel):
    """Every section is frozen and refuses unknown keys; a section whose keys are all left out may be left empty."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _empty(cls, data: object) -> object:
        return {} if data is None else data


class Timeouts(Section):
    """How long the gateway waits, by what it waits for."""

    connect_s: Seconds = Field(default=2.0, description="Seconds for a connection to a node.")
    first_byte_streamed_s: Seconds = Field(default=120.0, description="Seconds until a streamed answer begins.")
    first_byte_unstreamed_s: Seconds = Field(
        default=600.0, description="Seconds until an answer that is not streamed begins."
    )
    idle_s: Seconds = Field(
        default=60.0, description="Seconds between two chunks of an answer, or between two pieces of a request's body."
    )
    write_s: Seconds = Field(default=30.0, description="Seconds that a node or a client may take none of our bytes.")
    client_head_s: Seconds = Field(
        default=10.0, description="Seconds from the first byte of a request to the end of its headers."
    )
    client_keep_alive_s: Seconds = Field(
        default=75.0, description="Seconds that a client's connection is kept without a request."
    )


class Secret(Section):
    """A secret by reference. It is never written in the configuration itself."""

    env: str | None = Field(default=None, description="Environment variable that holds the key.")
    file: str | None = Field(default=None, description="File that holds the key, relative to the configuration file.")

    @model_validator(mode="before")
    @classmethod
    def _by_reference(cls, data: object) -> object:
        if not isinstance(data, dict | Secret | None):
            raise ValueError("{env: NAME} or {file: PATH}: the key itself does not belong here")
        return data

    @model_validator(mode="after")
    def _one_source(self) -> Secret:
        if (self.env is None) == (self.file is None):
            raise ValueError("either {env: NAME} or {file: PATH}")
        return self

    def reveal(self) -> str:
        """The secret. Raises ``ValueError`` saying what is allowed when it is not there."""
        return secret_from_environment(self.env) if self.env is not None else secret_from_file(self.file or "")


class ApiKey(Section):
    """One key of a client, and what its holder may do. What is left out is as for requests without keys."""

    id: NodeName = Field(description="Unique public name, as logs, metrics and decisions have it.")
    hash: Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")] | None = Field(
        default=None, description="Hash of the key, as `slipstream keys new` and `slipstream keys hash` print it."
    )
    env: str | None = Field(default=None, description="In place of a hash: environment variable that holds the key.")
    file: str | None = Field(
        default=None, description="In place of a hash: file that holds the key, relative to the configuration file."
    )
    traffic_class: ClassName | None = Field(
        default=None, description="Class of all its requests; left out = as each request says."
    )
    pool: PoolName | None = Field(
        default=None, description="Pool that all its requests go to; left out = routing is free."
    )
    trust_category_header: bool | None = Field(
        default=None, description="Whether its holder may name the category in x-slipstream-category."
    )
    trust_class_header: bool | None = Field(
        default=None, description="Whether its holder may name the class in x-slipstream-class."
    )
    max_in_flight: Count | None = Field(default=None, description="Most sequences at once; more get 429.")
    requests_per_minute: Count | None = Field(
        default=None, description="Most requests, refilled evenly; a minute's worth may come at once. More get 429."
    )

    @model_validator(mode="before")
    @classmethod
    def _not_the_key_itself(cls, data: object) -> object:
        if not isinstance(data, dict | ApiKey):
            raise ValueError("{id: NAME, hash: sha256:…}: the key itself does not belong here")
        return data

    @model_validator(mode="after")
    def _one_source(self) -> ApiKey:
        if [self.hash, self.env, self.file].count(None) != 2:
            raise ValueError("one of hash, env and file")
        return self

    def reveal(self) -> str | None:
        """The key, ``None`` when only its hash is known. Raises ``ValueError`` as ``Secret`` does."""
        return None if self.hash is not None else Secret(env=self.env, file=self.file).reveal()

    def digest(self) -> bytes:
        """SHA-256 of the key, 32 bytes. Raises ``ValueError`` as ``reveal`` does."""
        key = self.reveal()
        return bytes.fromhex((self.hash or "").removeprefix("sha256:")) if key is None else digest_of(key.encode())


class Tls(Section):
    """Certificate of a listener. Changed files are read again; connections that are open keep what they have."""

    certificate: str = Field(
        description="PEM file of the certificate and those that lead to it, relative to the configuration file."
    )
    key: str = Field(
        description="PEM file of the certificate's key, without a passphrase, relative to the configuration file."
    )


class Queue(Section):
    """Requests that wait while every node is full. Interactive ones go first; bulk ones fill at most half of it."""

    size: Annotated[int, Field(ge=0, le=10_000)] = Field(
        default=256, description="Requests that wait at most; further ones get 429 at once. 0 lets none wait."
    )
    timeout_s: Seconds = Field(default=10.0, description="Seconds after which a waiting request gets 429.")


class Gateway(Section):
    """The data plane."""

    listen: Listen = Field(default="127.0.0.1:8080", description="Address that clients connect to.")
    max_body_bytes: Annotated[int, Field(ge=1, le=2**40)] = Field(
        default=32 * 1024 * 1024, description="Largest request body; longer ones get 413."
    )
    max_header_bytes: Annotated[int, Field(ge=1024, le=2**30)] = Field(
        default=32 * 1024, description="Most bytes of request line and headers together; more get 431."
    )
    max_connections: Count | None = Field(
        default=None,
        description="Most clients at once, and so most requests; more get 503. Left out = half of the file "
        "descriptors that the system allows, less 64.",
    )
    tls: Tls | None = Field(default=None, description="Certificate to serve https with; left out = http.")
    retries: Annotated[int, Field(ge=0, le=10)] = Field(
        default=2, description="Other nodes tried when one fails before the first byte of its answer."
    )
    timeouts: Timeouts = Field(default=Timeouts(), description="How long the gateway waits.")
    queue: Queue = Field(default=Queue(), description="Requests that wait while every node is full.")
    grace_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=30.0, description="Seconds that running requests have to end, once the gateway is told to stop."
    )
    keys: tuple[ApiKey, ...] = Field(
        default=(), strict=False, description="Keys of the clients; with any, requests without one get 401."
    )
    keys_file: str | None = Field(
        default=None,
        description="File with more `keys`, relative to this one. A change of it is one of the configuration.",
    )

    @property
    def address(self) -> Address:
        """``listen`` in its parts."""
        return parse_address(self.listen)


class Admin(Section):
    """Metrics, fleet, decisions and advice."""

    listen: Listen = Field(
        default="127.0.0.1:8081", description="Address of the admin API; without a token it must be on loopback."
    )
    tls: Tls | None = Field(default=None, description="Certificate to serve https with; left out = http.")
    token: Secret | None = Field(
        default=None, description="What whoever asks the admin API must bear; left out = nothing. By reference only."
    )

    @property
    def address(self) -> Address:
        """``listen`` in its parts."""
        return parse_address(self.listen)


class Control(Section):
    """The loop that asks the engines how they are."""

    poll_interval_s: Annotated[float, Field(ge=0.01, le=60)] = Field(
        default=0.1,
        description="Seconds between two polls of a node; stretched where a poll costs the engine too much.",
    )
    poll_timeout_s: Annotated[float, Field(gt=0, le=60)] = Field(
        default=1.0, description="Seconds after which a poll counts as failed."
    )
    stale_after_s: Seconds = Field(
        default=1.0, description="Age in seconds of a node's last report from which it is not eligible for speculation."
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


class Routing(Section):
    """How decisions are made and kept honest."""

    mode: Literal["steer", "observe"] = Field(
        default="steer",
        description="Whether decisions steer requests, or are only recorded (`observe`) while each request goes to the "
        "node with the least of its limit in use, unless an override says otherwise.",
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
        default=True, description="Whether any usable node may take a request when its own pool has none that can."
    )
    evidence_half_life_s: Seconds = Field(
        default=600.0, description="Seconds after which measured acceptance counts half."
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
    engine: Literal["vllm", "sglang", "llamacpp", "trtllm"] | None = Field(
        default=None, description="The engine's kind; left out = found out by asking."
    )
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
    log: Log = Field(default=Log(), description="Structured logs.")
    record: Record | None = Field(
        default=None, description="Requests, decisions and outcomes, written down for replay; left out = nothing is."
    )
    tracing: Tracing | None = Field(default=None, description="Spans for OpenTelemetry; left out = none.")

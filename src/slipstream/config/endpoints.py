"""The sections of what clients and operators connect to: the gateway and the admin API."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from slipstream.config.section import ClassName, Count, Listen, NodeName, PoolName, Seconds, Secret, Section
from slipstream.config.values import Address, parse_address
from slipstream.core.keys import digest_of

__all__ = ["Admin", "ApiKey", "Gateway", "Queue", "Timeouts", "Tls"]


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
    drain_s: Seconds = Field(
        default=600.0, description="Seconds for the answers that a node which is removed has begun; then they are cut."
    )
    client_head_s: Seconds = Field(
        default=10.0, description="Seconds from the first byte of a request to the end of its headers."
    )
    client_keep_alive_s: Seconds = Field(
        default=75.0, description="Seconds that a client's connection is kept without a request."
    )


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

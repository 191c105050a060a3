"""What routing knows of a request, and what became of it."""

from __future__ import annotations

from enum import StrEnum

from slipstream.core.compilation import mypyc_attr

__all__ = ["PinSource", "Pool", "RequestShape", "TrafficClass"]


class Pool(StrEnum):
    """The two kinds of node. A standard node is not a speculative one with zero draft tokens: that is 7–25 % slower."""

    SPECULATIVE = "speculative"
    STANDARD = "standard"


class PinSource(StrEnum):
    """What fixed the pool of a request."""

    CONFIGURATION = "configuration"
    """``routing.pins``, by its category."""
    KEY = "key"
    """The ``pool`` that its API key is configured with."""
    OVERRIDE = "override"
    """An operator, at run time."""


class TrafficClass(StrEnum):
    """Who waits for the answer: a person (latency counts) or a job (throughput counts)."""

    INTERACTIVE = "interactive"
    BULK = "bulk"


@mypyc_attr(acyclic=True)
class RequestShape:
    """All that a routing policy may know of a request. It carries no text and no HTTP.

    ``model`` as the client spelled it. ``category`` one of the configured names. ``sequences`` is ``n`` (or
    ``best_of``) times the number of prompts, at least 1: what the request adds to a node's occupancy. ``output_limit``
    is the least of the token limits the client set, ``None`` when it set none. ``features`` are the request fields
    present that a speculative engine may reject (``min_p``, ``logit_bias``). ``pinned_pool`` is the pool that
    configuration or an operator fixed for it, ``None`` when routing is free; ``pinned_by`` says what fixed it, ``None``
    also where that is not known. ``prompt_characters`` is the length of the prompt's text, ``None`` when unknown.
    ``previous_response`` is the id of an answer that this request refers to, which one node holds; ``None`` when it
    refers to none. ``decodes``: answering makes tokens, one after the other; embeddings, for one, do not. ``session``
    is its conversation as a number from 0 to 2^64 - 1, evenly spread, ``None`` when the client named none.
    ``cache_keys`` are the numbers by which a node is known that has its prompt's beginning in the cache, the most
    telling first. ``key_id`` names the API key that it came with, never is it; ``None`` without. ``queued_s`` is for
    how many seconds it has waited for a node, and ``may_wait`` whether it may longer: as of the last try to place it.
    """

    __slots__ = (
        "cache_keys",
        "category",
        "decodes",
        "features",
        "key_id",
        "may_wait",
        "model",
        "output_limit",
        "pinned_by",
        "pinned_pool",
        "previous_response",
        "prompt_characters",
        "queued_s",
        "sequences",
        "session",
        "streamed",
        "traffic_class",
    )

    def __init__(
        self,
        model: str,
        category: str,
        traffic_class: TrafficClass = TrafficClass.INTERACTIVE,
        sequences: int = 1,
        output_limit: int | None = None,
        streamed: bool = False,  # noqa: FBT001, FBT002 - a row of data
        prompt_characters: int | None = None,
        features: frozenset[str] = frozenset(),
        pinned_pool: Pool | None = None,
        previous_response: str | None = None,
        decodes: bool = True,  # noqa: FBT001, FBT002 - a row of data
        session: int | None = None,
        cache_keys: tuple[int, ...] = (),
        key_id: str | None = None,
        pinned_by: PinSource | None = None,
    ) -> None:
        self.model = model
        self.category = category
        self.traffic_class = traffic_class
        self.sequences = sequences
        self.output_limit = output_limit
        self.streamed = streamed
        self.prompt_characters = prompt_characters
        self.features = features
        self.pinned_pool = pinned_pool
        self.previous_response = previous_response
        self.decodes = decodes
        self.session = session
        self.cache_keys = cache_keys
        self.key_id = key_id
        self.pinned_by = pinned_by
        self.queued_s = 0.0
        self.may_wait = False

    def with_model(self, model: str) -> RequestShape:
        """The same request, naming another model."""
        return self._copy(model, self.pinned_pool, self.pinned_by)

    def with_pool(self, pinned_pool: Pool) -> RequestShape:
        """The same request, its pool fixed by an operator."""
        return self._copy(self.model, pinned_pool, PinSource.OVERRIDE)

    def _copy(self, model: str, pinned_pool: Pool | None, pinned_by: PinSource | None) -> RequestShape:
        return RequestShape(
            model,
            self.category,
            self.traffic_class,
            self.sequences,
            self.output_limit,
            self.streamed,
            self.prompt_characters,
            self.features,
            pinned_pool,
            self.previous_response,
            self.decodes,
            self.session,
            self.cache_keys,
            self.key_id,
            pinned_by,
        )

"""From the bytes of a request to the shape that routing sees."""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.core.category import Categorizer, PromptFeatures
from slipstream.core.keys import KeyPolicy
from slipstream.core.request import PinSource, Pool, RequestShape, TrafficClass
from slipstream.gateway.body import features_of, shape_of, traffic_class_of
from slipstream.gateway.cache_keys import cache_keys, session_number
from slipstream.gateway.dialect import DIALECTS
from slipstream.gateway.headers import RequestHead
from slipstream.gateway.view import RequestView

__all__ = ["RequestReader"]


class RequestReader:
    """Reads requests of the known dialects by an operator's categories.

    ``categories`` are the names known. ``trusting``: a client may name its request's category itself, one of those;
    ``trusting_class``: and its traffic class. The policy of an API key may say otherwise for its requests. ``pins`` are
    the pools that categories are fixed to. ``affinity``: what nodes may have cached of a request is read too.
    """

    def __init__(
        self,
        categorizer: Categorizer,
        categories: frozenset[str],
        pins: Mapping[str, Pool],
        *,
        trusting: bool,
        trusting_class: bool = False,
        affinity: bool = True,
    ) -> None:
        self._categorizer = categorizer
        self._categories = categories
        self._pins = dict(pins)
        self._trusting = trusting
        self._trusting_class = trusting_class
        self._affinity = affinity

    def read(self, path: str, body: bytes, head: RequestHead, policy: KeyPolicy | None = None) -> RequestShape:
        """The shape of a request to ``path``; ``policy`` is that of its API key, ``None`` without one.

        Raises a RequestError for a body that can not be placed. Safe to call off the loop's thread.
        """
        dialect = DIALECTS[path]
        view = dialect.read(body)
        named = head.category
        if named is not None and named in self._categories and self._trusts_category(policy):
            category = named
        else:
            category = self._categorizer.categorize(
                features_of(path, view) if dialect.decodes else PromptFeatures(path, view.model, False, None, "", 0, "")  # noqa: FBT003 - it has no tools
            )
        pinned, pinned_by = None if policy is None else policy.pinned_pool, PinSource.KEY
        if pinned is None and dialect.decodes:
            pinned, pinned_by = self._pins.get(category), PinSource.CONFIGURATION
        shape = shape_of(view, category, self._traffic_class(view, head, policy), pinned, decodes=dialect.decodes)
        if pinned is not None:
            shape.pinned_by = pinned_by
        session = shape.session = None if head.session is None else session_number(head.session)
        if self._affinity and dialect.prompt_name:
            shape.cache_keys = cache_keys(
                view.model, session, view.prompt_cache_key, view.user, dialect.prompt_name, body
            )
        return shape

    def _trusts_category(self, policy: KeyPolicy | None) -> bool:
        trusts = None if policy is None else policy.trusts_category
        return self._trusting if trusts is None else trusts

    def _traffic_class(self, view: RequestView, head: RequestHead, policy: KeyPolicy | None) -> TrafficClass:
        """Of the key, else of the header where it is believed, else of the body."""
        if policy is not None and policy.traffic_class is not None:
            return policy.traffic_class
        if head.traffic_class is not None:
            trusts = None if policy is None else policy.trusts_class
            claimed = _CLASSES.get(head.traffic_class)
            if claimed is not None and (self._trusting_class if trusts is None else trusts):
                return claimed
        return traffic_class_of(view)


_CLASSES: dict[str, TrafficClass] = {str(traffic_class): traffic_class for traffic_class in TrafficClass}

"""From the bytes of a request to the shape that routing sees."""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.core.category import Categorizer
from slipstream.core.request import Pool, RequestShape
from slipstream.gateway.body import features_of, read_body, shape_of, traffic_class_of

__all__ = ["RequestReader"]


class RequestReader:
    """Reads completion requests by an operator's categories.

    ``categories`` are the names known. ``trusting``: a client may name its request's category itself, one of those.
    ``pins`` are the pools that categories are fixed to.
    """

    def __init__(
        self, categorizer: Categorizer, categories: frozenset[str], pins: Mapping[str, Pool], *, trusting: bool
    ) -> None:
        self._categorizer = categorizer
        self._categories = categories
        self._pins = dict(pins)
        self._trusting = trusting

    def read(self, path: str, body: bytes, named: str | None) -> RequestShape:
        """The shape of a request to ``path``; ``named`` is the category its client claims, ``None`` without a claim.

        Raises a RequestError for a body that can not be placed. Safe to call off the loop's thread.
        """
        view = read_body(path, body)
        if named is not None and self._trusting and named in self._categories:
            category = named
        else:
            category = self._categorizer.categorize(features_of(path, view))
        return shape_of(view, category, traffic_class_of(view), self._pins.get(category))

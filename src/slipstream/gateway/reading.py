"""From the bytes of a request to the shape that routing sees."""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.core.category import Categorizer, PromptFeatures
from slipstream.core.request import Pool, RequestShape
from slipstream.gateway.body import features_of, shape_of, traffic_class_of
from slipstream.gateway.dialect import DIALECTS

__all__ = ["RequestReader"]


class RequestReader:
    """Reads requests of the known dialects by an operator's categories.

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
        dialect = DIALECTS[path]
        view = dialect.read(body)
        if named is not None and self._trusting and named in self._categories:
            category = named
        else:
            category = self._categorizer.categorize(
                features_of(path, view) if dialect.decodes else PromptFeatures(path, view.model, False, None, "", 0, "")  # noqa: FBT003 - it has no tools
            )
        pinned = self._pins.get(category) if dialect.decodes else None
        return shape_of(view, category, traffic_class_of(view), pinned)

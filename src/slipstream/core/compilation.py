"""What the compiler is told of a class. Where nothing is compiled it means nothing, and needs no package.

``mypyc_attr(acyclic=True)``: what an object refers to never leads back to it, so that the collector of garbage need not
look for that. A gateway remembers thousands of requests; to follow what it remembers costs more than what it looks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_told):
        """A decorator that leaves a class as it is."""
        return lambda decorated: decorated

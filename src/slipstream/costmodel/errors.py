"""What can not be computed, said in a sentence."""

from __future__ import annotations

__all__ = ["ImpossibleInput"]


class ImpossibleInput(ValueError):
    """The question has no answer: a number out of its range, a file that is missing or of another form, a model that
    does not fit. ``str`` of it is the sentence for the person who asked, and names what was given.
    """

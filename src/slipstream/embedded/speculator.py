"""What drafts tokens on an embedded node, as the words a person types: ``none``, ``ngram`` or ``draft:PATH``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from slipstream.embedded.errors import UnusableSpec
from slipstream.embedded.model import find_model

__all__ = ["NO_SPECULATOR", "EmbeddedSpeculator", "SpeculatorChoice", "parse_speculator"]


class SpeculatorChoice(StrEnum):
    """The speculators that an embedded node can have."""

    NONE = "none"
    NGRAM = "ngram"
    DRAFT = "draft"


@dataclass(frozen=True, slots=True)
class EmbeddedSpeculator:
    """A node's speculator. ``draft_model`` is the draft model's file, ``None`` for the two kinds that have none."""

    choice: SpeculatorChoice = SpeculatorChoice.NONE
    draft_model: Path | None = None

    def __str__(self) -> str:
        return self.choice.value if self.draft_model is None else f"{self.choice.value}:{self.draft_model}"


NO_SPECULATOR = EmbeddedSpeculator()


def parse_speculator(text: str) -> EmbeddedSpeculator:
    """Read ``none``, ``ngram`` or ``draft:PATH.gguf``; the inverse of ``str``.

    Raises:
        UnusableSpec: it is none of these.
        ModelNotFound: the draft model's file is not there.
        ModelUnusable: it is not a GGUF file.
    """
    kind, _, path = text.partition(":")
    if kind == SpeculatorChoice.DRAFT and path:
        return EmbeddedSpeculator(SpeculatorChoice.DRAFT, find_model(Path(path)))
    if text in (SpeculatorChoice.NONE, SpeculatorChoice.NGRAM):
        return EmbeddedSpeculator(SpeculatorChoice(text))
    raise UnusableSpec(f"There is no speculator {text!r}: use ngram or draft:PATH.gguf.")

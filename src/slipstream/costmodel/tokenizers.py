"""What a model's tokenizer consists of, read from its files, and where two tokenizers first differ.

A draft is a list of token ids, so a draft model has to number the same tokens the same way as its target, and has to
cut text in the same places, or what it drafts is never what the target would have said.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os.path import exists, isdir
from pathlib import Path
from typing import Any

from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.gguf import read_metadata

__all__ = ["Tokenizer", "first_difference", "read_tokenizer"]

# Values of tokenizer.ggml.token_type.
_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 2, 3, 4, 5

ROLES = ("bos", "eos")
"""Padding is left out: it is never drafted, and a base model and its fine-tune often differ in it."""


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """``vocabulary``: id of each token. ``merges``: pairs in the order in which they are joined, "left right"; ``None``
    where the tokenizer has none or its file does not tell. ``special``: the tokens that stand outside the merging.
    ``roles``: the token that begins (`bos`) and ends (`eos`) a text, where the files tell.
    """

    source: str
    vocabulary: Mapping[str, int]
    merges: tuple[str, ...] | None
    special: frozenset[str]
    roles: Mapping[str, str]


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a local model folder as Hugging Face lays it out, or of a GGUF file.

    Reads ``tokenizer.json`` or, in older folders, ``vocab.json`` with ``merges.txt``, and ``tokenizer_config.json``.
    Raises `ImpossibleInput` when there is nothing at ``path``, or it holds no tokenizer that can be read so.
    """
    if isdir(path):
        return _folder(path)
    if not exists(path):
        raise ImpossibleInput(f"there is no model at {path}: give a model's folder or a GGUF file")
    return _gguf(path)


def first_difference(target: Tokenizer, draft: Tokenizer) -> str | None:
    """A sentence on the first difference (vocabulary, then merges, then special tokens), ``None`` when there is none.

    Merges are compared where both files tell them, and roles likewise.
    """
    return (
        _vocabulary_difference(target, draft) or _merge_difference(target, draft) or _special_difference(target, draft)
    )


def _vocabulary_difference(target: Tokenizer, draft: Tokenizer) -> str | None:
    if target.vocabulary == draft.vocabulary:
        return None
    of_target, of_draft = _by_id(target), _by_id(draft)
    numbers = of_target.keys() | of_draft.keys()
    first = min((number for number in numbers if of_target.get(number) != of_draft.get(number)), default=None)
    if first is None:
        return None  # two words for one id, of which no text meets the one
    words = f"token {first} is {_told(of_target, first)} in the target and {_told(of_draft, first)} in the draft"
    return f"vocabulary: {words} (of {len(target.vocabulary):,} and {len(draft.vocabulary):,} tokens)"


def _by_id(tokenizer: Tokenizer) -> dict[int, str]:
    return {number: token for token, number in tokenizer.vocabulary.items()}


def _told(tokens: Mapping[int, str], number: int) -> str:
    return repr(tokens[number]) if number in tokens else "none"


def _merge_difference(target: Tokenizer, draft: Tokenizer) -> str | None:
    if target.merges is None or draft.merges is None or target.merges == draft.merges:
        return None
    both = min(len(target.merges), len(draft.merges))
    place = next((at for at in range(both) if target.merges[at] != draft.merges[at]), both)
    of_target, of_draft = (
        repr(merges[place]) if place < len(merges) else "none" for merges in (target.merges, draft.merges)
    )
    return f"merges: number {place} is {of_target} in the target and {of_draft} in the draft"


def _special_difference(target: Tokenizer, draft: Tokenizer) -> str | None:
    for one, other, has, lacks in (
        (target.special, draft.special, "target", "draft"),
        (draft.special, target.special, "draft", "target"),
    ):
        alone = one - other
        if alone:
            first = min(alone, key=lambda token: (target.vocabulary.get(token, 0), token))
            return f"special tokens: {first!r} is one in the {has} and not in the {lacks}"
    for role in ROLES:
        of_target, of_draft = target.roles.get(role), draft.roles.get(role)
        if of_target is not None and of_draft is not None and of_target != of_draft:
            return f"special tokens: {role} is {of_target!r} in the target and {of_draft!r} in the draft"
    return None


def _folder(folder: Path) -> Tokenizer:
    whole = folder / "tokenizer.json"
    try:
        if whole.exists():
            vocabulary, merges, added = _parts(_read_json(whole))
        elif (folder / "vocab.json").exists() and (folder / "merges.txt").exists():
            vocabulary, added = _read_json(folder / "vocab.json"), ()
            merges = _merge_lines((folder / "merges.txt").read_text(encoding="utf-8"))
        else:
            raise ImpossibleInput(
                f"{folder} holds no tokenizer: neither tokenizer.json nor vocab.json with merges.txt; "
                "give a model's folder or a GGUF file"
            )
        settings_file = folder / "tokenizer_config.json"
        settings = _read_json(settings_file) if settings_file.exists() else {}
        special = {token["content"]: int(token["id"]) for token in added}
        for number, token in settings.get("added_tokens_decoder", {}).items():
            special[token["content"]] = int(number)
        roles = {role: _content(settings.get(f"{role}_token")) for role in ROLES}
        vocabulary = {**vocabulary, **special}
        for token, number in vocabulary.items():
            if (type(token), type(number)) != (str, int):
                raise TypeError(f"{token!r} is numbered {number!r}")
        return Tokenizer(
            source=str(folder),
            vocabulary=vocabulary,
            merges=merges,
            special=frozenset(special),
            roles={role: token for role, token in roles.items() if token is not None},
        )
    except ImpossibleInput:
        raise
    except UnicodeDecodeError:
        raise ImpossibleInput(f"the tokenizer in {folder} is not UTF-8 text") from None
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise ImpossibleInput(f"the tokenizer in {folder} has a form that is not known: {error}") from None
    except OSError as error:
        raise ImpossibleInput(f"{error.filename} can not be read: {error.strerror}") from None


def _parts(document: Mapping[str, Any]) -> tuple[dict[str, int], tuple[str, ...] | None, Iterable[Mapping[str, Any]]]:
    """Vocabulary, merges and added tokens of a ``tokenizer.json``: a Unigram model lists its pieces in order of id."""
    model = document["model"]
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):
        vocabulary = {piece: number for number, (piece, _) in enumerate(vocabulary)}
    merges = model.get("merges")
    pairs = None if merges is None else tuple(pair if isinstance(pair, str) else " ".join(pair) for pair in merges)
    return vocabulary, pairs, document.get("added_tokens", ())


def _merge_lines(text: str) -> tuple[str, ...]:
    lines = text.split("\n")  # a merge may hold characters that splitlines takes for ends of lines
    return tuple(line for line in lines if line and not line.startswith("#version"))


def _content(token: str | Mapping[str, str] | None) -> str | None:
    """A role is given as the token itself, or as an object that holds it."""
    return token if token is None or isinstance(token, str) else token["content"]


def _read_json(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_bytes())
    except (json.JSONDecodeError, RecursionError) as error:
        raise ImpossibleInput(f"{file} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ImpossibleInput(f"{file} is not a JSON object")
    return document


def _gguf(file: Path) -> Tokenizer:
    metadata = read_metadata(file)
    tokens, kinds = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, list):
        raise ImpossibleInput(f"{file} holds no tokenizer: it has no tokenizer.ggml.tokens")
    kinds = kinds if isinstance(kinds, list) and len(kinds) == len(tokens) else [0] * len(tokens)
    merges = metadata.get("tokenizer.ggml.merges")
    roles = {role: metadata.get(f"tokenizer.ggml.{role}_token_id") for role in ROLES}
    return Tokenizer(
        source=str(file),
        # Unused ones fill the embedding up to a round number of rows; the tokenizer itself has them not.
        vocabulary={str(token): number for number, token in enumerate(tokens) if kinds[number] != _UNUSED},
        merges=tuple(map(str, merges)) if isinstance(merges, list) and merges else None,
        special=frozenset(
            str(token) for token, kind in zip(tokens, kinds, strict=True) if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
        ),
        roles={
            role: str(tokens[number])
            for role, number in roles.items()
            if isinstance(number, int) and 0 <= number < len(tokens)
        },
    )

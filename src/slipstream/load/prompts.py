"""Made prompts: as long as wanted, each with a beginning of its own, and of a kind that can be told.

A prompt's beginning is its own so that no cache of prefixes spares the engine its work. What is between instruction and
end is plain text that no rule for categories takes for anything else. How well drafts of the answers are accepted says
little about real prompts: it is lengths and arrivals that a load of these is true to.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from random import Random

__all__ = ["CHARACTERS_PER_TOKEN", "made_prompt"]

CHARACTERS_PER_TOKEN = 4.5
"""Of the made text, with vocabularies of 32,000 to 128,000 tokens; a server's usage tells better."""

_KINDS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "code": (
        ("Write a Python function that keeps a list of these entries sorted. Notes:", ""),
        ("Implement a class in Java that stores the entries below and finds one by name. Notes:", ""),
        ("Write unit tests for a parser of lines like these. Notes:", ""),
    ),
    "edit": (
        ("Rewrite the following paragraph in a friendlier tone, and keep its order.", ""),
        ("Proofread the text below, correct its grammar and leave the rest as it is.", ""),
    ),
    "structured": (
        ("Return a JSON array with one object for each sentence, with its subject and its place.", ""),
        ("List who was where, and when, as CSV with three columns.", ""),
    ),
    "summarization": (
        ("Summarize the text below in three sentences.", ""),
        ("Give a short summary of what follows.", ""),
    ),
    "retrieval": (
        ("Context:", "Based on the text above, who was near the river, and when?"),
        ("Context:", "According to the text above, which of them came first?"),
    ),
    "translation": (
        ("Translate the following text into French.", ""),
        ("Translate this into German, sentence by sentence.", ""),
    ),
    "math": (
        ("Calculate how many boxes a farm sells in total that sells 48 in April and 26 in May. Background:", ""),
        ("Calculate the total of 17 boxes at 24 euros each, less 15 percent. Background:", ""),
    ),
    "chat": (
        ("Tell me what you think of life in a village like this one.", ""),
        ("Let us talk about the seasons. This is what I saw lately.", ""),
    ),
}
"""Instruction before the text, and what follows it, by category; other categories are asked like ``chat``."""

_WHO = "the baker;an old sailor;my neighbor;the gardener;a young painter;the postman;her brother;the tall visitor"
_DID = "walked past;waited at;looked over;returned to;stood beside;drew;cleaned;remembered"
_WHAT = "the garden wall;a small boat;the market square;the wooden bridge;an empty house;the long road;the river bank"
_WHEN = "before noon;in the evening;after the rain;early in spring;without a word;once again;at last;during the night"

_SENTENCES = 4096


def made_prompt(category: str, characters: int, number: int, seed: int) -> str:
    """The prompt ``number`` of a load with that seed: ``characters`` long, but never shorter than its instruction.

    The same arguments give the same prompt; another ``number`` or ``seed`` gives one that begins differently.
    """
    draw = int.from_bytes(blake2b(f"{seed} {number}".encode(), digest_size=16).digest(), "big")
    draw, name = _name(draw)
    kinds = _KINDS.get(category, _KINDS["chat"])
    draw, kind = divmod(draw, len(kinds))
    before, after = kinds[kind]
    opening = f"{name}: {before}\n\n"
    ending = f"\n\n{after}" if after else ""
    return opening + _text(characters - len(opening) - len(ending), draw) + ending


def _name(draw: int) -> tuple[int, str]:
    """What is left of the draw, and two made words: one of 16 billion."""
    letters = []
    for place in range(10):
        kind = "aeiou" if place % 2 else "bcdfghjklmnprstvwxyz"
        draw, index = divmod(draw, len(kind))
        letters.append(kind[index])
    return draw, "".join(letters[:5]).capitalize() + " " + "".join(letters[5:]).capitalize()


def _text(characters: int, draw: int) -> str:
    """So many characters from somewhere in the made text; none where the count is below 1."""
    text, starts = _made_text()
    start = starts[draw % len(starts)]
    if start + characters > len(text):
        text *= 1 + (start + characters) // len(text)
    return text[start : start + max(characters, 0)]


@cache
def _made_text() -> tuple[str, tuple[int, ...]]:
    """The text that all prompts take their middles from, about 200 kB, and where its sentences start."""
    rng = Random(4096)
    sentences = [
        " ".join(rng.choice(words.split(";")) for words in (_WHO, _DID, _WHAT, _WHEN)).capitalize() + ". "
        for _ in range(_SENTENCES)
    ]
    starts = [0]
    for sentence in sentences[:-1]:
        starts.append(starts[-1] + len(sentence))
    return "".join(sentences), tuple(starts)

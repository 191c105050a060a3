"""Categories: classes of prompts whose drafts are accepted about equally often.

Rules are data, tried in order; the first that holds names the category. A rule looks at plain signs only: no model runs
here, because this costs every request.

Instructions stand at the start or at the end of a prompt and the text they are about lies between. So most signs are
sought in the edges, the first and last `EDGE_CHARACTERS` of the last user message: that is cheaper than reading all of
it, and a news article that mentions a translator is not taken for a translation.

The words of the edges are looked up once, in one table of all rules' words. It says which rules are worth trying, so a
rule costs nothing on prompts that have none of its words, and a long list of words costs no more than a short one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

__all__ = ["EDGE_CHARACTERS", "WINDOW_CHARACTERS", "Categorizer", "CategoryRule", "PromptFeatures", "window"]

WINDOW_CHARACTERS: Final = 2048
EDGE_CHARACTERS: Final = 120


class PromptFeatures:
    """All that category rules may look at.

    ``response_format`` is the kind of output the client fixed (``json_object``, ``json_schema``, ``grammar``), ``None``
    when free. ``user`` and ``system`` are the last user message and the system prompt, each as made by `window`; empty
    when there is none. ``user_characters`` is the length of the whole last user message.
    """

    __slots__ = ("has_tools", "model", "path", "response_format", "system", "user", "user_characters")

    def __init__(
        self,
        path: str,
        model: str,
        has_tools: bool,  # noqa: FBT001 - a row of data
        response_format: str | None,
        user: str,
        user_characters: int,
        system: str,
    ) -> None:
        self.path = path
        self.model = model
        self.has_tools = has_tools
        self.response_format = response_format
        self.user = user
        self.user_characters = user_characters
        self.system = system


@dataclass(frozen=True, slots=True)
class CategoryRule:
    """Signs of a category. All that are set must hold; ``None`` (or no words) means that this sign is not looked at.

    ``path``, ``model`` and ``response_format`` are compared whole, with ``*`` standing for any run of characters.
    ``has_tools`` wants the request to carry tools, or not to. ``min_characters`` is the least length of the last user
    message, ``min_numbers`` the least count of numbers in it. ``words`` wants at least one of these words, in lower
    case, at its edges; a word is a run of letters, digits, ``+`` and ``#``. ``pattern`` is a regular expression that
    ignores case; ``where`` names the text it is searched in: ``edges`` (first and last `EDGE_CHARACTERS` of the last
    user message), ``opening`` (the first only), ``user`` (first and last 2 KB of that message) or ``system`` (of the
    system prompt). These texts begin and end with a newline, so that ``\\nwrite`` means "a line that starts with
    write".

    Raises ValueError, with a sentence that names the sign at fault, when the rule can not be used.
    """

    category: str
    path: str | None = None
    model: str | None = None
    has_tools: bool | None = None
    response_format: str | None = None
    min_characters: int | None = None
    words: tuple[str, ...] = ()
    min_numbers: int | None = None
    pattern: str | None = None
    where: str = "edges"

    def __post_init__(self) -> None:
        if not self.category:
            raise ValueError("a category rule needs the name of a category")
        if self.where not in _PLACES:
            raise ValueError(f"where is {self.where!r}, but rules look in one of: {', '.join(_PLACES)}")
        for name, least in (("min_characters", self.min_characters), ("min_numbers", self.min_numbers)):
            if least is not None and least < 1:
                raise ValueError(f"{name} is {least}, but a least number is 1 or more")
        for word in self.words:
            if _words_of(word) != [_bytes_of(word)]:
                raise ValueError(f"words has {word!r}, which is not one word in lower case; use a pattern for phrases")
        if self.pattern is not None:
            _search(self.pattern)
        signs = (self.path, self.model, self.has_tools, self.response_format, self.min_characters, self.min_numbers)
        if not self.words and self.pattern is None and all(sign is None for sign in signs):
            raise ValueError(f"the rule for {self.category!r} sets no sign, so it would take every request")


class Categorizer:
    """The rules, compiled once. Immutable.

    ``rules`` are tried in order; ``default`` is the category when none holds.
    """

    __slots__ = ("_always", "_default", "_for_free_output", "_for_no_tools", "_rules", "_worth_trying")

    def __init__(self, rules: Iterable[CategoryRule], default: str) -> None:
        rules = tuple(rules)
        self._default = default
        self._rules = tuple(_compiled(rule) for rule in rules)
        # Sets of rules are bits of a number, rule 0 the lowest: joining them and taking the first are one step each.
        self._always = sum(1 << index for index, rule in enumerate(rules) if not rule.words)
        self._for_free_output = sum(1 << index for index, rule in enumerate(rules) if rule.response_format is None)
        self._for_no_tools = sum(1 << index for index, rule in enumerate(rules) if rule.has_tools is not True)
        self._worth_trying: dict[bytes, int] = {}
        for index, rule in enumerate(rules):
            for word in map(_bytes_of, rule.words):
                self._worth_trying[word] = self._worth_trying.get(word, 0) | 1 << index

    def categorize(self, features: PromptFeatures) -> str:
        """The category of the first rule that holds, else the default."""
        user, user_characters, system = features.user, features.user_characters, features.system
        edges = user if len(user) <= 2 * EDGE_CHARACTERS else f"{user[:EDGE_CHARACTERS]}\n{user[-EDGE_CHARACTERS:]}"
        candidates = self._always
        worth_trying = self._worth_trying
        for word in _words_of(edges):
            worth = worth_trying.get(word)
            if worth is not None:
                candidates |= worth
        if features.response_format is None:
            candidates &= self._for_free_output
        if not features.has_tools:
            candidates &= self._for_no_tools
        texts: dict[str, str] = {}
        numbers = -1
        while candidates:
            first = candidates & -candidates
            candidates ^= first
            category, min_characters, min_numbers, holds, search, place = self._rules[first.bit_length() - 1]
            if user_characters < min_characters or (holds is not None and not holds(features)):
                continue
            if min_numbers:
                if numbers < 0:
                    numbers = _count_numbers(user)
                if numbers < min_numbers:
                    continue
            if search is not None:
                text = texts.get(place)
                if text is None:
                    text = texts[place] = _text(place, user, edges, system)
                if not search(text):
                    continue
            return category
        return self._default


def window(text: str) -> str:
    """The first and last 2 KB of a text: what rules see of it. Shorter texts are seen whole."""
    if len(text) <= 2 * WINDOW_CHARACTERS:
        return text
    return f"{text[:WINDOW_CHARACTERS]}\n{text[-WINDOW_CHARACTERS:]}"


_PLACES: Final = ("edges", "opening", "user", "system")

# Words are told apart in a text's bytes: one pass of a 256-byte table lowers letters and blanks punctuation in a tenth
# of the time that a regular expression takes. Bytes above 127 are parts of letters outside ASCII and stay.
_WORD_BYTES: Final = bytes(
    ord(chr(byte).lower()) if byte < 128 and (chr(byte).isalnum() or chr(byte) in "+#") else 32 if byte < 128 else byte
    for byte in range(256)
)
_DIGIT_BYTES: Final = bytes(byte if 48 <= byte < 58 else 32 for byte in range(256))


def _words_of(text: str) -> list[bytes]:
    words = _bytes_of(text).translate(_WORD_BYTES)
    if text.isascii():
        return words.split()
    return [word.encode() for word in words.decode().split()]  # the blanks between them may be outside ASCII too


def _bytes_of(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return text.encode(errors="replace")


def _count_numbers(text: str) -> int:
    """How many runs of digits a text has; a decimal number counts as two."""
    return len(_bytes_of(text).translate(_DIGIT_BYTES).split())


def _text(place: str, user: str, edges: str, system: str) -> str:
    if place == "edges":
        return f"\n{edges}\n".lower()
    if place == "opening":
        return f"\n{user[:EDGE_CHARACTERS]}\n".lower()
    if place == "user":
        return f"\n{user}\n".lower()
    if place == "system":
        return f"\n{system}\n".lower()
    return user


_Search = Callable[[str], object]
_Holds = Callable[[PromptFeatures], bool]
_Compiled = tuple[str, int, int, _Holds | None, _Search | None, str]


def _compiled(rule: CategoryRule) -> _Compiled:
    search = None if rule.pattern is None else _search(rule.pattern)
    place = rule.where
    if place == "user" and rule.pattern is not None and not _LETTERS_OR_LINES.search(rule.pattern):
        place = "user as sent"  # copying and lowering 4 KB for a sign like ``` would cost more than all other rules
    return (rule.category, rule.min_characters or 0, rule.min_numbers or 0, _request_test(rule), search, place)


def _search(pattern: str) -> _Search:
    """A test for the pattern in a lowered text.

    A choice of plain phrases, and most patterns are one, is sought without the regular expression engine: that is ten
    times faster.
    """
    lowered = pattern.lower()
    if _PHRASES.fullmatch(pattern):
        return _phrase_test(tuple(re.sub(r"\\(.)", r"\1", phrase) for phrase in lowered.split("|")))
    try:
        return re.compile(pattern, 0 if pattern == lowered else re.IGNORECASE).search
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"pattern {pattern!r} is not a regular expression: {error}") from None


_PHRASES: Final = re.compile(r"(?:[^\\.^$*+?{}\[\]()]|\\[\\.^$*+?{}\[\]()])+")
_LETTERS_OR_LINES: Final = re.compile(r"[^\W\d_]|[\n^$(]")


_BY_RARITY: Final = " etaoinshrdlucmfwygpbvkxjqz0123456789"


def _phrase_test(phrases: tuple[str, ...]) -> _Search:
    """Whether one of the phrases occurs. Looking for one character is so fast that a phrase's rarest goes first."""
    signs = [(max(phrase, key=_rarity, default=""), phrase) for phrase in phrases]

    def search(text: str) -> bool:
        for rarest, phrase in signs:  # noqa: SIM110  # a generator in any() would cost more than the search itself
            if rarest in text and phrase in text:
                return True
        return False

    return search


def _rarity(character: str) -> int:
    place = _BY_RARITY.find(character)
    return place if place >= 0 else len(_BY_RARITY)


def _request_test(rule: CategoryRule) -> _Holds | None:
    """A test of the signs that are not text, but for those `Categorizer` looks at ahead; ``None`` when none is left."""
    if rule.path is None and rule.model is None and rule.has_tools is not False and rule.response_format in (None, "*"):
        return None
    path, model, response_format = (_glob(sign) for sign in (rule.path, rule.model, rule.response_format))
    no_tools = rule.has_tools is False

    def holds(features: PromptFeatures) -> bool:
        return not (
            (no_tools and features.has_tools)
            or (path is not None and path(features.path) is None)
            or (model is not None and model(features.model) is None)
            or (response_format is not None and response_format(features.response_format or "") is None)
        )

    return holds


def _glob(pattern: str | None) -> _Search | None:
    return None if pattern is None else re.compile(re.escape(pattern).replace(r"\*", "(?s:.*)")).fullmatch

"""Categories: classes of prompts whose drafts are accepted about equally often.

Rules are data, tried in order; the first that holds names the category. A rule looks at plain signs only: no model runs
here, because this costs every request.

Instructions stand at the start or at the end of a prompt and the text they are about lies between. So most rules look at
the `edges`, the first and last `EDGE_CHARACTERS` of the last user message: that is cheaper than reading all of it, and a
news article that mentions a translator is not taken for a translation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["EDGE_CHARACTERS", "WINDOW_CHARACTERS", "Categorizer", "CategoryRule", "PromptFeatures", "window"]

WINDOW_CHARACTERS = 2048
EDGE_CHARACTERS = 300


class PromptFeatures(NamedTuple):
    """All that category rules may look at. A named tuple, because one is made for each request.

    ``response_format`` is the kind of output the client fixed (``json_object``, ``json_schema``, ``grammar``), ``None``
    when free. ``user`` and ``system`` are the last user message and the system prompt, each as made by `window`; empty
    when there is none. ``user_characters`` is the length of the whole last user message.
    """

    path: str
    model: str
    has_tools: bool
    response_format: str | None
    user: str
    user_characters: int
    system: str


@dataclass(frozen=True, slots=True)
class CategoryRule:
    """Signs of a category. All that are set must hold; ``None`` (or no phrase) means that this sign is not looked at.

    ``path``, ``model`` and ``response_format`` are compared whole, with ``*`` standing for any run of characters.
    ``has_tools`` wants the request to carry tools, or not to. ``min_characters`` is the least length of the last user
    message. ``contains`` wants at least one of these phrases in the text, ``pattern`` is a regular expression searched
    in it; both ignore case. ``where`` is the text they look in: ``edges`` (first and last `EDGE_CHARACTERS` of the last
    user message), ``user`` (first and last 2 KB of it) or ``system`` (first and last 2 KB of the system prompt). A text
    begins and ends with a newline, so that ``"\\nwrite"`` means "a line that starts with write".

    Raises ValueError, with a sentence that names the sign at fault, when the rule can not be used.
    """

    category: str
    path: str | None = None
    model: str | None = None
    has_tools: bool | None = None
    response_format: str | None = None
    min_characters: int | None = None
    contains: tuple[str, ...] = ()
    pattern: str | None = None
    where: str = "edges"

    def __post_init__(self) -> None:
        if not self.category:
            raise ValueError("a category rule needs the name of a category")
        if self.where not in _TEXTS:
            raise ValueError(f"where is {self.where!r}, but rules look in one of: {', '.join(_TEXTS)}")
        if self.min_characters is not None and self.min_characters < 0:
            raise ValueError(f"min_characters is {self.min_characters}, but a length is 0 or more")
        if any(not phrase for phrase in self.contains):
            raise ValueError("contains has an empty phrase, which every text contains")
        if self.pattern is not None:
            _compile(self.pattern)
        signs = (self.path, self.model, self.has_tools, self.response_format, self.min_characters, self.pattern)
        if not self.contains and all(sign is None for sign in signs):
            raise ValueError(
                f"the rule for {self.category!r} sets no sign, so it would take every request; use the default"
            )


class Categorizer:
    """The rules, compiled once. Immutable.

    ``rules`` are tried in order; ``default`` is the category when none holds.
    """

    __slots__ = ("_default", "_rules")

    def __init__(self, rules: Iterable[CategoryRule], default: str) -> None:
        self._default = default
        self._rules = tuple(_compiled(rule) for rule in rules)

    def categorize(self, features: PromptFeatures) -> str:
        """The category of the first rule that holds, else the default."""
        user = f"\n{features.user}\n".lower()
        edges = user if len(user) <= 2 * EDGE_CHARACTERS else f"{user[:EDGE_CHARACTERS]}\n{user[-EDGE_CHARACTERS:]}"
        texts = (edges, user, f"\n{features.system}\n".lower())
        for category, min_characters, request_holds, text_index, contains, search in self._rules:
            if features.user_characters < min_characters:
                continue
            text = texts[text_index]
            if contains:
                for phrase in contains:
                    if phrase in text:
                        break
                else:
                    continue
            if search is not None and search(text) is None:
                continue
            if request_holds is not None and not request_holds(features):
                continue
            return category
        return self._default


def window(text: str) -> str:
    """The first and last 2 KB of a text: what rules see of it. Shorter texts are seen whole."""
    if len(text) <= 2 * WINDOW_CHARACTERS:
        return text
    return f"{text[:WINDOW_CHARACTERS]}\n{text[-WINDOW_CHARACTERS:]}"


_TEXTS = ("edges", "user", "system")

_Search = Callable[[str], re.Match[str] | None]
_Compiled = tuple[str, int, Callable[[PromptFeatures], bool] | None, int, tuple[str, ...], _Search | None]


def _compiled(rule: CategoryRule) -> _Compiled:
    return (
        rule.category,
        rule.min_characters or 0,
        _request_test(rule),
        _TEXTS.index(rule.where),
        tuple(phrase.lower() for phrase in rule.contains),
        None if rule.pattern is None else _compile(rule.pattern).search,
    )


def _request_test(rule: CategoryRule) -> Callable[[PromptFeatures], bool] | None:
    """A test of the signs that are not text; ``None`` when the rule sets none."""
    if rule.path is None and rule.model is None and rule.has_tools is None and rule.response_format is None:
        return None
    path, model, response_format = (_glob(sign) for sign in (rule.path, rule.model, rule.response_format))
    has_tools = rule.has_tools

    def holds(features: PromptFeatures) -> bool:
        return (
            (has_tools is None or has_tools is features.has_tools)
            and (path is None or path(features.path) is not None)
            and (model is None or model(features.model) is not None)
            and (
                response_format is None
                or (features.response_format is not None and response_format(features.response_format) is not None)
            )
        )

    return holds


def _glob(pattern: str | None) -> _Search | None:
    return None if pattern is None else re.compile(re.escape(pattern).replace(r"\*", "(?s:.*)")).fullmatch


def _compile(pattern: str) -> re.Pattern[str]:
    """Texts are lowered before they are searched: only a pattern with capitals needs the slower matching without case."""
    try:
        return re.compile(pattern, 0 if pattern == pattern.lower() else re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"pattern {pattern!r} is not a regular expression: {error}") from None

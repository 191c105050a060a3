"""A request's body, read for what routing needs of it. The bytes themselves go to the node untouched.

Only the fields named here are decoded; all others are skipped. Nothing is checked that the engine checks better: what
is refused here could not be placed (no model, no prompt), or would be misjudged (a count that is no count).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from slipstream.core.category import PromptFeatures, window
from slipstream.core.errors import InvalidBody, InvalidField, RequestError
from slipstream.core.request import Pool, RequestShape, TrafficClass
from slipstream.gateway.fields import ABSENT, Message, decode_fields, has_effect, is_given
from slipstream.gateway.view import RequestView

__all__ = [
    "MAX_CHOICES",
    "check_model",
    "check_prompt",
    "decode_body",
    "features_of",
    "read_chat",
    "read_completion",
    "shape_of",
    "traffic_class_of",
]

MAX_CHOICES: Final = 1024
"""The most choices (``n`` or ``best_of``, times prompts) one request may ask for: above it, one would fill any node."""

MAX_OBJECTS: Final = 250_000
"""The most objects and lists in a body: a message costs several tokens, and no model takes a million of them. Counted
wherever their brackets stand, in a text too."""

MAX_VALUES: Final = 2_000_000
"""The most values in a body, a prompt's tokens for example, counted by their commas."""

LARGE_BODY_BYTES: Final = 1024 * 1024
"""Longer bodies are looked through before they are decoded: while the decoder runs, nothing else in the process can."""

_STRIDE: Final = 256 * 1024


Fields = TypeVar("Fields")


def decode_body(body: bytes, decode: Callable[[bytes], Fields]) -> Fields:
    """A body as ``decode``, a msgspec decoder, reads it. Of a key that occurs twice the last one counts, as in the
    engines' own parsers.

    Raises InvalidBody when the bytes are not a JSON object in UTF-8, InvalidField when a field has the wrong type.
    """
    try:
        if len(body) > LARGE_BODY_BYTES:
            _check_large(body)
        elif not body.isascii():
            body.decode()  # skipped fields are not decoded, so their bytes would go unchecked
        return decode(body)
    except msgspec.ValidationError as error:
        raise _wrong_type(str(error)) from None
    except msgspec.DecodeError as error:
        raise _not_json(str(error)) from None
    except UnicodeDecodeError as error:
        raise InvalidBody(f"The request body is not valid UTF-8 (byte {error.start}).") from None
    except RecursionError:
        raise InvalidBody("The request body is nested too deeply.") from None


def _check_large(body: bytes) -> None:
    """Whether the decoder may have a large body: stride by stride, so that other threads get their turn.

    Raises InvalidBody when it has too many values, UnicodeDecodeError when it is not UTF-8.
    """
    objects = values = 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    ascii_so_far = True
    for start in range(0, len(body), _STRIDE):
        stride = body[start : start + _STRIDE]
        objects += stride.count(b"{") + stride.count(b"[")
        values += stride.count(b",")
        if objects > MAX_OBJECTS or values > MAX_VALUES:
            raise InvalidBody(
                f"The request body has more than {MAX_OBJECTS:,} objects and lists or {MAX_VALUES:,} values, more than "
                "any model could take."
            )
        if not (ascii_so_far and stride.isascii()):
            ascii_so_far = False
            try:
                decoder.decode(stride, start + _STRIDE >= len(body))
            except UnicodeDecodeError:
                body.decode()  # it fails too, and knows where
                raise


def read_chat(body: bytes) -> RequestView:
    """Read a request to ``/v1/chat/completions``. Raises InvalidBody or InvalidField."""
    view = RequestView(decode_body(body, decode_fields))
    check_model(view.model)
    if not view.messages:
        raise InvalidField("The field 'messages' must be a list with at least one message.", "messages")
    view.prompt = None
    _check_choices(view)
    return view


def read_completion(body: bytes) -> RequestView:
    """Read a request to ``/v1/completions``. Raises InvalidBody or InvalidField."""
    view = RequestView(decode_body(body, decode_fields))
    check_model(view.model)
    check_prompt("prompt", view.prompt)
    view.messages = None
    _check_choices(view)
    if _sequences(view) > MAX_CHOICES:
        raise InvalidField(
            f"The prompts in the field 'prompt', times 'n' or 'best_of', ask for {_sequences(view)} choices, but at "
            f"most {MAX_CHOICES} are allowed in one request.",
            "prompt",
        )
    return view


def features_of(path: str, view: RequestView) -> PromptFeatures:
    """What category rules may look at. A plain completion's prompt (the first of several) is its user message."""
    system = user = ""
    if view.messages is not None:
        for message in view.messages:
            if message.role == "system" or message.role == "developer":
                system = _text(message)
                break
        for message in reversed(view.messages):
            if message.role == "user":
                user = _text(message)
                break
    elif view.prompt is not None:
        prompt = view.prompt if isinstance(view.prompt, str) else view.prompt[0]
        user = prompt if isinstance(prompt, str) else ""
    return PromptFeatures(
        path, view.model, bool(view.tools), _response_format(view), window(user), len(user), window(system)
    )


def shape_of(
    view: RequestView,
    category: str,
    traffic_class: TrafficClass,
    pinned_pool: Pool | None = None,
    *,
    decodes: bool = True,
) -> RequestShape:
    """The request as routing sees it. A limit below 0 means "no limit" to llama.cpp, so it counts as none."""
    output_limit: int | None = None
    for limit in (view.max_tokens, view.max_completion_tokens, view.max_output_tokens):
        if limit is not None and limit >= 0 and (output_limit is None or limit < output_limit):
            output_limit = limit
    return RequestShape(
        view.model,
        category,
        traffic_class,
        _sequences(view),
        output_limit,
        view.stream is True,
        _prompt_characters(view),
        _features(view),
        pinned_pool,
        view.previous_response_id,
        decodes,
    )


def traffic_class_of(view: RequestView) -> TrafficClass:
    """The class the body itself asks for: ``service_tier: flex`` is bulk, everything else interactive."""
    return TrafficClass.BULK if view.service_tier == "flex" else TrafficClass.INTERACTIVE


_ABSENT: Final = ABSENT  # found without a look-up where this is compiled
_NO_FEATURES: Final[frozenset[str]] = frozenset()


def _sequences(view: RequestView) -> int:
    """How many answers are generated: so many choices for each prompt."""
    choices = max(view.n or 1, view.best_of or 1)
    prompt = view.prompt
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        return choices * len(prompt)
    return choices


def _text(message: Message) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    texts = (part if isinstance(part, str) else part.text for part in content)
    return "\n".join(text for text in texts if text)


def _prompt_characters(view: RequestView) -> int | None:
    """Length of all prompt text; ``None`` when the client sent tokens instead, whose text is unknown."""
    if view.messages is not None:
        total = 0
        for message in view.messages:
            content = message.content
            total += len(content) if isinstance(content, str) else len(_text(message))
        return total
    if isinstance(view.prompt, str):
        return len(view.prompt)
    if view.prompt is not None and isinstance(view.prompt[0], str):
        return sum(len(prompt) for prompt in view.prompt if isinstance(prompt, str))
    return None


def _features(view: RequestView) -> frozenset[str]:
    """The fields set that an engine may reject beside speculation. At 0 or empty they have no effect."""
    biased = view.logit_bias is not _ABSENT and has_effect(view.logit_bias)
    if not view.min_p and not biased:
        return _NO_FEATURES
    return frozenset(name for name, present in (("min_p", view.min_p), ("logit_bias", biased)) if present)


def _response_format(view: RequestView) -> str | None:
    """The kind of output asked for, whichever of the engines' fields says it. ``text`` is no restriction."""
    if view.response_format is not None and view.response_format.type != "text":
        return view.response_format.type
    if _given(view.json_schema) or _given(view.guided_json):
        return "json_schema"
    if (
        _given(view.structured_outputs)
        or _given(view.grammar)
        or _given(view.guided_regex)
        or _given(view.guided_choice)
        or _given(view.guided_grammar)
    ):
        return "grammar"
    return None


def _given(value: msgspec.Raw) -> bool:
    """``is_given``, compiled where it is nearly always false."""
    return value is not _ABSENT and is_given(value)


def check_model(model: str) -> None:
    """Raises InvalidField without the name of a model."""
    if not model:
        raise InvalidField("The field 'model' is missing: name the model to use.", "model")


def check_prompt(param: str, prompt: str | list[str | int | list[int]] | None) -> None:
    """Raises InvalidField when the field ``param`` is no prompt and no list of prompts of one kind."""
    if prompt is None or prompt == []:
        raise InvalidField(f"The field '{param}' must be a string, a list of strings or a list of tokens.", param)
    if isinstance(prompt, list) and len(set(map(type, prompt))) > 1:
        raise InvalidField(f"The field '{param}' mixes strings, tokens and lists; send one kind.", param)


def _check_choices(view: RequestView) -> None:
    if view.n is not None and not 1 <= view.n <= MAX_CHOICES:
        raise _bad_count("n", view.n)
    if view.best_of is not None and not 1 <= view.best_of <= MAX_CHOICES:
        raise _bad_count("best_of", view.best_of)


def _bad_count(param: str, count: int) -> RequestError:
    return InvalidField(f"The field '{param}' is {count}, but must be from 1 to {MAX_CHOICES}.", param)


_AT_FIELD = re.compile(r"(.*) - at `\$\.(\w+)(.*)`", re.DOTALL)

_JSON_NAMES = {"str": "a string", "int": "an integer", "float": "a number", "bool": "true or false", "array": "a list"}
_JSON_NAMES |= {"object": "an object", "null": "null"}


def _wrong_type(error: str) -> RequestError:
    """Msgspec's "Expected `int | null`, got `str` - at `$.n`" as a sentence for someone who knows JSON, not Python."""
    found = _AT_FIELD.fullmatch(error)
    if found is None:
        return InvalidBody("The request body must be a JSON object.")
    said, param, rest = found.groups()
    said = re.sub(r"`([^`]*)`", lambda types: _in_words(types[1]), said)
    return InvalidField(f"The field '{param}{rest}' is wrong: {said[0].lower()}{said[1:]}.", param)


def _in_words(types: str) -> str:
    names = [_JSON_NAMES.get(name, f"'{name}'") for name in types.split(" | ") if types == "null" or name != "null"]
    return " or ".join(names)


def _not_json(error: str) -> RequestError:
    """Where the parser stopped, if it says so; its other messages tell of its own state, not of the mistake."""
    where = re.search(r"\(byte \d+\)", error)
    return InvalidBody(f"The request body is not valid JSON{f' {where[0]}' if where else ''}.")

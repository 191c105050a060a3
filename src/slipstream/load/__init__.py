"""The request driver that everything shares which sends load: planned requests in, one result for each out."""

from slipstream.load.answer import StreamedAnswer, WholeAnswer, error_sentence
from slipstream.load.driver import Level, drive
from slipstream.load.failure import failure_words
from slipstream.load.open_loop import drive_at_times
from slipstream.load.prompts import CHARACTERS_PER_TOKEN, made_prompt
from slipstream.load.request import PlannedRequest
from slipstream.load.result import LoadResult
from slipstream.load.sending import completions_url, send

__all__ = [
    "CHARACTERS_PER_TOKEN",
    "Level",
    "LoadResult",
    "PlannedRequest",
    "StreamedAnswer",
    "WholeAnswer",
    "completions_url",
    "drive",
    "drive_at_times",
    "error_sentence",
    "failure_words",
    "made_prompt",
    "send",
]

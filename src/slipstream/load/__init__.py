"""The request driver that everything shares which sends load: planned requests in, one result for each out."""

from slipstream.load.answer import StreamedAnswer, WholeAnswer, error_sentence
from slipstream.load.driver import Level, drive
from slipstream.load.request import PlannedRequest
from slipstream.load.result import LoadResult

__all__ = ["Level", "LoadResult", "PlannedRequest", "StreamedAnswer", "WholeAnswer", "drive", "error_sentence"]

"""What a profile says of itself. Its step times are for whoever calculates with them."""

from __future__ import annotations

import json
from pathlib import Path

from slipstream.config.files import read_text
from slipstream.core.calibration import Calibration

__all__ = ["calibration_from_file"]

_NEEDED = ("engine", "version", "hardware", "model", "date")


def calibration_from_file(file: str) -> Calibration:
    """The fingerprint of the profile in a file. Raises ``ValueError`` saying what is allowed when it is none."""
    try:
        document = json.loads(read_text(Path(file)))
    except OSError as error:
        raise ValueError(f"a file that can be read ({error.strerror or error})") from None
    except (ValueError, RecursionError):
        raise ValueError("a profile in JSON, as `slipstream calibrate --output` writes it") from None
    if not isinstance(document, dict):
        raise ValueError("a JSON object, as `slipstream calibrate --output` writes it")
    missing = [key for key in _NEEDED if not str(document.get(key) or "").strip()]
    if missing:
        raise ValueError(f"a profile that says its {', '.join(missing)}")
    speculators = document.get("speculators", [])
    if not isinstance(speculators, list) or not all(isinstance(one, str) for one in speculators):
        raise ValueError("a profile whose speculators are a list of texts")
    return Calibration(
        file,
        str(document["date"]),
        str(document["engine"]),
        str(document["version"]),
        str(document["model"]),
        tuple(speculators),
    )

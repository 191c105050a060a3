"""Plots as files: what may be refused before anything is computed, and how they are written."""

from __future__ import annotations

from importlib.util import find_spec
from os.path import isdir
from pathlib import Path
from typing import TYPE_CHECKING

from slipstream.costmodel.errors import ImpossibleInput

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["check_picture", "save_picture"]

FORMATS = (".png", ".svg")


def check_picture(file: Path) -> None:
    """Raises `ImpossibleInput` for another ending than .png and .svg, for a folder that there is not, and where
    matplotlib is not installed.
    """
    if file.suffix.lower() not in FORMATS:
        raise ImpossibleInput(f"a plot is written as {' or '.join(FORMATS)}, not as {file.name!r}")
    if not isdir(file.parent):
        raise ImpossibleInput(f"the plot can not be written to {file}: No such file or directory")
    if find_spec("matplotlib") is None:
        raise ImpossibleInput("--plot needs matplotlib: pip install 'slipstream[plot]'")


def save_picture(figure: Figure, file: Path) -> None:
    """In the format of the file's ending. Raises `ImpossibleInput` where it can not be written."""
    try:
        figure.savefig(file, dpi=150)
    except OSError as error:
        raise ImpossibleInput(f"the plot can not be written to {file}: {error.strerror}") from None

"""``python -m slipstream.costmodel.validation [PAGE] [TABLES]``: write the page, its plots beside it."""

from __future__ import annotations

import sys
from pathlib import Path

from slipstream.costmodel.errors import ImpossibleInput
from slipstream.costmodel.validation.held_out import held_out
from slipstream.costmodel.validation.measurements import SHIPPED, read_measurements
from slipstream.costmodel.validation.report import Scores, page, plots


def main(arguments: list[str]) -> None:
    """Compare the tables (default: those that ship) with the model, and write what comes out.

    Raises ImpossibleInput for arguments that are none, and for tables that can not be read.
    """
    if len(arguments) > 2 or any(argument.startswith("-") for argument in arguments):
        raise ImpossibleInput("usage: python -m slipstream.costmodel.validation [PAGE] [TABLES]")
    target = Path(arguments[0] if arguments else "docs/explanation/validation.md")
    if not target.parent.is_dir():
        raise ImpossibleInput(f"{target.parent} is no folder to write a page in")
    measurements = read_measurements(Path(arguments[1]) if len(arguments) > 1 else SHIPPED)
    scores = Scores(measurements)
    target.write_text(page(scores, Scores(held_out(measurements))), encoding="utf-8")
    plots(scores, target.parent)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (ImpossibleInput, OSError) as error:
        sys.exit(str(error))

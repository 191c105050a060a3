"""Compile the hot path with mypyc when the package is built.

What is compiled is the same typed Python that runs without compiling: with ``SLIPSTREAM_PURE=1``, or where the build
finds no C compiler, the package works as it is, only slower. See docs/decisions/0005-compiled-hot-path.md.
"""

import os
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup

PACKAGE = Path("src/slipstream")
INTERPRETED = {"content.py", "embeddings.py", "fields.py", "messages.py", "models.py", "passthrough.py", "responses.py"}
"""Modules of the gateway that define `msgspec.Struct`s, which need real Python classes."""

TELEMETRY = ("access_log", "histogram", "instruments", "json_text", "line_file", "recorder", "sinks")
MODELLED = ("account", "batch", "blocks", "engine", "sequence", "step_times")
SIMULATED = ("columns", "events", "fate", "fleet_loop", "gateway", "node")

COMPILED = sorted(
    str(path)
    for path in [
        *(path for path in PACKAGE.glob("core/**/*.py") if path.name != "compilation.py"),
        *(path for path in PACKAGE.glob("gateway/*.py") if path.name not in INTERPRETED),
        PACKAGE / "engines/catalogue.py",
        *(PACKAGE / f"enginemodel/{name}.py" for name in MODELLED),
        *(PACKAGE / f"sim/{name}.py" for name in SIMULATED),
        *(PACKAGE / f"telemetry/{name}.py" for name in TELEMETRY),
    ]
)


METADATA = {"dist_info", "egg_info"}
"""Commands that ask only for the package's name and version: pip runs one before each build."""


def extensions() -> list[Extension]:
    if os.environ.get("SLIPSTREAM_PURE") == "1" or METADATA & set(sys.argv):
        return []
    if shutil.which(os.environ.get("CC", "cc")) is None:
        print("no C compiler found: the hot path is not compiled", file=sys.stderr)
        return []
    from mypyc.build import mypycify

    found = mypycify(
        ["--ignore-missing-imports", "--no-warn-unused-ignores", *COMPILED],
        opt_level="1",
        debug_level="0",
    )
    for extension in found:
        # Python's own flags ask for warnings, for which gcc spends seven times what it takes to compile: nobody reads
        # them, since the C is generated.
        extension.extra_compile_args.append("-Wno-all")
        # All of it is one object, of which Python looks for nothing but the beginning. What others could see, others
        # could replace, so each call and each constant would go through a table.
        extension.extra_compile_args.append("-fvisibility=hidden")
    return found


setup(ext_modules=extensions())

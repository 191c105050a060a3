from __future__ import annotations

import resource
import subprocess
import sys

SCRIPT = "from slipstream.cli.descriptors import allow_many_connections as allow; print(allow(), allow())"


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))

    after = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    script = f"{SCRIPT}; {after}"
    out = subprocess.run(
        [sys.executable, "-c", script], preexec_fn=few_files, capture_output=True, text=True, check=True
    ).stdout
    assert set(out.split()) == {str(hard)}

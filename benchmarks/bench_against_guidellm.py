"""`slipstream bench` and a load generator that nobody here wrote, on the same emulated node.

`python -m benchmarks.bench_against_guidellm GUIDELLM`, the program of guidellm installed somewhere else
(`python -m venv there && there/bin/pip install guidellm`). Both send prompts of the same lengths with the same output
lengths in the same order, and nothing counts as warm-up; guidellm's Poisson arrivals are sent again as a trace. On a
machine that has other work, `chrt -f 10` before it measures as on a quiet one. What guidellm calls inter-token latency
is TPOT here; its own TPOT is E2E over all tokens. docs/explanation/bench-against-guidellm.md has the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slipstream.cli.bench_question import lengths_of
from slipstream.load import made_prompt
from slipstream.workload.arrivals import ConstantArrivals
from slipstream.workload.lengths import FixedLengths
from slipstream.workload.mix import CategoryTraffic, Mix, make_plan

REQUESTS = 300
SEED = 1
PROMPT_TOKENS, OUTPUT_TOKENS = 1500, "32-96"
CHARACTERS_PER_TOKEN = 4
"""As emulated nodes count."""
NODE = ("--target", "Llama-3.3-70B", "--hardware", "H100", "--tp", "4", "--slots", "64")
LOADS = (
    ("constant, 5/s", "kind=constant,rate=5", ("--arrivals", "constant", "--rate", "5")),
    ("8 at once", "kind=concurrent,streams=8", ("--concurrency", "8")),
    ("Poisson, as guidellm sent it", "kind=poisson,rate=4", ("--trace",)),
)
ROWS = (
    ("requests/s", "requests_per_s"),
    ("TTFT mean, ms", "ttft_mean"),
    ("TTFT p95, ms", "ttft_p95"),
    ("TPOT mean, ms", "tpot_mean"),
    ("TPOT p95, ms", "tpot_p95"),
    ("E2E mean, ms", "e2e_mean"),
    ("E2E p95, ms", "e2e_p95"),
)


@contextmanager
def node() -> Iterator[str]:
    """The address of an emulated node in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "slipstream",
        "emulate",
        *NODE,
        "--output-tokens",
        "100000",
        "--port",
        "0",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


def of_guidellm(program: str, url: str, profile: str, folder: Path) -> dict[str, float]:
    """What it measures; a new process each time, as it is used. What it sent is left in the folder as a trace."""
    prompts, report = folder / "prompts.jsonl", folder / "report.json"
    if not prompts.exists():
        lengths = lengths_of("--output-tokens", OUTPUT_TOKENS)
        mix = Mix(
            ConstantArrivals(1.0),
            (CategoryTraffic("chat", 1.0, FixedLengths(PROMPT_TOKENS), lengths),),
            (("", 1.0),),
            requests=REQUESTS,
        )
        rows = [
            {
                "prompt": made_prompt("chat", PROMPT_TOKENS * CHARACTERS_PER_TOKEN, number, 99),
                "output_tokens_count": tokens,
            }
            for number, tokens in enumerate(make_plan(mix, SEED).output_tokens.tolist())
        ]
        prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [
        *(program, "run", "--disable-console"),
        *("--backend", f"kind=openai_http,target={url},request_format=/v1/chat/completions,model=emulated"),
        *("--profile", profile, "--constraint", f"kind=max_requests,count={REQUESTS}"),
        *("--data", f"kind=json_file,path={prompts}", "--output", f"kind=json,path={report}"),
    ]
    subprocess.run(command, check=True, env=os.environ | {"HF_HUB_OFFLINE": "1"}, stdout=subprocess.DEVNULL)
    told = json.loads(report.read_text())["benchmarks"][0]
    sent = sorted(
        (request["info"]["timings"]["targeted_start"], request["output_tokens"])
        for request in told["requests"]["successful"]
    )
    first = sent[0][0]
    rows = [
        {"timestamp": (at - first) * 1000.0, "input_length": PROMPT_TOKENS, "output_length": tokens}
        for at, tokens in sent
    ]
    (folder / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    metrics = told["metrics"]

    def figures(name: str, factor: float = 1.0) -> tuple[float, float]:
        one = metrics[name]["successful"]
        return one["mean"] * factor, one["percentiles"]["p95"] * factor

    ttft, tpot = figures("time_to_first_token_ms"), figures("inter_token_latency_ms")
    e2e = figures("request_latency", 1000.0)
    return {"requests_per_s": figures("requests_per_second")[0]} | _named(ttft=ttft, tpot=tpot, e2e=e2e)


def of_bench(url: str, options: tuple[str, ...], folder: Path) -> dict[str, float]:
    """What `slipstream bench` measures; with ``--trace``, on what guidellm sent."""
    lengths = ("--output-tokens", OUTPUT_TOKENS, "--prompt-tokens", str(PROMPT_TOKENS))
    load = (*options, str(folder / "trace.jsonl")) if options == ("--trace",) else (*options, *lengths)
    command = [
        *(sys.executable, "-m", "slipstream", "bench", url, *load),
        *("--json", "--warm-up", "0", "--requests", str(REQUESTS), "--seed", str(SEED)),
    ]
    ended = subprocess.run(command, check=False, stdout=subprocess.PIPE)
    if ended.returncode:
        raise SystemExit(f"slipstream bench ended with status {ended.returncode}")
    told: dict[str, Any] = json.loads(ended.stdout)["targets"][0]
    pairs = {name: (told[f"{name}_ms"]["mean"], told[f"{name}_ms"]["p95"]) for name in ("ttft", "tpot", "e2e")}
    return {"requests_per_s": told["requests_per_s"]} | _named(**pairs)


def _named(**pairs: tuple[float, float]) -> dict[str, float]:
    return {f"{name}_{kind}": pair[place] for name, pair in pairs.items() for place, kind in enumerate(("mean", "p95"))}


def main(arguments: list[str]) -> None:
    """Both, at each load, as a table."""
    parser = argparse.ArgumentParser(description="slipstream bench against guidellm")
    parser.add_argument("guidellm", help="the program")
    program = parser.parse_args(arguments).guidellm
    print("| load | | guidellm | slipstream bench | difference |\n|---|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder, node() as url:
        for load, profile, options in LOADS:
            theirs, ours = of_guidellm(program, url, profile, Path(folder)), of_bench(url, options, Path(folder))
            for row, key in ROWS:
                change = ours[key] / theirs[key] - 1.0
                print(f"| {load} | {row} | {theirs[key]:.2f} | {ours[key]:.2f} | {change:+.1%} |", flush=True)
                load = ""


if __name__ == "__main__":
    main(sys.argv[1:])

"""What the gateway costs per request and per streamed chunk, beside its peers, in one run.

    python -m benchmarks.ruler [--only nginx,envoy] [--rounds 3] [--json FILE]

Each program runs alone on processor 0; the mock engine and the load generator run on processor 1. CPU time of the whole
process tree is read from /proc: it survives a noisy machine better than requests per second do, and ratios within one
run better still. Every round starts each program anew, in turn, and what is told is the median of the rounds, with all
of them beside it: what else runs on a shared machine may slow a processor by a third for some seconds, and that hits
whichever program is measured then. Needs `cc`, `wrk` and `taskset`; peers are measured where their program is found:
nginx, envoy, vllm-router and smg.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from statistics import median

UPSTREAM_PORT = 9201
GATEWAY_PORT, ADMIN_PORT = 8080, 8081
KEY = "sk-slipstream-0123456789abcdef0123456789abcdef"
CHUNKS, TICK_US, STREAMS, CLIENTS = 100, 10_000, 200, 64
BODY = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "You are a helpful assistant."},
        {
            "role": "user",
            "content": "Write a Python function that merges two sorted lists.\n\n```python\ndef merge(a, b):\n```",
        },
    ],
    "max_tokens": 256,
    "temperature": 0.7,
}


@dataclass(frozen=True)
class Target:
    """A program that forwards ``port`` to the mock engine."""

    name: str
    command: tuple[str, ...]
    port: int


@dataclass(frozen=True)
class Load:
    """What the load generator saw."""

    requests: int
    p50: str
    p99: str
    bad: int
    errors: str


@dataclass(frozen=True)
class Row:
    """One line of the table. CPU in microseconds."""

    name: str
    us_per_request: float
    us_per_chunk: float
    p50_one_client: str
    p99_all_clients: str
    bad: int
    errors: str


Round = dict[str, Row]
"""What was measured in turn, by the programs' names."""


def tree_cpu_seconds(root: int) -> float:
    """CPU time of a process and all its descendants."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it ended while we looked
        children.setdefault(int(fields[1]), []).append(int(entry))
        ticks[int(entry)] = int(fields[11]) + int(fields[12])
    total, queue = 0, [root]
    while queue:
        process = queue.pop()
        total += ticks.get(process, 0)
        queue += children.get(process, [])
    return total / os.sysconf("SC_CLK_TCK")


def answers(port: int, seconds: float = 60.0) -> bool:
    """Whether something answers on the port within ``seconds``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).read()
        except urllib.error.HTTPError:
            return True
        except OSError:
            time.sleep(0.25)
        else:
            return True
    return False


def generate(folder: Path, port: int, *, stream: bool, clients: int, seconds: int) -> Load:
    """Closed-loop load by wrk."""
    script = folder / ("stream.lua" if stream else "unary.lua")
    body = json.dumps(BODY | ({"stream": True} if stream else {}))
    headers = f'wrk.headers["Content-Type"]="application/json"; wrk.headers["Authorization"]="Bearer {KEY}"'
    script.write_text(f'wrk.method="POST"; {headers}; wrk.body=[==[{body}]==]')
    command = ["taskset", "-c", "1", "wrk", "-t1", f"-c{clients}", f"-d{seconds}s", "--latency", "-s", str(script)]
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    out = subprocess.run([*command, url], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+) requests in", out)
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    errors = re.search(r"Socket errors: (.*)", out)
    return Load(
        int(found[1]) if found else 0,
        _percentile(out, 50),
        _percentile(out, 99),
        int(bad[1]) if bad else 0,
        errors[1] if errors else "",
    )


def _percentile(out: str, percent: int) -> str:
    found = re.search(rf"(?m)^\s+{percent}%\s+(\S+)", out)
    return found[1] if found else "-"


def measure(folder: Path, target: Target) -> Row | None:
    """Run a target alone and load it; ``None`` when it does not answer."""
    with (folder / f"{target.name}.log").open("w") as log:
        process = subprocess.Popen(["taskset", "-c", "0", *target.command], stdout=log, stderr=subprocess.STDOUT)
    try:
        if not answers(target.port):
            print(f"{target.name}: did not answer on port {target.port}")
            return None
        time.sleep(1)
        generate(folder, target.port, stream=False, clients=16, seconds=1)
        before = tree_cpu_seconds(process.pid)
        unary = generate(folder, target.port, stream=False, clients=CLIENTS, seconds=5)
        middle = tree_cpu_seconds(process.pid)
        stream = generate(folder, target.port, stream=True, clients=STREAMS, seconds=6)
        after = tree_cpu_seconds(process.pid)
        single = generate(folder, target.port, stream=False, clients=1, seconds=2)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
    # Streams that were still running when wrk stopped are counted as half done.
    chunks = max(stream.requests * CHUNKS + STREAMS * CHUNKS // 2, 1)
    return Row(
        target.name,
        1e6 * (middle - before) / max(unary.requests, 1),
        1e6 * (after - middle) / chunks,
        single.p50,
        unary.p99,
        unary.bad + stream.bad,
        unary.errors + stream.errors,
    )


def slipstream(folder: Path, name: str, nodes: str, pools: str = "", gateway: str = "") -> Target:
    """`slipstream serve` before the mock engine. ``pools`` are further sections, ``gateway`` further keys of it."""
    config = folder / f"{name}.yaml"
    config.write_text(
        f'gateway: {{listen: "127.0.0.1:{GATEWAY_PORT}"{gateway}}}\n'
        f'admin: {{listen: "127.0.0.1:{ADMIN_PORT}"}}\n'
        f"{pools}nodes:\n{nodes}"
    )
    return Target(name, (sys.executable, "-m", "slipstream", "serve", "-c", str(config)), GATEWAY_PORT)


def ours(folder: Path) -> list[Target]:
    """The gateway before a standard node, before a speculative node below its ceiling, and the same with keys, access
    log and recording as well. Affinity is on in all.
    """
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    url = f'url: "http://127.0.0.1:{UPSTREAM_PORT}", engine: vllm'
    return [
        slipstream(folder, "slipstream, standard", f"  - {{name: std-0, {url}, pool: standard}}\n"),
        slipstream(
            folder,
            "slipstream, speculative",
            f"  - {{name: spec-0, {url}, pool: speculative, max_in_flight: 2000}}\n",
            "pools: {speculative: {ceiling: 1000, short_output_tokens: 0}}\n",
        ),
        slipstream(
            folder,
            "slipstream, all on",
            f"  - {{name: spec-0, {url}, pool: speculative, max_in_flight: 2000}}\n",
            "pools: {speculative: {ceiling: 1000, short_output_tokens: 0}}\n"
            f"log: {{access: '{folder}/access.log'}}\nrecord: {{file: '{folder}/decisions.jsonl'}}\n",
            f", keys: [{{id: team-a, hash: 'sha256:{digest}', max_in_flight: 10000}}]",
        ),
    ]


def peers(folder: Path) -> list[Target]:
    """Other gateways before the same mock engine, as lean as their settings allow."""
    (folder / "nginx.conf").write_text(
        f"daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.err;\n"
        "events { worker_connections 4096; }\n"
        f"http {{ access_log off; upstream u {{ server 127.0.0.1:{UPSTREAM_PORT}; keepalive 512; }}\n"
        " keepalive_requests 10000000; server { listen 9211; location / { proxy_pass http://u; proxy_http_version 1.1;"
        ' proxy_set_header Connection ""; proxy_buffering off; } } }\n'
    )
    (folder / "envoy.json").write_text(json.dumps(_envoy()))
    worker = f"http://127.0.0.1:{UPSTREAM_PORT}"
    router = ("--host", "127.0.0.1", "--worker-urls", worker, "--policy", "round_robin", "--log-level", "error")
    envoy = ("envoy", "-c", str(folder / "envoy.json"), "--concurrency", "1", "-l", "error", "--use-dynamic-base-id")
    return [
        Target("nginx", ("nginx", "-c", str(folder / "nginx.conf")), 9211),
        Target("envoy", envoy, 9212),
        Target("vllm-router", ("vllm-router", *router, "--port", "9214", "--disable-retries"), 9214),
        Target("smg", ("smg", "launch", *router, "--port", "9213", "--disable-health-check"), 9213),
    ]


def _envoy() -> dict[str, object]:
    kind = "type.googleapis.com/envoy.extensions.filters"
    connections = {
        "@type": f"{kind}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "x",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "v",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "c", "timeout": "0s"}}],
                }
            ]
        },
        "http_filters": [
            {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{kind}.http.router.v3.Router"}}
        ],
    }
    thresholds = {"max_connections": 10000, "max_pending_requests": 10000, "max_requests": 10000}
    return {
        "static_resources": {
            "listeners": [
                {
                    "name": "l",
                    "address": {"socket_address": {"address": "127.0.0.1", "port_value": 9212}},
                    "filter_chains": [
                        {
                            "filters": [
                                {
                                    "name": "envoy.filters.network.http_connection_manager",
                                    "typed_config": connections,
                                }
                            ]
                        }
                    ],
                }
            ],
            "clusters": [
                {
                    "name": "c",
                    "type": "STATIC",
                    "lb_policy": "LEAST_REQUEST",
                    "circuit_breakers": {"thresholds": [thresholds]},
                    "load_assignment": {
                        "cluster_name": "c",
                        "endpoints": [
                            {
                                "lb_endpoints": [
                                    {
                                        "endpoint": {
                                            "address": {
                                                "socket_address": {
                                                    "address": "127.0.0.1",
                                                    "port_value": UPSTREAM_PORT,
                                                }
                                            }
                                        }
                                    }
                                ]
                            }
                        ],
                    },
                }
            ],
        }
    }


def main(arguments: list[str] | None = None) -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="comma list of peers to measure (default: all found)")
    parser.add_argument("--rounds", type=int, default=3, help="how often to measure each program (default: 3)")
    parser.add_argument("--json", default="", help="also write the rows here, of all rounds")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds must be 1 or more")
    missing = [tool for tool in ("cc", "wrk", "taskset") if shutil.which(tool) is None]
    if missing:
        print(f"not measured: {', '.join(missing)} not found")
        return
    wanted = set(filter(None, options.only.split(",")))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = Path(__file__).with_name("mock_upstream.c")
        subprocess.run(["cc", "-O2", "-o", str(folder / "mock"), str(source)], check=True)
        mock_command = [str(folder / "mock"), str(UPSTREAM_PORT), str(CHUNKS), str(TICK_US)]
        mock = subprocess.Popen(["taskset", "-c", "1", *mock_command])
        try:
            found = [peer for peer in peers(folder) if shutil.which(peer.command[0])]
            targets = ours(folder) + [peer for peer in found if not wanted or peer.name in wanted]
            rounds: list[Round] = [
                {target.name: row for target in targets if (row := measure(folder, target)) is not None}
                for _ in range(options.rounds)
            ]
        finally:
            mock.terminate()
            mock.wait()
    print_costs(rounds)
    print_ratios(rounds)
    if options.json:
        Path(options.json).write_text(json.dumps([list(map(asdict, rows.values())) for rows in rounds], indent=1))


def print_costs(rounds: list[Round]) -> None:
    """Each program's costs: the median of the rounds, and the waiting times of the last."""
    print(f"{'median of the rounds':24s}{'us/request':>11s}{'us/chunk':>10s}{'p50 c=1':>10s}{'p99 c=64':>10s}  bad")
    for name in _always_measured(rounds):
        rows = [measured[name] for measured in rounds]
        print(
            f"{name:24s}{median(row.us_per_request for row in rows):11.1f}"
            f"{median(row.us_per_chunk for row in rows):10.1f}"
            f"{rows[-1].p50_one_client:>10s}{rows[-1].p99_all_clients:>10s}"
            f"  {sum(row.bad for row in rows)} {' '.join(row.errors for row in rows).strip()}"
        )


def print_ratios(rounds: list[Round]) -> None:
    """Our costs as parts of each peer's: the median of the rounds' ratios, and the ratio of each round."""
    names = _always_measured(rounds)
    own = [name for name in names if name.startswith("slipstream")]
    for label, cost in (("request", attrgetter("us_per_request")), ("chunk", attrgetter("us_per_chunk"))):
        for peer in (name for name in names if own and name not in own):
            print(f"\n{label}, of {peer}'s")
            for name in own:
                ratios = [cost(measured[name]) / cost(measured[peer]) for measured in rounds]
                print(f"  {name:24s}{median(ratios):5.2f}   ({' '.join(f'{ratio:.2f}' for ratio in ratios)})")


def _always_measured(rounds: list[Round]) -> list[str]:
    return [name for name in rounds[0] if all(name in measured for measured in rounds)]


if __name__ == "__main__":
    main()

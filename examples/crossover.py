"""Where does speculation stop paying? The same questions as `slipstream crossover`, asked of the Python API.

A notebook in plain Python: every `# %%` begins a cell. It needs numpy and nothing of the gateway.
"""

# %% What is needed
from dataclasses import replace

import numpy as np

from slipstream.core.speedup import latency_speedup, rejected_share
from slipstream.costmodel.acceptance import geometric
from slipstream.costmodel.catalogue import engine_named, hardware_named, model_named
from slipstream.costmodel.costs import RooflineCosts
from slipstream.costmodel.curve import Workload, curve_of, sweep
from slipstream.costmodel.memory import admitted
from slipstream.costmodel.mixture import best_speculators, exclusions, heterogeneous
from slipstream.costmodel.published import published_curve
from slipstream.costmodel.roofline import Deployment
from slipstream.costmodel.speculator import draft_model, eagle_head

# %% On the back of an envelope: one request, a draft step at 0.15 of a target step, nothing charged for width
print(
    f"speedup {latency_speedup(0.75, 4, 0.15):.2f}, and {rejected_share(0.75, 4):.0%} of what is drafted is thrown away"
)
assert round(latency_speedup(0.75, 4, 0.15), 2) == 1.91

# %% A target, its GPUs, and a draft model
target = model_named("Llama-3.3-70B")
deployment = Deployment(target, hardware_named("H100"), engine_named("vllm"), tensor_parallel=4)
draft = draft_model(model_named("Llama-3.2-3B"))
costs = RooflineCosts(deployment, draft)
workload = Workload(context=2048)
BATCHES = [1, 8, 32, 64, 128]

# %% Speedup over batch size, and the crossover
curve = curve_of("3B draft", costs, geometric(0.65), 4, BATCHES, workload)
for row in curve.rows:
    print(f"batch {row.batch_size:3.0f}: speedup {row.speedup:.2f}, best K {row.best_k}")
print(f"{curve.shape.value}, at batch {', '.join(f'{one:.0f}' for one in curve.crossovers)}")
assert curve.rows[0].speedup > 1.0 > curve.rows[-1].speedup

# %% A head on the target beside that draft model: which pays, where
heads = curve_of("EAGLE-3", RooflineCosts(deployment, eagle_head(target)), geometric(0.5), 4, BATCHES, workload)
for best in best_speculators([curve, heads]):
    print(f"batch {best.batch_size:3.0f}: {best.name or 'no speculator'}, {best.speedup:.2f}")

# %% What the draft model takes from the requests, sharded over the GPUs or whole on each of them
sharded = admitted(deployment, draft, workload.context)
whole = admitted(deployment, replace(draft, sharded=False), workload.context)
fits = f"{sharded.standard} without a draft, {sharded.speculative} with it, {whole.speculative} replicated"
print(f"requests that fit: {fits}")
assert sharded.standard > (sharded.speculative or 0) > (whole.speculative or 0)

# %% 0.65 on average hides 0.85 for code and 0.40 for chat
categories = {"code": geometric(0.85), "chat": geometric(0.40)}
for found in exclusions(costs, categories, {"code": 0.556, "chat": 0.444}, 4, BATCHES, workload):
    print(
        f"batch {found.batch_size:3.0f}: all {found.mixed_speedup:.2f}, "
        f"exclude {', '.join(found.excluded) or 'nothing'}: {found.remaining_speedup or 0.0:.2f}"
    )
    assert "code" not in found.excluded

# %% Eight requests that accept differently: what a padded kernel throws away
alphas = np.random.default_rng(1).beta(5, 3, size=8)
batch = heterogeneous(costs, alphas.tolist(), 4, workload)
print(f"ragged: tau {batch.ragged_tau:.2f}, padded: tau {batch.padded_tau:.2f}, wasted {batch.padded_wasted:.0%}")
assert batch.padded_tau < batch.ragged_tau

# %% Context turns it around: a sweep over 8 contexts, 17 draft lengths and 512 batch sizes
head = RooflineCosts(deployment, eagle_head(target))
contexts = [256, 512, 1024, 2048, 4096, 8192, 16384, 32768]
grid = sweep(head, geometric(0.5), np.arange(1, 513), np.arange(17), contexts)
print(
    "speedup at batch 256 and K = 4, by context:", dict(zip(contexts, grid[:, 4, 255].round(2).tolist(), strict=True))
)
assert grid.shape == (8, 17, 512)
assert grid[-1, 4, 255] > grid[0, 4, 255]

# %% The published script, as printed and with the width of verification charged
for verify_width in (False, True):
    published = published_curve(0.72, 4, [32], verify_width=verify_width)
    print(f"published script: {published.rows[0].speedup:.2f} at batch 32, crossovers {published.crossovers}")
assert [round(one, 1) for one in published.crossovers] == [29.2]

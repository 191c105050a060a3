"""The simulator predicts a real engine: a llama.cpp node is measured at 1, 2 and 4 streams, and plans that it was not
measured with are served and simulated. benchmarks/real_engine.py says how, and in which time; run as
`python -m benchmarks real-engine` it takes longer, goes up to 8 streams and gives more exact figures.
"""

from __future__ import annotations

import pytest
from benchmarks.real_engine import Setup, compare

from slipstream.workload.lengths import UniformLengths

SETUP = Setup(
    slots=4,
    prompt_tokens=32,
    answer_tokens={1: 40, 2: 28, 4: 16},
    plans=3,
    requests=6,
    rate=0.6,
    prompt=UniformLengths(30, 42),
    output=UniformLengths(16, 40),
)


@pytest.mark.engine
@pytest.mark.quiet
@pytest.mark.timeout(600)
async def test_mean_tpot_and_e2e_of_a_real_engine_are_predicted_within_15_percent() -> None:
    found = await compare(SETUP, lambda _plan: None)
    (_, tpot_s, e2e_s), (_, predicted_tpot_s, predicted_e2e_s) = found.means()
    assert predicted_tpot_s == pytest.approx(tpot_s, rel=0.15)
    assert predicted_e2e_s == pytest.approx(e2e_s, rel=0.15)

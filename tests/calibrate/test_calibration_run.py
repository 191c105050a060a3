"""A calibration of nodes whose step times are known, over sockets."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from calibrated_nodes import COSTS, PLAN, K, calibrated, node_settings, two_nodes
from emulated_client import ask
from gateway_rig import eventually
from slipstream.calibrate.errors import NodeBusy, NodeUnusable
from slipstream.calibrate.findings import Findings, findings_of
from slipstream.calibrate.measured_profile import Form, profile_document
from slipstream.calibrate.report import Status, calibration_document, verdict_of
from slipstream.costmodel.profiles import LinearCosts, TableCosts, profile_of
from slipstream.costmodel.steps import step_rows
from slipstream.emulate import Pace, emulated
from slipstream.emulate.llamacpp import BUILD

BATCHES = [1, 2, 4, 8]


@pytest.fixture(scope="module")
def findings() -> Findings:
    """Of one calibration, that all tests here look at."""

    async def measured() -> Findings:
        async with two_nodes() as (standard, speculative):
            observed = await calibrated([standard.url, speculative.url])
            assert standard.record.in_flight == speculative.record.in_flight == 0
        return findings_of(observed)

    return asyncio.run(measured())


def profile(findings: Findings, form: Form) -> LinearCosts | TableCosts:
    document = profile_document(findings, form, hardware="none", date="2026-11-30", flags="--made")
    assert document["speculators"] == ["draft-k4"]
    assert document["plan"]["fingerprint"] == PLAN.fingerprint
    assert document["fits"]["valid"]["batch_size"] == [1, 8]
    assert document["system_fingerprints"] == [BUILD]
    return profile_of(document, "made")


@pytest.mark.parametrize("form", ["table", "linear"])
def test_the_profile_is_one_that_is_read_and_near_what_was_set(findings: Findings, form: Form) -> None:
    """How near it comes is for nodes in time that is handed in: here the machine may be busy."""
    costs = profile(findings, form)
    assert costs.standard_s(BATCHES, 84).tolist() == pytest.approx(COSTS.standard_s(BATCHES, 84).tolist(), rel=0.5)
    expected = COSTS.speculative_s(BATCHES, K, 84).tolist()
    assert costs.speculative_s(BATCHES, K, 84).tolist() == pytest.approx(expected, rel=0.5)
    assert (costs.provenance.engine, costs.provenance.model) == ("llamacpp", "emulated")


def test_what_it_says_is_whole(findings: Findings) -> None:
    answer = calibration_document(findings)
    assert [row["batch_size"] for row in answer["curves"][0]["rows"]] == BATCHES
    assert answer["admitted"] == {"standard": 8, "speculative": 8}
    (acceptance,) = answer["acceptance"].values()
    assert acceptance.keys() == {"all", "code", "chat"}
    assert acceptance["code"]["tau"] == pytest.approx(5.0)
    assert [node["engine"] for node in answer["nodes"]] == ["llamacpp", "llamacpp"]
    assert answer["run"]["ended"] is None
    assert verdict_of(findings).status is Status.MEASURED


async def test_counters_tell_acceptance_where_answers_do_not() -> None:
    plan = replace(PLAN, batch_sizes=(1, 2), output_tokens=24)
    async with two_nodes("vllm", alpha=0.6) as (standard, speculative):
        found = findings_of(await calibrated([standard.url, speculative.url], plan))
    acceptance = found.speculative[0].acceptance
    assert acceptance.keys() == {"all", "code", "chat"}
    tau = acceptance["all"].tau
    assert tau is not None
    assert 1.5 < tau < 3.0
    assert found.speculative[0].k == K


async def test_no_more_is_asked_for_than_nodes_admit() -> None:
    plan = replace(PLAN, batch_sizes=(1, 4), categories=("chat",), output_tokens=21)
    async with (
        emulated("llamacpp", node_settings(drafts=False)) as standard,
        emulated("llamacpp", node_settings(drafts=True, slots=2)) as speculative,
    ):
        found = findings_of(await calibrated([standard.url, speculative.url], replace(plan, rounds=2)))
        assert speculative.engine.peak_running == 2
    (curve,) = found.speculative[0].curves
    assert curve.batch_sizes == (1,)
    assert len(found.observed.speculative[0].waves) == 2  # tried once, and not again
    assert calibration_document(found)["admitted"]["speculative"] == 2


async def test_stopped_it_leaves_nothing_behind_and_tells_what_there_is() -> None:
    stop, said = asyncio.Event(), list[str]()
    async with two_nodes() as (standard, speculative):
        task = asyncio.create_task(calibrated([standard.url, speculative.url], stop=stop, said=said))
        await eventually(lambda: any("8 at once" in what for what in said) and standard.engine.running == 8)
        stop.set()
        observed = await task
        await eventually(lambda: standard.record.in_flight == standard.engine.running == 0)
    found = findings_of(observed)
    assert (observed.interrupted, observed.ended) == (True, "interrupted")
    assert verdict_of(found).status is Status.INTERRUPTED
    (curve,) = found.speculative[0].curves
    assert curve.batch_sizes == (1,)


async def test_it_ends_with_its_budget() -> None:
    async with two_nodes() as (standard, speculative):
        observed = await calibrated([standard.url, speculative.url], budget_s=0.2)
        await eventually(lambda: standard.record.in_flight == 0)
    assert (observed.interrupted, observed.ended) == (False, "the budget of 0.2 s is used up")
    found = findings_of(observed)
    assert verdict_of(found).status is Status.TOO_FEW
    assert calibration_document(found)["recommendation"].startswith("Nothing was measured")
    for form in ("table", "linear"):
        with pytest.raises(ValueError, match="--budget"):
            profile(found, form)


async def test_a_node_with_other_traffic_is_refused_unless_told() -> None:
    plan = replace(PLAN, batch_sizes=(1,), output_tokens=16)
    async with two_nodes("vllm") as (standard, speculative):
        other = asyncio.create_task(ask(speculative, stream=True, max_tokens=5000, ignore_eos=True))
        await eventually(lambda: speculative.engine.running == 1)
        with pytest.raises(NodeBusy, match="runs 1 requests that are not ours"):
            await calibrated([standard.url, speculative.url], plan)
        observed = await calibrated([standard.url, speculative.url], plan, shared=True)
        other.cancel()
    assert observed.ended == ""


async def test_who_comes_later_ends_it_with_what_there_is() -> None:
    said: list[str] = []
    plan = replace(PLAN, batch_sizes=(1, 2), output_tokens=21)
    async with two_nodes("vllm") as (standard, speculative):
        task = asyncio.create_task(calibrated([standard.url, speculative.url], plan, said=said))
        await eventually(lambda: any("2 at once" in what for what in said))
        other = asyncio.create_task(ask(standard, stream=True, max_tokens=5000, ignore_eos=True))
        observed = await task
        other.cancel()
    found = findings_of(observed)
    assert observed.busy
    assert verdict_of(found).status is Status.BUSY
    assert "take it out of service" in verdict_of(found).sentences[0]


@pytest.mark.parametrize(
    ("order", "sentence"),
    [((0, 0), "no speculator"), ((1, 1), "drafts, so it is no standard node")],
    ids=["nothing drafts", "both draft"],
)
async def test_nodes_of_the_wrong_kind_are_refused(order: tuple[int, int], sentence: str) -> None:
    async with two_nodes() as nodes:
        with pytest.raises(NodeUnusable, match=sentence):
            await calibrated([nodes[place].url for place in order], replace(PLAN, output_tokens=16))


async def test_each_draft_length_has_a_node_and_a_curve_of_its_own() -> None:
    plan = replace(PLAN, batch_sizes=(1,), categories=("code",), rounds=1, output_tokens=31)
    async with (
        two_nodes() as (standard, four),
        emulated("llamacpp", node_settings(drafts=True, k=2)) as two,
    ):
        found = findings_of(await calibrated([standard.url, four.url, two.url], plan))
        same = findings_of(await calibrated([standard.url, four.url, four.url], plan))
    assert [arm.k for arm in found.speculative] == [4, 2]
    costs = profile_of(profile_document(found, "table", hardware="none", date="2026"), "made")
    assert isinstance(costs, TableCosts)
    assert costs.step_s.keys() == {0, 2, 4}
    assert costs.provenance.note.endswith(plan.fingerprint)
    with pytest.raises(ValueError, match="two speculative nodes draft 4 tokens"):
        profile_document(same, "table", hardware="none", date="2026")
    with pytest.raises(ValueError, match="a line needs two batch sizes"):
        profile_document(found, "linear", hardware="none", date="2026")


async def test_what_a_node_refuses_is_told() -> None:
    """A context that no node takes: every request of those waves fails, and the other context's points stand."""
    plan = replace(PLAN, batch_sizes=(1,), context_tokens=(64, 9000), categories=("code",), rounds=1, output_tokens=31)
    room = Pace(step_rows(COSTS), kv_tokens=4096)
    async with two_nodes(pace=room) as (standard, speculative):
        found = findings_of(await calibrated([standard.url, speculative.url], plan))
    first, second = found.speculative[0].curves
    assert (first.batch_sizes, second.batch_sizes) == ((1,), ())
    assert any("do not fit into a cache" in sentence for sentence in verdict_of(found).sentences)

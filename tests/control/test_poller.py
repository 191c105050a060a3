"""One node, polled: what the fleet hears of it in good times and bad."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from recorded_engine import (
    RecordedEngine,
    llamacpp_pages,
    recorded,
    recorded_engine,
    sglang_pages,
    trtllm_pages,
    vllm_pages,
)
from slipstream.control.poller import Poller, Timing
from slipstream.core.errors import EngineError, EngineGarbage, EngineUnreachable
from slipstream.core.node import NodeReport, NodeSpec, SpeculativeCounters, SpeculatorKind
from slipstream.core.request import Pool
from slipstream.engines.beat import next_beat
from slipstream.engines.reader import poll_interval_s
from slipstream.engines.scrape import Scraper


class Told:
    """A fleet that remembers what it was told."""

    def __init__(self) -> None:
        self.reports: list[tuple[float, float, NodeReport]] = []
        self.errors: list[EngineError] = []

    def report(self, name: str, asked_at: float, received_at: float, report: NodeReport) -> None:
        self.reports.append((asked_at, received_at, report))

    def report_failed(self, name: str, now: float, error: EngineError) -> None:
        self.errors.append(error)

    @property
    def last(self) -> NodeReport:
        return self.reports[-1][2]


class Clock:
    """Time that passes only when it is told to, or slept."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


class Table:
    """Pages from a table, without a socket; ``before`` is called with the path of each that is fetched."""

    def __init__(self, pages: Mapping[str, bytes], before: Callable[[str], None]) -> None:
        self.pages = pages
        self.before = before

    async def fetch(self, path: str, timeout_s: float) -> bytes:
        self.before(path)
        return self.pages[path]

    def close(self) -> None: ...


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def poller_of(
    engine: RecordedEngine,
    told: Told,
    clock: Clock,
    *,
    name: str | None = None,
    timing: Timing | None = None,
) -> Poller:
    node = NodeSpec("node", engine.url, Pool.SPECULATIVE, engine=name)
    timing = timing or Timing(timeout_s=5.0)
    return Poller(node, told, Scraper(engine.url), timing, clock=clock, sleep=clock.sleep)


async def test_a_vllm_node_reports_its_load_and_its_facts(told: Told, clock: Clock) -> None:
    async with recorded_engine(vllm_pages()) as engine:
        poller = poller_of(engine, told, clock)
        await poller.poll()
    assert told.last == NodeReport(
        running=4,
        waiting=0,
        kv_use=0.005502063273727598,
        speculating=True,
        k=4,
        counters=SpeculativeCounters(176, 144, 44, (36, 36, 36, 36), 325),
        models=("smollm2",),
        engine="vllm",
        version="0.32.0",
        replicas=1,
    )
    assert poller.interval_s == 0.25


@pytest.mark.parametrize(("name", "fetched_first"), [(None, ["/v1/models"]), ("llamacpp", [])])
async def test_a_llamacpp_node_reports_its_load_and_its_facts(
    told: Told, clock: Clock, name: str | None, fetched_first: list[str]
) -> None:
    async with recorded_engine(llamacpp_pages()) as engine:
        poller = poller_of(engine, told, clock, name=name)
        await poller.poll()
        await poller.poll()
        assert engine.paths() == [*fetched_first, "/v1/models", "/props", "/slots", "/metrics", "/metrics"]
    assert told.last == NodeReport(
        running=3,
        waiting=0,
        capacity=8,
        speculating=True,
        k=4,
        counters=SpeculativeCounters(189, 189, 48, (48, 48, 48, 45), 240),
        models=("smollm2-135m-instruct-q4_1.gguf",),
        engine="llamacpp",
        version="b0-unknown",
    )
    assert poller.interval_s == 0.1


async def test_a_report_says_when_it_was_asked_for_and_received(told: Told, clock: Clock) -> None:
    def slowly(path: str) -> None:
        clock.now += 0.25

    node = NodeSpec("node", "http://node", Pool.SPECULATIVE, engine="llamacpp")
    await Poller(node, told, Table(llamacpp_pages(), slowly), Timing(), clock=clock).poll()
    # Three pages of facts come first; the time they take is not part of the answer's age.
    assert [times[:2] for times in told.reports] == [(1000.75, 1001.0)]


async def test_facts_are_read_again_when_they_are_due_and_not_before(told: Told, clock: Clock) -> None:
    async with recorded_engine(vllm_pages()) as engine:
        poller = poller_of(engine, told, clock, name="vllm", timing=Timing(timeout_s=5.0, facts_s=30.0))
        await poller.poll()
        engine.pages["/version"] = b'{"version":"0.33.0"}'
        clock.now = 1019.9  # the next beat of 30 s is at 1020
        await poller.poll()
        assert told.last.version == "0.32.0"
        clock.now = 1020.0
        await poller.poll()
        assert told.last.version == "0.33.0"
        clock.now = 1049.0
        await poller.poll()
        assert engine.paths().count("/version") == 2


async def test_what_drafts_is_remembered_when_slots_are_idle_again(told: Told, clock: Clock) -> None:
    pages = llamacpp_pages("llamacpp-b11549-mod", "metrics-idle.txt")
    async with recorded_engine(pages | {"/slots": recorded("llamacpp-b11549-mod", "slots-busy.json")}) as engine:
        poller = poller_of(engine, told, clock, name="llamacpp")
        await poller.poll()
        engine.pages["/slots"] = pages["/slots"]
        clock.now += 60.0
        await poller.poll()
    assert engine.paths().count("/slots") == 2
    assert told.last.speculator_kind is SpeculatorKind.NGRAM


async def test_a_missing_fact_is_unknown_and_the_rest_is_reported(told: Told, clock: Clock) -> None:
    async with recorded_engine(llamacpp_pages() | {"/props": 404, "/v1/models": b"<html>"}) as engine:
        await poller_of(engine, told, clock, name="llamacpp").poll()
    assert (told.last.models, told.last.capacity, told.last.version, told.last.running) == (None, 8, None, 3)


@pytest.mark.parametrize("metrics", [501, b"<html>proxy error</html>"])
async def test_slots_are_polled_where_metrics_can_not_be_read_and_it_is_said_once(
    told: Told, clock: Clock, metrics: int | bytes
) -> None:
    busy = recorded("llamacpp-b11549-draft", "slots-busy.json")
    async with recorded_engine(llamacpp_pages() | {"/metrics": metrics, "/slots": busy}) as engine:
        poller = poller_of(engine, told, clock, name="llamacpp")
        with capture_logs() as logs:
            await poller.poll()
            clock.now += 60.0
            await poller.poll()
        assert [entry["event"] for entry in logs] == ["node.poorer_source"]
        assert "/metrics" in logs[0]["because"] or "begins with" in logs[0]["because"]
        assert (told.last.running, told.last.waiting, told.last.counters) == (3, None, None)
        engine.pages["/metrics"] = llamacpp_pages()["/metrics"]
        clock.now += 60.0
        await poller.poll()
        assert told.last.counters is not None


@pytest.mark.parametrize("name", ["llamacpp", None])
async def test_a_node_that_starts_late_reports_in_its_first_poll_after_that(
    told: Told, clock: Clock, name: str | None
) -> None:
    engine = RecordedEngine(llamacpp_pages())
    await engine.start()
    await engine.stop()
    poller = poller_of(engine, told, clock, name=name)
    with capture_logs() as logs:
        await poller.poll()
        await poller.poll()
        assert told.reports == []
        assert [type(error) for error in told.errors] == [EngineUnreachable] * 2
        await engine.start()
        await poller.poll()
        await engine.stop()
    assert told.last.models == ("smollm2-135m-instruct-q4_1.gguf",)
    assert [entry["event"] for entry in logs] == ["node.poll_failed", "node.poll_recovered"]


async def test_a_node_with_garbage_says_so_and_is_back_when_it_has_sense_again(told: Told, clock: Clock) -> None:
    async with recorded_engine(vllm_pages() | {"/metrics": b"<html>It works</html>\n"}) as engine:
        poller = poller_of(engine, told, clock)
        await poller.poll()
        assert [type(error) for error in told.errors] == [EngineGarbage]
        assert "<html>It works" in str(told.errors[0])
        engine.pages["/metrics"] = vllm_pages()["/metrics"]
        await poller.poll()
        assert told.last.running == 4


async def test_an_engine_that_took_the_address_of_another_is_recognised_after_the_gap(told: Told, clock: Clock) -> None:
    async with recorded_engine(vllm_pages()) as engine:
        poller = poller_of(engine, told, clock)
        await poller.poll()
        assert told.last.engine == "vllm"
        engine.pages = dict(llamacpp_pages())
        await poller.poll()  # the vLLM it was looks broken
        await poller.poll()
        assert told.last.engine == "llamacpp"
        assert len(told.errors) == 1


async def test_a_node_whose_engine_is_not_known_is_reported_as_garbage(told: Told, clock: Clock) -> None:
    pages = {"/v1/models": b'{"data":[]}', "/metrics": b"lmdeploy:num_requests_running 1\n"}
    async with recorded_engine(pages) as engine:
        poller = poller_of(engine, told, clock)
        await poller.poll()
        assert engine.paths() == ["/v1/models", "/metrics", "/props"]
    assert isinstance(told.errors[0], EngineGarbage)
    assert "does not look like any of vllm, sglang, llamacpp, trtllm" in str(told.errors[0])
    assert poller.interval_s == 0.1


def test_an_engine_that_does_not_exist_is_refused(told: Told, clock: Clock) -> None:
    node = NodeSpec("a", "http://a", Pool.STANDARD, engine="llama.ccp")
    with pytest.raises(ValueError, match=r"node a: engine 'llama\.ccp' is not one of vllm, sglang, llamacpp, trtllm"):
        Poller(node, told, Table({}, print), Timing(), clock=clock)


async def test_polls_keep_their_beat_and_leave_out_what_they_missed(told: Told, clock: Clock) -> None:
    stalls = {5: 0.33}
    beats: list[float] = []

    def stalling(path: str) -> None:
        if path == "/metrics":
            beats.append(clock.now)
            clock.now += stalls.get(len(beats), 0.001)

    node = NodeSpec("node", "http://node", Pool.SPECULATIVE, engine="llamacpp")
    poller = Poller(node, told, Table(llamacpp_pages(), stalling), Timing(), phase=0.5, clock=clock, sleep=clock.sleep)
    task = asyncio.create_task(poller.run())
    while len(beats) < 8:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert beats == pytest.approx([1000.05, 1000.15, 1000.25, 1000.35, 1000.45, 1000.85, 1000.95, 1001.05])
    assert poller.missed == 3


@pytest.mark.parametrize(
    ("configured", "cost", "interval"),
    [(0.1, 0.0, 0.1), (0.1, 0.005, 0.25), (0.5, 0.005, 0.5), (0.1, 0.2, 1.0), (5.0, 0.2, 5.0)],
)
def test_a_dear_poll_is_stretched_to_2_percent_and_one_second_at_most(
    configured: float, cost: float, interval: float
) -> None:
    assert poll_interval_s(configured, cost) == interval


@given(st.floats(0.01, 60), st.floats(0, 0.05), st.floats(0, 0.05))
def test_asking_takes_2_percent_of_an_engine_or_is_as_slow_as_it_may_be(
    configured: float, load: float, counters: float
) -> None:
    interval = poll_interval_s(configured, load, counters)
    assert interval >= configured
    assert load / interval + counters <= 0.02 + 1e-9 or interval >= 1.0
    assert interval == configured or interval <= 1.0


async def test_counters_on_a_page_of_their_own_are_read_once_a_second(told: Told, clock: Clock) -> None:
    async with recorded_engine(sglang_pages()) as engine:
        poller = poller_of(engine, told, clock)
        for _ in range(25):
            await poller.poll()
            clock.now += 0.1
        paths = engine.paths()
    assert (paths.count("/v1/loads"), paths.count("/metrics")) == (25, 3)
    counters = SpeculativeCounters(1200, 700, 400, (), 1110)
    assert told.last == NodeReport(
        running=5,
        waiting=1,
        kv_use=0.04,
        capacity=48,
        speculating=True,
        k=3,
        speculator_kind=SpeculatorKind.DRAFT,
        counters=counters,
        models=("qwen3-8b",),
        engine="sglang",
        version="0.5.23",
        drafter="eagle3:qwen3-8b-eagle3",
        replicas=2,
    )
    assert {report.counters for _, _, report in told.reports} == {counters}
    assert poller.interval_s == 0.1


async def test_a_node_without_a_page_of_counters_is_told_of_once_and_reports_its_load(told: Told, clock: Clock) -> None:
    async with recorded_engine(sglang_pages() | {"/metrics": 404}) as engine:
        poller = poller_of(engine, told, clock)
        with capture_logs() as logs:
            for _ in range(5):
                await poller.poll()
                clock.now += 30.0
            assert engine.paths().count("/metrics") == 5
        assert [entry["event"] for entry in logs] == ["node.no_counters"]
        assert "/metrics answered with status 404" in logs[0]["because"]
        assert (told.last.running, told.last.counters, told.errors) == (5, None, [])
        engine.pages["/metrics"] = sglang_pages()["/metrics"]
        clock.now += 30.0
        await poller.poll()
        assert told.last.counters is not None


async def test_a_node_that_falls_silent_at_its_counters_is_not_reached(told: Told, clock: Clock) -> None:
    async with recorded_engine(sglang_pages() | {"/metrics": 503}) as engine:
        await poller_of(engine, told, clock, name="sglang").poll()
    assert [type(error) for error in told.errors] == [EngineUnreachable]


async def test_where_the_cheap_page_is_missing_the_dear_one_is_polled_less_often(told: Told, clock: Clock) -> None:
    async with recorded_engine(sglang_pages() | {"/v1/loads": 404}) as engine:
        poller = poller_of(engine, told, clock)
        assert poller.interval_s == 0.1
        with capture_logs() as logs:
            await poller.poll()
        assert [entry["event"] for entry in logs] == ["node.poorer_source"]
    assert (told.last.running, poller.interval_s) == (5, 0.25)
    assert told.last.counters == SpeculativeCounters(1200, 700, 400, (), 1110)


@pytest.mark.parametrize(("missing", "running", "interval"), [(None, 3, 0.25), ("/prometheus/metrics", 3, 0.1)])
async def test_a_trtllm_node_reports_its_load_and_its_facts(
    told: Told, clock: Clock, missing: str | None, running: int, interval: float
) -> None:
    pages = {path: page for path, page in trtllm_pages().items() if path != missing}
    async with recorded_engine(pages) as engine:
        poller = poller_of(engine, told, clock)
        await poller.poll()
    assert told.last.models == ("llama-3.1-8b",)
    assert (told.last.engine, told.last.version, told.last.capacity) == ("trtllm", "1.2.0", 64)
    assert (told.last.running, told.last.waiting, told.last.kv_use) == (running, 2, 0.225)
    assert told.last.speculating is (True if missing is None else None)
    assert poller.interval_s == interval


@given(st.floats(0, 1e6), st.floats(0.01, 60), st.floats(0, 1, exclude_max=True))
def test_the_next_beat_is_later_and_at_most_one_interval_away(after: float, interval: float, phase: float) -> None:
    beat = next_beat(after, interval, phase)
    assert after < beat <= after + interval * (1 + 1e-6)
    beats = beat / interval - phase
    assert beats == pytest.approx(round(beats), abs=1e-6)


@pytest.mark.parametrize("name", ["vllm", "llamacpp"])
async def test_facts_nested_without_end_are_unknown_and_the_load_is_still_told(
    told: Told, clock: Clock, name: str
) -> None:
    pages = {"vllm": vllm_pages, "llamacpp": llamacpp_pages}[name]()
    nested = dict.fromkeys(("/v1/models", "/version", "/props", "/slots"), b'{"x":' * 100_000)
    async with recorded_engine({**nested, "/metrics": pages["/metrics"]}) as engine:
        await poller_of(engine, told, clock, name=name).poll()
    assert told.errors == []
    assert (told.last.engine, told.last.models, told.last.capacity) == (name, None, None)
    assert told.last.running is not None


@pytest.mark.parametrize("url", ["http://a..b:80", "http://a\0b:80"])
async def test_an_address_that_can_not_be_used_is_a_node_that_is_not_reached(
    told: Told, clock: Clock, url: str
) -> None:
    node = NodeSpec("node", url, Pool.STANDARD)
    await Poller(node, told, Scraper(url), Timing(), clock=clock, sleep=clock.sleep).poll()
    assert [type(error) for error in told.errors] == [EngineUnreachable]

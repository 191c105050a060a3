"""A recording becomes a plan, whatever it leaves out, and the run that it was."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
import pytest

from recordings import NOON, Line, write
from slipstream.core.outcome import Ending
from slipstream.core.request import Pool, TrafficClass
from slipstream.sim.fate import Fate
from slipstream.sim.measures import measure
from slipstream.sim.recorded import NothingToReplay, RecordedTraffic, read_traffic
from slipstream.sim.scenario import Target
from slipstream.telemetry.recording import RecordedShape, RecordingUnreadable
from slipstream.workload.plan import NO_LIMIT

CHAT = RecordedShape("m", "chat", TrafficClass.BULK, output_limit=10, prompt_characters=400, session=2**63 + 5)


class Read(Protocol):
    def __call__(self, *lines: Line, draft_length: int = 4, models: tuple[str, ...] = ("m",)) -> RecordedTraffic: ...


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """What is read from a file of these lines."""

    def of(*lines: Line, draft_length: int = 4, models: tuple[str, ...] = ("m",)) -> RecordedTraffic:
        return read_traffic([write(tmp_path / "one.jsonl", lines)], models=models, draft_length=draft_length)

    return of


def test_arrivals_shapes_and_tokens_are_as_recorded(read: Read) -> None:
    traffic = read(Line(arrival_s=7.0, duration_s=1.0), Line(arrival_s=5.0, duration_s=4.0, shape=CHAT))
    plan = traffic.plan
    assert plan.arrival_s.tolist() == [0.0, 2.0]
    assert [plan.categories[number] for number in plan.category] == ["chat", "code"]
    assert plan.traffic_class.tolist() == [1, 0]
    assert plan.output_tokens.tolist() == [21, 21]
    assert plan.prompt_tokens.tolist() == [40, 40]
    assert plan.output_limit.tolist() == [10, NO_LIMIT]
    assert plan.session.tolist() == [0, NO_LIMIT]
    assert traffic.pool.tolist() == [1, 1]
    assert (traffic.passed_over, traffic.prompts_guessed, traffic.outputs_guessed, traffic.starts) == (0, 0, 0, 1)


def test_what_was_measured_is_a_run(read: Read) -> None:
    traffic = read(
        Line(arrival_s=0.0, duration_s=2.5),
        Line(arrival_s=1.0, pool=None),
        Line(arrival_s=2.0, ending=Ending.UPSTREAM_LOST, output_tokens=3),
    )
    assert traffic.run.fate.tolist() == [Fate.FINISHED, Fate.REFUSED, Fate.UNFINISHED]
    found = measure(traffic.run, {TrafficClass.INTERACTIVE: Target(e2e_s=3.0)}, window=(0.0, 10.0))
    assert found.requests.goodput == pytest.approx(0.1)
    assert found.requests.ttft.mean == pytest.approx(0.5)
    assert found.requests.tpot.mean == pytest.approx(0.1)
    assert found.wasted_drafts == pytest.approx(0.5)
    assert found.queued.mean is None


def test_unstreamed_answers_have_an_end_alone(read: Read) -> None:
    found = measure(read(Line(ttft_ms=None)).run, {TrafficClass.INTERACTIVE: Target(ttft_s=0.1)}, window=(0.0, 10.0))
    assert found.requests.ttft.mean is None
    assert found.requests.e2e.mean == pytest.approx(2.0)
    assert found.requests.goodput == pytest.approx(0.1)


def test_what_an_answer_did_not_tell_is_guessed_and_counted(read: Read) -> None:
    """Outputs by the median of their category or the token limit, prompts by their characters or the median."""
    traffic = read(
        Line(shape=replace_shape(CHAT, output_limit=None), prompt_tokens=100, output_tokens=30),
        Line(shape=CHAT, prompt_tokens=None, output_tokens=None),
        Line(prompt_tokens=60, output_tokens=90),
        Line(prompt_tokens=None, output_tokens=None),
        Line(shape=RecordedShape("m", "other"), prompt_tokens=None, output_tokens=None),
    )
    assert traffic.plan.prompt_tokens.tolist() == [100, 100, 60, 80, 80]
    assert traffic.plan.output_tokens.tolist() == [30, 10, 90, 90, 60]
    assert (traffic.prompts_guessed, traffic.outputs_guessed) == (3, 3)


def replace_shape(shape: RecordedShape, **changes: object) -> RecordedShape:
    fields = {name: getattr(shape, name) for name in shape.__struct_fields__}
    return RecordedShape(**{**fields, **changes})


def test_prompts_without_any_count_are_guessed_by_their_characters(read: Read) -> None:
    traffic = read(Line(shape=CHAT, prompt_tokens=None), Line(prompt_tokens=None))
    assert traffic.plan.prompt_tokens.tolist() == [100, 1]


def test_requests_that_make_no_tokens_are_passed_over(read: Read) -> None:
    embeddings = RecordedShape("m", "code", decodes=False)
    traffic = read(
        Line(), Line(shape=embeddings), Line(shape=None, pool=None), Line(shape=RecordedShape("m", "code", sequences=3))
    )
    assert (len(traffic.plan), traffic.passed_over, traffic.several) == (2, 2, 1)


def test_acceptance_is_told_by_requests_and_has_an_interval_of_them(read: Read) -> None:
    """Of code 20 of 40 drafted in 10 steps, so tau 3 at K 4; chat tells nothing."""
    lines = [Line(arrival_s=float(row), accepted=20 + (-1) ** row * 5) for row in range(20)]
    traffic = read(*lines, Line(shape=CHAT, drafted=None, pool=Pool.STANDARD))
    code = traffic.acceptance["code"]
    assert (code.requests, code.k) == (20, 4.0)
    assert code.alpha == pytest.approx(0.741, abs=0.001)
    assert code.interval is not None
    assert code.alpha is not None
    assert code.interval[0] < code.alpha < code.interval[1]
    assert code.interval[1] - code.interval[0] < 0.1
    chat = traffic.acceptance["chat"]
    assert (chat.requests, chat.k, chat.alpha, chat.interval, chat.spread) == (0, None, None, None, 0.0)


def test_requests_keep_their_place_among_those_of_their_category(read: Read) -> None:
    accepted = [30, 10, 20, 40]
    traffic = read(*(Line(arrival_s=float(row), accepted=number) for row, number in enumerate(accepted)))
    assert np.argsort(traffic.plan.quantile).tolist() == np.argsort(accepted).tolist()


def test_requests_differ_by_more_than_chance_or_not_at_all(read: Read) -> None:
    alike = read(*(Line(arrival_s=float(row), accepted=20) for row in range(30)))
    apart = read(*(Line(arrival_s=float(row), accepted=4 + 32 * (row % 2)) for row in range(30)))
    assert alike.acceptance["code"].spread == 0.0
    assert apart.acceptance["code"].spread > 0.1


def test_steps_that_an_answer_leaves_out_follow_from_the_draft_length(read: Read) -> None:
    lines = [Line(arrival_s=float(row), verify_steps=None, accepted=16 + row) for row in range(4)]
    assert read(*lines, draft_length=4).acceptance["code"].k == 4.0
    assert read(*lines, draft_length=8).acceptance["code"].k == 8.0


def test_figures_of_no_sense_tell_nothing(read: Read) -> None:
    traffic = read(Line(accepted=50, drafted=40), Line(output_tokens=0), Line())
    assert traffic.acceptance["code"].requests == 2
    assert traffic.run.drafted.tolist() == [0, 40, 40]
    assert traffic.outputs_guessed == 1


def test_a_gateway_that_started_anew_goes_on_after_the_pause(read: Read) -> None:
    """The second start is 30 s after the last end of the first, the third after an hour that is cut to a minute."""
    traffic = read(
        Line(arrival_s=0.0),
        Line(arrival_s=10.0),
        Line(arrival_s=1.0, started=NOON + 12.0 + 30.0),
        Line(arrival_s=2.0, started=NOON + 3600.0),
    )
    assert traffic.starts == 3
    assert traffic.plan.arrival_s.tolist() == pytest.approx([0.0, 10.0, 43.0, 45.0 + 60.0 + 2.0])


def test_files_come_in_any_order_and_may_be_cut(tmp_path: Path) -> None:
    old = write(
        tmp_path / "decisions.jsonl.1", [Line(arrival_s=0.0), Line(arrival_s=1.0), Line(arrival_s=2.0)], cut=True
    )
    new = write(tmp_path / "decisions.jsonl", [Line(arrival_s=3.0), Line(arrival_s=4.0)])
    empty = write(tmp_path / "empty.jsonl", [])
    traffic = read_traffic([new, empty, old], models=("m",), draft_length=4)
    assert traffic.plan.arrival_s.tolist() == [0.0, 1.0, 3.0, 4.0]
    assert traffic.starts == 1


def test_a_model_is_found_or_the_only_one_serves_it(read: Read) -> None:
    assert read(Line(), models=("anything",)).plan.models == ("anything",)
    assert read(Line(), models=("other", "m")).plan.model.tolist() == [1]
    with pytest.raises(NothingToReplay, match="requests for m, and the scenario's nodes serve a, b"):
        read(Line(), models=("a", "b"))


def test_a_recording_that_can_not_be_replayed_says_why(tmp_path: Path, read: Read) -> None:
    with pytest.raises(NothingToReplay, match="no request in it"):
        read()
    with pytest.raises(NothingToReplay, match=r"a time in it is wrong, or it lasts 1e[+]300 s"):
        read(Line(), Line(arrival_s=1e300))
    with pytest.raises(NothingToReplay, match="how many tokens"):
        read(Line(output_tokens=None))
    with pytest.raises(RecordingUnreadable):
        read_traffic([tmp_path / "none.jsonl"], models=("m",), draft_length=4)

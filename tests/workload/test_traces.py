"""Traces of three formats, as they are published and as they come out of spreadsheets, editors and broken disks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from slipstream.workload.errors import TraceUnreadable
from slipstream.workload.plan import NO_LIMIT
from slipstream.workload.traces import TraceFormat, read_trace

EXCERPTS = Path(__file__).parents[2] / "examples" / "traces"

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURSTGPT_FIRST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
BURSTGPT = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "trace"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refused(path: Path, trace_format: TraceFormat | None = None) -> TraceUnreadable:
    with pytest.raises(TraceUnreadable) as error:
        read_trace(path, trace_format)
    assert error.value.file == path
    return error.value


@pytest.mark.parametrize(
    ("name", "trace_format", "first", "last"),
    [
        ("azure-2023-conversation.csv", TraceFormat.AZURE, (0.0, 374, 44), (148.189130, 91, 24)),
        ("azure-2023-code.csv", TraceFormat.AZURE, (0.0, 4808, 10), (225.106049, 5442, 11)),
        ("mooncake-conversation.jsonl", TraceFormat.MOONCAKE, (0.0, 6758, 500), (200.999, 2352, 14)),
    ],
)
def test_the_excerpts_are_read_and_are_as_their_page_says(
    name: str, trace_format: TraceFormat, first: tuple[float, int, int], last: tuple[float, int, int]
) -> None:
    trace = read_trace(EXCERPTS / name)
    rows = list(zip(trace.arrival_s, trace.prompt_tokens, trace.output_tokens, strict=True))
    assert rows[0] == pytest.approx(first, abs=1e-6)
    assert rows[-1] == pytest.approx(last, abs=1e-6)
    assert trace.format is trace_format
    assert trace.skipped == 0
    assert set(trace.session) == {NO_LIMIT}
    told = next(line for line in (EXCERPTS / "README.md").read_text().splitlines() if name in line)
    assert f"| {len(trace)} in {trace.arrival_s[-1]:.0f} s; {trace.prompt_tokens.mean():,.0f} " in told
    assert f"{trace.output_tokens.mean():.0f} out" in told


def test_burstgpt_is_read_with_and_without_the_columns_of_its_second_release(tmp_path: Path) -> None:
    first = read_trace(
        written(tmp_path, BURSTGPT_FIRST + "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,7,230,237,API log\n")
    )
    assert first.format is TraceFormat.BURSTGPT
    assert first.arrival_s.tolist() == [0.0, 40.0]
    assert first.prompt_tokens.tolist() == [472, 7]
    assert first.output_tokens.tolist() == [18, 230]
    assert first.session.tolist() == [NO_LIMIT, NO_LIMIT]
    second = read_trace(
        written(
            tmp_path,
            BURSTGPT
            + "5.0,a-1,3,ChatGPT,472,18,490,Conversation log\n"
            + "6.5,b-2,3,ChatGPT,100,20,120,Conversation log\n"
            + "7.0,,3,GPT-4,80,5,85,API log\n"
            + "45.0,a-1,9,ChatGPT,500,30,530,Conversation log\n",
        )
    )
    assert second.arrival_s.tolist() == [0.0, 1.5, 2.0, 40.0]
    assert second.session.tolist() == [0, 1, NO_LIMIT, 0]


def test_requests_without_answer_or_prompt_are_skipped_and_counted(tmp_path: Path) -> None:
    trace = read_trace(
        written(
            tmp_path,
            BURSTGPT_FIRST
            + "1,GPT-4,0,0,0,API log\n2,GPT-4,100,0,100,API log\n3,GPT-4,100,9,109,API log\n4,GPT-4,0,9,9,API log\n",
        )
    )
    assert (len(trace), trace.skipped) == (1, 3)
    assert trace.arrival_s.tolist() == [0.0]


def test_azure_dates_may_have_seven_digits_none_and_a_zone(tmp_path: Path) -> None:
    trace = read_trace(
        written(
            tmp_path,
            AZURE
            + "2024-05-10 23:59:59,10,1\n2024-05-11 00:00:00.5000009,11,2\n2024-05-11 00:00:02.009930+00:00,12,3\n"
            + "2024-05-11T02:00:03+02:00,13,4\n",
        )
    )
    assert trace.arrival_s.tolist() == pytest.approx([0.0, 1.5, 3.00993, 4.0], abs=1e-6)


def test_mooncake_lines_may_have_other_keys_in_any_order(tmp_path: Path) -> None:
    trace = read_trace(
        written(
            tmp_path,
            '{"output_length": 5, "hash_ids": [1, 2], "timestamp": 1000, "input_length": 9}\n'
            '{"timestamp": 27482.5, "input_length": 8, "output_length": 6}',
        )
    )
    assert trace.arrival_s.tolist() == [0.0, 26.4825]
    assert trace.output_tokens.tolist() == [5, 6]


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"], ids=["unix", "windows", "old-mac"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["", "byte-order-mark"])
@pytest.mark.parametrize("name", ["azure-2023-code.csv", "mooncake-conversation.jsonl"])
def test_line_ends_marks_and_blank_lines_do_not_matter(tmp_path: Path, name: str, mark: bytes, ends: str) -> None:
    plain = (EXCERPTS / name).read_text().splitlines()[:20]
    other = written(tmp_path, mark + ends.join([*plain[:9], "", "  ", *plain[9:]]).encode())
    trace = read_trace(other)
    whole = read_trace(EXCERPTS / name)
    assert len(trace) == len(plain) - (trace.format is TraceFormat.AZURE)
    assert np.array_equal(trace.arrival_s, whole.arrival_s[: len(trace)])
    assert np.array_equal(trace.prompt_tokens, whole.prompt_tokens[: len(trace)])


def test_quoted_fields_and_bytes_of_another_encoding_in_columns_that_are_not_read_do_not_matter(tmp_path: Path) -> None:
    trace = read_trace(
        written(
            tmp_path,
            b'"Timestamp","Model","Request tokens","Response tokens","Log Type"\n'
            b'"3","GPT-4, turbo","12","7","API log"\n'
            b"4,caf\xe9,13,8,API log\n",
        )
    )
    assert trace.prompt_tokens.tolist() == [12, 13]


def test_rows_out_of_order_are_sorted_and_those_of_one_time_stay_in_the_files_order(tmp_path: Path) -> None:
    rows = [f"{9 if prompt % 3 else 5},GPT-4,{prompt},1,0,x\n" for prompt in range(1, 201)]
    trace = read_trace(written(tmp_path, BURSTGPT_FIRST + "".join(rows)))
    early = [prompt for prompt in range(1, 201) if prompt % 3 == 0]
    late = [prompt for prompt in range(1, 201) if prompt % 3]
    assert trace.arrival_s.tolist() == [0.0] * len(early) + [4.0] * len(late)
    assert trace.prompt_tokens.tolist() == early + late


GOOD_AZURE = AZURE + "2023-11-16 18:15:46.6805900,374,44\n\n"
GOOD_MOONCAKE = '{"timestamp": 0, "input_length": 1, "output_length": 1}\n'


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (GOOD_AZURE + "2023-11-16 18:15:50,396\n", 4, "found 2 columns; the first line names 3"),
        (GOOD_AZURE + "2023-11-16 18:15:50,396,1,2\n", 4, "found 4 columns"),
        (GOOD_AZURE + "yesterday,396,109\n", 4, "found 'yesterday'; a TIMESTAMP is a date and time"),
        (GOOD_AZURE + "1950-01-01 00:00:00,396,109\n", 4, "found a time of -6.31152e+08 s; allowed: 0 to 1e+11 s"),
        (GOOD_AZURE + "2023-11-16 18:15:50,many,109\n", 4, "found 'many'; ContextTokens is a whole number"),
        (GOOD_AZURE + "2023-11-16 18:15:50,396,10.5\n", 4, "found '10.5'; GeneratedTokens is a whole number"),
        (GOOD_AZURE + "2023-11-16 18:15:50,396,\n", 4, "found ''; GeneratedTokens is a whole number"),
        (GOOD_AZURE + "2023-11-16 18:15:50,-1,5\n", 4, "found '-1' tokens; allowed: 0 to 100,000,000"),
        (GOOD_AZURE + f"2023-11-16 18:15:50,{'9' * 30},5\n", 4, f"found '{'9' * 30}' tokens"),
        (GOOD_AZURE + f"2023-11-16 18:15:50,{'9' * 5000},5\n", 4, f"found '{'9' * 60}…'; ContextTokens"),
        (GOOD_AZURE + '2023-11-16 18:15:50,"396,5\n2023-11-16 18:15:51,1",5\n', 4, "not a line of CSV"),
        (GOOD_AZURE + "\0\0\0\n", 4, "found 1 columns"),
        (BURSTGPT_FIRST + "5,G,1,1,2,x\nnan,G,1,1,2,x\n", 3, "found a time of nan s"),
        (BURSTGPT_FIRST + "5,G,1,1,2,x\ninf,G,1,1,2,x\n", 3, "found a time of inf s"),
        (BURSTGPT_FIRST + "5,G,1,1,2,x\n-5,G,1,1,2,x\n", 3, "found a time of -5 s"),
        (BURSTGPT_FIRST + "5 s,G,1,1,2,x\n", 2, "found '5 s'; a Timestamp is a number of seconds"),
        (GOOD_MOONCAKE * 2 + "{\n", 3, "found '{'"),
        (GOOD_MOONCAKE + '{"timestamp": 0, "input_length": 1}\n', 2, "missing required field `output_length`"),
        (GOOD_MOONCAKE + '{"timestamp": "0", "input_length": 1, "output_length": 1}\n', 2, "`$.timestamp`"),
        (GOOD_MOONCAKE + '{"timestamp": 0, "input_length": -4, "output_length": 1}\n', 2, "found '-4' tokens"),
        (GOOD_MOONCAKE + '{"timestamp": 0, "input_length": NaN, "output_length": 1}\n', 2, "malformed"),
        (GOOD_MOONCAKE + "[1, 2]\n", 2, "found '[1, 2]'"),
        ("at,in,out\n1,2,3\n", 1, "found 'at,in,out'; the first line of a trace is a JSON object (mooncake) or names"),
        ("", 1, "found ''; the first line of a trace"),
        ("\n" + AZURE, 1, "found ''; the first line of a trace"),
        (AZURE.encode("utf-16"), 1, "the first line of a trace"),
        (AZURE, None, "no request in it; 0 rows have no prompt or no answer"),
        (BURSTGPT_FIRST + "5,G,1,0,1,x\n", None, "no request in it; 1 rows have"),
    ],
)
def test_a_line_that_is_none_is_refused_with_its_number(
    tmp_path: Path, content: str | bytes, line: int | None, reason: str
) -> None:
    path = written(tmp_path, content)
    error = refused(path)
    assert error.line == line
    assert reason in error.reason
    assert "\n" not in str(error)
    assert str(error).startswith(f"{path}: " if line is None else f"{path}:{line}: ")


def test_a_format_that_is_told_must_be_the_files(tmp_path: Path) -> None:
    path = EXCERPTS / "azure-2023-code.csv"
    assert len(read_trace(path, TraceFormat.AZURE)) == len(read_trace(path))
    assert "names the column Timestamp" in refused(path, TraceFormat.BURSTGPT).reason
    assert refused(path, TraceFormat.MOONCAKE).line == 1


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.csv").line is None
    assert "can not be read: No such file" in str(refused(tmp_path / "none.csv"))
    assert "can not be read: Is a directory" in str(refused(tmp_path))
    assert "no regular file" in str(refused(Path("/dev/zero")))

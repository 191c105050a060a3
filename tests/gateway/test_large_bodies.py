"""Bodies of many megabytes: read as small ones are, unless they have more values than any model could take."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_rig import Client, rig
from scripted_node import answer, scripted_node
from slipstream.core.category import Categorizer
from slipstream.core.category_rules import DEFAULT_RULES
from slipstream.core.errors import InvalidBody
from slipstream.core.request import TrafficClass
from slipstream.gateway.body import LARGE_BODY_BYTES, features_of, read_chat, read_completion, shape_of
from slipstream.gateway.reading import RequestReader

CHAT = "/v1/chat/completions"
MESSAGE = {"role": "user", "content": "hello"}
STRIDE = 256 * 1024


def chat(text: str = "hello", *, escaped: bool = True, **fields: Any) -> bytes:
    body = {"model": "m", "messages": [MESSAGE | {"content": text}], **fields}
    return json.dumps(body, ensure_ascii=escaped).encode()


@pytest.mark.parametrize("escaped", [True, False])
@given(st.integers(0, 5), st.sampled_from(["é", "漢", "😀"]))
@settings(max_examples=20, deadline=None)
def test_a_large_text_is_read_wherever_its_characters_are_cut(escaped: bool, shift: int, character: str) -> None:
    text = "x" * (STRIDE - 80 + shift) + character * (LARGE_BODY_BYTES // 2)
    view = read_chat(chat(text, escaped=escaped))
    assert features_of(CHAT, view).user_characters == len(text)
    assert shape_of(view, "chat", TrafficClass.INTERACTIVE).prompt_characters == len(text)


@pytest.mark.parametrize("position", [10, STRIDE - 1, STRIDE, LARGE_BODY_BYTES + 5, -3])
def test_a_byte_that_is_no_text_is_found_anywhere_in_a_large_body(position: int) -> None:
    body = bytearray(chat("é" + "x" * LARGE_BODY_BYTES, escaped=False))
    body[position] = 0xFF
    with pytest.raises(InvalidBody, match=rf"not valid UTF-8 \(byte {position % len(body)}\)"):
        read_chat(bytes(body))


def test_a_character_cut_off_at_the_end_is_no_text() -> None:
    with pytest.raises(InvalidBody, match="not valid UTF-8"):
        read_chat(chat("x" * LARGE_BODY_BYTES) + b"\xf0\x9f")


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("messages", "[" + "{}," * 250_000 + "{}]"),
        ("tools", "[" + "{}," * 250_000 + "{}]"),
        ("unknown", "[" + "[]," * 250_000 + "[]]"),
        ("logit_bias", "{" + '"7":1,' * 2_000_000 + '"7":1}'),
    ],
    ids=["messages", "tools", "unknown", "logit_bias"],
)
def test_more_values_than_a_model_could_take_are_refused_before_they_are_decoded(field: str, values: str) -> None:
    fields = {"model": '"m"', "messages": "[]", "padding": f'"{"x" * LARGE_BODY_BYTES}"'} | {field: values}
    members = ",".join(f'"{name}":{value}' for name, value in fields.items())
    with pytest.raises(InvalidBody, match="more than any model could take"):
        read_chat(f"{{{members}}}".encode())


def test_a_prompt_of_a_million_tokens_is_read() -> None:
    body = json.dumps({"model": "m", "prompt": [7] * 1_000_000}).encode()
    assert shape_of(read_completion(body), "chat", TrafficClass.INTERACTIVE).sequences == 1


@pytest.mark.parametrize("field", ["logit_bias", "json_schema", "guided_choice", "grammar"])
@pytest.mark.parametrize("value", ["null", "{}", " { \n } ", "[]", '{"1": 5}', '["a"]', '"root"', "0", "false"])
def test_fields_that_only_have_to_be_there_are_seen_without_being_decoded(field: str, value: str) -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}],"%b":%b}' % (field.encode(), value.encode())
    view = read_chat(body)
    decoded = json.loads(value)
    if field == "logit_bias":
        features = shape_of(view, "chat", TrafficClass.INTERACTIVE).features
        assert features == ({"logit_bias"} if decoded else set())
    else:
        assert (features_of(CHAT, view).response_format is not None) == (decoded is not None)


async def test_a_large_body_is_read_whole_and_reaches_the_node_as_it_was() -> None:
    reader = RequestReader(Categorizer(DEFAULT_RULES, "chat"), frozenset({"chat"}), {}, trusting=False).read
    body = chat("é" * 10_000_000, escaped=False)
    async with scripted_node(answer()) as node, rig(node.url, reader=reader) as gateway, Client.to(gateway) as client:
        client.send(b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (CHAT.encode(), len(body), body))
        assert (await client.response()).status == 200
        assert node.calls[0].body == body
        assert gateway.books.placed[0].shape.prompt_characters == 10_000_000
        client.send(b"POST %b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" % CHAT.encode())
        for start in range(0, len(body), 1_000_000):
            piece = body[start : start + 1_000_000]
            client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        client.send(b"0\r\n\r\n")
        assert (await client.response()).status == 200
        assert node.calls[1].body == body

"""Requests whose end two servers could see in different places: refused, the connection closed, nothing forwarded."""

from __future__ import annotations

import pytest

from gateway_rig import Client, eventually, rig
from scripted_node import answer, raw, scripted_node
from slipstream.core.outcome import Ending

LINE = b"POST /v1/completions HTTP/1.1\r\n"
HEAD = LINE + b"Host: x\r\n"
BODY = b'{"model":"m"}'
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
HIDDEN = b"POST /v1/hidden HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n" + BODY
"""A second request, which no node may see."""


def sized(*lines: bytes) -> bytes:
    """A request with these header lines and its body."""
    return HEAD + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + BODY


REFUSED = {
    "both lengths": sized(b"Content-Length: 13", b"Transfer-Encoding: chunked"),
    "both lengths, the other way round": sized(b"Transfer-Encoding: chunked", b"Content-Length: 13"),
    "two lengths": sized(b"Content-Length: 13", b"Content-Length: 3"),
    "the same length twice": sized(b"Content-Length: 13", b"Content-Length: 13"),
    "a list of lengths": sized(b"Content-Length: 13, 13"),
    "a negative length": sized(b"Content-Length: -13"),
    "a signed length": sized(b"Content-Length: +13"),
    "a hexadecimal length": sized(b"Content-Length: 0xd"),
    "a length with a space": sized(b"Content-Length: 1 3"),
    "a length with a decimal point": sized(b"Content-Length: 13.0"),
    "a length with an underscore": sized(b"Content-Length: 1_3"),
    "a length with a form feed": sized(b"Content-Length: \x0c13"),
    "an empty length": sized(b"Content-Length: "),
    "a length over 64 bits": sized(b"Content-Length: 18446744073709551629"),
    "a space before the colon": sized(b"Content-Length : 13"),
    "a tab before the colon": sized(b"Content-Length\t: 13"),
    "a space in a name": sized(b"Content Length: 13"),
    "a name of no bytes": sized(b": 13", b"Content-Length: 13"),
    "a header without colon": sized(b"Content-Length", b"Content-Length: 13"),
    "a null byte in a name": sized(b"Content-Length\0: 13"),
    "a null byte in a value": sized(b"Content-Length: 13", b"A: b\0c"),
    "a carriage return in a value": sized(b"Content-Length: 13", b"A: b\rTransfer-Encoding: chunked"),
    "a control byte in a value": sized(b"Content-Length: 13", b"A: b\x01"),
    "a line feed alone behind a header": sized(b"Content-Length: 13\nA: b"),
    "line feeds alone": sized(b"Content-Length: 13").replace(b"\r\n", b"\n"),
    "a line feed alone behind the request line": sized(b"Content-Length: 13").replace(b"1.1\r\n", b"1.1\n"),
    "a line feed alone behind the headers": HEAD + b"Content-Length: 13\r\n\n" + BODY,
    "a folded header": sized(b"Content-Length: 13", b"A: b", b" c"),
    "a folded length": sized(b"Content-Length:", b" 13"),
    "a folded coding": HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a folded first header": LINE + b" Host: x\r\nContent-Length: 13\r\n\r\n" + BODY,
    "no host": LINE + b"Content-Length: 13\r\n\r\n" + BODY,
    "two hosts": sized(b"Host: y", b"Content-Length: 13"),
    "the same host twice": sized(b"Host: x", b"Content-Length: 13"),
    "another coding": HEAD + b"Transfer-Encoding: gzip\r\n\r\n0\r\n\r\n",
    "another coding first": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "another coding last": HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "another coding in a line of its own": HEAD
    + b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked twice in a line": HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked with a parameter": HEAD + b"Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
    "nearly chunked": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked in quotes": HEAD + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "chunked behind a vertical tab": HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "an empty coding": HEAD + b"Transfer-Encoding: \r\n\r\n0\r\n\r\n",
    "chunked in HTTP/1.0": CHUNKED.replace(b"1.1", b"1.0") + b"0\r\n\r\n",
    "a chunk size that is no number": CHUNKED + b"xyz\r\n",
    "a chunk size with 0x": CHUNKED + b"0xd\r\n%b\r\n0\r\n\r\n" % BODY,
    "a negative chunk size": CHUNKED + b"-1\r\n0\r\n\r\n",
    "a signed chunk size": CHUNKED + b"+d\r\n%b\r\n0\r\n\r\n" % BODY,
    "a space before a chunk size": CHUNKED + b" d\r\n%b\r\n0\r\n\r\n" % BODY,
    "a space behind a chunk size": CHUNKED + b"d \r\n%b\r\n0\r\n\r\n" % BODY,
    "an empty chunk size": CHUNKED + b"\r\n%b\r\n0\r\n\r\n" % BODY,
    "a chunk size over 64 bits": CHUNKED + b"1000000000000000d\r\n%b\r\n0\r\n\r\n" % BODY,
    "a chunk shorter than it says": CHUNKED + b"e\r\n%b\r\n0\r\n\r\n" % BODY,
    "a chunk longer than it says": CHUNKED + b"c\r\n%b\r\n0\r\n\r\n" % BODY,
    "a line feed alone behind a chunk size": CHUNKED + b"d\n%b\r\n0\r\n\r\n" % BODY,
    "a line feed alone behind a chunk": CHUNKED + b"d\r\n%b\n0\r\n\r\n" % BODY,
    "nothing behind a chunk": CHUNKED + b"d\r\n%b0\r\n\r\n" % BODY,
    "a line feed alone behind the last chunk": CHUNKED + b"d\r\n%b\r\n0\r\n\n" % BODY,
    "a line feed in a chunk extension": CHUNKED + b"d;a\n\r\n%b\r\n0\r\n\r\n" % BODY,
    "a null byte in a chunk extension": CHUNKED + b"d;a\0\r\n%b\r\n0\r\n\r\n" % BODY,
    "a length as a trailer": CHUNKED + b"d\r\n%b\r\n0\r\nContent-Length: 5\r\n\r\n" % BODY,
    "a coding as a trailer": CHUNKED + b"d\r\n%b\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n" % BODY,
    "a line feed alone in a trailer": CHUNKED + b"d\r\n%b\r\n0\r\nA: b\n\r\n" % BODY,
    "HTTP/0.9": b"GET /v1/x\r\n\r\n",
    "HTTP/1.2": sized(b"Content-Length: 13").replace(b"1.1", b"1.2"),
    "HTTP/2": sized(b"Content-Length: 13").replace(b"1.1", b"2.0"),
    "no version": sized(b"Content-Length: 13").replace(b" HTTP/1.1", b""),
    "a space behind the version": sized(b"Content-Length: 13").replace(b"1.1\r", b"1.1 \r"),
    "a tab for a space": sized(b"Content-Length: 13").replace(b"POST ", b"POST\t"),
    "a carriage return in the target": sized(b"Content-Length: 13").replace(b"/v1/c", b"/v1/\rc"),
    "a null byte in the target": sized(b"Content-Length: 13").replace(b"/v1/c", b"/v1/\0c"),
    "a fragment in the target": sized(b"Content-Length: 13").replace(b"completions", b"completions#x"),
    "a method in lower case": sized(b"Content-Length: 13").replace(b"POST", b"post"),
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
async def test_a_doubtful_request_is_a_400_that_closes_and_no_node_sees_it_or_what_follows(data: bytes) -> None:
    data += HIDDEN
    async with scripted_node(answer()) as node, rig(node.url) as gateway:
        for pieces in [data], [data[index : index + 1] for index in range(len(data))]:
            async with Client.to(gateway) as client:
                for piece in pieces:
                    client.send(piece)
                response = await client.response()
                assert (response.status, response.error["code"]) == (400, "malformed_request")
                assert response.headers["connection"] == "close"
                assert await client.closed()
        assert not node.calls
        async with Client.to(gateway) as client:
            client.post()
            client.send(data)
            assert [(await client.response()).status for _ in range(2)] == [200, 400]
            assert await client.closed()
        assert [call.target for call in node.calls] == ["/v1/chat/completions"]


@pytest.mark.parametrize("line", [b"Content-Length : 13", b"Content-Length: 13\nA: b", b"Content-Length: 13, 13"])
async def test_a_head_that_nearly_repeats_a_good_one_is_refused_as_at_first(line: bytes) -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        for _ in range(2):
            client.send(sized(b"Content-Length: 13"))
            assert (await client.response()).status == 200
        client.send(sized(line) + HIDDEN)
        assert (await client.response()).status == 400
        assert await client.closed()
        assert len(node.calls) == 2


UNDERSTOOD = {
    "zeros before a length": sized(b"Content-Length: 0013"),
    "space around a length": sized(b"Content-Length: \t13 \t"),
    "chunked in capitals, with space around": HEAD
    + b"Transfer-Encoding: \tChunked \r\n\r\nd\r\n%b\r\n0\r\n\r\n" % BODY,
    "zeros before a chunk size": CHUNKED + b"00d\r\n%b\r\n000\r\n\r\n" % BODY,
    "chunk extensions": CHUNKED + b'd;a;b=c;d="e;f"\r\n%b\r\n0;last\r\n\r\n' % BODY,
    "trailers": CHUNKED + b"d\r\n%b\r\n0\r\nHost: y\r\nX-Request-Id: z\r\n\r\n" % BODY,
    "an empty line before": b"\r\n" + sized(b"Content-Length: 13"),
    "an underscore is no dash": sized(b"Content-Length: 13", b"Content_Length: 5", b"Transfer_Encoding: chunked"),
    "a connection option is no length": sized(b"Connection: content-length", b"Content-Length: 13"),
    "an empty host": LINE + b"Host:\r\nContent-Length: 13\r\n\r\n" + BODY,
    "a target with scheme and host": sized(b"Content-Length: 13").replace(b"/v1", b"http://y/v1"),
}


@pytest.mark.parametrize("data", UNDERSTOOD.values(), ids=UNDERSTOOD.keys())
async def test_what_has_one_meaning_is_one_request_and_reaches_the_node_plain(data: bytes) -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.send(data)
        client.get("/health")
        assert [(await client.response()).status for _ in range(2)] == [200, 200]
        (call,) = node.calls
        assert (call.method, call.target, call.body) == ("POST", "/v1/completions", BODY)
        assert call.headers["content-length"] == "13"
        assert not {"transfer-encoding", "content_length", "transfer_encoding", "connection"} & call.headers.keys()


async def test_what_a_client_of_http_1_0_sends_behind_its_request_is_not_read() -> None:
    first = sized(b"Connection: keep-alive", b"Content-Length: 13").replace(b"1.1", b"1.0")
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.send(first + HIDDEN)
        response = await client.response()
        assert (response.status, response.headers["connection"]) == (200, "close")
        assert await client.closed()
        assert len(node.calls) == 1


async def test_a_client_of_http_1_0_is_sent_no_continue() -> None:
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        head, _, body = sized(b"Expect: 100-continue", b"Content-Length: 13").replace(b"1.1", b"1.0").partition(BODY)
        client.send(head)
        await eventually(lambda: gateway.gateway.open_connections == 1)
        client.send(BODY + body)
        assert (await client.response()).status == 200
        assert len(node.calls) == 1


async def test_headers_that_a_client_names_as_meant_for_one_hop_go_no_further() -> None:
    lines = b"Connection: close, X-Session-Id", b"X-Session-Id: s", b"User-Agent: u", b"Content-Length: 13"
    async with scripted_node(answer()) as node, rig(node.url) as gateway, Client.to(gateway) as client:
        client.send(sized(*lines))
        assert (await client.response()).status == 200
        assert "x-session-id" not in node.calls[0].headers
        assert node.calls[0].headers["user-agent"] == "u"


ANSWER = b"HTTP/1.1 200 OK\r\n"
DOUBTFUL_ANSWERS = {
    "both lengths": ANSWER + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "two lengths": ANSWER + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a list of lengths": ANSWER + b"Content-Length: 2, 2\r\n\r\n{}",
    "a negative length": ANSWER + b"Content-Length: -2\r\n\r\n{}",
    "another coding": ANSWER + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "another coding alone": ANSWER + b"Transfer-Encoding: gzip\r\n\r\n{}",
    "chunked in HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "a folded header": ANSWER + b"A: b\r\n c\r\nContent-Length: 2\r\n\r\n{}",
    "a line feed alone": ANSWER + b"A: b\nContent-Length: 2\r\n\r\n{}",
    "a space before a colon": ANSWER + b"Content-Length : 2\r\n\r\n{}",
    "a null byte in a value": ANSWER + b"A: b\0\r\nContent-Length: 2\r\n\r\n{}",
    "a status that means nothing": b"HTTP/1.1 600 X\r\nContent-Length: 2\r\n\r\n{}",
    "another version": b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("data", DOUBTFUL_ANSWERS.values(), ids=DOUBTFUL_ANSWERS.keys())
async def test_a_doubtful_answer_is_a_502_and_its_connection_serves_no_more(data: bytes) -> None:
    async with scripted_node(raw(data), answer(body=b"1")) as node, rig(node.url) as gateway:
        async with Client.to(gateway) as client:
            client.post()
            response = await client.response()
            assert (response.status, response.error["code"]) == (502, "upstream_failed")
            client.post()
            assert (await client.response()).body == b"1"
        assert [call.connection for call in node.calls] == [1, 2]
        assert [outcome.ending for outcome in gateway.books.outcomes] == [Ending.UPSTREAM_LOST, Ending.COMPLETED]


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n{}",
        ANSWER + b"Content-Length: 2\r\n\r\n{}" + ANSWER + b"Content-Length: 3\r\n\r\n[1]",
    ],
    ids=["204 with a length", "204 with chunks", "304 with a body", "two answers"],
)
async def test_what_a_node_sends_behind_its_answer_is_nobodys(data: bytes) -> None:
    async with scripted_node(raw(data), answer(body=b"1")) as node, rig(node.url) as gateway:
        async with Client.to(gateway) as client:
            client.post()
            assert (await client.response()).status in (200, 204, 304)
            client.post()
            assert (await client.response()).body == b"1"
        assert [call.connection for call in node.calls] == [1, 2]


ANSWER_CHUNKED = ANSWER + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"


@pytest.mark.parametrize(
    "rest",
    [
        b"xyz\r\n",
        b"-1\r\n",
        b"0x2\r\n{}\r\n0\r\n\r\n",
        b"2 \r\n{}\r\n0\r\n\r\n",
        b"2\n{}\r\n0\r\n\r\n",
        b"1\r\n{}\r\n0\r\n\r\n",
        b"10000000000000000\r\n",
        b"0\r\nContent-Length: 5\r\n\r\n",
        b"0\r\nA: b\n\r\n",
    ],
)
async def test_an_answer_whose_chunks_become_doubtful_ends_visibly_short_and_its_connection_serves_no_more(
    rest: bytes,
) -> None:
    async with scripted_node(raw(ANSWER_CHUNKED, rest), answer(body=b"1")) as node, rig(node.url) as gateway:
        async with Client.to(gateway) as client:
            client.post()
            assert not (await client.response()).complete
        async with Client.to(gateway) as client:
            client.post()
            assert (await client.response()).body == b"1"
        assert [call.connection for call in node.calls] == [1, 2]
        assert [outcome.ending for outcome in gateway.books.outcomes] == [Ending.UPSTREAM_LOST, Ending.COMPLETED]

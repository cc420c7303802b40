"""The benchmark's Messages: its questions are the same, its answers are checked."""

from __future__ import annotations

import pytest

from router.dialects.messages.decode_request import decode_messages_request

from .bodies import make_requests, taken
from .load import Load
from .messages import (
    PATH,
    MessagesChecker,
    MessagesShape,
    as_messages,
    messages_body,
    messages_writes,
)
from .mock import serve
from .shapes import Shape

SHAPE = MessagesShape(20, 0, 2)
STREAM = b"".join(messages_writes(SHAPE))


@pytest.mark.parametrize("stream", [False, True])
def test_the_same_is_asked(stream: bool) -> None:
    requests = make_requests(SHAPE, stream=stream, key="k", count=36)
    for request in requests:
        path, head, body = taken(as_messages(request))
        _, _, before = taken(request)
        assert path == PATH
        assert b"anthropic-version: " in head
        decoded = decode_messages_request(body)
        assert decoded.dropped == ()
        assert decoded.body["model"] == before["model"]
        assert [tool["name"] for tool in body.get("tools", [])] == [
            tool["name"] for tool in before.get("tools", [])
        ]
        assert body.get("stream", False) is stream


def test_a_stream_has_its_first_delta_in_the_first_write() -> None:
    assert b"text_delta" in messages_writes(SHAPE)[0]
    assert STREAM.count(b"data:") == SHAPE.events
    assert MessagesChecker().stream(STREAM, SHAPE) is None


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (b"c003", b"x003", "another text"),
        (b'"output_tokens":20', b'"output_tokens":21', "usage"),
        (b'"model":"mock', b'"model":"other', "the model"),
        (b'event: ping\ndata: {"type":"ping"}\n\n', b"", "the events are"),
        (b"event: message_stop", b"event: message_delta", "is named"),
    ],
)
def test_a_damaged_stream_is_noticed(old: bytes, new: bytes, fault: str) -> None:
    assert old in STREAM
    assert fault in str(MessagesChecker().stream(STREAM.replace(old, new), SHAPE))


def test_a_stream_cut_anywhere_is_noticed() -> None:
    assert all(MessagesChecker().stream(STREAM[:end], SHAPE) for end in range(len(STREAM)))


def test_a_whole_message_is_checked() -> None:
    checker, body = MessagesChecker(), messages_body(SHAPE)
    assert checker.body(body, SHAPE) is None
    assert "the text is" in str(checker.body(body, Shape(20, 0, 1)))
    assert "no message" in str(checker.body(b"{}", SHAPE))
    assert "usage" in str(
        checker.body(body.replace(b":20}", b":2}").replace(b":20,", b":2,"), SHAPE)
    )


@pytest.mark.parametrize("stream", [False, True])
async def test_the_mock_answers(stream: bool) -> None:
    made = make_requests(SHAPE, stream=stream, key="k", count=12)
    async with await serve("127.0.0.1", 0) as server:
        address = ("127.0.0.1", server.sockets[0].getsockname()[1])
        async with Load(address, list(map(as_messages, made)), 3) as load:
            result = await load.run(limit=10, each=4)
    check = MessagesChecker().stream if stream else MessagesChecker().body
    assert result.failures == []
    assert result.events == (12 * SHAPE.events if stream else 0)
    assert len(result.first_ms) == (12 if stream else 0)
    assert [check(s.body, s.request.shape) for s in result.samples] == [None] * 12

"""Recorded answers of OpenAI's own, told as messages."""

from __future__ import annotations

import orjson
import pytest

from router.dialects.chat.decode_stream import ChatDecoder
from router.dialects.messages.encode_stream import MessagesEncoder
from router.response.decoder import StreamDecoder
from tests.support import native as natives
from tests.support.anthropic import check_message, check_stream, events_of
from tests.support.reading import in_bytes, make_builder, trace, traces

NATIVE = traces("Responses/*/response.txt", "Conversations/*/*response.txt")
CHAT = traces("ChatCompletions/*/response.txt")
WHOLE = [name for name in traces("Responses/*/response.json") if "error" not in name]


def check(one: StreamDecoder, same: StreamDecoder, data: bytes) -> None:
    """A recording makes one stream, however it is read."""
    told = []
    for decoder, reads in ((one, [data]), (same, in_bytes(data, 7))):
        encoder = MessagesEncoder("text", "req_1")
        frames = [frame for read in reads for frame in encoder.frames(decoder.feed(read))]
        told.append(events_of([*frames, *encoder.frames(decoder.finish())]))
    assert told[0] == told[1]
    message = check_stream(told[0])
    assert message is not None
    assert message["content"] or message["stop_reason"] == "max_tokens"
    assert message["usage"]["output_tokens"] > 0


@pytest.mark.parametrize("name", NATIVE)
def test_a_native_stream(name: str) -> None:
    check(natives.decoder(), natives.decoder(), trace(name))


@pytest.mark.parametrize("name", CHAT)
def test_a_chat_stream(name: str) -> None:
    check(ChatDecoder(make_builder()), ChatDecoder(make_builder()), trace(name))


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_answer(name: str) -> None:
    body = natives.decoder().whole(trace(name))
    message = orjson.loads(MessagesEncoder("text", None).whole(body))
    check_message(message)
    assert message["content"] or message["stop_reason"] == "max_tokens"

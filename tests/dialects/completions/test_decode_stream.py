"""Legacy completions passed on."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.dialects.completions.decode_stream import CompletionPassthrough
from router.errors import UpstreamFailure
from tests.support.reading import in_bytes, read_all, sse

DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
ONLY_USAGE = {"choices": [], "usage": USAGE}


def chunk(text: str = "", finish: str | None = None, index: int = 0) -> dict[str, Any]:
    choice = {"index": index, "text": text, "logprobs": None, "finish_reason": finish}
    return {"id": "cmpl-1", "object": "text_completion", "model": "up", "choices": [choice]}


def decoder(*, wants_usage: bool = False, **body: Any) -> CompletionPassthrough:
    return CompletionPassthrough({"prompt": "a", **body}, model="up", wants_usage=wants_usage)


def passed(subject: CompletionPassthrough, data: Any) -> bytes:
    return b"".join(frame.encode() for frame in read_all(subject, data))


@pytest.mark.parametrize("wants", [True, False])
def test_a_stream_passes_byte_by_byte(wants: bool) -> None:
    before = sse(chunk("Hé"), chunk("y"), chunk(finish="stop"))
    stream = before + sse(ONLY_USAGE) + DONE
    for data in (stream, in_bytes(stream)):
        subject = decoder(wants_usage=wants)
        assert passed(subject, data) == (stream if wants else before + DONE)
        assert (subject.ended, subject.output_chars) == (True, 3)
        assert subject.usage is not None
        assert (subject.usage["input_tokens"], subject.usage["output_tokens"]) == (3, 4)


def test_output_begins_with_text() -> None:
    subject = decoder()
    subject.feed(sse(chunk("")))
    so_far = [subject.has_output]
    subject.feed(sse(chunk("a")))
    assert [*so_far, subject.has_output] == [False, True]
    ends = decoder()
    ends.feed(sse(chunk("", "length")))
    assert ends.has_output


@pytest.mark.parametrize(
    ("body", "finished", "salvaged"),
    [
        ({}, [0], True),
        ({"n": 2}, [0], False),
        ({"n": 2}, [0, 1], True),
        ({"prompt": ["a", "b"]}, [0], False),
        ({"prompt": ["a", "b"]}, [1, 0], True),
        ({"prompt": [[1], [2]], "n": 2}, [0, 1, 2], False),
        ({"prompt": [1, 2]}, [0], True),
    ],
)
def test_a_missing_end_marker_is_put_where_every_choice_ended(
    body: dict[str, Any], finished: list[int], salvaged: bool
) -> None:
    subject = decoder(**body)
    stream = sse(
        *(chunk("a", index=i) for i in finished), *(chunk("", "stop", i) for i in finished)
    )
    assert passed(subject, stream) == stream + (DONE if salvaged else b"")
    assert subject.ended is salvaged
    assert (subject.error is None) is salvaged


def test_a_stream_that_breaks_ends_with_an_error() -> None:
    subject = decoder()
    passed(subject, sse(chunk("a")))
    assert isinstance(subject.error, UpstreamFailure)
    [frame] = subject.fail(subject.error)
    assert frame.encode() == sse(subject.error.envelope())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"data: {broken\n\n", "not valid JSON"),
        (sse({"error": {"message": "out of memory"}}), "out of memory"),
        (sse({"choices": {"a": 1}}), "a chunk of a completion whose choices"),
    ],
)
def test_what_is_no_chunk_is_a_failure(data: bytes, words: str) -> None:
    subject = decoder()
    subject.feed(sse(chunk("a")) + data)
    assert subject.error is not None
    assert words in subject.error.message


def test_a_whole_one_passes() -> None:
    body = orjson.dumps({**chunk("hi", "stop"), "usage": USAGE})
    subject = decoder()
    assert subject.whole(body) is body
    assert subject.usage is not None
    assert subject.usage["total_tokens"] == 7
    with pytest.raises(UpstreamFailure, match="a completion without choices"):
        decoder().whole(b"{}")
    with pytest.raises(UpstreamFailure, match="a completion that is not valid JSON"):
        decoder().whole(body[:-9])

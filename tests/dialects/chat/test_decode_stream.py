"""Chat Completions answers as events of the Responses API."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.errors import UpstreamFailure
from tests.support.chat import chat, chat_chunk, decoder, text, tool
from tests.support.order import check_order
from tests.support.reading import (
    checked,
    decoded,
    in_bytes,
    read_all,
    said,
    sse,
    trace,
    traces,
)

# name -> (deltas, what the items say)
ANSWERS: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str]]]] = {
    "text": (
        [{"role": "assistant", "content": ""}, text("Hel"), text("lö"), text(None)],
        [("text", "Hellö")],
    ),
    "nothing": ([{"role": "assistant", "content": ""}], []),
    "text in parts": (
        [text([{"type": "text", "text": "Hi"}, {"text": None}, "x"])],
        [("text", "Hi")],
    ),
    "a call": (
        [tool(name="f", id="call_1"), tool('{"a"'), tool(":1}")],
        [("f", '{"a":1}')],
    ),
    "a whole call": ([tool('{"a":1}', name="f", id="x")], [("f", '{"a":1}')]),
    "parallel calls, one after the other": (
        [
            tool("{", name="f", id="a"),
            tool("}"),
            tool("{", name="g", id="b", index=1),
            tool("}", index=1),
        ],
        [("f", "{}"), ("g", "{}")],
    ),
    "parallel calls, interleaved": (
        [
            tool("", name="f", id="a"),
            tool("", name="g", id="b", index=1),
            tool('{"a":'),
            tool('{"b":', index=1),
            tool("1}"),
            tool("2}", index=1),
        ],
        [("f", '{"a":1}'), ("g", '{"b":2}')],
    ),
    "parallel calls in one chunk": (
        [
            {
                "tool_calls": [
                    *tool("{}", name="f", id="a")["tool_calls"],
                    *tool('{"b":2}', name="g", id="b", index=1)["tool_calls"],
                ]
            }
        ],
        [("f", "{}"), ("g", '{"b":2}')],
    ),
    "indexes that do not begin at 0": (
        [tool("{}", name="f", id="a", index=1), tool("{}", name="g", id="b", index=2)],
        [("f", "{}"), ("g", "{}")],
    ),
    "index always 0, other ids": (
        [tool('{"a":1}', name="f", id="a"), tool('{"b":2}', name="f", id="b")],
        [("f", '{"a":1}'), ("f", '{"b":2}')],
    ),
    "index always 0, other ids, in fragments": (
        [
            tool("{", name="f", id="a"),
            tool("{", name="g", id="b"),
            tool('"a":1}', id="a"),
            tool("}", id="b"),
        ],
        [("f", '{"a":1}'), ("g", "{}")],
    ),
    "index always 0, then only one goes on": (
        [
            tool("{", name="f", id="a"),
            tool("{", name="g", id="b"),
            tool('"a":1', id="a"),
            tool("}"),
        ],
        [("f", '{"a":1}'), ("g", "{")],
    ),
    "index always 0, no ids": (
        [tool('{"a":1}', name="f"), tool('{"b":2}', name="f"), tool("{}", name="g")],
        [("f", '{"a":1}'), ("f", '{"b":2}'), ("g", "{}")],
    ),
    "no index, other ids": (
        [
            tool("{}", name="f", id="a", index=None),
            tool('{"b":2}', name="g", id="b", index=None),
        ],
        [("f", "{}"), ("g", '{"b":2}')],
    ),
    "no index, no ids, in fragments": (
        [
            tool("{", name="f", index=None),
            tool("}", index=None),
            tool("{", name="g", index=None),
            tool("}", index=None),
        ],
        [("f", "{}"), ("g", "{}")],
    ),
    "no index, the id in every fragment": (
        [tool("{", name="f", id="a", index=None), tool("}", id="a", index=None)],
        [("f", "{}")],
    ),
    "an index that is no number": (
        [tool("{", name="f", id="a", index="0"), tool("}", index="0")],
        [("f", "{}")],
    ),
    "a new id for every fragment": (
        [tool("{", name="f", id="a"), tool("}", id="b"), tool(" ", id="c")],
        [("f", "{} ")],
    ),
    "the name in every fragment": (
        [tool("{", name="f", id="a"), tool("}", name="f", id="a"), tool("", name="f", id="a")],
        [("f", "{}")],
    ),
    "the id comes late": (
        [tool("{", name="f"), tool("}", id="a"), tool("", id="a")],
        [("f", "{}")],
    ),
    "the name comes late": ([tool('{"a":', id="a"), tool("1}", name="f")], [("f", '{"a":1}')]),
    "the first name comes late": (
        [tool("{", id="a"), tool("{}", name="g", id="b", index=1), tool("}", name="f")],
        [("f", "{}"), ("g", "{}")],
    ),
    "empty arguments": (
        [tool("", name="f"), tool(None, name="g", index=1)],
        [("f", "{}"), ("g", "{}")],
    ),
    "arguments as an object": (
        [tool({"a": [1, "ö"]}, name="f"), tool({}, name="g", index=1)],
        [("f", '{"a":[1,"ö"]}'), ("g", "{}")],
    ),
    "the older function call": (
        [{"function_call": {"name": "f", "arguments": "{"}}, {"function_call": {"arguments": "}"}}],
        [("f", "{}")],
    ),
    "text before a call": (
        [text("Let me see."), tool("{}", name="f")],
        [("text", "Let me see."), ("f", "{}")],
    ),
    "text beside a call": (
        [{**text("A"), **tool("{", name="f")}, text("B"), tool("}")],
        [("text", "A"), ("f", "{}"), ("text", "B")],
    ),
    "text after a call": (
        [tool("{}", name="f"), text("Do"), text("ne")],
        [("f", "{}"), ("text", "Done")],
    ),
    "reasoning_content": (
        [{"reasoning_content": "h"}, {"reasoning_content": "m", "content": None}, text("A")],
        [("reasoning", "hm"), ("text", "A")],
    ),
    "reasoning": (
        [{"reasoning": "hm", "content": ""}, text("A")],
        [("reasoning", "hm"), ("text", "A")],
    ),
    "reasoning under both names": (
        [{"reasoning_content": "hm", "reasoning": "hm"}, text("A")],
        [("reasoning", "hm"), ("text", "A")],
    ),
    "reasoning between": (
        [text("A"), {"reasoning": "hm"}, tool("{}", name="f"), {"reasoning": "so"}],
        [("text", "A"), ("reasoning", "hm"), ("f", "{}"), ("reasoning", "so")],
    ),
    "think tags": (
        [text("<thi"), text("nk>\nh"), text("m</th"), text("ink>"), text("\n\nA")],
        [("reasoning", "hm"), ("text", "A")],
    ),
    "think tags and a call": (
        [text("<think>hm</think>\n"), tool("{}", name="f")],
        [("reasoning", "hm"), ("f", "{}")],
    ),
    "a tag that was none, then a call": (
        [text("<th"), tool("{}", name="f"), text("ink>")],
        [("text", "<th"), ("f", "{}"), ("text", "ink>")],
    ),
    "unfinished thought, then a call": (
        [text("<think>hm</th"), tool("{}", name="f")],
        [("reasoning", "hm</th"), ("f", "{}")],
    ),
    "white space before a call": ([text("\n\n"), tool("{}", name="f")], [("f", "{}")]),
    "white space before a call, text after": (
        [text("\n"), tool("{}", name="f"), text("A")],
        [("f", "{}"), ("text", "\nA")],
    ),
    "only white space": ([text(" \n")], [("text", " \n")]),
    "a refusal": ([{"refusal": "No"}, {"refusal": "."}], [("refusal", "No.")]),
    "a refusal after text": (
        [text("Well"), {"refusal": "no"}],
        [("text", "Well"), ("refusal", "no")],
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_becomes_items(case: str) -> None:
    deltas, expected = ANSWERS[case]
    final = checked(decoder(), chat(*deltas))
    assert said(final) == expected
    assert final["status"] == "completed"


@pytest.mark.parametrize("case", ANSWERS)
def test_any_cut_gives_the_same_frames(case: str) -> None:
    stream = chat(*ANSWERS[case][0])
    whole = [frame.encode() for frame in read_all(decoder(), stream)]
    for size in (1, 7, 100):
        assert [f.encode() for f in read_all(decoder(), in_bytes(stream, size))] == whole


def test_frames_are_made_as_soon_as_can_be() -> None:
    subject = decoder()
    kinds = [
        [
            frame.type.removeprefix("response.")
            for frame in subject.feed(chat(delta, done=False, finish=None))
        ]
        for delta in ({"role": "assistant"}, text("A"), text("B"))
    ]
    assert kinds == [
        [],
        ["created", "in_progress", "output_item.added", "content_part.added", "output_text.delta"],
        ["output_text.delta"],
    ]
    assert subject.has_output
    assert not subject.ended


@pytest.mark.parametrize(
    ("mangle", "name"),
    [
        (lambda s: s.replace(b"\n", b"\r\n"), "crlf"),
        (lambda s: s.replace(b"\n", b"\r"), "cr"),
        (lambda s: s.replace(b"data: ", b"data:"), "no space"),
        (lambda s: s.replace(b"data: ", b": hi\nid: 7\nevent: x\ndata: "), "other fields"),
        (lambda s: s.replace(b"\n\n", b"\n\n: keep-alive\n\ndata:\n\n"), "comments"),
        (lambda s: s.replace(b'{"id"', b'{\ndata: "id"'), "several data lines"),
    ],
)
def test_any_framing(mangle: Any, name: str) -> None:
    plain = chat({"reasoning": "hm"}, text("A\nB"), tool("{}", name="f"))
    stream = mangle(plain)
    assert stream != plain, name
    expected = [frame.encode() for frame in read_all(decoder(), plain)]
    assert [frame.encode() for frame in read_all(decoder(), stream)] == expected
    assert [frame.encode() for frame in read_all(decoder(), in_bytes(stream))] == expected


ERRORS: dict[str, tuple[bytes, str]] = {
    "an error": (sse({"error": {"message": "on fire", "code": 500}}), "on fire"),
    "an error as text": (sse({"error": "on fire"}), "on fire"),
    "an error without text": (sse({"error": {"code": 7}}), "reported an error"),
    "an error beside choices": (
        sse({**chat_chunk(content="B"), "error": {"message": "on fire"}}),
        "on fire",
    ),
    "an older vLLM": (sse({"object": "error", "message": "on fire", "code": 500}), "on fire"),
    "not JSON": (b"data: {oops\n\n", "not valid JSON"),
    "not an object": (b"data: [1]\n\n", "not a JSON object"),
    "not UTF-8": (b'data: {"a":"\xff"}\n\n', "not valid JSON"),
    "too deep": (b"data: {" + b'"a":{' * 300 + b"}" * 301 + b"\n\n", "nested too deeply"),
    "far too deep": (b"data: " + b"[" * 100_000 + b"\n\n", "not valid JSON"),
    "choices": (sse({"choices": {"0": {}}}), "choices are malformed"),
    "a choice": (sse({"choices": ["x"]}), "choices are malformed"),
    "tool calls": (sse(chat_chunk(tool_calls={"a": 1})), "not a list"),
    "a tool call": (sse(chat_chunk(tool_calls=["x"])), "not an object"),
    "a function": (sse(chat_chunk(tool_calls=[{"function": "f"}])), "without a function"),
    "a call without name": (
        sse(chat_chunk(tool_calls=[{"index": 7, "function": None}]), b"[DONE]"),
        "without a name",
    ),
    "a name that is none": (chat(tool("{}", name=["f"], index=7)), "without a name"),
}


@pytest.mark.parametrize("case", ERRORS)
@pytest.mark.parametrize(
    "before", [[], [text("A")], [tool('{"a":', name="f")], [{"reasoning": "A"}]]
)
def test_a_broken_stream_fails(case: str, before: list[dict[str, Any]]) -> None:
    broken, message = ERRORS[case]
    subject = decoder()
    frames = subject.feed(chat(*before, finish=None, done=False) + broken + chat(text("after")))
    assert isinstance(subject.error, UpstreamFailure)
    assert message in subject.error.message
    assert subject.has_output == bool(before)
    assert subject.feed(chat(text("late"))) == []
    assert (subject.finish(), subject.salvage()) == ([], [])
    frames += subject.fail(subject.error)
    final = check_order(decoded(frames))
    assert final["error"]["message"] == subject.error.message
    assert len(final["output"]) == len(before)


def test_a_long_message_is_cut() -> None:
    subject = decoder()
    subject.feed(sse({"error": {"message": "x" * 100_000}}))
    assert subject.error is not None
    assert len(subject.error.message) == 2000


def test_an_event_too_large_fails() -> None:
    subject = decoder()
    subject.feed(b"data: " + b"x" * (33 * 1024 * 1024))
    assert isinstance(subject.error, UpstreamFailure)
    assert "exceeds" in subject.error.message


@pytest.mark.parametrize("name", traces("ChatCompletions/*/response.txt"))
def test_recorded_streams(name: str) -> None:
    stream = trace(name)
    final = checked(decoder(), stream)
    recorded = [
        orjson.loads(line[6:]) for line in stream.splitlines() if line.startswith(b"data: {")
    ]
    pieces = [c["choices"][0]["delta"].get("content") for c in recorded if c["choices"]]
    assert said(final) == [("text", "".join(filter(None, pieces)))]

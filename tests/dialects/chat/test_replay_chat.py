"""A finished answer as a chat completion, and what a chat client was sent as an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from router.dialects.chat.decode_stream import ChatDecoder
from router.dialects.chat.replay import answer_of_chat, chunks, completion
from router.response.frame import Frame
from router.response.machine import MachineOptions
from router.response.replay import frame_tokens
from tests.support.answers import (
    LOGPROBS,
    USAGE,
    answer,
    call,
    custom,
    message,
    reasoning,
    refusal,
    text,
    without_ids,
)
from tests.support.reading import FUZZ, make_builder, read_all, trace, traces
from tests.support.schema import faults

MORE = settings(FUZZ, max_examples=100)
OPTIONS = MachineOptions(custom_tools=frozenset({"c"}), logprobs=True)
Items = list[dict[str, Any]]
EVERY_KIND: dict[str, Items] = {
    "text": [message(text("Hello, big wörld"))],
    "log probabilities": [message(text("Hi you", logprobs=LOGPROBS))],
    "refusal": [message(refusal("No, no."))],
    "call": [call()],
    "custom call": [custom("one two")],
    "reasoning": [reasoning(("why so",)), message(text("Hi"))],
    "everything": [
        reasoning(("why so",)),
        message(text("Hi you", logprobs=LOGPROBS)),
        message(refusal("No.")),
        call(),
        custom(),
        call("{}", call_id="call_3", name="g"),
    ],
}


def whole(made: dict[str, Any]) -> bytes:
    """The body of its completion."""
    return orjson.dumps(completion(made, id="chatcmpl-1", created=7))


def streamed(made: dict[str, Any], *, include_usage: bool = True) -> list[Frame]:
    """Its stream."""
    return chunks(made, id="chatcmpl-1", created=7, include_usage=include_usage)


def datas(made: dict[str, Any]) -> list[bytes]:
    return [frame.data for frame in streamed(made)]


def of_whole(made: dict[str, Any]) -> dict[str, Any]:
    """What a reader makes of its completion."""
    final: dict[str, Any] = orjson.loads(ChatDecoder(make_builder(), OPTIONS).whole(whole(made)))
    return final


def of_stream(made: dict[str, Any]) -> dict[str, Any]:
    """What a reader makes of its stream."""
    decoder = ChatDecoder(make_builder(), OPTIONS)
    read_all(decoder, b"".join(frame.encode() for frame in streamed(made)))
    assert decoder.error is None
    assert decoder.final is not None
    return decoder.final


@pytest.mark.parametrize("back", [of_whole, of_stream])
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_reader_gives_the_answer_back(
    kind: str, back: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    final = back(answer(*EVERY_KIND[kind]))
    assert without_ids(final["output"]) == without_ids(EVERY_KIND[kind])
    assert final["usage"] == USAGE
    assert final["status"] == "completed"


@pytest.mark.parametrize("sent", [whole, datas])
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_so_does_what_the_client_was_sent(
    kind: str, sent: Callable[[dict[str, Any]], bytes | list[bytes]]
) -> None:
    back = answer_of_chat(sent(answer(*EVERY_KIND[kind])))
    assert back is not None
    assert without_ids(back["output"]) == without_ids(EVERY_KIND[kind])
    assert (back["model"], back["status"], back["usage"]) == ("m-2026", "completed", USAGE)
    assert len({item["id"] for item in back["output"]}) == len(back["output"])


def test_a_completion() -> None:
    made = answer(
        reasoning(("skipped",), ("raw", "er")),
        message(text("One "), text("two", logprobs=LOGPROBS)),
        {"id": "ws_1", "type": "web_search_call"},
        message(text("."), refusal("No.")),
        call(),
        custom(),
    )
    assert completion(made, id="chatcmpl-1", created=7) == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 7,
        "model": "m-2026",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "One two.",
                    "refusal": "No.",
                    "reasoning_content": "raw\n\ner",
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "f", "arguments": '{"a": 1}'},
                        },
                        {
                            "id": "call_2",
                            "type": "custom",
                            "custom": {"name": "c", "input": "one two"},
                        },
                    ],
                },
                "logprobs": {"content": LOGPROBS, "refusal": None},
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 3,
            "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 1},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
    }


def test_a_call_alone_has_no_content() -> None:
    made = completion(answer(call(), usage=None), id="c", created=7)
    assert made["choices"][0]["message"]["content"] is None
    assert "usage" not in made
    stopped = completion(answer(message(text(""))), id="c", created=7)
    assert stopped["choices"][0]["message"]["content"] == ""
    assert stopped["choices"][0]["finish_reason"] == "stop"


def test_a_stream() -> None:
    made = answer(reasoning(("why",)), message(text("Hello you")), call())
    head = {"id": "c", "object": "chat.completion.chunk", "created": 7, "model": "m-2026"}

    def one(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {**head, "choices": [choice]}

    function = {"name": "f", "arguments": ""}
    begun = {"index": 0, "id": "call_1", "type": "function", "function": function}
    expected = [
        one({"role": "assistant", "content": ""}),
        one({"reasoning_content": "why"}),
        one({"content": "Hello "}),
        one({"content": "you"}),
        one({"tool_calls": [begun]}),
        one({"tool_calls": [{"index": 0, "function": {"arguments": '{"a": '}}]}),
        one({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}),
        one({}, "tool_calls"),
    ]
    *frames, done = chunks(made, id="c", created=7, include_usage=False)
    assert [frame.json() for frame in frames] == expected
    assert (done.type, done.data) == ("", b"[DONE]")
    *frames, last, done = chunks(made, id="c", created=7, include_usage=True)
    assert [frame.json() for frame in frames] == [{**chunk, "usage": None} for chunk in expected]
    usage = completion(made, id="c", created=7)["usage"]
    assert last.json() == {**head, "choices": [], "usage": usage}
    weights = [frame_tokens(frame) for frame in (*frames, last, done)]
    assert weights == [0, 0.75, 1.5, 0.75, 0, 1.5, 0.5, 0, 0, 0]


def test_log_probabilities_weigh_what_they_count() -> None:
    frames = streamed(answer(message(text("Hi you", logprobs=LOGPROBS)), usage=None))
    assert [frame_tokens(frame) for frame in frames] == [0, 1, 1, 0, 0]


def test_several_pieces_of_reasoning_stay_apart() -> None:
    made = answer(reasoning(("a", "b")), reasoning(), reasoning(("c",)), message(text("x")))
    message_ = completion(made, id="c", created=7)["choices"][0]["message"]
    said = [f.json()["choices"][0]["delta"] for f in streamed(made, include_usage=False)[:-1]]
    pieces = [delta["reasoning_content"] for delta in said if "reasoning_content" in delta]
    assert message_["reasoning_content"] == "".join(pieces) == "a\n\nb\n\nc"


def test_an_estimate_stays_one() -> None:
    made = completion(answer(usage={**USAGE, "estimated": True}), id="c", created=7)
    assert made["usage"]["estimated"] is True


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_the_official_client_and_the_published_description(kind: str) -> None:
    made = answer(*EVERY_KIND[kind])
    body = orjson.loads(whole(made))
    ChatCompletion.model_validate(body)
    assert faults("CreateChatCompletionResponse", body) == []
    for frame in streamed(made)[:-1]:
        chunk = frame.json()
        if b'"custom"' not in frame.data:  # both know chunks of functions only
            ChatCompletionChunk.model_validate(chunk)
            assert faults("CreateChatCompletionStreamResponse", without_nulls(chunk)) == []


def without_nulls(chunk: dict[str, Any]) -> dict[str, Any]:
    """The chunk without the nulls that OpenAI's own have, but not its description."""
    for choice in chunk["choices"]:
        if choice["finish_reason"] is None:
            choice["finish_reason"] = "stop"
        choice.get("logprobs", {})["refusal"] = []
    return chunk


WORDS = st.lists(
    st.sampled_from(["Hi ", "wörld", "世界", "\n", " ", '{"a":1}', "<think>", "\u0301"]), max_size=8
).map(lambda words: "x" + "".join(words))
INPUTS = st.one_of(WORDS, st.sampled_from(["", " ", '{"input":"x"}', '{"a":1} b', "{}"]))


@st.composite
def answers(draw: st.DrawFn) -> Items:
    """The items of an answer that a chat message can hold."""
    items: Items = []
    if draw(st.booleans()):
        items.append(reasoning((draw(WORDS),)))
    if draw(st.booleans()):
        items.append(message(text(draw(WORDS))))
    elif draw(st.booleans()):
        items.append(message(text("Hi you", logprobs=LOGPROBS)))
    if draw(st.booleans()):
        items.append(message(refusal(draw(WORDS))))
    for place in range(draw(st.integers(0, 3))):
        arguments = orjson.dumps({"a": draw(WORDS)}).decode()
        made = [call(arguments), custom(draw(INPUTS))][draw(st.integers(0, 1))]
        items.append({**made, "call_id": f"call_{place}"})
    return items


@MORE
@given(answers())
def test_there_and_back(items: Items) -> None:
    made = answer(*items)
    for sent in (whole(made), datas(made)):
        back = answer_of_chat(sent)
        assert back is not None
        assert without_ids(back["output"]) == without_ids(items)
        assert datas({**made, "output": back["output"]}) == datas(made)


@pytest.mark.parametrize("name", traces("ChatCompletions/*/response.*"))
def test_a_recorded_completion(name: str) -> None:
    body = trace(name)
    if name.endswith(".json"):
        back = answer_of_chat(body)
        assert back is not None
        before = orjson.loads(body)
        again = completion({**back, "fields": {}, "hidden": {}}, id=before["id"], created=1)
        choice, said = before["choices"][0], again["choices"][0]
        for field in ("content", "refusal", "tool_calls"):
            assert said["message"].get(field) == choice["message"].get(field)
        assert said["finish_reason"] == choice["finish_reason"]
        counts = ("prompt_tokens", "completion_tokens", "total_tokens")
        assert {n: again["usage"][n] for n in counts} == {n: before["usage"][n] for n in counts}
    else:
        sent = [line[6:] for line in body.splitlines() if line.startswith(b"data: ")]
        back = answer_of_chat(sent)
        assert back is not None
        deltas = [c["delta"] for line in sent[:-1] for c in orjson.loads(line)["choices"]]
        content = "".join(delta.get("content") or "" for delta in deltas)
        assert back["output"][0]["content"][0]["text"] == content

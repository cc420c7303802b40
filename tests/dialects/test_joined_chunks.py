"""What the chunks of a completion amount to."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.dialects.chat.join_chunks import JoinedChunks
from router.dialects.chat.passthrough import ChatPassthrough
from router.dialects.completions.decode_stream import CompletionPassthrough
from router.errors import UpstreamFailure
from tests.support.chat import USAGE
from tests.support.reading import in_bytes, read_all, sse

HEAD = {"id": "c", "created": 1, "model": "up", "system_fingerprint": "fp", "service_tier": "x"}
DONE = b"[DONE]"


def part(index: int, arguments: str, **more: Any) -> dict[str, Any]:
    """A fragment of a call."""
    name = more.pop("name", None)
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return {"index": index, **more, "function": function}


def called(arguments: str, id: str, name: str = "f") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def token(text: str) -> dict[str, Any]:
    return {"token": text, "logprob": -0.5, "bytes": [1], "top_logprobs": []}


MESSAGES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "text": (
        [{"role": "assistant", "content": ""}, {"content": "Hé"}, {"content": "y"}, {}],
        {"content": "Héy"},
    ),
    "text as llama.cpp sends it": (
        [{"role": "assistant", "content": None}, {"content": "Hey"}, {}],
        {"content": "Hey"},
    ),
    "nothing": ([{"role": "assistant", "content": ""}, {}], {"content": ""}),
    "the role each time": (
        [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}],
        {"content": "ab"},
    ),
    "reasoning": (
        [{"reasoning_content": "h"}, {"reasoning_content": "m"}, {"content": "A"}],
        {"reasoning_content": "hm", "content": "A"},
    ),
    "reasoning by its other name": (
        [{"content": "", "reasoning": "hm"}, {"content": "A"}],
        {"reasoning": "hm", "content": "A"},
    ),
    "a refusal": (
        [{"content": "", "refusal": None}, {"refusal": "N"}, {"refusal": "o"}],
        {"content": None, "refusal": "No"},
    ),
    "calls": (
        [
            {"content": None, "tool_calls": [part(0, "", id="a", type="function", name="f")]},
            {"tool_calls": [part(0, '{"x"')]},
            {"tool_calls": [part(1, "{}", id="b", type="function", name="g")]},
            {"tool_calls": [part(0, ":1}")]},
        ],
        {"content": None, "tool_calls": [called('{"x":1}', "a"), called("{}", "b", "g")]},
    ),
    "a name and an id with every fragment": (
        [
            {"tool_calls": [part(0, "{", id="a", type="function", name="f")]},
            {"tool_calls": [part(0, "}", id="a", type="function", name="f")]},
        ],
        {"tool_calls": [called("{}", "a")]},
    ),
    "two calls under one index": (
        [
            {"tool_calls": [part(0, "{}", id="a", type="function", name="f")]},
            {"tool_calls": [part(0, "{}", id="b", type="function", name="g")]},
        ],
        {"tool_calls": [called("{}", "a"), called("{}", "b", "g")]},
    ),
    "a custom call": (
        [
            {"tool_calls": [{"index": 0, "id": "a", "custom": {"name": "c", "input": "x"}}]},
            {"tool_calls": [{"index": 0, "function": None, "custom": {"input": " y"}}]},
        ],
        {"tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "c", "input": "x y"}}]},
    ),
    "parts, and text after them": (
        [{"content": ""}, {"content": [{"type": "thinking"}]}, {"content": "A"}, {"content": "B"}],
        {"content": [{"type": "thinking"}, {"type": "text", "text": "AB"}]},
    ),
    "citations": (
        [{"content": "a"}, {"annotations": [{"n": 1}]}, {"annotations": [{"n": 2}]}],
        {"content": "a", "annotations": [{"n": 1}, {"n": 2}]},
    ),
}


def stream_of(deltas: list[dict[str, Any]], **choice: Any) -> list[dict[str, Any]]:
    """Chunks with these deltas, a finish reason and the usage, which servers send in this way."""
    head = {**HEAD, "object": "chat.completion.chunk", "usage": None, "obfuscation": "xx"}
    made = [
        {**head, "choices": [{"index": 0, "delta": d, "finish_reason": None, **choice}]}
        for d in deltas
    ]
    ended = {"index": 0, "delta": {}, "finish_reason": "stop", "logprobs": None}
    last = {**head, "choices": [], "usage": USAGE, "timings": {"n": 1}}
    return [*made, {**head, "choices": [ended]}, last]


@pytest.mark.parametrize("case", MESSAGES)
def test_a_chat(case: str) -> None:
    deltas, message = MESSAGES[case]
    joined = JoinedChunks()
    for chunk in stream_of(deltas):
        joined.add(chunk)
    assert joined.whole() == {
        **HEAD,
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", **message},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
        "usage": USAGE,
        "timings": {"n": 1},
    }
    assert joined.by_index == (case != "two calls under one index")


def test_log_probabilities_and_what_servers_add_to_a_choice() -> None:
    joined = JoinedChunks()
    for text in ("a", "b"):
        sure = {"content": [token(text)], "refusal": None}
        [chunk, *_] = stream_of([{"content": text}], logprobs=sure, token_ids=[1], stop_reason=None)
        joined.add(chunk)
    joined.add({"choices": [{"index": 0, "delta": {}, "logprobs": None, "stop_reason": 7}]})
    [choice] = joined.whole()["choices"]
    assert choice["logprobs"] == {"content": [token("a"), token("b")], "refusal": None}
    assert (choice["token_ids"], choice["stop_reason"]) == ([1, 1], 7)


def test_choices_that_alternate() -> None:
    joined = JoinedChunks()
    for index, text in ((1, "b"), (0, "a"), (1, "B"), (0, "A")):
        joined.add({"choices": [{"index": index, "delta": {"content": text}}]})
    texts = [(c["index"], c["message"]["content"]) for c in joined.whole()["choices"]]
    assert texts == [(0, "aA"), (1, "bB")]


def test_a_legacy_completion() -> None:
    def chunk(text: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
        choice = {"index": 0, "text": text, "finish_reason": finish, "logprobs": None, **more}
        return {**HEAD, "object": "text_completion", "choices": [choice]}

    sure = {"tokens": ["a"], "text_offset": [0]}
    more = {"tokens": ["b"], "text_offset": [1]}
    joined = JoinedChunks()
    for one in (chunk("a", logprobs=sure), chunk("b", logprobs=more), chunk("", "length")):
        joined.add(one)
    [choice] = joined.whole()["choices"]
    assert choice == {
        "index": 0,
        "text": "ab",
        "finish_reason": "length",
        "logprobs": {"tokens": ["a", "b"], "text_offset": [0, 1]},
    }
    assert joined.whole()["object"] == "text_completion"


@pytest.mark.parametrize(
    "choices",
    [
        ["x"],
        [{"delta": "x"}],
        [{"delta": {"content": 5}}],
        [{"delta": {"tool_calls": ["f"]}}],
        [{"delta": {"tool_calls": [{"function": "f"}]}}],
        [{"delta": {"tool_calls": 5}}],
    ],
)
def test_what_is_no_chunk_is_a_failure_of_the_endpoint(choices: Any) -> None:
    decoder = ChatPassthrough(model="m", wants_usage=False, assembles=True)
    assert decoder.feed(sse({"choices": choices})) == []
    assert isinstance(decoder.error, UpstreamFailure)
    assert "malformed" in decoder.error.message


@pytest.mark.parametrize("legacy", [False, True])
def test_a_reader_says_all_of_it_at_once(legacy: bool) -> None:
    said = [{"text": t} if legacy else {"delta": {"content": t}} for t in ("Hé", "y")]
    chunks = [{**HEAD, "choices": [{"index": 0, **one}]} for one in said]
    last = {**HEAD, "choices": [], "usage": USAGE}
    data = sse(*chunks, last, DONE)
    for given in (data, in_bytes(data)):
        decoder = (
            CompletionPassthrough({"prompt": "a"}, model="m", wants_usage=False, assembles=True)
            if legacy
            else ChatPassthrough(model="m", wants_usage=False, assembles=True)
        )
        read_all(decoder, given)
        assert (decoder.ended, decoder.output_chars) == (True, 3)
        whole = orjson.loads(decoder.assembled())
        assert (whole["model"], whole["usage"]) == ("m", USAGE)
        [choice] = whole["choices"]
        assert (choice["text"] if legacy else choice["message"]["content"]) == "Héy"
        assert decoder.usage is not None
        assert decoder.usage["total_tokens"] == 13


def test_an_end_without_an_answer() -> None:
    decoder = ChatPassthrough(model="m", wants_usage=False, assembles=True)
    decoder.feed(sse(DONE))
    with pytest.raises(UpstreamFailure, match="without choices"):
        decoder.assembled()

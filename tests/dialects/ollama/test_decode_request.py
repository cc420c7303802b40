"""Requests of Ollama's API as requests of the Responses API."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from router.dialects.chat.messages import to_messages
from router.dialects.ollama.decode_request import (
    decode_chat_request,
    decode_generate_request,
    model_of,
    wants_stream,
)
from router.dialects.ollama.encode_request import encode_ollama_request
from router.dialects.responses.schema import validate_create
from router.errors import InvalidRequest

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n-rest").decode()
HELLO: dict[str, Any] = {"role": "user", "content": "hello"}
SAID: dict[str, Any] = {"type": "message", "role": "user", "content": "hello"}
CALL: dict[str, Any] = {"function": {"name": "add", "arguments": {"a": 1}}}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}


def asked(**fields: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The translation of a chat, without what every one has."""
    made = decode_chat_request({"model": "m", "messages": [HELLO], **fields})
    validate_create(made.body)
    body = dict(made.body)
    assert body.pop("model") == "m"
    assert body.pop("store") is False
    if "messages" not in fields:
        assert body.pop("input") == [SAID]
    return body, made.dropped


FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {"stream": True}),
    "stream_null": ({"stream": None}, {"stream": True}),
    "whole": ({"stream": False}, {}),
    "json": ({"format": "json"}, {"text": {"format": {"type": "json_object"}}}),
    "no_format": ({"format": ""}, {}),
    "schema": (
        {"format": SCHEMA},
        {"text": {"format": {
            "type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": False,
        }}},
    ),
    "think": ({"think": True}, {"reasoning": {"effort": "medium", "summary": "auto"}}),
    "no_think": ({"think": False}, {"reasoning": {"effort": "none"}}),
    "think_null": ({"think": None}, {}),
    "level": ({"think": "low"}, {"reasoning": {"effort": "low", "summary": "auto"}}),
    "logprobs": (
        {"logprobs": True, "top_logprobs": 3},
        {"include": ["message.output_text.logprobs"], "top_logprobs": 3},
    ),
    "no_logprobs": ({"logprobs": False, "top_logprobs": 3}, {}),
    "truncate": ({"truncate": True}, {"truncation": "auto"}),
    "no_truncate": ({"truncate": False}, {"truncation": "disabled"}),
    "options": (
        {"options": {
            "temperature": 0.5, "top_p": 1, "top_k": 40.0, "seed": 7, "stop": "END",
            "repeat_penalty": 1.1, "min_p": 0.05, "num_predict": 20, "presence_penalty": None,
        }},
        {
            "temperature": 0.5, "top_p": 1, "top_k": 40, "seed": 7, "stop": ["END"],
            "repeat_penalty": 1.1, "min_p": 0.05, "max_output_tokens": 20,
        },
    ),
    "no_limit": ({"options": {"num_predict": -1}}, {}),
    "no_limit_2": ({"options": {"num_predict": -2, "stop": []}}, {}),
    "tools": (
        {"tools": [{"type": "function", "function": {
            "name": "add", "description": "Adds.", "parameters": SCHEMA,
        }}]},
        {"tools": [{
            "type": "function", "name": "add", "description": "Adds.", "parameters": SCHEMA,
            "strict": False,
        }]},
    ),
    "bare_tool": (
        {"tools": [{"function": {"name": "now"}}]},
        {"tools": [{"type": "function", "name": "now", "strict": False}]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIELDS)
def test_fields(name: str) -> None:
    given, expected = FIELDS[name]
    body, dropped = asked(**given)
    streams = {"stream": True} if given.get("stream") is not False else {}
    assert body == {**streams, "truncation": "auto", **expected}
    assert dropped == ()


@pytest.mark.parametrize(
    ("given", "dropped"),
    [
        ({"keep_alive": "5m"}, ("keep_alive",)),
        ({"keep_alive": 0}, ("keep_alive",)),
        ({"options": {"num_ctx": 8192, "seed": 1}}, ("options.num_ctx",)),
        ({"options": {"num_gpu": 1, "use_mmap": False}}, ("options.num_gpu", "options.use_mmap")),
        ({"shift": True, "surprise": {"a": 1}}, ("shift", "surprise")),
        ({"shift": False, "surprise": [], "keep_alive": None}, ()),
        (
            {"messages": [HELLO, {"role": "assistant", "content": "x", "images": [PNG]}]},
            ("messages[1].images",),
        ),
    ],
)
def test_what_cannot_be_carried_is_named(given: dict[str, Any], dropped: tuple[str, ...]) -> None:
    assert asked(**given)[1] == dropped


def output(call_id: str, text: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


HISTORIES: dict[str, tuple[list[Any], list[Any]]] = {
    "system": (
        [{"role": "system", "content": "Be brief."}, HELLO],
        [{"type": "message", "role": "system", "content": "Be brief."}, SAID],
    ),
    "roles_in_capitals": ([{"role": "User", "content": "hello"}], [SAID]),
    "no_content": (
        [{"role": "user"}],
        [{"type": "message", "role": "user", "content": ""}],
    ),
    "images": (
        [{"role": "user", "content": "What is it?", "images": [PNG, "/9j/4AAQ"]}],
        [{"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "What is it?"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
            {"type": "input_image", "image_url": "data:image/jpeg;base64,/9j/4AAQ",
             "detail": "auto"},
        ]}],
    ),
    "thinking": (
        [HELLO, {"role": "assistant", "content": "hi", "thinking": "Hm."}],
        [
            SAID,
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "message", "role": "assistant", "content": "hi"},
        ],
    ),
    "calls_without_ids": (
        [
            HELLO,
            {"role": "assistant", "content": "", "tool_calls": [
                CALL, {"function": {"name": "sub", "arguments": {}}}, CALL,
            ]},
            {"role": "tool", "content": "3", "tool_name": "add"},
            {"role": "tool", "content": "2", "tool_name": "sub"},
            {"role": "tool", "content": "5", "tool_name": "add"},
        ],
        [
            SAID,
            call("call_1_0", "add", '{"a":1}'), call("call_1_1", "sub", "{}"),
            call("call_1_2", "add", '{"a":1}'),
            output("call_1_0", "3"), output("call_1_1", "2"), output("call_1_2", "5"),
        ],
    ),
    "results_without_names": (
        [
            HELLO,
            {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL, CALL]},
            {"role": "tool", "content": "3"},
            {"role": "tool", "content": "4"},
        ],
        [
            SAID,
            {"type": "message", "role": "assistant", "content": "Let me see."},
            call("call_1_0", "add", '{"a":1}'), call("call_1_1", "add", '{"a":1}'),
            output("call_1_0", "3"), output("call_1_1", "4"),
        ],
    ),
    "ids": (
        [
            HELLO,
            {"role": "assistant", "tool_calls": [{**CALL, "id": "a"}, {**CALL, "id": "b"}]},
            {"role": "tool", "content": "4", "tool_call_id": "b"},
            {"role": "tool", "content": "3", "tool_call_id": "a", "tool_name": "add"},
        ],
        [
            SAID, call("a", "add", '{"a":1}'), call("b", "add", '{"a":1}'),
            output("b", "4"), output("a", "3"),
        ],
    ),
    "the_same_id_in_every_turn": (
        [
            HELLO,
            {"role": "assistant", "tool_calls": [{**CALL, "id": "a"}]},
            {"role": "tool", "content": "3", "tool_call_id": "a"},
            {"role": "assistant", "tool_calls": [CALL]},
            {"role": "tool", "content": "4", "tool_name": "add"},
        ],
        [
            SAID, call("a", "add", '{"a":1}'), output("a", "3"),
            call("call_3_0", "add", '{"a":1}'), output("call_3_0", "4"),
        ],
    ),
    "a_result_without_a_call": (
        [HELLO, {"role": "tool", "content": "3", "tool_name": "add"}],
        [SAID, output("call_1", "3")],
    ),
    "arguments_as_text": (
        [HELLO, {"role": "assistant", "tool_calls": [
            {"function": {"name": "add", "arguments": '{"a": 1}'}},
        ]}],
        [SAID, call("call_1_0", "add", '{"a": 1}')],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HISTORIES)
def test_messages(name: str) -> None:
    given, expected = HISTORIES[name]
    body, dropped = asked(messages=given)
    assert body["input"] == expected
    assert dropped == ()
    if name != "a_result_without_a_call":
        assert to_messages(body)  # the other dialects can carry it


def test_a_history_comes_back_from_ollama_as_it_went_there() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look", "images": [PNG]},
        {"role": "assistant", "content": "Well", "thinking": "Hm.", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "add", "arguments": {"b": [1]}}},
        ]},
        {"role": "tool", "content": "3", "tool_call_id": "a", "tool_name": "add"},
        {"role": "assistant", "content": "It is 3."},
    ]  # fmt: skip
    options = {"temperature": 0.1, "seed": 3, "num_predict": 9, "top_k": 5, "stop": ["a"]}
    given = {"model": "m", "messages": messages, "format": SCHEMA, "think": True}
    made = decode_chat_request({**given, "options": options, "stream": False})
    sent, _ = encode_ollama_request(made.body, model="m", stream=False, num_ctx=None)
    assert sent["messages"] == messages
    assert sent["options"] == options
    assert (sent["format"], sent["think"]) == (SCHEMA, True)


def test_many_results_without_calls_take_no_time() -> None:
    calls = [{"role": "assistant", "tool_calls": [CALL] * 20_000}]
    results = [{"role": "tool", "content": "", "tool_name": "other"}] * 20_000
    made = decode_chat_request({"model": "m", "messages": [*calls, *results]})
    assert len(made.body["input"]) == 40_000


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "messages": ({"messages": "hi"}, "messages"),
    "a_message": ({"messages": ["hi"]}, "messages[0]"),
    "no_role": ({"messages": [{"content": "x"}]}, "messages[0].role"),
    "role": ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    "role_type": ({"messages": [{"role": 1}]}, "messages[0].role"),
    "content": ({"messages": [HELLO, {"role": "user", "content": []}]}, "messages[1].content"),
    "images": ({"messages": [{"role": "user", "images": "x"}]}, "messages[0].images"),
    "image": ({"messages": [{"role": "user", "images": ["?"]}]}, "messages[0].images[0]"),
    "image_url": (
        {"messages": [{"role": "user", "images": [f"data:image/png;base64,{PNG}"]}]},
        "messages[0].images[0]",
    ),
    "image_type": ({"messages": [{"role": "user", "images": [1]}]}, "messages[0].images[0]"),
    "calls": ({"messages": [{"role": "assistant", "tool_calls": 1}]}, "messages[0].tool_calls"),
    "no_function": (
        {"messages": [{"role": "assistant", "tool_calls": [{}]}]},
        "messages[0].tool_calls[0].function",
    ),
    "no_name": (
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]},
        "messages[0].tool_calls[0].function.name",
    ),
    "arguments": (
        {"messages": [
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}
        ]},
        "messages[0].tool_calls[0].function.arguments",
    ),
    "call_id": (
        {"messages": [{"role": "tool", "content": "", "tool_call_id": 5}]},
        "messages[0].tool_call_id",
    ),
    "thinking": ({"messages": [{"role": "assistant", "thinking": 5}]}, "messages[0].thinking"),
    "stream": ({"stream": "yes"}, "stream"),
    "format": ({"format": 5}, "format"),
    "think": ({"think": 5}, "think"),
    "think_level": ({"think": "very"}, "think"),
    "logprobs": ({"logprobs": 1}, "logprobs"),
    "top_logprobs": ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    "truncate": ({"truncate": "no"}, "truncate"),
    "options": ({"options": []}, "options"),
    "temperature": ({"options": {"temperature": 2.5}}, "options.temperature"),
    "top_p": ({"options": {"top_p": "high"}}, "options.top_p"),
    "top_k": ({"options": {"top_k": 1.5}}, "options.top_k"),
    "seed": ({"options": {"seed": True}}, "options.seed"),
    "stop": ({"options": {"stop": [1]}}, "options.stop[0]"),
    "min_p": ({"options": {"min_p": "x"}}, "options.min_p"),
    "tools": ({"tools": {"a": 1}}, "tools"),
    "tool": ({"tools": [1]}, "tools[0]"),
    "tool_type": ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    "tool_function": ({"tools": [{"type": "function"}]}, "tools[0].function"),
    "tool_name": ({"tools": [{"function": {}}]}, "tools[0].function.name"),
    "parameters": (
        {"tools": [{"function": {"name": "f", "parameters": 1}}]},
        "tools[0].function.parameters",
    ),
    "no_model": ({"model": ""}, "model"),
    "model": ({"model": 5}, "model"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str) -> None:
    given, param = WRONG[name]
    with pytest.raises(InvalidRequest) as caught:
        decode_chat_request({"model": "m", "messages": [HELLO], **given})
    assert caught.value.param == param
    assert caught.value.code is not None


def test_a_prompt() -> None:
    made = decode_generate_request(
        {"model": "m", "prompt": "hello", "system": "Be brief.", "stream": False, "think": False}
    )
    validate_create(made.body)
    assert made.dropped == ()
    assert made.body == {
        "model": "m",
        "store": False,
        "reasoning": {"effort": "none"},
        "truncation": "auto",
        "input": [{"type": "message", "role": "system", "content": "Be brief."}, SAID],
    }


def test_a_prompt_with_an_image() -> None:
    made = decode_generate_request({"model": "m", "prompt": "hello", "images": [PNG]})
    [item] = made.body["input"]
    assert [part["type"] for part in item["content"]] == ["input_text", "input_image"]


def test_a_template_is_the_models_own() -> None:
    fields = {"template": "{{ .Prompt }}", "suffix": "", "raw": False, "context": []}
    assert decode_generate_request({"model": "m", "prompt": "x", **fields}).dropped == ("template",)


@pytest.mark.parametrize(("field", "value"), [("suffix", "}"), ("raw", True), ("context", [1, 2])])
def test_what_would_make_the_answer_wrong_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_generate_request({"model": "m", "prompt": "x", field: value})
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", field)


@pytest.mark.parametrize("field", ["prompt", "system", "suffix", "template", "raw"])
def test_types_of_a_prompts_fields(field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_generate_request({"model": "m", "prompt": "x", field: 5})
    assert caught.value.param == field


def test_older_clients_name_the_model_otherwise() -> None:
    assert model_of({"name": "m"}) == model_of({"model": "m", "name": "n"}) == "m"


def test_streams_are_the_default() -> None:
    assert [wants_stream({"stream": said}) for said in (None, True, False)] == [True, True, False]

"""A Responses request as Anthropic's Messages take it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects.messages.answer_schema import ANSWER_TOOL, fitted_schema
from router.dialects.messages.claude import traits_of
from router.dialects.messages.encode_request import encode_for_messages
from router.dialects.messages.sealing import seal_redacted, seal_thinking
from router.errors import InvalidRequest
from router.settings.schema import EndpointSettings
from router.simulate.fields import Fields
from router.simulate.messages import _messages as read_messages
from tests.support.reading import FUZZ

ACCOUNT = "acc0"
OLD, BUDGET, ADAPTIVE, LATEST = (
    "claude-3-5-haiku-20241022",
    "claude-sonnet-4-5-20250929",
    "claude-opus-4-6",
    "claude-opus-4-8",
)
USER: dict[str, Any] = {"type": "message", "role": "user", "content": "hi"}
TOOL: dict[str, Any] = {"type": "function", "name": "look", "parameters": {"type": "object"}}
CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}},
    "required": ["n"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "name": "x", "schema": CLOSED, "strict": True}


def encoded(model: str = BUDGET, settings: Any = None, **body: Any) -> Any:
    given = {"name": "one", "url": "http://x/v1", "dialect": "messages", **(settings or {})}
    return encode_for_messages(
        {"model": "m", "input": "hi", **body},
        model=model,
        stream=False,
        usage=True,
        settings=EndpointSettings.model_validate(given),
        images={},
        account=ACCOUNT,
    )


def sent(model: str = BUDGET, settings: Any = None, **body: Any) -> dict[str, Any]:
    made: dict[str, Any] = encoded(model, settings, **body).body
    return made


def messages(*items: dict[str, Any], **body: Any) -> Any:
    return sent(settings={"prompt_caching": "off"}, input=list(items), **body)["messages"]


def call(name: str, arguments: str = "{}", call_id: str = "") -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call_id or f"call_{name}",
        "name": name,
        "arguments": arguments,
    }


def output(name: str, text: Any = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{name}", "output": text}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


@pytest.mark.parametrize(
    ("model", "thinking", "schemas", "limit"),
    [
        ("claude-3-opus-20240229", "off", False, 4096),
        (OLD, "off", False, 8192),
        ("claude-3-7-sonnet-latest", "budget", False, 32_000),
        ("claude-opus-4-20250514", "budget", False, 32_000),
        ("claude-opus-4-1-20250805", "budget", True, 32_000),
        (BUDGET, "budget", True, 32_000),
        ("claude-opus-4-5@20251101", "budget", True, 32_000),
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", "budget", True, 32_000),
        ("anthropic/claude-opus-4.6", "adaptive", True, 32_000),
        (LATEST, "adaptive", True, 32_000),
        ("claude-sonnet-5", "adaptive", True, 32_000),
        ("kimi-k3", "budget", False, 8192),
    ],
)
def test_what_a_name_tells(model: str, thinking: str, schemas: bool, limit: int) -> None:
    traits = traits_of(model)
    assert (traits.thinking, traits.schemas, traits.max_tokens) == (thinking, schemas, limit)
    assert sent(model)["max_tokens"] == limit


def test_limits() -> None:
    assert sent(max_output_tokens=9)["max_tokens"] == 9
    assert sent(settings={"max_tokens": 77})["max_tokens"] == 77
    assert sent(settings={"max_tokens": 77}, max_tokens=5)["max_tokens"] == 5


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "level", "dropped"),
    [
        (OLD, "low", None, None, ("reasoning.effort",)),
        (OLD, "none", None, None, ()),
        (BUDGET, "none", {"type": "disabled"}, None, ()),
        (BUDGET, "minimal", {"type": "enabled", "budget_tokens": 1024}, None, ()),
        (BUDGET, "high", {"type": "enabled", "budget_tokens": 24_000}, None, ()),
        (ADAPTIVE, "xhigh", {"type": "adaptive", "display": "summarized"}, "high", ()),
        (LATEST, "xhigh", {"type": "adaptive", "display": "summarized"}, "xhigh", ()),
    ],
)
def test_an_effort(model: str, effort: str, thinking: Any, level: Any, dropped: Any) -> None:
    made = encoded(model, reasoning={"effort": effort})
    assert made.body.get("thinking") == thinking
    assert made.body.get("output_config", {}).get("effort") == level
    assert made.dropped == dropped


def test_where_there_is_no_thinking() -> None:
    forced: Any = {"tools": [TOOL], "tool_choice": "required", "reasoning": {"effort": "low"}}
    assert "thinking" not in sent(**forced)
    assert encoded(**forced).dropped == ("reasoning.effort",)
    assert "thinking" not in sent(reasoning={"effort": "low"}, max_output_tokens=1000)
    assert "thinking" not in sent()
    assert "thinking" not in sent(reasoning={"summary": "auto"})
    assert "thinking" in sent(LATEST, reasoning={"summary": "auto"})
    anothers = [USER, call("look"), output("look")]
    assert "thinking" not in sent(input=anothers, tools=[TOOL], reasoning={"effort": "low"})
    assert sent(settings={"thinking": "off"}, reasoning={"effort": "low"}).get("thinking") is None
    adaptive = sent("x", settings={"thinking": "adaptive"}, reasoning={"effort": "low"})
    assert adaptive["thinking"]["type"] == "adaptive"


@pytest.mark.parametrize(
    ("model", "asked", "made", "dropped"),
    [
        (BUDGET, {"temperature": 0.5}, {"temperature": 0.5}, ()),
        (BUDGET, {"temperature": 1.5}, {"temperature": 1}, ("temperature",)),
        (BUDGET, {"temperature": 0.5, "top_p": 0.5}, {"temperature": 0.5}, ("top_p",)),
        (OLD, {"temperature": 0.5, "top_p": 0.5}, {"temperature": 0.5, "top_p": 0.5}, ()),
        (LATEST, {"temperature": 0.5, "top_p": 1}, {}, ("temperature",)),
        (LATEST, {"temperature": 1.0, "top_p": 1.0}, {}, ()),
        (BUDGET, {"top_k": 5, "seed": 7}, {"top_k": 5}, ("seed",)),
        (BUDGET, {"stop": "x", "user": "u"}, {"stop_sequences": ["x"]}, ()),
        (BUDGET, {"service_tier": "default"}, {"service_tier": "standard_only"}, ()),
        (BUDGET, {"service_tier": "priority"}, {}, ("service_tier",)),
        (BUDGET, {"text": {"verbosity": "low"}}, {}, ("text.verbosity",)),
        (BUDGET, {"tools": [{"type": "web_search"}]}, {}, ("web_search",)),
    ],
)
def test_parameters(model: str, asked: Any, made: Any, dropped: Any) -> None:
    done = encoded(model, **asked)
    rest = ("model", "max_tokens", "messages", "metadata")
    assert {k: v for k, v in done.body.items() if k not in rest} == made
    assert done.dropped == dropped


@pytest.mark.parametrize(
    ("asked", "choice"),
    [
        ({}, None),
        ({"tool_choice": "required"}, {"type": "any"}),
        ({"tool_choice": "none", "parallel_tool_calls": False}, {"type": "none"}),
        ({"tool_choice": {"type": "function", "name": "look"}}, {"type": "tool", "name": "look"}),
        ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
    ],
)
def test_tools(asked: Any, choice: Any) -> None:
    made = sent(tools=[{**TOOL, "description": "Looks"}], **asked)
    [tool] = made["tools"]
    assert tool == {
        "name": "look",
        "description": "Looks",
        "input_schema": {"type": "object"},
        "cache_control": {"type": "ephemeral"},
    }
    assert made.get("tool_choice") == choice


def test_strict_tools_for_models_that_have_them() -> None:
    strict = {**TOOL, "parameters": CLOSED, "strict": True}
    [tool] = sent(tools=[strict])["tools"]
    assert tool["strict"] is True
    assert tool["input_schema"]["properties"]["n"] == {
        "type": "integer",
        "description": "{minimum: 1}",
    }
    assert "strict" not in sent(OLD, tools=[strict])["tools"][0]
    assert "strict" not in sent(tools=[{**strict, "name": f"f{i}"} for i in range(21)])["tools"][0]


def test_structured_outputs() -> None:
    made = sent(text={"format": FORM})
    assert made["output_config"]["format"]["schema"] == fitted_schema(CLOSED)
    assert "tools" not in made
    for model, form in ((OLD, FORM), (BUDGET, {"type": "json_object"})):
        made = sent(model, text={"format": form})
        assert [tool["name"] for tool in made["tools"]] == [ANSWER_TOOL]
        assert made["tool_choice"] == {"type": "tool", "name": ANSWER_TOOL}
        made = sent(model, text={"format": form}, tools=[TOOL], parallel_tool_calls=False)
        assert made["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": True},
        {"type": "object", "properties": {"a": {"type": "object", "patternProperties": {}}}},
        {"description": "anything"},
        {"type": "array", "items": {"type": "text"}},
        {"anyOf": [{}]},
        {"type": "object", "properties": [1]},
        {"type": [{}]},
        {"type": 5},
    ],
)
def test_what_a_schema_cannot_say(schema: Any) -> None:
    assert fitted_schema(schema) is None


def test_a_format_that_is_none() -> None:
    fitted = {"type": "string", "description": "{format: [1]}"}
    assert fitted_schema({"type": "string", "format": [1]}) == fitted


def test_a_schema_that_can_be_said() -> None:
    assert fitted_schema(
        {
            "$defs": {"D": {"type": "string", "format": "date", "maxLength": 9}},
            "type": "object",
            "properties": {
                "d": {"$ref": "#/$defs/D"},
                "l": {"type": "array", "items": {"const": 1}},
            },
        }
    ) == {
        "$defs": {
            "D": {"type": "string", "format": "date", "description": "{maxLength: 9}"},
        },
        "type": "object",
        "properties": {"d": {"$ref": "#/$defs/D"}, "l": {"type": "array", "items": {"const": 1}}},
        "additionalProperties": False,
    }


def test_results_follow_their_calls() -> None:
    image = [{"type": "input_image", "image_url": "data:image/png;base64,aGk="}]
    said = messages(
        USER,
        {"role": "assistant", "content": "Let me see."},
        call("a"),
        call("b", '{"x": 1}'),
        output("b", image),
        {"role": "user", "content": "And?"},
        output("a"),
    )
    assert [one["role"] for one in said] == ["user", "assistant", "user"]
    assert [block["type"] for block in said[1]["content"]] == ["text", "tool_use", "tool_use"]
    assert said[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "call_a", "content": [text("done")]},
        {
            "type": "tool_result",
            "tool_use_id": "call_b",
            "content": [
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
                }
            ],
        },
        text("And?"),
    ]


def test_ids_and_arguments_that_anthropic_would_refuse() -> None:
    odd = {**output("x"), "call_id": "functions.look:0"}
    said = messages(
        USER, call("look", "[1", "functions.look:0"), odd, call("look", "", "functions.look:0"), odd
    )
    first, second = said[1]["content"][0], said[3]["content"][0]
    assert first["id"] != second["id"]
    assert first["input"] == {"input": "[1"}
    assert said[2]["content"][0]["tool_use_id"] == first["id"]
    assert said[4]["content"][0]["tool_use_id"] == second["id"]


def test_system_messages() -> None:
    later = [{"role": "developer", "content": "A"}, USER, {"role": "system", "content": "B"}]
    made = sent(instructions="I", input=later)
    assert [block["text"] for block in made["system"]] == ["I", "A", "B"]
    kept = sent(settings={"system_messages": "keep"}, input=later)
    assert [one["role"] for one in kept["messages"]] == ["user", "system"]
    assert sent(input=later[:1])["messages"] == [{"role": "user", "content": [text("A")]}]
    with pytest.raises(InvalidRequest, match="needs a text"):
        sent(input="  ")


def test_thinking_goes_back_where_it_was() -> None:
    def reasoning(summary: str, sealed: str) -> dict[str, Any]:
        parts = [{"type": "summary_text", "text": summary}] if summary else []
        return {"type": "reasoning", "summary": parts, "encrypted_content": sealed}

    thought = reasoning("Hm.", seal_thinking("Hm.", "sig", ACCOUNT))
    redacted = reasoning("", seal_redacted("blob", ACCOUNT))
    said = messages(USER, thought, call("a"), output("a"), redacted, call("b"), output("b"))
    assert said[1]["content"][0] == {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
    assert said[3]["content"][0] == {"type": "redacted_thinking", "data": "blob"}
    for other in (
        reasoning("Hm.", seal_thinking("Hm.", "sig", "another")),
        reasoning("changed", seal_thinking("Hm.", "sig", ACCOUNT)),
        reasoning("", "no mark"),
    ):
        done = encoded(input=[USER, other, {"role": "assistant", "content": "x"}, USER])
        assert done.foreign_reasoning == 1
        assert done.body["messages"][1]["content"] == [text("x")]
    assert messages(USER, thought)[-1]["role"] == "user"


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (
            {
                "type": "input_file",
                "file_data": "data:application/pdf;base64,aGk=",
                "filename": "a",
            },
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="},
                "title": "a",
            },
        ),
        (
            {"type": "input_file", "file_url": "https://x/a.pdf"},
            {"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}},
        ),
        (
            {"type": "input_file", "file_data": "data:text/plain;base64,aGk=", "filename": "a"},
            text("File a:\nhi"),
        ),
        (
            {"type": "input_image", "image_url": "https://x/a.png"},
            {"type": "image", "source": {"type": "url", "url": "https://x/a.png"}},
        ),
    ],
)
def test_parts(part: Any, block: Any) -> None:
    assert messages({"role": "user", "content": [part]})[0]["content"] == [block]


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"type": "input_file", "file_id": "f"}, "input[0].content[0].file_id"),
        ({"type": "input_image", "file_id": "f"}, "input[0].content[0].file_id"),
        ({"type": "input_audio", "input_audio": {}}, "input[0].content[0]"),
    ],
)
def test_parts_that_cannot_be_carried(part: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        messages({"role": "user", "content": [part]})
    assert caught.value.param == param


def marks(body: dict[str, Any]) -> int:
    return str(body).count("'cache_control'")


def test_where_a_prompt_is_marked() -> None:
    assert marks(sent()) == 0
    assert marks(sent(prompt_cache_key="k")) == 1
    assert marks(sent(instructions="I")) == 1
    talk = [USER, {"role": "assistant", "content": "x"}, USER, call("look"), output("look")]
    full: Any = {"instructions": "I", "tools": [TOOL], "input": talk}
    assert marks(sent(**full)) == 4
    assert marks(sent(settings={"prompt_caching": "off"}, **full)) == 0
    kept = sent(**full, prompt_cache_retention="24h")
    assert kept["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


NAMES = st.sampled_from(["a", "b", "c"])
ITEMS = st.lists(
    st.one_of(
        st.builds(lambda role: {"role": role, "content": "x"}, st.sampled_from(["user", "system"])),
        st.just({"role": "assistant", "content": "y"}),
        st.builds(lambda name: [call(name), output(name)], NAMES),
        st.builds(
            lambda one, other: [call(one), call(other), output(other), output(one)], NAMES, NAMES
        ),
        st.just({"type": "reasoning", "summary": []}),
    ),
    max_size=8,
)


@given(ITEMS)
@FUZZ
def test_any_history_is_one_that_anthropic_takes(drawn: list[Any]) -> None:
    """By what the simulated backend, which is as particular, refuses."""
    items = [item for one in drawn for item in (one if isinstance(one, list) else [one])]
    made = sent(input=[USER, *items], tools=[TOOL])
    roles = [one["role"] for one in made["messages"]]
    assert all(one != other for one, other in itertools.pairwise(roles))
    read_messages(Fields(made))
    assert marks(made) <= 4

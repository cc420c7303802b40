"""Stored prompts: what they may hold, and what they make of a request."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects.responses.prompt_reference import check_prompt, prompt_reference
from router.dialects.responses.prompts import (
    apply_prompt,
    changed,
    parse_changes,
    parse_prompt,
    prompt_object,
)
from router.dialects.responses.schema import echo_fields, validate_create
from router.errors import InvalidRequest
from tests.support.reading import FUZZ
from tests.support.schema import faults

MISSING = "missing_required_parameter"
IMAGE = {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"}
FILE = {"type": "input_file", "file_id": "file_1"}


def refusal(call: Any, *arguments: Any, **named: Any) -> tuple[str | None, str | None]:
    with pytest.raises(InvalidRequest) as caught:
        call(*arguments, **named)
    return caught.value.code, caught.value.param


# -- what a prompt may hold


@pytest.mark.parametrize(
    "body",
    [
        {"name": "a"},
        {"name": "9.A_b-c"},
        {"name": "a" * 64},
        {
            "name": "agent",
            "display_name": "Agent",
            "description": "It helps.",
            "instructions": "Be {{tone}}.",
            "input": [{"role": "user", "content": "{{x}}"}],
            "model": "m",
            "temperature": 0.7,
            "tools": [{"type": "web_search"}],
            "metadata": {"a": "b"},
            "top_k": 5,
        },
    ],
)
def test_prompts(body: dict[str, Any]) -> None:
    assert parse_prompt(body) == body


def test_nulls_and_what_the_router_makes_are_left_out() -> None:
    body = {"name": "a", "model": None, "stream": None, "id": 5, "object": 5, "version": 5}
    assert parse_prompt({**body, "created_at": 5}) == {"name": "a"}


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"name": None}, MISSING, "name"),
        ({"name": ""}, "invalid_value", "name"),
        ({"name": ".a"}, "invalid_value", "name"),
        ({"name": "a b"}, "invalid_value", "name"),
        ({"name": "a/b"}, "invalid_value", "name"),
        ({"name": "a\n"}, "invalid_value", "name"),
        ({"name": "ä"}, "invalid_value", "name"),
        ({"name": "a" * 65}, "string_above_max_length", "name"),
        ({"name": 5}, "invalid_type", "name"),
        ({"display_name": 5}, "invalid_type", "display_name"),
        ({"description": "x" * 4097}, "string_above_max_length", "description"),
        ({"stream": True}, "unsupported_parameter", "stream"),
        ({"stream_options": {}}, "unsupported_parameter", "stream_options"),
        ({"background": False}, "unsupported_parameter", "background"),
        ({"store": True}, "unsupported_parameter", "store"),
        ({"conversation": "c"}, "unsupported_parameter", "conversation"),
        ({"previous_response_id": "r"}, "unsupported_parameter", "previous_response_id"),
        ({"prompt": {"id": "p"}}, "unsupported_parameter", "prompt"),
        ({"messages": []}, "unsupported_parameter", "messages"),
        ({"instructions": 5}, "invalid_type", "instructions"),
        ({"input": [{"content": "x"}]}, MISSING, "input[0].role"),
        ({"temperature": 3}, "decimal_above_max_value", "temperature"),
        ({"tools": [{"type": "x"}]}, "invalid_value", "tools[0].type"),
        ({"text": {"format": {"type": "xml"}}}, "invalid_value", "text.format.type"),
        ({"metadata": {"a": 1}}, "invalid_type", "metadata.a"),
    ],
)
def test_refused_prompts(fields: dict[str, Any], code: str, param: str) -> None:
    assert refusal(parse_prompt, {"name": "a", **fields}) == (code, param)
    assert refusal(parse_changes, fields) == (code, param)


def test_a_name_is_needed_at_first_only() -> None:
    assert refusal(parse_prompt, {}) == (MISSING, "name")
    assert parse_changes({"model": None}) == {"model": None}


def test_changes() -> None:
    fields = {"name": "a", "model": "m", "top_p": 0.5}
    changes = parse_changes({"model": "n", "top_p": None, "user": "u", "id": "pmpt_9"})
    assert changed(fields, changes) == {"name": "a", "model": "n", "user": "u"}


def test_what_was_shown_can_be_sent_back() -> None:
    fields = {"name": "a", "instructions": "x", "tools": [{"type": "web_search"}]}
    shown = prompt_object("pmpt_1", 3, 1_800_000_000, 1_800_000_001, fields)
    assert (shown["version"], shown["object"], shown["display_name"]) == ("3", "prompt", None)
    assert changed(fields, parse_changes(shown)) == fields


def test_credentials_are_not_shown() -> None:
    mcp = {"type": "mcp", "server_label": "s", "server_url": "u", "authorization": "secret"}
    fields = {"name": "a", "tools": [{**mcp, "headers": {"X-Key": "secret"}}]}
    assert "secret" not in str(prompt_object("pmpt_1", 1, 0, 0, fields))
    assert "secret" in str(fields)


# -- how a request names one


@pytest.mark.parametrize(
    ("value", "key", "version"),
    [
        ({"id": "pmpt_1"}, "pmpt_1", None),
        ({"id": "agent", "version": "3"}, "agent", 3),
        ({"name": "agent", "version": 3}, "agent", 3),
        ({"id": None, "name": "agent", "version": None, "variables": None}, "agent", None),
        ({"id": "agent", "variables": {"x": None}}, "agent", None),
        ({"id": "pmpt_1", "name": "agent"}, "pmpt_1", None),
    ],
)
def test_references(value: dict[str, Any], key: str, version: int | None) -> None:
    check_prompt(value, "prompt")
    reference = prompt_reference(value)
    assert (reference.key, reference.version, reference.variables) == (key, version, {})


@pytest.mark.parametrize(
    ("value", "code", "param"),
    [
        ("agent", "invalid_type", "prompt"),
        ({}, MISSING, "prompt.id"),
        ({"id": ""}, MISSING, "prompt.id"),
        ({"id": 5}, "invalid_type", "prompt.id"),
        ({"name": ["a"]}, "invalid_type", "prompt.name"),
        ({"id": "p", "version": 1.0}, "invalid_type", "prompt.version"),
        ({"id": "p", "version": True}, "invalid_type", "prompt.version"),
        ({"id": "p", "version": "latest"}, "invalid_value", "prompt.version"),
        ({"id": "p", "version": "9" * 30}, "invalid_value", "prompt.version"),
        ({"id": "p", "version": 0}, "invalid_value", "prompt.version"),
        ({"id": "p", "variables": []}, "invalid_type", "prompt.variables"),
        ({"id": "p", "variables": {"a": 5}}, "invalid_type", "prompt.variables.a"),
        ({"id": "p", "variables": {"a": {}}}, MISSING, "prompt.variables.a.type"),
        (
            {"id": "p", "variables": {"a": {"type": "output_text"}}},
            "invalid_value",
            "prompt.variables.a.type",
        ),
        (
            {"id": "p", "variables": {"a": {"type": "input_text"}}},
            MISSING,
            "prompt.variables.a.text",
        ),
        (
            {"id": "p", "variables": {"a": {"type": "input_image", "image_url": 5}}},
            "invalid_type",
            "prompt.variables.a.image_url",
        ),
    ],
)
def test_refused_references(value: Any, code: str, param: str) -> None:
    assert refusal(check_prompt, value, "prompt") == (code, param)
    assert refusal(validate_create, {"model": "m", "prompt": value}) == (code, param)


def test_a_prompt_stands_in_for_model_and_input() -> None:
    validate_create({"prompt": {"id": "p"}})
    assert refusal(validate_create, {"prompt": None, "input": "x"}) == (MISSING, "model")


# -- what it makes of a request


def merged(fields: dict[str, Any], body: dict[str, Any], **variables: Any) -> dict[str, Any]:
    """The merged body, which must be valid; nothing that was given may be changed."""
    given = {"prompt": {"id": "a", "variables": variables}, **body}
    validate_create(given)
    before = copy.deepcopy((fields, given))
    result = apply_prompt(
        given, {"name": "a", "model": "m", **fields}, variables, ident="pmpt_1", version=2
    )
    assert (fields, given) == before
    validate_create(result)
    return result


def test_what_the_request_says_wins() -> None:
    fields = {"temperature": 0.5, "top_p": 0.5, "metadata": {"a": "b"}, "instructions": "{{x}}"}
    body = {"top_p": 0, "model": "n", "temperature": None, "instructions": "mine {{y}}"}
    result = merged({**fields, "display_name": "A", "top_k": 5}, {**body, "metadata": {}})
    assert result == {
        "model": "n",
        "temperature": 0.5,
        "top_p": 0,
        "metadata": {},
        "instructions": "mine {{y}}",
        "top_k": 5,
        "prompt": {"id": "pmpt_1", "version": "2", "variables": {}},
    }


def test_the_prompt_is_echoed_as_the_api_has_it() -> None:
    result = merged({"instructions": "{{x}}"}, {"prompt": {"name": "a"}}, x="1")
    echo = echo_fields(result, model="m")
    assert echo["prompt"] == {"id": "pmpt_1", "version": "2", "variables": {"x": "1"}}
    assert faults("Prompt", echo["prompt"]) == []


def test_a_model_need_not_be_there() -> None:
    body = apply_prompt({"prompt": {"id": "a"}}, {"name": "a"}, {}, ident="pmpt_1", version=1)
    assert "model" not in body


USER = {"type": "message", "role": "user"}


@pytest.mark.parametrize(
    ("template", "request_input", "items"),
    [
        (None, "b", "b"),
        ("a", None, [{**USER, "content": "a"}]),
        ("a", "b", [{**USER, "content": "a"}, {**USER, "content": "b"}]),
        ("", "b", "b"),
        ([{"role": "developer", "content": "a"}], [{"id": "msg_1"}],
         [{"role": "developer", "content": "a"}, {"id": "msg_1"}]),
    ],
)  # fmt: skip
def test_the_prompts_input_comes_first(template: Any, request_input: Any, items: Any) -> None:
    assert merged({"input": template}, {"input": request_input})["input"] == items


@pytest.mark.parametrize(
    ("text", "variables", "expected"),
    [
        ("Hi {{name}}!", {"name": "Bo"}, "Hi Bo!"),
        ("{{a}}{{ b }}{{\ta\n}}", {"a": "1", "b": "2"}, "121"),
        ("{{a}}", {"a": "{{b}} {{a}} \\1 \\g<0>", "b": "2"}, "{{b}} {{a}} \\1 \\g<0>"),
        ("{{a}}", {"a": {"type": "input_text", "text": "part"}}, "part"),
        ("{{a}}", {"a": ""}, ""),
        ("{{a.b-c_1}}{{ü}}", {"a.b-c_1": "1", "ü": "2"}, "12"),
        ("{a} {{}} {{ }} {{a b}} {{#if}} { {a}}", {}, "{a} {{}} {{ }} {{a b}} {{#if}} { {a}}"),
        ("{{{a}}}", {"a": "1"}, "{1}"),
        ("plain", {"unknown": "1"}, "plain"),
        ("{{" * 10_000 + " " * 10_000, {}, "{{" * 10_000 + " " * 10_000),
    ],
)
def test_variables_in_texts(text: str, variables: dict[str, Any], expected: str) -> None:
    result = merged({"instructions": text, "input": text}, {}, **variables)
    assert result["instructions"] == expected
    assert result["input"] == [{**USER, "content": expected}]
    parts = [{"type": "input_text", "text": text}, {"type": "refusal", "refusal": text}, IMAGE]
    (item,) = merged({"input": [{**USER, "content": parts}]}, {}, **variables)["input"]
    assert item["content"] == [{**parts[0], "text": expected},
                               {**parts[1], "refusal": expected}, IMAGE]  # fmt: skip


def test_only_the_template_has_variables() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{{x}}"}
    body = {"input": "{{y}}", "user": "{{z}}"}
    result = merged({"input": [call], "text": None, "user": "{{u}}"}, body)
    assert result["input"] == [call, {**USER, "content": "{{y}}"}]
    assert result["user"] == "{{z}}"


@pytest.mark.parametrize("part", [IMAGE, FILE])
@pytest.mark.parametrize("text", ["{{pic}}", " {{ pic }}\n"])
def test_parts_stand_for_whole_texts(part: dict[str, Any], text: str) -> None:
    parts = [{"type": "input_text", "text": "Look:"}, {"type": "input_text", "text": text}]
    result = merged(
        {"input": [{**USER, "content": parts}, {**USER, "content": text}]}, {}, pic=part
    )
    assert result["input"] == [{**USER, "content": [parts[0], part]}, {**USER, "content": [part]}]


WHERE: list[dict[str, Any]] = [
    {"instructions": "{{pic}}"},
    {"input": "Look: {{pic}}"},
    {"input": [{"role": "assistant", "content": "{{pic}}"}]},
    {"input": [{"role": "assistant", "content": [{"type": "output_text", "text": "{{pic}}"}]}]},
]


@pytest.mark.parametrize("fields", WHERE)
def test_parts_in_the_midst_of_a_text(fields: dict[str, Any]) -> None:
    named = {"ident": "pmpt_1", "version": 1}
    arguments: Any = {"model": "m"}, fields, {"pic": IMAGE}
    assert refusal(apply_prompt, *arguments, **named) == ("invalid_value", "prompt.variables.pic")


@pytest.mark.parametrize("fields", WHERE)
@pytest.mark.parametrize("variables", [{}, {"pic": None}, {"Pic": "x"}])
def test_variables_without_a_value(fields: dict[str, Any], variables: dict[str, Any]) -> None:
    named = {"ident": "pmpt_1", "version": 1}
    arguments: Any = {"model": "m"}, fields, variables
    assert refusal(apply_prompt, *arguments, **named) == (MISSING, "prompt.variables.pic")


def test_what_a_template_repeats_is_bounded() -> None:
    fields = {"instructions": "{{x}}" * 1000}
    arguments: Any = {"model": "m"}, fields, {"x": "y" * 100_000}
    code, param = refusal(apply_prompt, *arguments, ident="pmpt_1", version=1)
    assert (code, param) == ("string_above_max_length", "prompt.variables")


PIECES = st.lists(st.sampled_from(["a", " ", "{", "}", "{{", "}}", "{{v}}", "{{ w }}", "é"]))
VALUES = st.text("ab{}vw ", max_size=8)


@FUZZ
@given(PIECES, VALUES, VALUES)
def test_values_are_put_in_once_and_as_they_are(pieces: list[str], v: str, w: str) -> None:
    # The marks cannot be confused with anything that is substituted afterwards.
    text = "".join(pieces)
    marked = merged({"instructions": text}, {}, v="\ue000", w="\ue001")["instructions"]
    result = merged({"instructions": text}, {}, v=v, w=w)["instructions"]
    assert result == marked.replace("\ue000", v).replace("\ue001", w)
    assert "{{v}}" not in marked

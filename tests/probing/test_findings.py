"""What answers show, what Ollama tells, and the YAML that is made of it."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import pytest
import yaml

from router.balance.capability import ALL_FEATURES, Feature, configured, needs
from router.dialects.responses.schema import validate_create
from router.probing.configuration import ProbedEndpoint, ProbedModel, block
from router.probing.ollama import context_in_memory, findings_of
from router.probing.questions import PLAIN, QUESTIONS, Finding
from router.settings.schema import CapabilitySettings

QUESTION = {question.field: question for question in QUESTIONS}
CALL = {"type": "function_call", "name": "ping", "arguments": "{}"}


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "content": [{"type": "output_text", "text": text}]}


def response(*items: Any, status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"status": status, "output": list(items), **fields}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.field)
def test_a_question_needs_what_it_asks_about(question: Any) -> None:
    body = {"model": "m", **question.ask}
    validate_create(body)
    feature = Feature[question.field.upper()]
    also = {Feature.TOOL_CHOICE: Feature.TOOLS}.get(feature, Feature(0))
    assert needs(body, ALL_FEATURES) == feature | also


def test_every_feature_is_asked_about() -> None:
    assert {Feature[field.upper()] for field in QUESTION} == set(Feature)
    assert not needs({"model": "m", **PLAIN}, ALL_FEATURES)


def test_the_image_is_a_red_square() -> None:
    (message,) = QUESTION["vision"].ask["input"]
    kind, _, data = message["content"][1]["image_url"].partition(",")
    assert kind == "data:image/png;base64"
    png = base64.b64decode(data, validate=True)
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(png):
        (size,) = struct.unpack_from(">I", png, at)
        name, content = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        assert struct.unpack_from(">I", png, at + 8 + size) == (zlib.crc32(name + content),)
        chunks[name], at = content, at + 12 + size
    width, height, depth, color = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (width, height, depth, color) == (64, 64, 8, 2)
    assert zlib.decompress(chunks[b"IDAT"]) == (b"\0" + b"\xff\0\0" * width) * height


@pytest.mark.parametrize(
    ("field", "answer", "value"),
    [
        ("tools", response(CALL), True),
        ("tools", response(said("hi")), None),
        ("tool_choice", response(said("hm"), CALL), True),
        ("tool_choice", response(said("hm")), False),
        ("tool_choice", response(said("hm"), status="incomplete"), None),
        ("json_schema", response(said('{"ok":true}')), True),
        ("json_schema", response(said('{"ok":'), said("false}")), True),
        ("json_schema", response(said('{"ok":"yes"}')), False),
        ("json_schema", response(said("[true]")), False),
        ("json_schema", response(said("Yes!")), False),
        ("json_schema", response(said('{"ok":'), status="incomplete"), None),
        ("vision", response(said("Red.")), True),
        ("vision", response(said("I cannot see colored images.")), None),
        ("reasoning", response({"type": "reasoning", "summary": []}, status="incomplete"), True),
        ("reasoning", response(said("Yes.")), None),
        (
            "reasoning",
            response(
                said("Yes."),
                usage={"output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 5}},
            ),
            True,
        ),
        ("reasoning", response(usage={"output_tokens": 9}), None),
        ("reasoning", response(usage="many"), None),
    ],
)
def test_what_an_answer_shows(field: str, answer: dict[str, Any], value: bool | None) -> None:
    finding = QUESTION[field].judge(answer)
    assert finding.value is value
    assert bool(finding.why) == (value is not True)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.field)
@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"output": None},
        {"output": "x"},
        {"output": [None, 1, {}, {"type": "message"}, {"type": "message", "content": [1, {}]}]},
        {"output": [{"type": "message", "content": [{"type": "output_text", "text": 1}]}]},
    ],
)
def test_odd_answers(question: Any, odd: dict[str, Any]) -> None:
    assert question.judge(odd).value is not True


SHOWN: dict[str, Any] = {
    "capabilities": ["completion", "tools"],
    "model_info": {"general.architecture": "llama", "llama.context_length": 131072},
}
MODELFILE = 'stop "x"\nnum_ctx    16384\ntemperature 1'


@pytest.mark.parametrize(
    ("show", "num_ctx", "in_memory", "context"),
    [
        (SHOWN, None, None, None),
        (SHOWN, 8192, 4096, 8192),
        (SHOWN, 1_000_000, None, 131072),
        (SHOWN, None, 4096, 4096),
        ({**SHOWN, "parameters": MODELFILE}, None, None, 16384),
        ({**SHOWN, "parameters": MODELFILE}, None, 4096, 4096),
        ({**SHOWN, "parameters": 'stop "num_ctx 5"'}, None, None, None),
        ({"capabilities": [], "parameters": MODELFILE}, None, None, 16384),
        ({**SHOWN, "model_info": {"general.architecture": "other"}}, 2048, None, 2048),
    ],
)
def test_the_context_that_ollama_gives(
    show: Any, num_ctx: int | None, in_memory: int | None, context: int | None
) -> None:
    finding = findings_of(show, num_ctx, in_memory)["context_length"]
    assert finding.value == context
    assert bool(finding.why) == (context is None)


def test_what_ollama_says_of_a_model() -> None:
    findings = findings_of(SHOWN, None, None)
    able = {field: findings[field].value for field in ("tools", "vision", "reasoning")}
    assert able == {"tools": True, "vision": False, "reasoning": False}
    thinks = findings_of({"capabilities": ["thinking", "vision"]}, None, None)
    assert thinks["reasoning"] == thinks["vision"] == Finding(True)
    assert "context_length" not in thinks


@pytest.mark.parametrize(
    "odd", [None, [], {}, {"model_info": 1, "parameters": 2, "capabilities": "tools"}]
)
def test_what_an_old_ollama_does_not_say(odd: Any) -> None:
    findings = findings_of(odd, None, None)
    assert {finding.value for finding in findings.values()} == {None}
    assert all("--deep" in finding.why for finding in findings.values())


@pytest.mark.parametrize(
    ("ps", "context"),
    [
        ({"models": [{"name": "a:latest", "context_length": 4096}]}, 4096),
        ({"models": [{"name": "b", "context_length": 1}, {"name": "a", "context_length": 2}]}, 2),
        ({"models": [{"name": "a"}]}, None),
        ({"models": [{"name": "a", "context_length": "8"}]}, None),
        ({"models": [1, {}]}, None),
        ({"models": None}, None),
        ([], None),
    ],
)
def test_the_context_in_memory(ps: Any, context: int | None) -> None:
    assert context_in_memory(ps, "a") == context


def test_the_block_is_yaml_for_an_endpoint() -> None:
    report = ProbedEndpoint(
        "one",
        "http://host/v1",
        (
            ProbedModel(
                "llama3:8b",
                {
                    "vision": Finding(False, "refused: no\n  images: [here] # really"),
                    "reasoning": Finding(None, "HTTP 500"),
                    "tools": Finding(True),
                    "context_length": Finding(8192),
                },
            ),
            ProbedModel("bge", problem="refused: it does not chat"),
            ProbedModel("dumb", {"tools": Finding(None, "no answer")}),
        ),
        note="the first 3 of 9 models",
    )
    assert block(report) == (
        "    # one  http://host/v1\n"
        "    # the first 3 of 9 models\n"
        "    capabilities:\n"
        '      "llama3:8b":\n'
        "        context_length: 8192\n"
        "        tools: true\n"
        "        vision: false  # refused: no images: [here] # really\n"
        "        # reasoning: HTTP 500\n"
        '      # "bge": refused: it does not chat\n'
        '      # "dumb": nothing is known\n'
        "        # tools: no answer\n"
    )
    assert not report.is_whole
    text = "endpoints:\n  - name: one\n" + block(report)
    (endpoint,) = yaml.safe_load(text)["endpoints"]
    entries = {k: CapabilitySettings.model_validate(v) for k, v in endpoint["capabilities"].items()}
    assert configured(entries, "llama3:8b").lacks == Feature.VISION
    assert configured(entries, "llama3:8b").context == 8192


def test_a_block_without_anything_known_is_only_comments() -> None:
    report = ProbedEndpoint("one", "http://host", (ProbedModel("a", problem="not asked"),), "gone")
    assert block(report) == '    # one  http://host\n    # gone\n      # "a": not asked\n'
    assert yaml.safe_load(block(report)) is None
    assert not report.is_whole
    assert ProbedEndpoint("one", "http://host", (ProbedModel("a"),)).is_whole


@pytest.mark.parametrize(
    "name",
    ["a*[b]?", 'say "x" \\ y', "tab\tand\nline", "\x1b[31mred\x9b", "ünï—𝄞", "a: b # c", "{x}"],
)
def test_names_of_models_are_neither_patterns_nor_commands(name: str) -> None:
    report = ProbedEndpoint("e", "u", (ProbedModel(name, {"tools": Finding(False, name)}),))
    text = block(report)
    assert all(char.isprintable() or char == "\n" for char in text)
    capabilities = yaml.safe_load(text)["capabilities"]
    (pattern,) = capabilities
    entries = {pattern: CapabilitySettings.model_validate(capabilities[pattern])}
    assert configured(entries, name).lacks == Feature.TOOLS
    assert not configured(entries, "axbx").lacks


def test_long_reasons_are_cut() -> None:
    report = ProbedEndpoint("e", "u", (ProbedModel("m", problem="x" * 1000),))
    assert max(map(len, block(report).splitlines())) < 250

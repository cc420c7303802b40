"""What the simulated model answers."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.simulate.brain import answer
from router.simulate.dialogue import (
    FunctionCall,
    Message,
    Options,
    SimulatedAnswer,
    SimulatedRequest,
    Tool,
    pieces,
)

WEATHER = Tool(
    "get_weather",
    "The weather at a place",
    {
        "type": "object",
        "properties": {
            "location": {"type": "string"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["location"],
    },
)
CLOCK = Tool("current_time", "The time", {"type": "object", "properties": {}})


def ask(
    text: str, *tools: Tool, before: tuple[Message, ...] = (), **options: Any
) -> SimulatedAnswer:
    messages = (*before, Message("user", text))
    return answer(SimulatedRequest("sim", messages, tools, Options(**options)))


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("Hello", "Hello! I am sim, a simulated model. How can I help?"),
        ("hey there!", "Hello! I am sim, a simulated model. How can I help?"),
        ("Say exactly: yes", "yes"),
        ('Please reply with exactly "as you like"', "as you like"),
        ("Count to 5", "1, 2, 3, 4, 5"),
        ("Count from 3 to 1, please", "3, 2, 1"),
        ("Why is the sky blue?", "You asked: “Why is the sky blue?” I am sim, a simulated model."),
        ("I like it", "You said: “I like it” I am sim, a simulated model."),
        ("What is my name?", "You have not told me your name."),
        ("  ", "I am sim, a simulated model, and nothing was asked."),
    ],
)
def test_answers(asked: str, answered: str) -> None:
    plan = ask(asked)
    assert plan.text == answered
    assert (plan.finish, plan.reasoning, plan.calls) == ("stop", "", ())


def test_long_counts_are_bounded() -> None:
    assert ask("count to 999999").text.endswith(", 1000")


def test_history_reaches_the_answer() -> None:
    before = (
        Message("system", "Be brief."),
        Message("user", "My name is Ada."),
        Message("assistant", "Noted."),
    )
    assert ask("What's my name?", before=before).text == "Your name is Ada."
    text = ask("And now?", before=before).text
    assert "“Be brief.”" in text
    assert "turn 2" in text


def test_images_and_files_are_noticed() -> None:
    message = Message("user", "Look!", images=2, files=1)
    text = answer(SimulatedRequest("sim", (message,))).text
    assert text.startswith("I see 2 images and 1 file. You said: “Look!”")


@pytest.mark.parametrize(
    ("asked", "options", "called"),
    [
        ("What's the weather in Paris?", {}, [{"location": "Paris", "unit": "celsius"}]),
        (
            "Weather in Paris and New York, in fahrenheit",
            {},
            [
                {"location": "Paris", "unit": "fahrenheit"},
                {"location": "New York", "unit": "fahrenheit"},
            ],
        ),
        (
            "Weather in Paris and Rome",
            {"parallel": False},
            [{"location": "Paris", "unit": "celsius"}],
        ),
        ("What is love?", {}, []),
        ("What's the weather in Paris?", {"tool_choice": "none"}, []),
        (
            "Anything in Oslo",
            {"tool_choice": "required"},
            [{"location": "Oslo", "unit": "celsius"}],
        ),
        ("Anything in Oslo", {"forced": "current_time"}, [{}]),
    ],
)
def test_calls(asked: str, options: dict[str, Any], called: list[dict[str, str]]) -> None:
    plan = ask(asked, WEATHER, CLOCK, **options)
    assert [orjson.loads(call.arguments) for call in plan.calls] == called
    assert plan.finish == ("tool_calls" if called else "stop")
    assert bool(plan.text) is not bool(called)


def test_two_tools_are_called_side_by_side() -> None:
    plan = ask("The weather in Paris, and the time?", WEATHER, CLOCK)
    assert [call.name for call in plan.calls] == ["get_weather", "current_time"]


@pytest.mark.parametrize(
    ("result", "answered"),
    [
        (
            '{"temperature": 21, "sky": "clear"}',
            "According to get_weather: temperature is 21, sky is clear.",
        ),
        ("sunny", "According to get_weather: sunny"),
        ("", "According to get_weather: nothing."),
    ],
)
def test_answers_from_a_tool_result(result: str, answered: str) -> None:
    messages = (
        Message("user", "The weather in Paris?"),
        Message("assistant", calls=(FunctionCall("get_weather", "{}", "call_1"),)),
        Message("tool", result, call_id="call_1", name="get_weather"),
    )
    plan = answer(SimulatedRequest("sim", messages, (WEATHER,)))
    assert plan.text == answered
    assert plan.calls == ()


def test_structured_output_is_an_instance() -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
        "required": ["city", "people"],
    }
    plan = ask("The 2 people of Rome", schema=schema)
    assert orjson.loads(plan.text) == {"city": "Rome", "people": 2}
    assert set(orjson.loads(ask("Hi", json_mode=True).text)) == {"answer"}


@pytest.mark.parametrize(
    ("effort", "sentences"), [(None, 0), ("none", 0), ("low", 1), ("medium", 2), ("high", 3)]
)
def test_reasoning_follows_the_effort(effort: str | None, sentences: int) -> None:
    plan = ask("Well", effort=effort)
    assert plan.reasoning.count(".") == sentences
    assert plan.usage.reasoning == len(pieces(plan.reasoning))


def test_stop_sequences_end_the_text() -> None:
    assert ask("count to 9", stop=(", 4", ", 6")).text == "1, 2, 3"


def test_the_limit_cuts_reasoning_first_then_the_text() -> None:
    whole = ask("count to 50", effort="low")
    for limit in (3, whole.usage.reasoning + 2):
        plan = ask("count to 50", effort="low", max_tokens=limit)
        assert plan.finish == "length"
        assert plan.usage.output == limit
        assert whole.reasoning.startswith(plan.reasoning)
        assert whole.text.startswith(plan.text)
    assert ask("count to 50", effort="low", max_tokens=whole.usage.output).finish == "stop"


def test_a_call_that_does_not_fit_is_left_out() -> None:
    plan = ask("The weather in Paris?", WEATHER, max_tokens=4)
    assert (plan.calls, plan.finish) == ((), "length")


@given(st.text())
def test_pieces_lose_nothing(text: str) -> None:
    assert "".join(pieces(text)) == text


@given(
    st.lists(st.text(max_size=40), min_size=1, max_size=4),
    st.one_of(st.none(), st.integers(1, 60)),
    st.sampled_from([None, "low", "high"]),
)
def test_every_plan_adds_up_and_repeats(
    texts: list[str], limit: int | None, effort: str | None
) -> None:
    messages = tuple(Message("user", text) for text in texts)
    question = SimulatedRequest(
        "sim", messages, (WEATHER,), Options(max_tokens=limit, effort=effort)
    )
    plan = answer(question)
    assert plan == answer(question)
    assert plan.usage.input > 0
    assert plan.usage.reasoning <= plan.usage.output
    assert limit is None or plan.usage.output <= limit
    assert plan.text or plan.calls or plan.finish == "length"

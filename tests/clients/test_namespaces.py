"""The official client uses groups of tools in front of every kind of endpoint."""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.types.responses import ResponseFunctionToolCall

TOOLS: Any = [
    {
        "type": "namespace",
        "name": "weather",
        "description": "What the weather is like.",
        "tools": [
            {
                "type": "function",
                "name": "get_weather",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}},
                    "required": ["city"],
                },
                "strict": False,
            }
        ],
    }
]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_and_its_output(client: AsyncOpenAI, model: str, stream: bool) -> None:
    asked: Any = {
        "model": model,
        "input": "What is the weather in Paris?",
        "tools": TOOLS,
        "tool_choice": "required",
    }
    if stream:
        async with client.responses.stream(**asked) as events:
            async for _ in events:
                pass
            response: Any = await events.get_final_response()
    else:
        response = await client.responses.create(**asked)
    [call] = [item for item in response.output if item.type == "function_call"]
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.namespace, call.name) == ("weather", "get_weather")
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny"}
    answered = await client.responses.create(
        model=model, input=[output], tools=TOOLS, previous_response_id=response.id
    )
    assert answered.status == "completed"
    assert answered.output_text

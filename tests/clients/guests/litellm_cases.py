"""LiteLLM as a client of a router, in an environment of its own; prints one JSON object."""

import asyncio
import json
import os
from importlib import import_module
from typing import Any

litellm: Any = import_module("litellm")  # it is there in its own environment only

ADDRESS: dict[str, Any] = {"api_base": os.environ["BASE_URL"], "api_key": os.environ["API_KEY"]}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "get_weather", "description": "The weather.", "parameters": PARAMETERS}
ASKED: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]


async def chat(model: str, text: str, **options: Any) -> Any:
    messages = [{"role": "user", "content": text}]
    return await litellm.acompletion(model, messages, **ADDRESS, timeout=20, **options)


async def streamed(model: str) -> list[str]:
    stream = await chat(model, "count to 9", stream=True)
    return [chunk.choices[0].delta.content or "" async for chunk in stream]


async def tool(model: str) -> list[Any]:
    tools = [{"type": "function", "function": WEATHER}]
    options: dict[str, Any] = {**ADDRESS, "timeout": 20, "tools": tools}
    first = await litellm.acompletion(model, ASKED, **options)
    message = first.choices[0].message
    [call] = message.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    second = await litellm.acompletion(model, [*ASKED, message.model_dump(), result], **options)
    arguments = json.loads(call.function.arguments)
    return [call.function.name, arguments, second.choices[0].message.content]


async def responses(model: str) -> list[Any]:
    first = await litellm.aresponses("My name is Ann.", model, **ADDRESS)
    second = await litellm.aresponses(
        "What is my name?", model, previous_response_id=first.id, **ADDRESS
    )
    stream = await litellm.aresponses("count to 9", model, stream=True, **ADDRESS)
    kinds = [str(getattr(event.type, "value", event.type)) async for event in stream]
    return [second.output[0].content[0].text, kinds[0], kinds[-1]]


async def embedded(model: str) -> int:
    made = await litellm.aembedding(model, ["a", "b"], encoding_format="float", **ADDRESS)
    return len(made.data)


async def main() -> None:
    told: dict[str, Any] = {}
    for name in os.environ["MODELS"].split(","):
        model = f"openai/{name}"
        made = await chat(model, "count to 3")
        told[name] = {
            "chat": made.choices[0].message.content,
            "usage": made.usage.total_tokens,
            "stream": await streamed(model),
            "tool": await tool(model),
            "responses": await responses(model),
            "embeddings": None if "claude" in model else await embedded(model),
        }
    print(json.dumps(told))


asyncio.run(main())

"""The Responses API as a backend without storage serves it: create and count, stream and not.

``store`` is answered with false, and what would need stored state is refused.
"""

from __future__ import annotations

import base64
import time
from typing import Any, Final

import orjson
from aiohttp import web

from router.response.frame import encode_event
from router.simulate.backend import BACKEND, answer, json_answer, new_id, read_fields, stream
from router.simulate.dialogue import SimulatedAnswer, SimulatedRequest, input_tokens
from router.simulate.events import response_events
from router.simulate.fields import BadRequest, Fields
from router.simulate.logprobs import entries
from router.simulate.request import read_messages, read_question, read_tools

__all__ = ["count_input_tokens", "create", "retrieve"]

_STATEFUL: Final = ("conversation", "prompt")


async def create(request: web.Request) -> web.StreamResponse:
    """``POST /v1/responses``."""
    fields = await read_fields(request)
    model = request.app[BACKEND].resolve(fields.need_string("model"))
    _refuse_state(fields)
    if not fields.raw.get("input"):
        raise fields.missing("input")
    streamed = fields.boolean("stream")
    question = read_question(fields, model)
    response = _Response(fields, question)
    finished = response.finished(answer(question))
    if not streamed:
        return json_answer(finished)
    events = response_events(response.started(), finished)
    frames = (encode_event(event["type"], orjson.dumps(event)) for event in events)
    return await stream(request, "text/event-stream; charset=utf-8", frames)


async def count_input_tokens(request: web.Request) -> web.Response:
    """``POST /v1/responses/input_tokens``."""
    fields = await read_fields(request)
    request.app[BACKEND].resolve(fields.need_string("model"))
    _refuse_state(fields)
    total = input_tokens(read_messages(fields), read_tools(fields))
    return json_answer({"object": "response.input_tokens", "input_tokens": total})


async def retrieve(request: web.Request) -> web.Response:
    """``/v1/responses/{id}`` and what hangs below it: nothing is stored, so nothing is found."""
    ident = request.match_info["id"]
    raise BadRequest(f"Response with id '{ident}' not found.", status=404)


def _refuse_state(fields: Fields) -> None:
    if previous := fields.string("previous_response_id"):
        raise BadRequest(
            f"Previous response with id '{previous}' not found: this backend stores nothing.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    stateful = [key for key in _STATEFUL if fields.has(key)]
    if fields.boolean("background"):
        stateful.append("background")
    if stateful:
        raise BadRequest(
            f"'{stateful[0]}' is not supported: this backend stores nothing.",
            param=stateful[0],
            code="unsupported_parameter",
        )


class _Response:
    """The response object, as it begins and as it ends."""

    def __init__(self, fields: Fields, question: SimulatedRequest) -> None:
        self._fields = fields
        self._top = question.options.logprobs
        self._echo = _echo(fields)
        self._head = {
            "id": new_id("resp_"),
            "object": "response",
            "created_at": int(time.time()),
            "model": question.model,
        }

    def started(self) -> dict[str, Any]:
        """Before anything was produced."""
        return self._object("in_progress", [], None, "auto")

    def finished(self, plan: SimulatedAnswer) -> dict[str, Any]:
        """With the whole answer."""
        cut = plan.finish == "length"
        status = "incomplete" if cut else "completed"
        usage = {
            "input_tokens": plan.usage.input,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": plan.usage.output,
            "output_tokens_details": {"reasoning_tokens": plan.usage.reasoning},
            "total_tokens": plan.usage.total,
        }
        return self._object(status, self._output(plan), usage, "default")

    def _object(
        self, status: str, output: list[Any], usage: dict[str, Any] | None, tier: str
    ) -> dict[str, Any]:
        incomplete = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            **self._head,
            "status": status,
            "completed_at": int(time.time()) if status == "completed" else None,
            "error": None,
            "incomplete_details": incomplete,
            "output": output,
            "usage": usage,
            "service_tier": tier,
            **self._echo,
        }

    def _output(self, plan: SimulatedAnswer) -> list[dict[str, Any]]:
        output: list[dict[str, Any]] = []
        if plan.reasoning:
            output.append(self._reasoning(plan.reasoning))
        if plan.text:
            sure = [] if self._top is None else entries(plan.text, self._top)
            part = {"type": "output_text", "text": plan.text, "annotations": [], "logprobs": sure}
            output.append(
                {
                    "id": new_id("msg_"),
                    "type": "message",
                    "status": "incomplete" if plan.finish == "length" else "completed",
                    "role": "assistant",
                    "content": [part],
                }
            )
        for call in plan.calls:
            output.append(
                {
                    "id": new_id("fc_"),
                    "type": "function_call",
                    "status": "completed",
                    "call_id": new_id("call_")[:29],
                    "name": call.name,
                    "arguments": call.arguments,
                }
            )
        return output

    def _reasoning(self, text: str) -> dict[str, Any]:
        """Reasoning stays hidden but for a summary, and for a sealed form, where asked for."""
        asked = self._echo["reasoning"]["summary"] is not None
        summary = [{"type": "summary_text", "text": text}] if asked else []
        item: dict[str, Any] = {"id": new_id("rs_"), "type": "reasoning", "summary": summary}
        if "reasoning.encrypted_content" in self._fields.strings("include"):
            item["encrypted_content"] = base64.b64encode(text.encode()).decode()
        return item


def _echo(fields: Fields) -> dict[str, Any]:
    """What the request said, with the defaults of what it did not say."""
    reasoning = fields.object("reasoning") or Fields({}, "reasoning")
    text = fields.object("text") or Fields({}, "text")
    metadata = fields.object("metadata")
    choice = fields.raw.get("tool_choice")
    return {
        "background": False,
        "instructions": fields.string("instructions"),
        "max_output_tokens": fields.integer("max_output_tokens", 1),
        "max_tool_calls": fields.integer("max_tool_calls", 1),
        "metadata": metadata.raw if metadata else {},
        "parallel_tool_calls": fields.boolean("parallel_tool_calls", True),
        "previous_response_id": None,
        "prompt_cache_key": fields.string("prompt_cache_key"),
        "reasoning": {
            "effort": reasoning.string("effort"),
            "summary": reasoning.choice("summary", ("auto", "concise", "detailed")),
        },
        "safety_identifier": fields.string("safety_identifier"),
        "store": False,
        "temperature": _or(fields.number("temperature", 0, 2), 1.0),
        "text": {
            "format": _echo_format(text),
            "verbosity": text.choice("verbosity", ("low", "medium", "high")) or "medium",
        },
        "tool_choice": "auto" if choice is None else choice,
        "tools": [_echo_tool(tool) for tool in fields.objects("tools")],
        "top_logprobs": int(_or(fields.number("top_logprobs", 0, 20), 0)),
        "top_p": _or(fields.number("top_p", 0, 1), 1.0),
        "truncation": fields.choice("truncation", ("auto", "disabled")) or "disabled",
        "user": fields.string("user"),
    }


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _echo_format(text: Fields) -> dict[str, Any]:
    wanted = text.object("format")
    if wanted is None:
        return {"type": "text"}
    if wanted.string("type") != "json_schema":
        return dict(wanted.raw)
    return {"description": None, "strict": False, **wanted.raw}


def _echo_tool(tool: Fields) -> dict[str, Any]:
    if tool.string("type") != "function":
        return dict(tool.raw)
    return {"description": None, "parameters": {}, "strict": True, **tool.raw}

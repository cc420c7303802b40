"""A request of Ollama's ``/api/chat`` or ``/api/generate`` as one of the Responses API.

What a Responses request has no place for is left out and named. Where leaving it out would make
the answer a wrong one, the request is refused.

Of its ``options`` those of the sampler are passed on, those of the runner are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from router.dialects.ollama.decode_messages import input_items, named_function, prompt_item
from router.dialects.ollama.schema import OPTIONS, WHOLE_OPTIONS
from router.dialects.parameters import (
    Check,
    boolean,
    decimal,
    integer,
    missing,
    object_,
    one_of,
    string,
    strings,
    wrong_type,
)
from router.errors import InvalidRequest

__all__ = [
    "DecodedRequest",
    "decode_chat_request",
    "decode_generate_request",
    "is_empty",
    "model_of",
    "read_options",
    "wants_stream",
]

_LARGEST: Final = 2**63 - 1


def _number(value: Any, param: str) -> None:
    if type(value) is not int and type(value) is not float:
        raise wrong_type(param, "a number", value)


def _stop(value: Any, param: str) -> None:
    if type(value) is not str:
        strings(value, param)


_CHECKS: Final[Mapping[str, Check]] = {
    **dict.fromkeys(OPTIONS, _number),
    "temperature": decimal(0, 2),
    "top_p": decimal(0, 1),
    "stop": _stop,
}


def read_options(options: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields of a Responses request for them, and the names of those that are left out.

    Options of the runner (``num_ctx``, ``num_gpu`` …) load the model anew for everybody: they are
    the configuration's. Raises InvalidRequest.
    """
    if options is None:
        return {}, ()
    object_(options, "options")
    fields: dict[str, Any] = {}
    dropped = []
    for name, value in options.items():
        param = f"options.{name}"
        if value is None:
            continue
        if name in WHOLE_OPTIONS:
            fields[name] = _integer(value, param)
        elif (check := _CHECKS.get(name)) is not None:
            check(value, param)
            fields[name] = value
        else:
            dropped.append(param)
    limit = fields.pop("num_predict", None)
    if limit is not None and limit > 0:  # else as much as the model wants, or its context holds
        fields["max_output_tokens"] = limit
    if type(fields.get("stop")) is str:
        fields["stop"] = [fields["stop"]]
    if not fields.get("stop"):
        fields.pop("stop", None)
    return fields, tuple(dropped)


def _integer(value: Any, param: str) -> int:
    """A whole number; as with Ollama it may be written as 40.0."""
    if type(value) is float and value.is_integer() and abs(value) <= _LARGEST:
        return int(value)
    if type(value) is not int:
        raise wrong_type(param, "an integer", value)
    return value


_EFFORTS: Final = ("minimal", "low", "medium", "high", "xhigh", "max")
_LOGPROBS: Final = "message.output_text.logprobs"

_COMMON: Final = frozenset(
    {"format", "logprobs", "model", "options", "stream", "think", "top_logprobs", "truncate"}
)
_OF_CHAT: Final = _COMMON | {"messages", "tools"}
_OF_GENERATE: Final = _COMMON | {"context", "images", "prompt", "raw", "suffix", "system"}

_WRONG_WITHOUT: Final = {
    "suffix": "filling in the middle cannot be passed on. Put the whole task into 'prompt'",
    "raw": "a prompt cannot be passed on without the model's template. Leave 'raw' out",
    "context": "tokens of another model's history cannot be passed on. Send the history as "
    "'messages' to /api/chat",
}
"""Fields of a prompt without which its answer would be another one, and what to do instead."""

_effort = one_of(*_EFFORTS)
_top_logprobs = integer(0, 20)


@dataclass(frozen=True, slots=True)
class DecodedRequest:
    """A request in the form of the Responses API; ``dropped`` are the fields that it leaves out."""

    body: dict[str, Any]
    dropped: tuple[str, ...] = ()


def model_of(body: Mapping[str, Any]) -> str:
    """The model that is asked for; raises InvalidRequest. Older clients call it ``name``."""
    field = "name" if body.get("model") in (None, "") and body.get("name") else "model"
    model = body.get(field)
    if model in (None, ""):
        raise missing("model")
    string(model, field)
    return str(model)


def wants_stream(body: Mapping[str, Any]) -> bool:
    """Whether the answer is to be a stream, which it is unless somebody says no."""
    stream = body.get("stream")
    if stream is not None:
        boolean(stream, "stream")
    return stream is not False


def is_empty(body: Mapping[str, Any], field: str) -> bool:
    """Whether there is nothing to answer: then the model is only moved, into memory or out."""
    return body.get(field) in (None, "", [])


def decode_chat_request(body: Mapping[str, Any]) -> DecodedRequest:
    """The request for ``/api/chat``; raises InvalidRequest naming Ollama's field."""
    given = body.get("messages")
    if type(given) is not list:
        raise wrong_type("messages", "an array", given)
    items, dropped = input_items(given)
    fields, left_out = _common(body, _OF_CHAT)
    if tools := body.get("tools"):
        fields["tools"] = _tools(tools)
    return DecodedRequest({**fields, "input": items}, (*dropped, *left_out))


def decode_generate_request(body: Mapping[str, Any]) -> DecodedRequest:
    """The request for ``/api/generate``; raises InvalidRequest naming Ollama's field."""
    for name in ("prompt", "system", "suffix", "template"):
        if body.get(name) is not None:
            string(body[name], name)
    if body.get("raw") is not None:
        boolean(body["raw"], "raw")
    for name, why in _WRONG_WITHOUT.items():
        if body.get(name):
            raise InvalidRequest(
                f"Unsupported parameter: '{name}': {why}.",
                code="unsupported_parameter",
                param=name,
            )
    fields, dropped = _common(body, _OF_GENERATE)
    items = [prompt_item(body.get("prompt") or "", body.get("images"))]
    if body.get("system"):
        items.insert(0, {"type": "message", "role": "system", "content": body["system"]})
    return DecodedRequest({**fields, "input": items}, tuple(dropped))


def _common(body: Mapping[str, Any], known: frozenset[str]) -> tuple[dict[str, Any], list[str]]:
    """The fields that both have, and the names of what is left out."""
    fields: dict[str, Any] = {"model": model_of(body), "store": False}
    if wants_stream(body):
        fields["stream"] = True
    options, dropped = read_options(body.get("options"))
    fields.update(options)
    if (form := _format(body.get("format"))) is not None:
        fields["text"] = {"format": form}
    if (think := body.get("think")) is not None:
        fields["reasoning"] = _reasoning(think)
    _add_logprobs(fields, body)
    if (truncate := body.get("truncate")) is not None:
        boolean(truncate, "truncate")
    # By default Ollama leaves the oldest messages out where all of them are too many.
    fields["truncation"] = "disabled" if truncate is False else "auto"
    # Nothing is asked for by what is empty or false: clients send their defaults along.
    others = [name for name, value in body.items() if name not in known and _asks(value)]
    return fields, [*others, *dropped]


def _asks(value: Any) -> bool:
    return value is not None and value is not False and value not in ("", [], {})


def _format(form: Any) -> dict[str, Any] | None:
    if form in (None, ""):
        return None
    if form == "json":
        return {"type": "json_object"}
    if type(form) is not dict:
        raise wrong_type("format", '"json" or a JSON Schema', form)
    # Not strict: the schemas of Ollama's clients have not what OpenAI then asks of them.
    return {"type": "json_schema", "name": "answer", "schema": form, "strict": False}


def _reasoning(think: Any) -> dict[str, str]:
    if think is False:
        return {"effort": "none"}
    if think is True:
        return {"effort": "medium", "summary": "auto"}
    if type(think) is not str:
        raise wrong_type("think", "a boolean or a string", think)
    _effort(think, "think")
    return {"effort": think, "summary": "auto"}


def _add_logprobs(fields: dict[str, Any], body: Mapping[str, Any]) -> None:
    if body.get("logprobs") is None:
        return
    boolean(body["logprobs"], "logprobs")
    if body["logprobs"]:
        fields["include"] = [_LOGPROBS]
        if (top := body.get("top_logprobs")) is not None:
            _top_logprobs(top, "top_logprobs")
            fields["top_logprobs"] = top


def _tools(tools: Any) -> list[dict[str, Any]]:
    if type(tools) is not list:
        raise wrong_type("tools", "an array", tools)
    return [_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools)]


def _tool(tool: Any, where: str) -> dict[str, Any]:
    object_(tool, where)
    if (kind := tool.get("type")) is not None:
        _function_type(kind, f"{where}.type")
    function, name = named_function(tool, where)
    made: dict[str, Any] = {"type": "function", "name": name, "strict": False}
    if (description := function.get("description")) is not None:
        string(description, f"{where}.function.description")
        made["description"] = description
    if (parameters := function.get("parameters")) is not None:
        object_(parameters, f"{where}.function.parameters")
        made["parameters"] = parameters
    return made


_function_type = one_of("function")

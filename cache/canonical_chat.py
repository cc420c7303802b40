"""The canonical request of a Chat Completions body, of which next to nothing has been checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cache.canonical import (
    JSON,
    CacheRequest,
    FieldRules,
    NotCacheable,
    extras,
    finished,
    is_default,
    is_flag,
    named_only,
    ordered,
    plain,
    refuse_shared,
    settings,
)

__all__ = ["canonical_chat"]

_SURFACE: Final = "chat"

_READ: Final = frozenset(
    {
        "audio",
        "conversation",
        "function_call",
        "functions",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "modalities",
        "n",
        "previous_response_id",
        "reasoning_effort",
        "response_format",
        "tool_choice",
        "tools",
        "top_logprobs",
        "verbosity",
        "web_search_options",
    }
)
_RESPONSES_ONLY: Final = frozenset(
    {
        "background",
        "context_management",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "prompt",
        "reasoning",
        "text",
        "truncation",
    }
)

_CALLABLE: Final = frozenset({"function", "custom"})

_MESSAGE: Final = frozenset({"role", "content"})
_ASSISTANT: Final = _MESSAGE | {"tool_calls"}
_RESULT: Final = frozenset({"role", "content", "tool_call_id"})
_TEXT_PART: Final = frozenset({"type", "text"})
_IMAGE_PART: Final = frozenset({"type", "image_url"})


def canonical_chat(body: Mapping[str, Any], rules: FieldRules) -> CacheRequest:
    """The request of a body; raises NotCacheable, and KeyError, TypeError or AttributeError where
    the body is not what the surface takes.
    """
    get = body.get
    refuse_shared(body)
    n = get("n")
    if n is not None and not is_default(plain(n), 1):
        raise NotCacheable("several_choices")
    if get("functions") is not None or get("function_call") is not None:
        raise NotCacheable("legacy_functions")
    canonical = settings(body, _SURFACE, rules, read=_READ, private=_RESPONSES_ONLY)
    own: JSON = canonical.pop(_SURFACE, {})
    canonical["messages"] = _messages(body["messages"])
    tools = get("tools")
    if tools is not None and tools != []:
        canonical["tools"] = [_tool(tool) for tool in _array(tools)]
    choice = get("tool_choice")
    if choice is not None and choice != "auto":
        canonical["tool_choice"] = _tool_choice(choice)
    form = get("response_format")
    if form is not None and not (named_only(form, "type") and form.get("type") == "text"):
        canonical["format"] = _format(form)
    if (effort := get("reasoning_effort")) is not None:
        canonical["effort"] = ordered(plain(effort))
    verbosity = get("verbosity")
    if verbosity is not None and verbosity != "medium":
        canonical["verbosity"] = ordered(plain(verbosity))
    _limit(body, canonical, own)
    _logprobs(get("logprobs"), get("top_logprobs"), canonical, own)
    if own:
        canonical[_SURFACE] = own
    return finished(get("model"), canonical, temperature=get("temperature"))


def _limit(body: Mapping[str, Any], canonical: JSON, own: JSON) -> None:
    limits = {
        name: ordered(plain(body[name]))
        for name in ("max_tokens", "max_completion_tokens")
        if body.get(name) is not None
    }
    if len(limits) == 1:
        [canonical["limit"]] = limits.values()
    else:
        own.update(limits)


def _logprobs(wanted: Any, top: Any, canonical: JSON, own: JSON) -> None:
    top = None if top is None or is_default(plain(top), 0) else ordered(plain(top))
    if wanted is True:
        canonical["logprobs"] = True
    elif wanted is not None and wanted is not False:
        own["logprobs"] = ordered(plain(wanted))
    if top is not None:
        # Without logprobs it asks for nothing, or for a mistake.
        (canonical if wanted is True else own)["top_logprobs"] = top


def _format(form: Any) -> JSON:
    if named_only(form, "type") and form.get("type") == "json_object":
        return {"type": "json_object"}
    if named_only(form, "type", "json_schema") and form.get("type") == "json_schema":
        given = form.get("json_schema")
        names = ("name", "description", "schema", "strict")
        if named_only(given, *names) and is_flag(given.get("strict")):
            shape = {k: ordered(v) for k, v in given.items() if v is not None and k != "strict"}
            if given.get("strict"):
                shape["strict"] = True
            return {"type": "json_schema", **shape}
    return {_SURFACE: ordered(form)}


def _tool(tool: JSON) -> JSON:
    kind = tool["type"]
    if _text(kind) not in _CALLABLE:
        raise NotCacheable("server_tools")
    given = tool[kind]
    if not named_only(tool, "type", kind):
        return {_SURFACE: ordered(tool)}
    if kind == "function":
        names = ("name", "description", "parameters", "strict")
        if not named_only(given, *names) or not is_flag(given.get("strict")):
            return {_SURFACE: ordered(tool)}
        known = {k: ordered(v) for k, v in given.items() if v is not None and k != "strict"}
        if given.get("strict"):
            known["strict"] = True
        return {"type": kind, **known}
    if not named_only(given, "name", "description", "format"):
        return {_SURFACE: ordered(tool)}
    known = {k: ordered(v) for k, v in given.items() if v is not None and k != "format"}
    form = given.get("format")
    if form is not None and form != {"type": "text"}:
        known["format"] = _grammar(form)
    return {"type": kind, **known}


def _grammar(form: Any) -> JSON:
    if named_only(form, "type", "grammar") and form.get("type") == "grammar":
        grammar = form.get("grammar")
        if named_only(grammar, "syntax", "definition"):
            said = {k: v for k, v in grammar.items() if v is not None}
            return {"type": "grammar", **said}
    return {_SURFACE: ordered(form)}


def _tool_choice(choice: Any) -> Any:
    if type(choice) is str:
        return choice
    named = _named(choice)
    if named is not None:
        return named
    if named_only(choice, "type", "allowed_tools") and choice.get("type") == "allowed_tools":
        allowed = choice.get("allowed_tools")
        if named_only(allowed, "mode", "tools") and type(allowed.get("tools")) is list:
            tools = [_named(tool) for tool in allowed["tools"]]
            if None not in tools:
                mode = ordered(allowed.get("mode"))
                return {"type": "allowed_tools", "mode": mode, "tools": tools}
    return {_SURFACE: ordered(choice)}


def _named(tool: Any) -> JSON | None:
    """A reference to a function or a custom tool; None where it is anything else."""
    for kind in _CALLABLE:
        if named_only(tool, "type", kind) and tool.get("type") == kind:
            given = tool.get(kind)
            if named_only(given, "name"):
                return {"type": kind, "name": ordered(given.get("name"))}
    return None


def _messages(given: Any) -> list[JSON]:
    custom: set[str] = set()  # ids of the calls of custom tools
    return [_message(message, custom) for message in _array(given)]


def _message(message: JSON, custom: set[str]) -> JSON:
    role = _text(message["role"])
    if role == "assistant":
        return _assistant(message, custom)
    if role == "function":
        raise NotCacheable("legacy_functions")
    entry: JSON = {"role": role}
    known = _MESSAGE
    if role == "tool":
        known = _RESULT
        ident = entry["id"] = _text(message["tool_call_id"])
        if ident in custom:
            entry["custom"] = True
    content = message.get("content")
    if content is not None:
        entry["content"] = _content(content)
    if not message.keys() <= known and (more := extras(message, known)):
        entry[_SURFACE] = more
    return entry


def _assistant(message: JSON, custom: set[str]) -> JSON:
    if message.get("function_call") is not None:
        raise NotCacheable("legacy_functions")
    if message.get("audio") is not None:
        raise NotCacheable("audio")  # it is kept where it was made, and for an hour
    entry: JSON = {"role": "assistant"}
    content = message.get("content")
    if content is not None:
        entry["content"] = _content(content)
    if not message.keys() <= _MESSAGE:
        more = extras(message, _ASSISTANT)
        if more.get("annotations") == []:
            del more["annotations"]
        if content is None and type(more.get("refusal")) is str:
            entry["content"] = [{"type": "refusal", "text": more.pop("refusal")}]
        if more:
            entry[_SURFACE] = more
        calls = message.get("tool_calls")
        if calls is not None and calls != []:
            entry["calls"] = [_call(call, custom) for call in _array(calls)]
    return entry


def _call(call: JSON, custom: set[str]) -> JSON:
    kind = call.get("type") or "function"
    if _text(kind) not in _CALLABLE:
        return {_SURFACE: ordered(call)}
    ident = _text(call["id"])
    said = "arguments" if kind == "function" else "input"
    if kind == "custom":
        custom.add(ident)
    given = call.get(kind)
    if not named_only(call, "id", "type", kind) or not named_only(given, "name", said):
        return {_SURFACE: ordered(call)}
    return {"type": kind, "id": ident, "name": _text(given["name"]), said: _text(given[said])}


def _content(content: Any) -> Any:
    """A string where it is nothing but one text, else a list of parts."""
    if type(content) is str:
        return content
    parts = [_part(part) for part in _array(content)]
    if len(parts) == 1 and parts[0].get("type") == "text" and len(parts[0]) == 2:
        return parts[0]["text"]
    return parts


def _part(part: JSON) -> JSON:
    kind = part["type"]
    if kind == "text":
        text: JSON = {"type": "text", "text": _text(part["text"])}
        if len(part) > 2 and (more := extras(part, _TEXT_PART)):
            text[_SURFACE] = more
        return text
    if kind == "refusal" and named_only(part, "type", "refusal"):
        return {"type": "refusal", "text": _text(part["refusal"])}
    if kind == "image_url" and named_only(part.get("image_url"), "url", "detail"):
        return _image(part)
    if kind == "file" and named_only(part, "type", "file"):
        names = ("file_data", "file_id", "filename")
        if named_only(part.get("file"), *names):
            file = part["file"]
            return {"type": "file", "file": {k: file[k] for k in names if file.get(k) is not None}}
    if kind == "input_audio" and named_only(part, "type", "input_audio"):
        return {"type": "audio", "audio": part["input_audio"]}
    return {_SURFACE: ordered(part)}


def _image(part: JSON) -> JSON:
    image: JSON = {"type": "image"}
    given = part["image_url"]
    if given.get("url") is not None:
        image["url"] = given["url"]
    if given.get("detail") not in (None, "auto"):
        image["detail"] = given["detail"]
    if more := extras(part, _IMAGE_PART):
        image[_SURFACE] = more
    return image


def _text(value: Any) -> str:
    if type(value) is not str:
        raise NotCacheable("unsupported")
    return value


def _array(value: Any) -> list[Any]:
    if type(value) is not list:
        raise NotCacheable("unsupported")
    return value

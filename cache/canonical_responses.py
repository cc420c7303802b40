"""The canonical request of a Responses body, whatever API it was decoded from."""

from __future__ import annotations

import re
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
    named_only,
    ordered,
    plain,
    refuse_shared,
    settings,
)

__all__ = ["canonical_responses"]

_SURFACE: Final = "responses"

_LOGPROBS: Final = "message.output_text.logprobs"

_READ: Final = frozenset(
    {
        "audio",
        "background",
        "conversation",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "modalities",
        "previous_response_id",
        "prompt",  # has been applied
        "reasoning",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "web_search_options",
    }
)
_MESSAGE_PATH: Final = re.compile(r"messages\[\d+\]")
_LEGACY: Final = ("functions", "function_call")
_CALLABLE: Final = frozenset({"function", "custom"})
_BRINGS_TOOLS: Final = frozenset({"additional_tools", "tool_search_output"})

_COMPACTING: Final = frozenset({"compaction", "compaction_trigger"})

_NAMES_ITSELF: Final = frozenset({"local_shell_call_output", "mcp_approval_request"})
"""Items whose id, where they have no ``call_id``, is what other items name."""

_TEXTS: Final = frozenset({"input_text", "output_text", "text"})
_OTHER_TEXTS: Final[Mapping[str, str]] = {
    "refusal": "refusal",
    "summary_text": "text",
    "reasoning_text": "text",
}

_MESSAGE: Final = frozenset({"type", "role", "content", "id", "status"})
_CALL: Final = frozenset({"type", "id", "status", "call_id", "name", "arguments"})
_CUSTOM_CALL: Final = frozenset({"type", "id", "status", "call_id", "name", "input"})
_RESULT: Final = frozenset({"type", "id", "status", "call_id", "output"})
_REASONING: Final = frozenset({"id", "status"})
_TEXT_PART: Final = frozenset({"type", "text"})
_IMAGE: Final = frozenset({"type", "image_url", "detail"})
_FILE: Final = ("file_data", "file_url", "filename", "detail")


def canonical_responses(
    body: Mapping[str, Any], rules: FieldRules, kept: JSON | None = None
) -> CacheRequest:
    """The request of a validated body, or of a decoded chat, which nobody has checked: ``kept`` is
    what the body does not say of it. Raises NotCacheable, and LookupError, TypeError or
    AttributeError for what is no request.
    """
    get = body.get
    refuse_shared(body)
    if kept is not None:
        _refuse_chat(body, kept)
    if get("background") or (get("stream_options") or {}).get("durable"):
        raise NotCacheable("background")
    if (managed := get("context_management")) and _compacts(managed):
        raise NotCacheable("compaction")
    others, own = settings(body, rules, _READ), JSON()
    canonical: JSON = {"settings": others} if others else {}
    messages: list[JSON] = []
    if (instructions := get("instructions")) is not None:
        _instructions(instructions, messages, own)
    given = get("input")
    if type(given) is str:
        messages.append({"role": "user", "content": given})
    elif given is not None:
        _items(given, messages)
    canonical["messages"] = messages
    hosted = False
    if tools := get("tools"):
        hosted = not all(map(_is_clients, tools))
        canonical["tools"] = _tools(tools, rules, kept) if hosted else list(map(_tool, tools))
    if (choice := get("tool_choice")) not in (None, "auto"):
        canonical["tool_choice"] = _tool_choice(choice)
    if (limit := get("max_output_tokens")) is not None:
        canonical["limit"] = ordered(plain(limit))
    if text := get("text"):
        _text(text, canonical, own)
    if reasoning := get("reasoning"):
        _reasoning(reasoning, canonical, own)
    if (include := get("include")) or get("top_logprobs") is not None:
        _shown(include or (), get("top_logprobs"), canonical)
    if own:
        canonical[_SURFACE] = own
    if kept:
        canonical["chat"] = ordered(kept)
    return finished(get("model"), canonical, temperature=get("temperature"), hosted=hosted)


def _refuse_chat(body: Mapping[str, Any], kept: JSON) -> None:
    """Raise NotCacheable for what no chat's answer is cached with."""
    if "n" in body:  # one choice is not worth a word
        raise NotCacheable("several_choices")
    refuse_shared(kept)
    if not kept.keys().isdisjoint(_LEGACY):
        raise NotCacheable("legacy_functions")
    for path, more in kept.items():
        if _MESSAGE_PATH.fullmatch(path):
            if "function_call" in more or more.get("role") == "function":
                raise NotCacheable("legacy_functions")
            if "audio" in more:
                raise NotCacheable("audio")  # it is kept where it was made, and for an hour


def _instructions(given: Any, messages: list[JSON], own: JSON) -> None:
    if type(given) is str:
        if given:
            messages.append({"role": "system", "content": given})
        else:
            own["instructions"] = ""  # some endpoints make a message of it, and some do not
    elif given:
        _items(given, messages)


def _text(text: JSON, canonical: JSON, own: JSON) -> None:
    form = text.get("format")
    if form is not None and not (named_only(form, "type") and form.get("type") == "text"):
        canonical["format"] = _format(form)
    verbosity = text.get("verbosity")
    if verbosity is not None and verbosity != "medium":
        canonical["verbosity"] = ordered(verbosity)
    if more := extras(text, frozenset({"format", "verbosity"})):
        own["text"] = more


def _format(form: Any) -> JSON:
    if named_only(form, "type") and form["type"] == "json_object":
        return {"type": "json_object"}
    if (
        not named_only(form, "type", "name", "description", "schema", "strict")
        or form["type"] != "json_schema"
    ):
        return {_SURFACE: ordered(form)}
    shape = {k: ordered(v) for k, v in form.items() if v is not None and k != "strict"}
    if form.get("strict"):
        shape["strict"] = True
    return shape


def _reasoning(reasoning: JSON, canonical: JSON, own: JSON) -> None:
    for name in ("effort", "summary"):
        if reasoning.get(name) is not None:
            canonical[name] = ordered(reasoning[name])
    if more := extras(reasoning, frozenset({"effort", "summary"})):
        # The older name of summary.
        if "generate_summary" in more and "summary" not in canonical:
            canonical["summary"] = more.pop("generate_summary")
        if more:
            own["reasoning"] = more


def _shown(include: Any, top: Any, canonical: JSON) -> None:
    others = {name for name in include if name != _LOGPROBS}
    if others:
        canonical["include"] = sorted(others)
    if _LOGPROBS in include:
        canonical["logprobs"] = True
    if top is not None and not is_default(top := plain(top), 0):
        canonical["top_logprobs"] = top


def _tools(tools: list[JSON], rules: FieldRules, kept: JSON | None) -> list[JSON]:
    """Raise NotCacheable for hosted tools, but for those with which answers are kept."""
    for tool in tools:
        # Nobody has checked those of a chat, nor does its answer show what they did.
        if not _is_clients(tool) and (kept is not None or rules.tool_name(tool) not in rules.tools):
            raise NotCacheable("server_tools")
    return [_tool(tool) for tool in tools]


def _tool(tool: JSON) -> JSON:
    kind = tool.get("type")
    if kind not in _CALLABLE:
        return {_SURFACE: ordered(tool)}
    if kind == "function":
        if not named_only(tool, "type", "name", "description", "parameters", "strict"):
            return {_SURFACE: ordered(tool)}
        known = {k: ordered(v) for k, v in tool.items() if v is not None and k != "strict"}
        # A function is strict unless it says otherwise; on Chat Completions it is not.
        if tool.get("strict") in (None, True):
            known["strict"] = True
        return known
    if not named_only(tool, "type", "name", "description", "format"):
        return {_SURFACE: ordered(tool)}
    form = tool.get("format")
    known = {k: v for k, v in tool.items() if v is not None and k != "format"}
    if form is not None and form != {"type": "text"}:
        grammar = named_only(form, "type", "syntax", "definition") and form["type"] == "grammar"
        known["format"] = dict(form) if grammar else {_SURFACE: ordered(form)}
    return known


def _tool_choice(choice: Any) -> Any:
    if type(choice) is str:
        return choice
    kind = choice.get("type")
    if kind in _CALLABLE and named_only(choice, "type", "name"):
        return {"type": kind, "name": choice.get("name")}
    if kind == "allowed_tools" and named_only(choice, "type", "mode", "tools"):
        tools = choice["tools"]
        if all(named_only(tool, "type", "name") for tool in tools):
            named = [{"type": tool["type"], "name": tool.get("name")} for tool in tools]
            return {"type": kind, "mode": choice["mode"], "tools": named}
    return {_SURFACE: ordered(choice)}


def _items(items: list[JSON], messages: list[JSON]) -> None:
    turn: JSON | None = None  # the assistant's message that the next calls belong to
    for item in items:
        kind = item.get("type")
        if kind is None:
            if item.get("role") is None and item.get("content") is None:
                raise NotCacheable("state")  # nothing but an id
            kind = "message"
        if kind == "message":
            entry = _message(item)
            messages.append(entry)
            turn = entry if entry["role"] == "assistant" else None
        elif kind in ("function_call", "custom_tool_call"):
            if turn is None:
                turn = {"role": "assistant"}
                messages.append(turn)
            turn.setdefault("calls", []).append(_call(item, kind))
        else:
            turn = None
            messages.append(_other(item, kind))


def _message(item: JSON) -> JSON:
    role, content = item["role"], item.get("content")
    if type(role) is not str:
        raise NotCacheable("unsupported")
    entry: JSON = {"role": role}
    if content is not None:
        entry["content"] = content if type(content) is str else _content(content)
    if not item.keys() <= _MESSAGE and (more := extras(item, _MESSAGE)):
        entry[_SURFACE] = more
    return entry


def _call(item: JSON, kind: str) -> JSON:
    if kind == "function_call":
        call = {"type": "function", "id": item["call_id"], "name": item["name"]}
        call["arguments"] = item["arguments"]
        more = extras(item, _CALL)
    else:
        call = {"type": "custom", "id": item["call_id"], "name": item["name"]}
        call["input"] = item["input"]
        more = extras(item, _CUSTOM_CALL)
    if more:
        call[_SURFACE] = more
    return call


def _other(item: JSON, kind: str) -> JSON:
    if kind in ("function_call_output", "custom_tool_call_output"):
        entry: JSON = {"role": "tool", "id": item["call_id"]}
        if type(entry["id"]) is not str:
            raise NotCacheable("unsupported")
        if item.get("output") is not None:
            entry["content"] = _content(item["output"])
        if kind == "custom_tool_call_output":
            entry["custom"] = True
        if more := extras(item, _RESULT):
            entry[_SURFACE] = more
        return entry
    if kind == "item_reference":
        raise NotCacheable("state")
    if kind in _COMPACTING:
        raise NotCacheable("compaction")
    if kind == "reasoning":
        said = extras(item, _REASONING)
        return {"item": {k: v for k, v in said.items() if v != []}}
    if kind in _BRINGS_TOOLS and not all(map(_is_clients, item.get("tools") or ())):
        raise NotCacheable("server_tools")
    keep_id = kind in _NAMES_ITSELF and "call_id" not in item
    said = extras(item, frozenset() if keep_id else frozenset({"id"}))
    if said.get("status") == "completed":
        del said["status"]
    return {"item": said}


def _compacts(managed: Any) -> bool:
    return type(managed) is list and any(
        type(entry) is dict and entry.get("type") == "compaction" for entry in managed
    )


def _is_clients(tool: Any) -> bool:
    """Whether the client runs the tool, or all tools of the namespace."""
    if type(tool) is not dict:
        return False
    kind = tool.get("type")
    if kind == "namespace":
        members = tool.get("tools")
        return type(members) is list and all(map(_is_clients, members))
    return kind in _CALLABLE or (kind == "tool_search" and tool.get("execution") == "client")


def _content(content: Any) -> Any:
    """A string where it is nothing but one text, else a list of parts."""
    if type(content) is str:
        return content
    if type(content) is not list:
        raise NotCacheable("unsupported")
    if len(content) == 1:
        part = _part(content[0])
        return part["text"] if part.get("type") == "text" and len(part) == 2 else [part]
    return [_part(part) for part in content]


def _part(part: JSON) -> JSON:
    kind = part["type"]
    if part.get("file_id") is not None:
        raise NotCacheable("files")  # which key may read it is not for the cache to know
    if kind in _TEXTS:
        text: JSON = {"type": "text", "text": part["text"]}
        if type(text["text"]) is not str:
            raise NotCacheable("unsupported")
        if len(part) > 2:
            more = extras(part, _TEXT_PART)
            for name in ("annotations", "logprobs"):
                if more.get(name) == []:
                    del more[name]
            if more:
                text[_SURFACE] = more
        return text
    if kind in _OTHER_TEXTS and named_only(part, "type", _OTHER_TEXTS[kind]):
        return {"type": kind, "text": part[_OTHER_TEXTS[kind]]}
    if kind == "input_image":
        return _image(part)
    if kind == "input_file" and named_only(part, "type", *_FILE):
        return {"type": "file", "file": {k: part[k] for k in _FILE if part.get(k) is not None}}
    if kind == "input_audio" and named_only(part, "type", "input_audio"):
        return {"type": "audio", "audio": part["input_audio"]}
    return {_SURFACE: ordered(part)}


def _image(part: JSON) -> JSON:
    image: JSON = {"type": "image"}
    if part.get("image_url") is not None:
        image["url"] = part["image_url"]
    if part.get("detail") not in (None, "auto"):
        image["detail"] = part["detail"]
    if more := extras(part, _IMAGE):
        image[_SURFACE] = more
    return image

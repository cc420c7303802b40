"""The messages of a chat as the input items of a Responses request.

Nothing is refused here, and nothing is lost: what the items cannot say is kept beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cache.canonical import named_only

__all__ = ["MessageDecoder", "Place"]

Item = dict[str, Any]
Place = int | tuple[int, int]
"""Where an item stood: in which message, or in which of a message's calls."""

_PLAIN: Final = ("user", "assistant", "system", "developer")
_MESSAGE: Final = frozenset({"role", "content"})
_ASSISTANT: Final = _MESSAGE | {"refusal", "tool_calls"}
_RESULT: Final = _MESSAGE | {"tool_call_id"}
_OLD_RESULT: Final = frozenset({"content", "name"})
"""Of a function, which came before tools and has no id: its name is one."""

_CALLS: Final[Mapping[str, tuple[str, str]]] = {
    "function": ("function_call", "arguments"),
    "custom": ("custom_tool_call", "input"),
}
_CITATION: Final = ("url", "title", "start_index", "end_index")
_FILE: Final = ("file_data", "file_id", "filename")


class MessageDecoder:
    """Decodes messages: objects, in which there may be anything.

    ``items`` are the items, ``places`` where each of them stood. ``kept`` is what they do not say,
    by its path: members of a message or of a text, and parts and calls as a whole. An item that
    begins a message although it seems to belong to the one before is named in it (``input[3]``).
    ``dropped`` has the path of the first name, if there is any: it stands for all of them.
    Messages that differ have other items, or something else is kept of them.
    """

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.places: list[Place] = []
        self.kept: dict[str, Any] = {}
        self.dropped: list[str] = []
        self._custom: set[str] = set()  # ids of the calls of custom tools
        self._after_assistant = False

    def decode(self, messages: list[Item]) -> None:
        """Add the items of these messages."""
        for index, message in enumerate(messages):
            role, content = message.get("role"), message.get("content")
            if len(message) == 2 and type(content) is str and role in _PLAIN:
                self._put({"type": "message", "role": role, "content": content}, index)
            elif role == "assistant":
                self._assistant(message, content, index)
            else:
                self._other(message, role, content, index)
            self._after_assistant = role == "assistant"

    def _put(self, item: Item, place: Place) -> None:
        self.items.append(item)
        self.places.append(place)

    def _keep(self, where: str, more: Item, *, named: bool = True) -> None:
        if more:
            self.kept[where] = more
            if named and more.get("name") and not self.dropped:
                self.dropped.append(f"{where}.name")

    def _other(self, message: Item, role: Any, content: Any, index: int) -> None:
        where, known, field = f"messages[{index}]", _MESSAGE, "content"
        item: Item = {"type": "message", "role": role}
        if role == "tool":
            known, field = _RESULT, "output"
            ident = message.get("tool_call_id")
            custom = type(ident) is str and ident in self._custom
            kind = "custom_tool_call_output" if custom else "function_call_output"
            item = {"type": kind, "call_id": ident}
        elif role == "function":
            known, field = _OLD_RESULT, "output"
            item = {"type": "function_call_output", "call_id": message.get("name")}
        if content is not None:
            item[field] = self._content(content, where, "input_text")
        self._put(item, index)
        if not message.keys() <= known:
            self._keep(where, _beside(message, known), named=role != "tool")

    def _assistant(self, message: Item, content: Any, index: int) -> None:
        where, more = f"messages[{index}]", _beside(message, _ASSISTANT)
        thoughts = message.get("reasoning_content") or message.get("reasoning")
        if thoughts and type(thoughts) is str:
            summary = [{"type": "summary_text", "text": thoughts}]
            self._put({"type": "reasoning", "summary": summary}, index)
        calls = message.get("tool_calls")
        if type(calls) is not list:
            if calls is not None:
                more["tool_calls"] = calls
            calls = []
        said = self._said(message, content, where, more)
        if said or not calls:
            self._put({"type": "message", "role": "assistant", "content": said}, index)
        elif self._after_assistant:
            self.kept[f"input[{len(self.items)}]"] = True
        if not said and (content is None) is not bool(calls):
            more["content"] = content
        if "annotations" in more:
            self._annotate(more, said)
        self._keep(where, more)
        for number, call in enumerate(calls):
            self._call(call, index, number)
        if type(call := message.get("function_call")) is dict:
            name = call.get("name")
            old = {"call_id": name, "name": name, "arguments": call.get("arguments")}
            self._put({"type": "function_call", **old}, index)

    def _annotate(self, more: Item, said: Any) -> None:
        """Say what the text just put cites; it is kept beside, too."""
        given = more["annotations"]
        if given == []:
            del more["annotations"]
        elif said and type(said) is str and type(given) is list:
            cites = [one for one in map(_annotation, given) if one is not None]
            part = {"type": "output_text", "text": said, "annotations": cites}
            self.items[-1]["content"] = [part] if cites else said

    def _said(self, message: Item, content: Any, where: str, more: Item) -> Any:
        """What an assistant said: its content, and a refusal beside it."""
        said = "" if content is None else self._content(content, where, "output_text")
        refusal = message.get("refusal")
        if refusal is None:
            return said
        known = type(refusal) is str and refusal and type(said) in (str, list)
        if content is not None or not known:
            more["refusal"] = refusal
        if not known:
            return said
        if content is not None and not said:
            more["content"] = content
        texts = [{"type": "output_text", "text": said}] if said and type(said) is str else said
        return [*texts, {"type": "refusal", "refusal": refusal}]

    def _call(self, call: Any, index: int, number: int) -> None:
        item, is_all = _decode_call(call)
        self._put(item, (index, number))
        ident = item.get("call_id")  # what is of no kind known here need not have one
        if item["type"] == "custom_tool_call" and type(ident) is str:
            self._custom.add(ident)
        if not is_all:
            self.kept[f"messages[{index}].tool_calls[{number}]"] = call

    def _content(self, given: Any, where: str, text: str) -> Any:
        if type(given) is not list:
            return given
        return [self._part(part, f"{where}.content[{n}]", text) for n, part in enumerate(given)]

    def _part(self, part: Any, where: str, text: str) -> Any:
        if type(part) is dict and part.get("type") == "text" and type(part.get("text")) is str:
            if len(part) > 2 and (more := _beside(part, _TEXT)):
                self.kept[where] = more
            return {"type": text, "text": part["text"]}
        made, is_all = _other_part(part)
        if not is_all:
            self.kept[where] = part
        return made


_TEXT: Final = frozenset({"type", "text"})


def _beside(given: Item, known: frozenset[str]) -> Item:
    return {name: value for name, value in given.items() if name not in known and value is not None}


def _annotation(given: Any) -> Item | None:
    """The Responses API's form of a web page that is cited; None for anything else."""
    cited = given.get("url_citation") if type(given) is dict else None
    if type(cited) is not dict:
        return None
    kinds = [type(cited.get(name)) for name in _CITATION]
    return {"type": "url_citation", **cited} if kinds == [str, str, int, int] else None


def _decode_call(call: Any) -> tuple[Item, bool]:
    """A call, as it came where it is of no kind known here; and whether that is all of it."""
    kind = (call.get("type") or "function") if type(call) is dict else None
    if type(kind) is not str:
        return {"type": "function", "function": call}, False
    if kind not in _CALLS:
        return {**call, "type": kind}, False
    name, text = _CALLS[kind]
    given = call.get(kind) if type(call.get(kind)) is dict else {}
    item = {"type": name, "call_id": call.get("id"), "name": given.get("name")}
    item[text] = given.get(text)
    is_all = {str}.issuperset(map(type, item.values()))
    return item, is_all and named_only(call, "id", "type", kind) and named_only(given, "name", text)


def _other_part(part: Any) -> tuple[Any, bool]:
    """A part that is no text, as it came where it is of no kind known here; and whether that is
    all of it.
    """
    kind = part.get("type") if type(part) is dict else None
    given = part.get(kind) if type(kind) is str else None
    if kind == "image_url":
        is_all = named_only(part, "type", kind) and named_only(given, "url", "detail")
        # Some servers take the URL alone.
        image = given if type(given) is dict else {"url": given}
        url, detail = image.get("url"), image.get("detail")
        is_all = is_all and type(url) is str and (detail is None or type(detail) is str)
        made = {"type": "input_image", "image_url": url, "detail": detail or "auto"}
        return made, is_all and detail != ""
    if kind == "file" and type(given) is dict:
        file = {name: given[name] for name in _FILE if given.get(name)}
        if file and {str}.issuperset(map(type, file.values())):
            is_all = named_only(part, "type", kind) and named_only(given, *file)
            return {"type": "input_file", **file}, is_all
    if kind == "refusal" and type(given) is str:
        return {"type": kind, kind: given}, named_only(part, "type", kind)
    return part, kind == "input_audio" and named_only(part, "type", kind)

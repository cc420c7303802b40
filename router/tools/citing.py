"""Citations in what the model says after it has searched: in its items, and in their events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from router.response.hosted_events import Event
from router.tools.code_interpreter.citations import FileCitationFinder, NamedFile
from router.tools.web_search.citations import CitationFinder
from router.tools.web_search.outcome import WebSource

__all__ = ["Citing"]

Item = dict[str, Any]

_ADDED: Final = "response.output_text.annotation.added"


class _Finder:
    """Finds citations of pages and of files in a text that arrives in pieces."""

    def __init__(self, sources: Sequence[WebSource], files: Sequence[NamedFile]) -> None:
        self._finders = (CitationFinder(sources), FileCitationFinder(files))

    def feed(self, delta: str) -> list[Any]:
        return [found for finder in self._finders for found in finder.feed(delta)]

    def finish(self) -> list[Any]:
        return [found for finder in self._finders for found in finder.finish()]


class Citing:
    """Adds the citations of ``sources`` and ``files`` to the events of one turn's items, between
    those that the endpoint has made itself.
    """

    def __init__(self, sources: Sequence[WebSource], files: Sequence[NamedFile] = ()) -> None:
        self._sources = sources
        self._files = files
        self._finder = _Finder((), ())
        self._told: list[list[Any]] = []  # of the item's parts, in the order of the events
        self._content: dict[Any, list[Any]] = {}  # of the messages that are done, by id

    def event(self, kind: str, fields: dict[str, Any]) -> Iterable[Event]:
        """What becomes of an event: itself, and those that tell of citations in it."""
        if kind == "response.output_item.added":
            self._told = []
        elif kind == "response.content_part.added":
            self._finder = _Finder(self._sources, self._files)
            self._told.append([])
        elif kind == _ADDED and self._told:
            fields["annotation_index"] = len(self._told[-1])
            self._told[-1].append(fields["annotation"])
        elif kind == "response.output_text.delta":
            return [(kind, fields), *self._annotated(fields, self._finder.feed(fields["delta"]))]
        elif kind == "response.output_text.done":
            return [*self._annotated(fields, self._finder.finish()), (kind, fields)]
        elif kind == "response.content_part.done" and self._told:
            fields["part"] = _with_told(fields["part"], self._told[-1])
        elif kind == "response.output_item.done" and fields["item"].get("type") == "message":
            content = fields["item"]["content"]
            parts = [_with_told(*pair) for pair in zip(content, self._told, strict=False)]
            cites = self._content[fields["item"].get("id")] = [*parts, *content[len(parts) :]]
            fields["item"] = {**fields["item"], "content": cites}
        return [(kind, fields)]

    def cited(self, item: Item) -> Item:
        """The item as its events told it; else with what its text cites."""
        if (content := self._content.get(item.get("id"))) is not None:
            return {**item, "content": content}
        if item.get("type") != "message":
            return item
        return {**item, "content": [self._cited_part(part) for part in item["content"]]}

    def _cited_part(self, part: Any) -> Any:
        if not isinstance(part, dict) or part.get("type") != "output_text":
            return part
        finder = _Finder(self._sources, self._files)
        found = [*finder.feed(part["text"]), *finder.finish()]
        told = part.get("annotations") or ()
        return {**part, "annotations": [*told, *found]} if found else part

    def _annotated(self, fields: Mapping[str, Any], found: Sequence[Any]) -> Iterable[Event]:
        about = {name: fields[name] for name in ("item_id", "output_index", "content_index")}
        for annotation in found:
            index = len(self._told[-1])
            self._told[-1].append(annotation)
            yield _ADDED, {**about, "annotation_index": index, "annotation": annotation}


def _with_told(part: Any, told: list[Any]) -> Any:
    """The part with what its events have told, and what else it says that it cites."""
    if not told:
        return part
    more = [one for one in part.get("annotations") or () if one not in told]
    return {**part, "annotations": [*told, *more]}

"""Citations in what the model says after it has searched: in its items, and in their events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from router.response.hosted_events import Event
from router.tools.code_interpreter.citations import ContainerFileFinder, NamedFile
from router.tools.file_search.citations import FileCitationFinder, FileSource
from router.tools.web_search.citations import CitationFinder
from router.tools.web_search.outcome import WebSource

__all__ = ["Citing"]

Item = dict[str, Any]

_ADDED: Final = "response.output_text.annotation.added"


class _TextCitations:
    """What is cited in one text. ``text`` is what was given back of it."""

    def __init__(
        self,
        sources: Sequence[WebSource],
        files: Sequence[FileSource],
        made: Sequence[NamedFile],
    ) -> None:
        self._files = FileCitationFinder(files)
        self._others = (CitationFinder(sources), ContainerFileFinder(made))

    @property
    def text(self) -> str:
        return self._files.text

    def feed(self, delta: str) -> tuple[str, list[Any]]:
        """The text that is certain now, without the marks of files, and what it cites."""
        text, found = self._files.feed(delta)
        return text, [*found, *self._others_in(text)]

    def finish(self) -> tuple[str, list[Any]]:
        """The rest, at the end of the text."""
        text, found = self._files.finish()
        last = [one for finder in self._others for one in finder.finish()]
        return text, [*found, *self._others_in(text), *last]

    def _others_in(self, text: str) -> list[Any]:
        return [one for finder in self._others for one in finder.feed(text)]


class Citing:
    """Adds the citations of ``sources``, of ``files`` and of those that code has ``made`` to the
    events of one turn's items, between those that the endpoint has made itself. The marks by which
    files are cited are taken out.
    """

    def __init__(
        self,
        sources: Sequence[WebSource],
        files: Sequence[FileSource] = (),
        made: Sequence[NamedFile] = (),
    ) -> None:
        self._may_be_cited = sources, files, made
        self._cites = _TextCitations((), (), ())
        self._told: list[list[Any]] = []  # of the item's parts, in the order of the events
        self._texts: list[str | None] = []  # of the same parts; None for those of no text
        self._content: dict[Any, list[Any]] = {}  # of the messages that are done, by id

    def event(self, kind: str, fields: dict[str, Any]) -> Iterable[Event]:
        """What becomes of an event: itself, and those that tell of citations in it."""
        if kind == "response.output_item.added":
            self._told, self._texts = [], []
        elif kind == "response.content_part.added":
            self._cites = _TextCitations(*self._may_be_cited)
            self._told.append([])
            self._texts.append(None)
        elif kind == _ADDED and self._told:
            fields["annotation_index"] = len(self._told[-1])
            self._told[-1].append(fields["annotation"])
        elif kind == "response.output_text.delta":
            return self._delta(fields)
        elif kind == "response.output_text.done":
            return self._text_done(fields)
        elif kind == "response.content_part.done" and self._told:
            fields["part"] = self._with_told(fields["part"], len(self._told) - 1)
        elif kind == "response.output_item.done" and fields["item"].get("type") == "message":
            content = fields["item"]["content"]
            told = min(len(content), len(self._told))
            parts = [self._with_told(part, index) for index, part in enumerate(content[:told])]
            cites = self._content[fields["item"].get("id")] = [*parts, *content[told:]]
            fields["item"] = {**fields["item"], "content": cites}
        return [(kind, fields)]

    def cited(self, item: Item) -> Item:
        """The item as its events told it; else with what its text cites."""
        if (content := self._content.get(item.get("id"))) is not None:
            return {**item, "content": content}
        if item.get("type") != "message":
            return item
        return {**item, "content": [self._cited_part(part) for part in item["content"]]}

    def _delta(self, fields: dict[str, Any]) -> Iterable[Event]:
        text, found = self._cites.feed(fields["delta"])
        # What is held back, or was a mark, is no text: an event without any says nothing.
        if text or not fields["delta"]:
            yield "response.output_text.delta", {**fields, "delta": text}
        yield from self._annotated(fields, found)

    def _text_done(self, fields: dict[str, Any]) -> Iterable[Event]:
        text, found = self._cites.finish()
        if text:
            about = {name: fields[name] for name in ("item_id", "output_index", "content_index")}
            yield "response.output_text.delta", {**about, "delta": text, "logprobs": []}
        yield from self._annotated(fields, found)
        if self._texts:
            self._texts[-1] = self._cites.text
            fields = {**fields, "text": self._cites.text}
        yield "response.output_text.done", fields

    def _annotated(self, fields: Mapping[str, Any], found: Sequence[Any]) -> Iterable[Event]:
        about = {name: fields[name] for name in ("item_id", "output_index", "content_index")}
        for annotation in found:
            index = len(self._told[-1])
            self._told[-1].append(annotation)
            yield _ADDED, {**about, "annotation_index": index, "annotation": annotation}

    def _with_told(self, part: Any, index: int) -> Any:
        """The part with what its events have told, and what else it says that it cites."""
        told, text = self._told[index], self._texts[index]
        if not isinstance(part, dict):
            return part
        if text is not None and part.get("type") == "output_text" and part.get("text") != text:
            part = {**part, "text": text}
        if not told:
            return part
        more = [one for one in part.get("annotations") or () if one not in told]
        return {**part, "annotations": [*told, *more]}

    def _cited_part(self, part: Any) -> Any:
        if not isinstance(part, dict) or part.get("type") != "output_text":
            return part
        cites = _TextCitations(*self._may_be_cited)
        _, found = cites.feed(part["text"])
        _, more = cites.finish()
        if not found and not more and cites.text == part["text"]:
            return part
        annotations = [*(part.get("annotations") or ()), *found, *more]
        return {**part, "text": cites.text, "annotations": annotations}

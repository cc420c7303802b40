"""Citations in what the model says after it has searched: in its items, and in their events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from router.response.hosted_events import Event
from router.tools.web_search.citations import CitationFinder, url_citations
from router.tools.web_search.outcome import WebSource

__all__ = ["Citing", "cited"]

Item = dict[str, Any]


def cited(item: Item, sources: Sequence[WebSource]) -> Item:
    """The item, with an annotation for each of the ``sources`` that its text cites."""
    if not sources or item.get("type") != "message":
        return item
    return {**item, "content": [_cited_part(part, sources) for part in item["content"]]}


def _cited_part(part: Any, sources: Sequence[WebSource]) -> Any:
    if not isinstance(part, dict) or part.get("type") != "output_text":
        return part
    found = url_citations(part["text"], sources)
    return {**part, "annotations": [*(part.get("annotations") or ()), *found]} if found else part


class Citing:
    """Adds the citations of ``sources`` to the events of one turn's items."""

    def __init__(self, sources: Sequence[WebSource]) -> None:
        self._sources = sources
        self._finder = CitationFinder(())
        self._count = 0

    def event(self, kind: str, fields: dict[str, Any]) -> Iterable[Event]:
        """What becomes of an event: itself, and those that tell of citations in it."""
        if kind == "response.content_part.added":
            self._finder, self._count = CitationFinder(self._sources), 0
        elif kind == "response.output_text.delta":
            return [(kind, fields), *self._annotated(fields, self._finder.feed(fields["delta"]))]
        elif kind == "response.output_text.done":
            return [*self._annotated(fields, self._finder.finish()), (kind, fields)]
        elif kind == "response.content_part.done":
            fields["part"] = _cited_part(fields["part"], self._sources)
        elif kind == "response.output_item.done":
            fields["item"] = cited(fields["item"], self._sources)
        return [(kind, fields)]

    def _annotated(self, fields: Mapping[str, Any], found: Sequence[Any]) -> Iterable[Event]:
        about = {name: fields[name] for name in ("item_id", "output_index", "content_index")}
        for annotation in found:
            yield (
                "response.output_text.annotation.added",
                {**about, "annotation_index": self._count, "annotation": annotation},
            )
            self._count += 1

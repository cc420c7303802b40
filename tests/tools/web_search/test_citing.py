"""Citations of pages in the events of an endpoint that cites other things itself."""

from __future__ import annotations

from typing import Any

from router.dialects.messages.decode_stream import MessagesDecoder
from router.response.hosted_events import Event
from router.tools.citing import Citing
from router.tools.web_search.outcome import WebSource
from tests.support.order import check_order
from tests.support.reading import decoded, make_builder

PAGE = WebSource(url="https://a.test/x", title="Page A")
FILE = {"type": "file_citation", "file_id": "", "index": 0, "filename": "a.pdf"}
LINK = "[A](https://a.test/x)"


def test_both_are_told_in_one_order() -> None:
    reader = MessagesDecoder(make_builder())
    for text in ("Look: ", LINK, " and this", f". {LINK}"):
        reader.text(text)
        reader.annotate(len(text), [FILE] if "this" in text else [])
    final = reader.complete()
    citing = Citing([PAGE])
    told: list[Event] = []
    for event in decoded(reader.take()):
        told += citing.event(event["type"], event)
    events = [
        {**fields, "type": kind, "sequence_number": n} for n, (kind, fields) in enumerate(told)
    ]
    final["output"] = [citing.cited(item) for item in final["output"]]
    events[-1]["response"] = final
    check_order(events)
    annotations: list[Any] = final["output"][0]["content"][0]["annotations"]
    assert [one["type"] for one in annotations] == ["url_citation", "file_citation", "url_citation"]
    places = [e["annotation_index"] for e in events if e["type"].endswith("annotation.added")]
    assert places == [0, 1, 2]

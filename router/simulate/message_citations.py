"""What a simulated model cites: the first page of each document that may be cited."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from router.simulate.fields import BadRequest, Fields

__all__ = ["citations"]


def citations(fields: Fields) -> list[dict[str, Any]]:
    """The citations of an answer to these messages; raises BadRequest as the original does: either
    all documents may be cited or none, and none where the answer has to have a form.
    """
    documents = list(_documents(fields))
    cited = [one for one in documents if (one.get("citations") or {}).get("enabled")]
    if cited and len(cited) < len(documents):
        raise BadRequest("messages: citations must be enabled for all documents or for none.")
    if cited and (fields.raw.get("output_config") or {}).get("format"):
        raise BadRequest("output_config.format: citations cannot be enabled beside it.")
    return [
        {
            "type": "page_location",
            "cited_text": "What it says.",
            "document_index": index,
            "document_title": document.get("title"),
            "start_page_number": 1,
            "end_page_number": 2,
        }
        for index, document in enumerate(cited)
    ]


def _documents(fields: Fields) -> Iterator[dict[str, Any]]:
    for message in fields.raw["messages"]:
        content = message["content"]
        for block in content if isinstance(content, list) else ():
            inner = block.get("content")
            for one in (block, *(inner if isinstance(inner, list) else ())):
                if one["type"] == "document":
                    yield one

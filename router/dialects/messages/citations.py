"""What an answer of Anthropic's Messages cites, as annotations of the Responses API.

    web_search_result_location, search_result_location    url_citation, where the source is a URL
    char_location, page_location, content_block_location  of a document that was given by its URL:
                                                          url_citation, else file_citation

An annotation has no field for which page of a document is cited, or which words. It has to name a
file by an id: one that Anthropic does not know by an id gets one of its place and title.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2s
from typing import Any, Final

from router.dialects.messages.server_tools import place_of

__all__ = ["annotation_of", "ask_for_citations", "cited_in"]

Block = dict[str, Any]

_SOURCES: Final[Mapping[str, str]] = {
    "web_search_result_location": "url",
    "search_result_location": "source",
}
"""Where citations of search results have their URL."""

_OF_DOCUMENTS: Final = ("char_location", "page_location", "content_block_location")


def annotation_of(citation: Any, documents: Sequence[str]) -> Block | None:
    """The annotation for a citation, without its place in the text; None where none fits.

    ``documents`` are the URLs of the documents of the request, empty for one that was sent itself.
    """
    if not isinstance(citation, dict):
        return None
    kind = _text(citation.get("type"))
    if kind in _SOURCES:
        return _of_url(citation.get(_SOURCES[kind]), citation.get("title"))
    index = citation.get("document_index")
    if kind not in _OF_DOCUMENTS or type(index) is not int or index < 0:
        return None
    title = _text(citation.get("document_title"))
    if index < len(documents) and documents[index]:
        return _of_url(documents[index], title)
    return {
        "type": "file_citation",
        "file_id": _text(citation.get("file_id")) or _file_id(index, title),
        "index": index,
        "filename": title,
    }


def cited_in(text: str, citations: Any, before: int) -> list[Block]:
    """The annotations of a text in a history that cites others, behind so many characters."""
    found = []
    for citation in citations if isinstance(citations, list) else ():
        annotation = annotation_of(citation, ())
        if annotation is not None and annotation["type"] == "url_citation":
            start, end = place_of(citation) or (0, len(text))
            annotation |= {"start_index": before + start, "end_index": before + end}
        if annotation is not None and annotation not in found:
            found.append(annotation)
    return found


def ask_for_citations(messages: list[dict[str, Any]]) -> tuple[str, ...]:
    """Let the documents in these messages be cited; their URLs, as for ``annotation_of``."""
    urls = []
    for document in _documents(messages):
        document["citations"] = {"enabled": True}
        urls.append(document["source"].get("url", ""))
    return tuple(urls)


def _documents(messages: list[dict[str, Any]]) -> Iterator[Block]:
    """In the order in which Anthropic counts them."""
    for message in messages:
        for block in message["content"]:
            for inner in (block, *block.get("content", ())):
                if inner["type"] == "document":
                    yield inner


def _of_url(url: Any, title: Any) -> Block | None:
    if not isinstance(url, str) or not url.lower().startswith(("https://", "http://")):
        return None
    return {"type": "url_citation", "url": url, "title": _text(title) or url}


def _file_id(index: int, title: str) -> str:
    name = f"{index}.{title}".encode("utf-8", "surrogatepass")
    return "file_" + blake2s(name, digest_size=12).hexdigest()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""

"""A request's tool of type ``file_search``: what a model is offered, and what becomes of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import orjson

from router.dialects.hosted_items import FILE_SEARCH, QUOTED_FILES, searched_queries
from router.errors import RouterError
from router.tools.file_search.citations import FileSource, mark_of
from router.tools.file_search.options import FileSearchOptions
from router.tools.hosted import HostedCall, ToolResult
from router.usage.embeddings import EmbeddingFor
from router.vector_stores.objects import VectorStore
from router.vector_stores.requests import VectorStoreSearch
from router.vector_stores.searching import FoundText
from router.vector_stores.service import VectorStores

__all__ = ["FileSearchTool"]

Item = dict[str, Any]

_RESULTS: Final = "file_search_call.results"
"""What ``include`` names for a call to tell what it has found."""

_MOST_SHOWN: Final = 200_000
"""Characters of all results of a call together."""

_MOST_QUERIES: Final = 5
_LONGEST_QUERY: Final = 4096

_FUNCTION: Final[Mapping[str, Any]] = {
    "type": "function",
    "name": FILE_SEARCH,
    "description": "Searches the user's files by meaning and by words. Search before you answer "
    "what the files may know; search again with other words where nothing fits.",
    "parameters": {
        "type": "object",
        "properties": {
            "queries": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": _MOST_QUERIES,
                "description": "What to search for, such as a question in full.",
            }
        },
        "required": ["queries"],
        "additionalProperties": False,
    },
    "strict": False,
}
_CITE: Final = (
    "Cite each result that you use by its mark, right behind what it supports, such as "
    f"{mark_of(1)}. Do not write other references."
)


class FileSearchTool:
    """Implements ``router.tools.hosted.HostedTool``, for the tool at ``index`` of a request with
    these ``options``. ``include`` and ``request``, the id, are the request's, ``owner`` who makes
    it.
    """

    kind = "file_search"
    type = "file_search_call"
    server = "router"

    def __init__(
        self,
        index: int,
        options: FileSearchOptions,
        stores: VectorStores,
        owner: str,
        request: str,
        include: Collection[str],
    ) -> None:
        self.index = index
        self._options = options
        self._stores = stores
        self._owner = owner
        self._whose = EmbeddingFor(owner, request, holds=False)
        self._shows_results = _RESULTS in include
        self._usable: list[VectorStore] = []
        self._shown = 0

    async def prepare(self) -> None:
        """See ``HostedTool.prepare``: raises NotFound for a store that the owner does not have."""
        where = f"tools[{self.index}].vector_store_ids"
        for ident in self._options.stores:
            self._usable.append(await self._stores.usable(self._owner, ident, where))

    def listed(self) -> Sequence[Item]:
        """See ``HostedTool.listed``: everybody knows what it can do."""
        return ()

    def functions(self) -> Sequence[Mapping[str, Any]]:
        """See ``HostedTool.functions``."""
        return (_FUNCTION,)

    def loaded(self) -> Sequence[Mapping[str, Any]]:
        """See ``HostedTool.loaded``: it finds no tools."""
        return ()

    def chosen(self, choice: Mapping[str, Any]) -> Sequence[str] | None:
        """See ``HostedTool.chosen``."""
        return (FILE_SEARCH,) if choice.get("type") == self.kind else None

    def needs_approval(self, call: HostedCall) -> bool:
        """See ``HostedTool.needs_approval``: it changes nothing."""
        return False

    def item(self, call: HostedCall) -> Item:
        """See ``HostedTool.item``."""
        return {"queries": _queries(call.arguments), "results": None}

    async def run(self, call: HostedCall, deadline: float) -> ToolResult:
        """See ``HostedTool.run``."""
        queries = _queries(call.arguments)
        if not queries:
            return self.failed(
                call, 'Give "queries": a list of texts to search for.', "invalid_arguments"
            )
        if not self._usable:
            return ToolResult("There are no files to search.", self._fields(queries, []))
        search = VectorStoreSearch(
            tuple(queries), self._options.limit, self._options.condition, self._options.ranking
        )
        try:
            async with asyncio.timeout_at(deadline):
                found = await self._stores.search(self._usable, search, self._whose)
        except RouterError as error:
            return self.failed(call, error.message, error.code or "search_failed")
        first, self._shown = self._shown + 1, self._shown + len(found)
        sources = tuple(
            FileSource(number, one.file, one.filename) for number, one in enumerate(found, first)
        )
        text = _told(queries, found, first)
        return ToolResult(text, self._fields(queries, found), files=sources)

    def failed(self, call: HostedCall, message: str, error: str) -> ToolResult:
        """See ``HostedTool.failed``."""
        return ToolResult(f"Error: {message}", {"queries": _queries(call.arguments)}, error)

    def _fields(self, queries: list[str], found: Sequence[FoundText]) -> Item:
        results = [
            {
                "file_id": one.file,
                "filename": one.filename,
                "score": one.score,
                "attributes": dict(one.attributes),
                "text": one.text,
            }
            for one in found
        ]
        return {"queries": queries, "results": results if self._shows_results else None}


def _queries(arguments: str) -> list[str]:
    """What a model's call searches for; nothing where it is no valid call."""
    try:
        given = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return []
    asked = searched_queries(given)
    return [query[:_LONGEST_QUERY] for query in asked if query.strip()][:_MOST_QUERIES]


def _told(queries: Sequence[str], found: Sequence[FoundText], first: int) -> str:
    asked = "; ".join(queries)
    if not found:
        return f"Nothing was found for: {asked}\nTry other words."
    left = _MOST_SHOWN
    parts: list[str] = []
    for number, one in enumerate(found, first):
        parts.append(f"{mark_of(number)} {one.filename}\n{one.text[:left]}")
        left -= len(one.text)
        if left <= 0:
            break
    shown = "\n\n".join(parts)
    return f"Results for: {asked}\n{QUOTED_FILES}\n\n{shown}\n\n{_CITE}"

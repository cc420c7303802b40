"""How much of what is asked for is found in a vector store: ``python -m tests.bench.file_search``.

The documents are docstrings of Python's standard library and of numpy without their first
paragraphs; these are the questions. So each question has one document that answers it, written by
the same people in other words. Searched by words alone, by vectors alone, and by both. Needs the
local embedder (``pointsman embedder install``) and takes some minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import pkgutil
import random
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

from router.settings.vector_stores import VectorStoresSettings
from router.vector_stores.chunking import AUTO, chunks
from router.vector_stores.embedding import PieceEmbedder, embedder_for
from router.vector_stores.index import ChunkIndex
from router.vector_stores.records import StoreRecords
from router.vector_stores.requests import RankingOptions, VectorStoreSearch
from router.vector_stores.searching import StoreSearcher

_SHORTEST: Final = 200
_FEWEST_WORDS: Final = 5
_STORE: Final = "vs_bench"
_SKIPPED: Final = re.compile(r"(^|\.)(_|test|idlelib|antigravity|this$|lib2to3|turtledemo|tkinter)")
_SIGNATURE: Final = re.compile(r"[\w.]+\(.*\)( -> .*)?")
_WAYS: Final = {
    "words alone": RankingOptions(embedding_weight=0.0),
    "vectors alone": RankingOptions(text_weight=0.0),
    "both, fused": RankingOptions(),
}


@dataclass(frozen=True, slots=True)
class BenchDocument:
    """A docstring: its first paragraph, and the rest."""

    name: str
    question: str
    text: str


class EveryFile:
    """Stands for the records: every file is there."""

    async def names(self, store: str, files: Collection[str]) -> dict[str, str]:
        return {file: file for file in files}


def documents() -> list[BenchDocument]:
    """All docstrings that have a question and a text, each text once."""
    found: dict[str, BenchDocument] = {}
    for name, given in _docstrings():
        first, _, rest = _without_signature(inspect.cleandoc(given)).partition("\n\n")
        question, text = " ".join(first.split()), rest.strip()
        few = len(question.split()) < _FEWEST_WORDS or len(text) < _SHORTEST
        if not few and question not in " ".join(text.split()):
            found.setdefault(text, BenchDocument(name, question, text))
    once = {one.question: one for one in found.values()}
    return sorted(once.values(), key=lambda one: one.name)


def _without_signature(text: str) -> str:
    """What is compiled often begins with how it is called."""
    first, _, rest = text.partition("\n\n")
    return rest if _SIGNATURE.fullmatch(" ".join(first.split())) else text


def _docstrings() -> Iterator[tuple[str, str]]:
    for module in _modules():
        for name, thing in sorted(vars(module).items()):
            if name.startswith("_") or isinstance(thing, ModuleType):
                continue
            yield from _of(f"{module.__name__}.{name}", thing)
            if inspect.isclass(thing):
                for member, inner in sorted(vars(thing).items()):
                    if not member.startswith("_"):
                        yield from _of(f"{module.__name__}.{name}.{member}", inner)


def _of(name: str, thing: Any) -> Iterator[tuple[str, str]]:
    text = getattr(thing, "__doc__", None)
    if isinstance(text, str) and callable(thing):
        yield name, text


def _modules() -> Iterator[ModuleType]:
    names = {name for name in sys.stdlib_module_names if not _SKIPPED.search(name)}
    numpy = importlib.import_module("numpy")
    names |= {
        f"numpy.{found.name}"
        for found in pkgutil.iter_modules(numpy.__path__)
        if not _SKIPPED.search(found.name) and found.name not in ("conftest", "f2py", "distutils")
    }
    for name in sorted({*names, "numpy"}):
        try:
            yield importlib.import_module(name)
        except (ImportError, OSError):
            continue  # another system's


async def fill(index: ChunkIndex, embedder: PieceEmbedder, corpus: Sequence[BenchDocument]) -> None:
    """Ingest the documents."""
    for document in corpus:
        pieces = await embedder.embed(chunks(document.text, AUTO))
        await index.replace(_STORE, document.name, {}, embedder.name, pieces)


async def places(
    searcher: StoreSearcher, asked: Sequence[BenchDocument], ranking: RankingOptions, most: int
) -> list[int]:
    """At which place each question's document was found, from 1; 0 where it was not."""
    found = []
    for document in asked:
        search = VectorStoreSearch((document.question,), most, ranking=ranking)
        results = [one.file for one in await searcher.search([_STORE], search)]
        files = list(dict.fromkeys(results))
        found.append(files.index(document.name) + 1 if document.name in files else 0)
    return found


def recall(found: Sequence[int], most: int) -> float:
    """The share of questions whose document is among the first ``most``."""
    return sum(0 < place <= most for place in found) / len(found)


async def compare(index: ChunkIndex, count: int, questions: int) -> None:
    """Ingest, search in every way, and print a table."""
    corpus = documents()
    random.Random(1).shuffle(corpus)
    corpus = corpus[:count]
    asked = corpus[:questions]
    embedder = embedder_for(VectorStoresSettings(), lambda _: None)
    await index.start()
    try:
        began = time.perf_counter()
        await fill(index, embedder, corpus)
        print(f"{len(corpus)} documents in {time.perf_counter() - began:.0f} s")
        searcher = StoreSearcher(index, embedder, cast(StoreRecords, EveryFile()))
        print(f"| {len(asked)} questions | first | first 5 | first 10 | ms per search |")
        print("|---|---|---|---|---|")
        for name, ranking in _WAYS.items():
            began = time.perf_counter()
            cells = []
            for most in (1, 5, 10):
                found = await places(searcher, asked, ranking, most)
                cells.append(f"{recall(found, most):.0%}")
            each = (time.perf_counter() - began) / len(asked) / len(cells) * 1000
            print(f"| {name} | {' | '.join(cells)} | {each:.1f} |")
    finally:
        await index.remove(_STORE)
        await index.close()
        await embedder.close()


def main() -> None:
    """Compare on SQLite, or on the PostgreSQL database that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1500)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--postgresql", metavar="URL", help="a database with pgvector")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="pointsman-") as directory:
        index: ChunkIndex
        if asked.postgresql:
            from router.vector_stores.postgres_index import PostgresIndex

            index = PostgresIndex(asked.postgresql)
        else:
            from router.vector_stores.sqlite_index import SqliteIndex

            index = SqliteIndex(str(Path(directory) / "index"))
        asyncio.run(compare(index, asked.documents, asked.questions))


if __name__ == "__main__":
    main()

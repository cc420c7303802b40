"""The local embedder: its vectors, what it refuses, and how it behaves beside an event loop."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

pytest.importorskip("onnxruntime", reason="the extra `semantic` is not installed")

import numpy as np

from cache.embedder import EmbedderError
from cache.embedders.graph import WINDOW
from cache.embedders.installed import VOCABULARY
from cache.embedders.minilm import MiniLm
from cache.embedders.source import read_wheel
from cache.embedders.weights import read_tensors
from cache.embedders.wordpiece import WordPieces
from tests.support.minilm import minilm_directory, minilm_wheel
from tests.support.minilm_reference import reference_vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cache.embedder import Vectors

__all__ = ["minilm_directory", "minilm_wheel"]

FORMS = (
    "How do I {}?",
    "What is the easiest way to {} when there is no time, no money and nobody to ask?",
    "My neighbour says that nobody can {}; is that true, or did he just never try?",
    "Explain to a ten-year-old, in three short steps, how to {}.",
    "{}",
)
DOINGS = (
    "reset a forgotten password", "bake bread without yeast", "replace a bicycle chain",
    "apply for a visa", "convert miles to kilometres", "cancel a gym membership",
    "train a puppy not to bite", "remove red wine from a carpet", "grow tomatoes on a balcony",
    "back up a laptop", "split a bill among 5 friends", "write a letter of complaint",
    "file a tax return", "calm a crying baby", "tune a guitar by ear", "repair a leaking tap",
    "choose a running shoe", "sort a list of 1,000,000 numbers", "find the area of a circle",
    "boil an egg", "read a nautical chart", "learn the Greek alphabet", "knit a scarf",
    "prove that the square root of 2 is irrational", "negotiate a higher salary",
    "renew a passport", "measure blood pressure at home", "paint a wooden fence",
    "mount a network drive", "descale a coffee machine", "pack for a week in Iceland",
    "invest $500 a month", "get rid of moths", "set up a compost heap", "sharpen a knife",
    "pronounce the name of a Welsh town", "teach a parrot to whistle", "sail against the wind",
    "write unit tests for a parser", "photograph the Milky Way",
)  # fmt: skip
SENTENCES = [form.format(doing) for doing, form in itertools.product(DOINGS, FORMS)]


@pytest_asyncio.fixture
async def model(minilm_directory: Path) -> AsyncIterator[MiniLm]:
    embedder = MiniLm(minilm_directory)
    await embedder.start()
    yield embedder
    await embedder.close()


async def test_vectors_are_those_of_the_float_model(model: MiniLm, minilm_wheel: Path) -> None:
    source = read_wheel(minilm_wheel)
    weights = read_tensors(source.weights)
    pieces = WordPieces(source.vocabulary.decode(), WINDOW)
    exact = reference_vectors(weights, [pieces.ids(text) for text in SENTENCES])

    quantised = await model.embed(SENTENCES)

    cosines = (exact * quantised).sum(axis=1)
    assert len(SENTENCES) == 200
    assert cosines.mean() >= 0.995
    assert cosines.min() >= 0.98
    # Which texts are near each other stays the same.
    exact_ranks, ranks = (_neighbours(vectors) for vectors in (exact, quantised))
    assert np.corrcoef(exact_ranks, ranks)[0, 1] >= 0.99


def _neighbours(vectors: Vectors) -> NDArray[np.int64]:
    """The rank of the cosine of each pair among those of all pairs."""
    cosines = (vectors @ vectors.T)[np.triu_indices(len(vectors), 1)]
    return cosines.argsort().argsort()


# The cosines of the float model; the second is in the documentation of sentence-transformers.
@pytest.mark.parametrize(
    ("one", "other", "cosine"),
    [
        ("How do I reset my password?", "I forgot my password, how can I change it?", 0.894),
        ("A man is eating food.", "A man is eating a piece of bread.", 0.755),
        ("How tall is Mount Everest?", "Who painted the Mona Lisa?", 0.146),
        ("Is coffee good for you?", "Is coffee bad for you?", 0.936),
    ],
)
async def test_known_cosines(model: MiniLm, one: str, other: str, cosine: float) -> None:
    first, second = await model.embed([one, other])
    assert float(first @ second) == pytest.approx(cosine, abs=0.03)


async def test_rows_are_of_length_one(model: MiniLm) -> None:
    vectors = await model.embed(["a", "What is the capital of France?", "word " * 250])
    assert vectors.shape == (3, model.dimensions)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)


async def test_no_text_is_no_row(model: MiniLm) -> None:
    assert (await model.embed([])).shape == (0, model.dimensions)


async def test_a_vector_does_not_depend_on_its_neighbours(model: MiniLm) -> None:
    alone = [(await model.embed([text]))[0] for text in SENTENCES[:20]]
    together = await model.embed(SENTENCES[:20])
    assert np.array_equal(alone, together)


async def test_another_session_and_thread_count_give_the_same_vectors(
    model: MiniLm, minilm_directory: Path
) -> None:
    other = MiniLm(minilm_directory, threads=2)
    await other.start()
    try:
        vectors = await other.embed(SENTENCES[:20])
    finally:
        await other.close()
    assert np.allclose(vectors, await model.embed(SENTENCES[:20]), atol=1e-6)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("What is the capital of France?", None),
        ("Is “that” 20 € – or £15…?", None),
        ("word " * (WINDOW - 2), None),
        ("word " * (WINDOW - 1), "too_long"),
        ("When is Zoë's birthday?", "unknown_tokens"),
        ("Is this fine? \N{THUMBS UP SIGN}", "unknown_tokens"),
    ],
)
async def test_refused(model: MiniLm, text: str, reason: str | None) -> None:
    assert model.refuses(text) == reason
    if reason is None:
        assert len(await model.embed([text])) == 1
    else:
        with pytest.raises(EmbedderError, match=reason) as caught:
            await model.embed(["Is this embedded?", text])
        assert text not in str(caught.value)


async def test_the_loop_turns_while_a_text_is_embedded(model: MiniLm) -> None:
    embedding = asyncio.ensure_future(model.embed(["word " * 250]))
    turns = 0
    while not embedding.done():
        await asyncio.sleep(0)
        turns += 1
    # Were it done on the loop, it would be over in the first turns.
    assert turns > 5
    assert len(embedding.result()) == 1


async def test_more_calls_than_may_wait_are_refused(model: MiniLm) -> None:
    calls = [model.embed([text]) for text in SENTENCES[:70]]
    results = await asyncio.gather(*calls, return_exceptions=True)
    refused = [result for result in results if isinstance(result, BaseException)]
    assert len(refused) == 6
    assert all(isinstance(error, EmbedderError) for error in refused)
    assert len(await model.embed(["And then?"])) == 1


async def test_a_call_that_is_cancelled_leaves_room(model: MiniLm) -> None:
    for _ in range(3):
        calls = [asyncio.ensure_future(model.embed(SENTENCES[:20])) for _ in range(64)]
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    assert len(await model.embed(["And then?"])) == 1


async def test_closing_ends_the_calls_that_wait(minilm_directory: Path) -> None:
    embedder = MiniLm(minilm_directory)
    await embedder.start()
    calls = [asyncio.ensure_future(embedder.embed(SENTENCES[:40])) for _ in range(10)]
    await asyncio.sleep(0)
    await embedder.close()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, EmbedderError) for result in results)
    with pytest.raises(EmbedderError, match="closed"):
        await embedder.embed(["And now?"])


async def test_what_is_not_installed_says_what_to_do(tmp_path: Path) -> None:
    embedder = MiniLm(tmp_path)
    with pytest.raises(EmbedderError, match="run `pointsman embedder install`"):
        await embedder.start()
    with pytest.raises(EmbedderError, match="not started"):
        embedder.refuses("What is the capital of France?")
    with pytest.raises(EmbedderError, match="not started"):
        await embedder.embed(["What is the capital of France?"])
    await embedder.close()


async def test_a_damaged_file_is_not_loaded(minilm_directory: Path, tmp_path: Path) -> None:
    shutil.copytree(minilm_directory, tmp_path, dirs_exist_ok=True)
    vocabulary = tmp_path / VOCABULARY
    vocabulary.write_bytes(vocabulary.read_bytes().replace(b"\nparis\n", b"\nlyons\n"))
    embedder = MiniLm(tmp_path)
    with pytest.raises(EmbedderError, match=r"vocab\.txt is damaged .* embedder install"):
        await embedder.start()
    await embedder.close()

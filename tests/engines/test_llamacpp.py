"""llama.cpp's own server behind the router: what it answers is what a client gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from router.settings.schema import Dialect
from tests.engines.stand import Engine, Own, body_for, in_front_of
from tests.matrix.asking import POSTED, Ask
from tests.matrix.said import timeless

pytestmark = pytest.mark.integration

MOST = 12
QUESTION = Ask("Say hello")
CHATS = [name for name in POSTED if name != "Completions"]
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
LONG = "word " * 3000


@pytest.fixture(scope="module")
def own(llama: Engine) -> Own:
    """What the engine itself answers to ``QUESTION``."""
    return llama.answer(QUESTION.text, MOST, logprobs=True, top_logprobs=2)


@STREAMED
@pytest.mark.parametrize("surface", CHATS)
async def test_every_api_says_what_the_engine_says(
    llama: Engine, own: Own, dialect: Dialect, surface: str, stream: bool
) -> None:
    async with in_front_of(llama, dialect) as behind:
        said = await behind.ask(surface, Ask(QUESTION.text, stream=stream), MOST)
    assert said.text == own.text
    assert said.usage == own.usage
    # Its own Responses API says "completed" of answers that it has cut.
    assert said.cut == (dialect == "chat" or surface == "Chat Completions")


@pytest.mark.parametrize("most", [MOST, 1])
@pytest.mark.parametrize("surface", POSTED)
async def test_what_is_put_together_of_a_stream_is_the_whole_answer(
    llama: Engine, dialect: Dialect, surface: str, most: int
) -> None:
    # Its own Responses API has no log probabilities.
    body = body_for(surface, replace(QUESTION, logprobs=dialect == "chat"), most)
    answers = []
    for put_together in (False, True):
        async with in_front_of(llama, dialect, stream_whole_answers=put_together) as behind:
            reply = await behind.post(POSTED[surface], body)
            assert reply.status == 200, reply.body
            answers.append(timeless(reply.json))
    assert answers[0] == answers[1]


@STREAMED
async def test_completions_are_passed_on(llama: Engine, stream: bool) -> None:
    body = {"prompt": "one two three", "max_tokens": MOST, "temperature": 0}
    answer = llama.ask("/v1/completions", body)
    async with in_front_of(llama, "chat") as behind:
        said = await behind.ask("Completions", Ask("one two three", stream=stream), MOST)
    assert said.text == answer["choices"][0]["text"]
    assert said.usage == (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"])


@STREAMED
@pytest.mark.parametrize("surface", CHATS)
async def test_a_schema_is_kept_and_the_answer_ends_by_itself(
    llama: Engine, surface: str, stream: bool
) -> None:
    fields: dict[str, dict[str, Any]] = {
        "Responses": {
            "text": {"format": {"type": "json_schema", "name": "trip", "schema": SCHEMA}}
        },
        "Chat Completions": {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "trip", "schema": SCHEMA},
            }
        },
        "Anthropic Messages": {
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}
        },
        "Ollama chat": {"format": SCHEMA},
        "Ollama generate": {"format": SCHEMA},
    }
    ask = Ask("Name a city as JSON", stream=stream)
    async with in_front_of(llama, "chat") as behind:
        said = await behind.ask(surface, ask, 64, **fields[surface])
    assert said.text.replace(" ", "").replace("\n", "") in (
        '{"city":"Paris"}',
        '{"city":"Rome"}',
    )
    assert not said.cut


@STREAMED
@pytest.mark.parametrize("surface", ["Responses", "Chat Completions", "Ollama chat"])
async def test_logprobs_are_the_engine_s(
    llama: Engine, own: Own, surface: str, stream: bool
) -> None:
    async with in_front_of(llama, "chat") as behind:
        ask = Ask(QUESTION.text, stream=stream, logprobs=True)
        said = await behind.ask(surface, ask, MOST)
    assert said.logprobs == own.logprobs


async def test_embeddings_are_the_engine_s(embedder: Engine) -> None:
    texts = ["hello there", "two"]
    answer = embedder.ask("/v1/embeddings", {"input": texts})
    wanted = [entry["embedding"] for entry in answer["data"]]
    async with in_front_of(embedder, "chat") as behind:
        openai = await behind.post("/v1/embeddings", {"model": "small", "input": texts})
        ollama = await behind.post("/api/embed", {"model": "small", "input": texts})
    assert openai.status == 200, openai.body
    assert [entry["embedding"] for entry in openai.json["data"]] == wanted
    assert openai.json["usage"]["prompt_tokens"] == answer["usage"]["prompt_tokens"]
    assert ollama.status == 200, ollama.body
    assert len(ollama.json["embeddings"]) == 2
    for got, right in zip(ollama.json["embeddings"], wanted, strict=True):
        assert got == pytest.approx(right, rel=1e-5, abs=1e-6)


@STREAMED
async def test_a_refusal_keeps_its_status_and_its_words(
    llama: Engine, dialect: Dialect, stream: bool
) -> None:
    wrong = {"grammar": "root ::= ("}  # an extension of the engine's
    async with in_front_of(llama, dialect) as behind:
        for surface in ("Responses", "Chat Completions"):
            body = body_for(surface, Ask(QUESTION.text, stream=stream), MOST) | wrong
            reply = await behind.post(POSTED[surface], body)
            assert reply.status == 400, (surface, reply.body)
            assert "grammar" in reply.error["message"]
            assert reply.error["type"] == "invalid_request_error"


@STREAMED
@pytest.mark.parametrize("surface", ["Responses", "Chat Completions"])
async def test_what_does_not_fit_its_context_is_refused_as_that(
    llama: Engine, dialect: Dialect, surface: str, stream: bool
) -> None:
    async with in_front_of(llama, dialect) as behind:
        body = body_for(surface, Ask(LONG, stream=stream), MOST)
        reply = await behind.post(POSTED[surface], body)
    assert reply.status == 400, reply.body
    assert reply.error["code"] == "context_length_exceeded"


async def test_a_history_is_cut_to_the_context_that_the_engine_states(llama: Engine) -> None:
    turn = [
        {"role": "user", "content": "word " * 200},
        {"role": "assistant", "content": "word " * 50},
    ]
    async with in_front_of(llama, "chat") as behind:
        body = body_for("Responses", QUESTION, MOST)
        body |= {"input": [*turn * 8, *body["input"]], "truncation": "auto"}
        reply = await behind.post("/v1/responses", body)
    assert reply.status == 200, reply.body
    assert int(reply.headers["X-Pointsman-Truncated"]) > 0


@STREAMED
@pytest.mark.parametrize("surface", ["Responses", "Chat Completions", "Anthropic Messages"])
async def test_a_client_s_name_for_the_model_is_the_answer_s(
    llama: Engine, dialect: Dialect, surface: str, stream: bool
) -> None:
    async with in_front_of(llama, dialect) as behind:
        body = body_for(surface, Ask(QUESTION.text, stream=stream), 2)
        reply = await behind.post(POSTED[surface], body)
    assert b'"model":"small"' in reply.body
    assert llama.model.encode() not in reply.body

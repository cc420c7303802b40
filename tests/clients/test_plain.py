"""OpenAI's own client: embeddings and legacy completions on every dialect."""

from __future__ import annotations

import math
import struct
from base64 import b64decode
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from router.settings.schema import Dialect
from tests.support.fleet import MODELS, OPENAI_STYLE, http_client, routed, simulated

TEXTS = ["a red cat", "the red cat", "quantum chromodynamics"]


def near(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


ANY = pytest.mark.parametrize("model", [MODELS[dialect] for dialect in OPENAI_STYLE])


@ANY
async def test_embeddings_in_either_form(client: AsyncOpenAI, model: str) -> None:
    packed = await client.embeddings.create(model=model, input=TEXTS)  # base64 on the wire
    plain = await client.embeddings.create(model=model, input=TEXTS, encoding_format="float")
    vectors = [one.embedding for one in packed.data]
    assert vectors == [one.embedding for one in plain.data]
    assert [one.index for one in packed.data] == [0, 1, 2]
    assert packed.usage == plain.usage
    assert packed.usage.prompt_tokens == packed.usage.total_tokens > 3
    assert all(math.isclose(near(v, v), 1, abs_tol=1e-5) for v in vectors)
    assert near(vectors[0], vectors[1]) > near(vectors[0], vectors[2])
    alone = await client.embeddings.create(model=model, input=TEXTS[0], dimensions=8)
    assert len(alone.data[0].embedding) == 8


@ANY
async def test_base64_is_32_bits_the_lowest_byte_first(base_url: str, model: str) -> None:
    from tests.clients.conftest import KEY

    body: dict[str, Any] = {"model": model, "input": "hi"}
    headers = {"Authorization": f"Bearer {KEY}"}
    async with http_client(headers=headers) as http:
        async with http.post(f"{base_url}/v1/embeddings", json=body) as answer:
            numbers = (await answer.json())["data"][0]["embedding"]
        body["encoding_format"] = "base64"
        async with http.post(f"{base_url}/v1/embeddings", json=body) as answer:
            data = b64decode((await answer.json())["data"][0]["embedding"])
    assert list(struct.unpack(f"<{len(numbers)}f", data)) == numbers


async def test_the_same_model_on_two_dialects_has_the_same_vectors(client: AsyncOpenAI) -> None:
    served = set()
    vectors = []
    for _ in range(8):
        raw = await client.embeddings.with_raw_response.create(model="sim-embed", input="hi")
        served.add(raw.headers["X-Pointsman-Endpoint"])
        vectors.append(raw.parse().data[0].embedding)
    assert served <= {"chat", "ollama"}
    assert all(vector == vectors[0] for vector in vectors)


async def test_what_is_wrong_is_said(client: AsyncOpenAI) -> None:
    with pytest.raises(BadRequestError) as caught:
        await client.embeddings.create(model="sim-embed", input=["a", ""])
    assert (caught.value.param, caught.value.code) == ("input[1]", "empty_string")
    with pytest.raises(NotFoundError):
        await client.embeddings.create(model="no-such-model", input="a")
    with pytest.raises(BadRequestError) as caught:
        await client.embeddings.create(model="sim-embed", input="a", dimensions=1000)
    assert caught.value.param in ("dimensions", None)


@ANY
async def test_completions(client: AsyncOpenAI, model: str) -> None:
    whole = await client.completions.create(model=model, prompt="count to 3", max_tokens=50)
    assert [(one.text, one.finish_reason) for one in whole.choices] == [("1, 2, 3", "stop")]
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 5
    cut = await client.completions.create(
        model=model, prompt=["count to 30", "count to 2"], n=2, echo=True, max_tokens=4
    )
    assert [one.index for one in cut.choices] == [0, 1, 2, 3]
    assert cut.choices[0].text.startswith("count to 30")
    assert cut.choices[0].finish_reason == "length"


@ANY
@pytest.mark.parametrize("wants_usage", [True, False])
async def test_completions_as_a_stream(client: AsyncOpenAI, model: str, wants_usage: bool) -> None:
    options: Any = {"stream_options": {"include_usage": True}} if wants_usage else {}
    stream = await client.completions.create(
        model=model, prompt=["count to 2", "count to 3"], max_tokens=50, stream=True, **options
    )
    texts = ["", ""]
    usage = []
    async for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
        if chunk.usage is not None:
            usage.append(chunk.usage)
    assert texts == ["1, 2", "1, 2, 3"]
    assert [one.completion_tokens for one in usage] == ([8] if wants_usage else [])


@pytest.mark.parametrize("dialect", OPENAI_STYLE)
async def test_rerankings(dialect: Dialect) -> None:
    body = {"model": "m", "query": "a red cat", "documents": TEXTS[::-1], "top_n": 2}
    async with (
        simulated(dialect, models=["m"]) as endpoints,
        routed(*endpoints) as url,
        http_client() as http,
    ):
        for path in ("/v1/rerank", "/rerank", "/v2/rerank"):
            async with http.post(url + path, json={**body, "return_documents": True}) as answer:
                told = await answer.json()
            if dialect == "ollama":
                assert (answer.status, told["error"]["code"]) == (501, "not_supported")
                continue
            assert [one["index"] for one in told["results"]] == [2, 1]
            assert told["results"][0]["document"] == {"text": TEXTS[0]}
            assert told["usage"]["total_tokens"] > 0

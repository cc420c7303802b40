"""OpenAI's own client, blocking and not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from openai import AsyncOpenAI, NotFoundError, OpenAI

from tests.files.samples import docx
from tests.support.described import KEY, serving
from tests.support.processes import MODELS


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(files={"path": str(tmp_path_factory.mktemp("files"))}) as address:
        yield address + "/v1"


@pytest.fixture
def client(url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
async def async_client(url: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
        yield client


def test_all_of_it(client: OpenAI, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Some notes.")
    files = [client.files.create(file=path, purpose="user_data") for _ in range(3)]
    file = client.files.create(
        file=("a.jsonl", b"{}"),
        purpose="batch",
        expires_after={"anchor": "created_at", "seconds": 3600},
    )

    assert client.files.retrieve(files[0].id) == files[0]
    assert (files[0].filename, files[0].bytes, files[0].status) == ("notes.txt", 11, "processed")
    assert file.expires_at == file.created_at + 3600
    assert client.files.content(files[0].id).text == "Some notes."
    assert [one.id for one in client.files.list(limit=1, purpose="user_data")] == [
        one.id for one in reversed(files)
    ]
    for one in client.files.list(limit=2):  # what is paged through may be deleted meanwhile
        assert client.files.delete(one.id).deleted
    assert list(client.files.list()) == []
    with pytest.raises(NotFoundError, match="not found"):
        client.files.retrieve(file.id)


async def test_without_blocking(async_client: AsyncOpenAI) -> None:
    files = await asyncio.gather(
        *(
            async_client.files.create(file=(f"{n}.txt", b"x" * 300_000), purpose="assistants")
            for n in range(4)
        )
    )
    first = await async_client.files.wait_for_processing(files[0].id)

    assert first == files[0]
    listed = {one.id async for one in async_client.files.list(limit=3, order="asc")}
    assert listed == {file.id for file in files}
    content = await async_client.files.content(files[1].id)
    assert content.content == b"x" * 300_000
    for file in files:
        assert (await async_client.files.delete(file.id)).deleted


@pytest.mark.parametrize("model", MODELS.values())
async def test_a_file_in_a_request(async_client: AsyncOpenAI, model: str) -> None:
    file = await async_client.files.create(
        file=("moon.docx", docx("The moon is made of cheese.")), purpose="user_data"
    )
    answer = await async_client.responses.create(
        model=model,
        input=[
            {
                "role": "user",
                "content": [
                    {"type": "input_file", "file_id": file.id},
                    {"type": "input_text", "text": "What is the moon made of?"},
                ],
            }
        ],
    )
    assert answer.status == "completed"
    assert answer.output_text
    await async_client.files.delete(file.id)

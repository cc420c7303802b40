"""Containers and their files, as OpenAI's own client uses them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
from openai import AsyncOpenAI

from router.containers.local.runner import LocalRunner
from router.containers.runner import PIECE, ContainerRef
from router.containers.service import Containers
from tests.support.fleet import routed
from tests.support.sandboxes import needs_sandboxes
from tests.support.state import database_url
from tests.support.waiting import until

__all__ = ["database_url"]

pytestmark = [pytest.mark.integration, needs_sandboxes]

ENDPOINT = {"name": "one", "url": "http://127.0.0.1:1/v1", "dialect": "chat", "models": ["m"]}
KEYS = [{"name": "team-a", "key": "sk-a"}, {"name": "team-b", "key": "sk-b"}]


@pytest.fixture
async def url(database_url: str, tmp_path: Path) -> AsyncIterator[str]:
    """A router with containers, and files, on each kind of database."""
    code = {"local": {"disk_mb": 16, "max_containers": 4}, "max_per_key": 3, "max_file_mb": 4}
    async with routed(
        ENDPOINT,
        auth={"keys": KEYS},
        state={"url": database_url},
        files={"path": str(tmp_path / "files")},
        tools={"code_interpreter": code},
    ) as base:
        yield f"{base}/v1"


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=url, api_key="sk-a", max_retries=0) as made:
        yield made


@pytest.fixture
async def stranger(url: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=url, api_key="sk-b", max_retries=0) as made:
        yield made


async def test_containers_and_their_files(client: AsyncOpenAI) -> None:
    made = await client.containers.create(
        name="mine",
        memory_limit="1g",
        expires_after={"anchor": "last_active_at", "minutes": 5},
    )
    assert made.status == "running"
    assert (made.object, made.name, made.memory_limit) == ("container", "mine", "1g")
    assert made.expires_after is not None
    assert made.expires_after.minutes == 5
    assert (await client.containers.retrieve(made.id)).id == made.id
    other = await client.containers.create(name="other")
    assert [one.id async for one in client.containers.list()] == [other.id, made.id]
    assert [one.id async for one in client.containers.list(name="mine", limit=1)] == [made.id]

    files = client.containers.files
    data = bytes(range(256)) * 8000  # more than one piece
    put = await files.create(made.id, file=("../../my data.bin", data))
    assert (put.path, put.bytes, put.source) == ("/mnt/data/my data.bin", len(data), "user")
    await files.create(made.id, file=("empty.txt", b""))
    assert [one.path async for one in files.list(made.id, limit=1, order="asc")] == [
        "/mnt/data/empty.txt",
        "/mnt/data/my data.bin",
    ]
    assert (await files.retrieve(put.id, container_id=made.id)).id == put.id
    content = await files.content.retrieve(put.id, container_id=made.id)
    assert content.read() == data
    await files.delete(put.id, container_id=made.id)
    with pytest.raises(openai.NotFoundError):
        await files.retrieve(put.id, container_id=made.id)

    await client.containers.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        await client.containers.retrieve(made.id)


async def test_uploaded_files_are_copied(client: AsyncOpenAI) -> None:
    first = await client.files.create(file=("a.csv", b"1,2"), purpose="assistants")
    second = await client.files.create(file=("a.csv", b"3,4"), purpose="assistants")
    made = await client.containers.create(name="mine", file_ids=[first.id])
    added = await client.containers.files.create(made.id, file_id=second.id)
    assert added.path == f"/mnt/data/{second.id}-a.csv"
    content = await client.containers.files.content.retrieve(added.id, container_id=made.id)
    assert content.read() == b"3,4"
    with pytest.raises(openai.BadRequestError) as caught:
        await client.containers.files.create(made.id, file_id="file-none")
    assert caught.value.param == "file_id"


async def test_another_keys_containers_and_files_are_not_there(
    client: AsyncOpenAI, stranger: AsyncOpenAI
) -> None:
    made = await client.containers.create(name="mine")
    file = await client.containers.files.create(made.id, file=("a.txt", b"a"))
    assert (await stranger.containers.list()).data == []
    theirs = await stranger.containers.create(name="theirs")
    calls: list[Any] = [
        stranger.containers.retrieve(made.id),
        stranger.containers.delete(made.id),
        stranger.containers.files.list(made.id),
        stranger.containers.files.create(made.id, file=("b.txt", b"b")),
        stranger.containers.files.retrieve(file.id, container_id=made.id),
        stranger.containers.files.retrieve(file.id, container_id=theirs.id),
        stranger.containers.files.content.retrieve(file.id, container_id=made.id),
        stranger.containers.files.delete(file.id, container_id=made.id),
    ]
    for call in calls:
        with pytest.raises(openai.NotFoundError):
            await call
    tool: Any = {"type": "code_interpreter", "container": made.id}
    with pytest.raises(openai.BadRequestError):
        await stranger.responses.create(model="m", input="Go", tools=[tool])
    mine = await client.files.create(file=("a.csv", b"1,2"), purpose="assistants")
    with pytest.raises(openai.BadRequestError):
        await stranger.containers.files.create(theirs.id, file_id=mine.id)
    assert [one.path async for one in client.containers.files.list(made.id)] == ["/mnt/data/a.txt"]


async def test_there_are_so_many_and_no_more(client: AsyncOpenAI) -> None:
    made = [await client.containers.create(name=str(n)) for n in range(3)]
    with pytest.raises(openai.RateLimitError) as caught:
        await client.containers.create(name="one too many")
    assert caught.value.code == "too_many_containers"
    await client.containers.delete(made[0].id)
    await client.containers.create(name="again")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "name"),
        ({"name": 1}, "name"),
        ({"name": "x" * 257}, "name"),
        ({"name": "x", "memory_limit": "2g"}, "memory_limit"),
        ({"name": "x", "memory_limit": "64g"}, "memory_limit"),
        ({"name": "x", "expires_after": {}}, "expires_after.anchor"),
        (
            {"name": "x", "expires_after": {"anchor": "last_active_at", "minutes": 21}},
            "expires_after.minutes",
        ),
        ({"name": "x", "expires_after": {"anchor": "now", "minutes": 1}}, "expires_after.anchor"),
        ({"name": "x", "file_ids": ["file-none"]}, "file_ids[0]"),
        ({"name": "x", "file_ids": ["file-none"] * 51}, "file_ids"),
        ({"name": "x", "skills": [{"type": "skill_reference"}]}, "skills"),
        ({"name": "x", "network_policy": {"type": "allowlist"}}, "network_policy"),
    ],
)
async def test_what_cannot_be_made_is_refused(
    client: AsyncOpenAI, body: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.post("/containers", body=body, cast_to=object)
    assert caught.value.param == param
    assert (await client.containers.list()).data == []


async def test_files_that_are_too_large_or_none_are_refused(client: AsyncOpenAI) -> None:
    made = await client.containers.create(name="mine")
    with pytest.raises(openai.APIStatusError) as caught:
        await client.containers.files.create(made.id, file=("a", b"x" * (5 << 20)))
    assert (caught.value.status_code, caught.value.param) == (413, "file")
    large = await client.files.create(file=("a.bin", bytes(5 << 20)), purpose="user_data")
    with pytest.raises(openai.APIStatusError) as caught:
        await client.containers.files.create(made.id, file_id=large.id)
    assert (caught.value.status_code, caught.value.param) == (413, "file_id")
    with pytest.raises(openai.APIStatusError) as caught:
        await client.containers.create(name="other", file_ids=[large.id])
    assert (caught.value.status_code, caught.value.param) == (413, "file_ids[0]")
    for _ in range(3):
        await client.containers.files.create(made.id, file=("a", b"x" * (4 << 20)))
    for n in range(4):
        try:
            await client.containers.files.create(made.id, file=(f"b{n}", b"x" * (4 << 20)))
        except openai.BadRequestError as error:
            assert "No space left" in error.message  # noqa: PT017
            break
    else:
        pytest.fail("the disk was never full")
    with pytest.raises(openai.BadRequestError) as none:
        await client.containers.files.create(made.id)
    assert none.value.param in ("file_id", "file", None)


@pytest.fixture
def made_by(monkeypatch: pytest.MonkeyPatch) -> list[Containers]:
    """The router's containers, once it has made one."""
    found: list[Containers] = []
    begin = Containers.find

    async def find(self: Containers, owner: str, ident: str) -> Any:
        found.append(self)
        return await begin(self, owner, ident)

    monkeypatch.setattr(Containers, "find", find)
    return found


async def test_a_container_whose_maker_has_left_is_ended(
    client: AsyncOpenAI, made_by: list[Containers], monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.containers.create(name="mine")
    containers = made_by[0]
    begin, opened = LocalRunner.open, asyncio.Event()

    async def at_the_supervisor(self: LocalRunner, ref: ContainerRef) -> str:
        handle = await begin(self, ref)
        opened.set()
        await asyncio.shield(asyncio.sleep(0.05))  # its answer is on its way
        return handle

    monkeypatch.setattr(LocalRunner, "open", at_the_supervisor)
    making = asyncio.ensure_future(containers.create("team-a", name="other"))
    await opened.wait()
    making.cancel()
    await asyncio.gather(making, return_exceptions=True)
    runner = containers.runner
    assert isinstance(runner, LocalRunner)
    await until(lambda: len(runner._sandboxes) == 1, what="its end")
    assert len([one async for one in client.containers.list()]) == 1


async def test_a_container_that_is_not_used_expires(
    client: AsyncOpenAI, made_by: list[Containers]
) -> None:
    made = await client.containers.create(name="mine")
    containers = made_by[0]
    await containers._store._database.write(
        *_aged(made.id, 21 * 60.0),
    )
    assert (await client.containers.retrieve(made.id)).status == "expired"
    with pytest.raises(openai.NotFoundError) as caught:
        await client.containers.files.list(made.id)
    assert caught.value.code == "container_expired"
    assert await containers.sweep() == 1
    assert await containers.sweep() == 0
    assert [one.status async for one in client.containers.list()] == ["expired"]
    await client.containers.delete(made.id)


async def test_a_container_that_runs_code_does_not_expire(
    client: AsyncOpenAI, made_by: list[Containers]
) -> None:
    made = await client.containers.create(name="mine")
    containers = made_by[0]
    stored = await containers.find("team-a", made.id)
    running = asyncio.ensure_future(
        containers.execute(stored, "open('begun', 'w'); import time; time.sleep(1); 42", 20)
    )
    await asyncio.sleep(0.5)
    await containers._store._database.write(*_aged(made.id, 21 * 60.0))
    assert await containers.sweep() == 0
    assert (await running).logs == "42\n"


def _aged(ident: str, seconds: float) -> Any:
    from router.state.statement import Statement, StatementStep

    aged = Statement(
        "UPDATE containers SET last_active_at = last_active_at - CAST(:seconds AS {real}) "
        "WHERE id = :id"
    )
    return (StatementStep(aged, ({"id": ident, "seconds": seconds},)),)


async def test_a_client_that_does_not_read_a_file_is_let_go(
    client: AsyncOpenAI, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await client.containers.create(name="mine")
    file = await client.containers.files.create(made.id, file=("a.bin", b"x"))

    async def read(*_: Any) -> bytes:
        return bytes(PIECE)

    monkeypatch.setattr(LocalRunner, "read", read)
    monkeypatch.setattr("router.http.containers._WRITE_SECONDS", 0.5)
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    path = f"{where.path}/containers/{made.id}/files/{file.id}/content"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk-a\r\n\r\n".encode())
    await asyncio.sleep(2)
    async with asyncio.timeout(5):
        with suppress(ConnectionError):
            while await reader.read(1 << 20):  # what was sent before
                pass
    writer.close()


async def test_uploads_at_once_do_not_mix(client: AsyncOpenAI) -> None:
    made = await client.containers.create(name="mine")
    sizes = [700_000 + n for n in range(4)]
    put = await asyncio.gather(
        *(
            client.containers.files.create(made.id, file=(f"{n}", bytes([n]) * size))
            for n, size in enumerate(sizes)
        )
    )
    assert [file.bytes for file in put] == sizes
    for n, file in enumerate(put):
        content = await client.containers.files.content.retrieve(file.id, container_id=made.id)
        assert set(content.read()) == {n}

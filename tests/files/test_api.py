"""The Files API over HTTP: forms, pages, content, and who may see what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from router.files.store import FileStore
from router.http.files import FilesApi
from router.settings.files import FilesSettings
from router.state.database import Database
from tests.support.mounted import KEYS, Mounted, mounted
from tests.support.router import Reply
from tests.support.state import opened
from tests.support.waiting import until

PURPOSE = b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
PART = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
OF_ALICE = {"Authorization": f"Bearer {KEYS['alice']}"}


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    """The store's own tests are run on both databases."""
    async with opened(f"sqlite:///{tmp_path / 'state.db'}") as database:
        yield database


@pytest.fixture
async def store(database: Database, tmp_path: Path) -> AsyncIterator[FileStore]:
    store = FileStore(FilesSettings(path=str(tmp_path / "files"), max_mb=0.5), database)
    yield store
    await store.close()


@pytest.fixture
async def api(store: FileStore) -> AsyncIterator[Mounted]:
    async with mounted(lambda dispatcher: FilesApi(store).routes()) as api:
        yield api


def form(*fields: tuple[str, str], **files: bytes) -> aiohttp.FormData:
    """A form with these fields behind these files."""
    data = aiohttp.FormData()
    for name, content in files.items():
        data.add_field(name, content, filename=f"{name}.txt", content_type="text/plain")
    for name, value in fields:
        data.add_field(name, value)
    return data


async def upload(api: Mounted, content: bytes = b"text", owner: str = "alice") -> dict[str, Any]:
    reply = await api.call(
        "POST", "/files", owner=owner, data=form(("purpose", "user_data"), file=content)
    )
    assert reply.status == 200, reply.body
    return reply.json


async def raw(api: Mounted, body: bytes, kind: str = "multipart/form-data; boundary=b") -> Reply:
    async with api.http.post(
        api.url + "/v1/files", data=body, headers={**OF_ALICE, "Content-Type": kind}
    ) as response:
        return Reply(response.status, response.headers, await response.read())


def kept(tmp_path: Path) -> list[Path]:
    return list(tmp_path.rglob("file-*"))


async def test_a_file_comes_back(api: Mounted) -> None:
    content = bytes(range(256)) * 1000
    file = await upload(api, content)

    assert file == {
        "id": file["id"],
        "object": "file",
        "bytes": 256_000,
        "created_at": file["created_at"],
        "filename": "file.txt",
        "purpose": "user_data",
        "status": "processed",
    }
    assert (await api.call("GET", f"/files/{file['id']}")).json == file
    assert (await api.call("GET", f"/files/{file['id']}", prefix="/api/v1")).json == file
    reply = await api.call("GET", f"/files/{file['id']}/content")
    assert reply.body == content
    assert reply.headers["Content-Type"] == "application/octet-stream"
    assert reply.headers["Content-Length"] == "256000"
    assert reply.headers["Content-Disposition"] == "attachment; filename*=UTF-8''file.txt"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["X-Request-Id"].startswith("req_")


async def test_an_empty_file_is_one(api: Mounted) -> None:
    file = await upload(api, b"")

    assert file["bytes"] == 0
    assert (await api.call("GET", f"/files/{file['id']}/content")).body == b""


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_another_keys_file_is_not_there(api: Mounted, method: str) -> None:
    file = await upload(api)
    reply = await api.call(method, f"/files/{file['id']}", owner="bob")

    assert reply.status == 404
    assert reply.error == {
        "message": f"File with id '{file['id']}' not found.",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }
    assert (await api.call("GET", f"/files/{file['id']}/content", owner="bob")).status == 404
    assert (await api.call("GET", "/files", owner="bob")).json["data"] == []
    assert (await api.call("GET", f"/files/{file['id']}")).status == 200


async def test_delete(api: Mounted, tmp_path: Path) -> None:
    ident = (await upload(api))["id"]
    reply = await api.call("DELETE", f"/files/{ident}")

    assert reply.json == {"id": ident, "object": "file", "deleted": True}
    for path in (f"/files/{ident}", f"/files/{ident}/content"):
        assert (await api.call("GET", path)).status == 404
    assert (await api.call("DELETE", f"/files/{ident}")).status == 404
    assert kept(tmp_path) == []


async def test_pages(api: Mounted) -> None:
    first, second, third = [(await upload(api))["id"] for _ in range(3)]

    async def page(**query: str) -> tuple[list[str], bool]:
        reply = await api.call("GET", "/files", params=query)
        return [file["id"] for file in reply.json["data"]], reply.json["has_more"]

    assert await page() == ([third, second, first], False)
    assert await page(limit="2") == ([third, second], True)
    assert await page(limit="2", after=second) == ([first], False)
    assert await page(order="asc", limit="1") == ([first], True)
    assert await page(purpose="batch") == ([], False)
    assert await page(purpose="user_data", limit="10000") == ([third, second, first], False)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"limit": "0"}, "integer_below_min_value"),
        ({"limit": "10001"}, "integer_above_max_value"),
        ({"limit": "many"}, "invalid_type"),
        ({"order": "up"}, "invalid_value"),
        ({"before": "file-1"}, "unknown_parameter"),
    ],
)
async def test_a_wrong_query_is_told(api: Mounted, query: dict[str, str], code: str) -> None:
    reply = await api.call("GET", "/files", params=query)

    assert (reply.status, reply.error["code"]) == (400, code)
    assert reply.error["param"] == next(iter(query))


async def test_a_file_may_expire(api: Mounted) -> None:
    expiry = (("expires_after[anchor]", "created_at"), ("expires_after[seconds]", "3600"))
    data = form(("purpose", "vision"), *expiry, file=b"x")
    file = (await api.call("POST", "/files", data=data)).json
    batch = (await api.call("POST", "/files", data=form(("purpose", "batch"), file=b"x"))).json

    assert file["expires_at"] - file["created_at"] == 3600
    assert batch["expires_at"] - batch["created_at"] == 30 * 86400


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ([], "purpose", "missing_required_parameter"),
        ([("purpose", "fun")], "purpose", "invalid_value"),
        ([("purpose", "batch"), ("purpose", "batch")], "purpose", "invalid_value"),
        ([("purpose", "b" * 5000)], "purpose", "string_above_max_length"),
        ([("colour", "red")], "colour", "unknown_parameter"),
        ([("file", "text")], "file", "invalid_type"),
        ([("expires_after[anchor]", "now")], "expires_after[anchor]", "invalid_value"),
        ([("expires_after[seconds]", "1e9")], "expires_after[seconds]", "invalid_type"),
        ([("expires_after[seconds]", "60")], "expires_after[seconds]", "integer_below_min_value"),
        (
            [("purpose", "batch"), ("expires_after[seconds]", "3600")],
            "expires_after[anchor]",
            "missing_required_parameter",
        ),
    ],
)
async def test_a_wrong_field_is_told(
    api: Mounted, tmp_path: Path, fields: list[tuple[str, str]], param: str, code: str
) -> None:
    reply = await api.call("POST", "/files", data=form(*fields, file=b"x"))

    assert (reply.status, reply.error["param"], reply.error["code"]) == (400, param, code)
    await until(lambda: kept(tmp_path) == [])


async def test_a_form_has_one_file(api: Mounted) -> None:
    data = form(("purpose", "batch"), file=b"x")
    data.add_field("file", b"y", filename="y")
    assert (await api.call("POST", "/files", data=data)).error["param"] == "file"

    reply = await api.call("POST", "/files", data=form(("purpose", "batch"), ("a", "b")))
    assert reply.status == 415  # it is no multipart form without a file
    only_purpose = (
        b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b--\r\n'
    )
    reply = await raw(api, only_purpose)
    assert (reply.status, reply.error["param"]) == (400, "file")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no form",
        b"--b",
        PART[:30],
        PART,
        PART + b"half of it",
        PART + b"all\r\n",
        PART.replace(b"\r\n\r\n", b"\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n")
        + b"--c",
        b"--b\r\nX: " + b"y" * 100_000,
        b"\x00" * 1000,
    ],
)
async def test_a_broken_form_is_told(api: Mounted, tmp_path: Path, body: bytes) -> None:
    reply = await raw(api, body)

    assert reply.status == 400, reply.body
    assert reply.error["code"] in ("invalid_body", "missing_required_parameter")
    await until(lambda: kept(tmp_path) == [])


async def test_many_parts_are_refused(api: Mounted) -> None:
    assert (await raw(api, PURPOSE * 50 + b"--b--\r\n")).status == 400


async def test_no_boundary(api: Mounted) -> None:
    assert (await raw(api, b"", "multipart/form-data")).error["code"] == "invalid_body"


async def test_json_is_no_form(api: Mounted) -> None:
    reply = await api.call("POST", "/files", {"file": "x", "purpose": "batch"})

    assert (reply.status, reply.error["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize("length", [True, False])
async def test_a_file_that_is_too_large(api: Mounted, tmp_path: Path, length: bool) -> None:
    """Whether it is known before, or only found while it arrives."""
    body = PART + b"x" * 700_000 + b"\r\n--b--\r\n"

    async def slowly() -> AsyncIterator[bytes]:
        yield body

    reply = await raw(api, body if length else slowly())  # type: ignore[arg-type]

    assert (reply.status, reply.error["code"]) == (413, "file_too_large")
    assert reply.error["param"] == "file"
    await until(lambda: kept(tmp_path) == [])


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        (b"../../etc/passwd", "passwd"),
        (rb"C:\\dir\\a.txt", "a.txt"),
        ("grüße.txt".encode(), "grüße.txt"),
        (b"a\xffb", "a�b"),
        (b"n" * 300 + b".txt", "n" * 251 + ".txt"),
    ],
)
async def test_names_are_plain(api: Mounted, sent: bytes, name: str) -> None:
    reply = await raw(api, PURPOSE + PART.replace(b"a.txt", sent) + b"x\r\n--b--\r\n")

    assert reply.status == 200, reply.body
    assert reply.json["filename"] == name


@pytest.mark.parametrize("sent", [b"..", b"/", b" "])
async def test_a_name_that_is_none(api: Mounted, sent: bytes) -> None:
    reply = await raw(api, PART.replace(b"a.txt", sent) + b"x\r\n--b--\r\n")

    assert (reply.status, reply.error["param"]) == (400, "file")


async def test_a_client_that_leaves_leaves_nothing(
    api: Mounted, store: FileStore, tmp_path: Path
) -> None:
    address = api.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(address[0], int(address[1]))
    head = (
        "POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n"
        f"Authorization: {OF_ALICE['Authorization']}\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
    )
    writer.write(head.encode() + PART + b"x" * 1000)
    await until(lambda: len(kept(tmp_path)) == 1)
    assert (await api.call("GET", "/files")).json["data"] == []
    writer.close()

    await until(lambda: kept(tmp_path) == [])
    assert store.arriving("alice") == 0


async def test_a_body_is_not_sent_before_it_is_wanted(api: Mounted) -> None:
    """A client that waits for 100 Continue is told to go on, or why not."""
    address = api.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(address[0], int(address[1]))
    head = (
        "POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n"
        f"Expect: 100-continue\r\nAuthorization: {OF_ALICE['Authorization']}\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
    )
    writer.write(head.encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 413")
    writer.close()


async def test_off(database: Database) -> None:
    store = FileStore(FilesSettings(), database)
    async with mounted(lambda dispatcher: FilesApi(store).routes()) as api:
        for method, path in (("GET", "/files"), ("POST", "/files"), ("GET", "/files/file-1")):
            reply = await api.call(method, path)
            assert (reply.status, reply.error["code"]) == (501, "not_supported")
            assert "files.path" in reply.error["message"]
    await store.close()

"""Files in Responses requests, in front of endpoints of each dialect, through a whole router."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from router.settings.schema import Dialect
from tests.files.samples import DOCX, docx, pdf
from tests.support.fetch import fetch
from tests.support.files import PNG, file, serving
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream

SAID = "The moon is made of cheese."
PAGE = b"<html><body><nav>menu</nav><main><p>" + SAID.encode() + b"</p></main></body></html>"


def data_url(content: bytes, media_type: str = "application/pdf") -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def given(**part: Any) -> list[dict[str, Any]]:
    """An input with a file."""
    content = [{"type": "input_file", **part}, {"type": "input_text", "text": "What is it?"}]
    return [{"role": "user", "content": content}]


@asynccontextmanager
async def router_for(
    dialect: Dialect, tmp_path: Path, *, fields: Mapping[str, Any] | None = None, **sections: Any
) -> AsyncIterator[tuple[Router, Upstream]]:
    files = {"path": str(tmp_path / "files"), **sections.pop("files", {})}
    async with (
        Upstream(default=SPEECH[dialect].script()) as upstream,
        routing(endpoint(upstream, dialect, **(fields or {})), files=files, **sections) as router,
    ):
        yield router, upstream


async def upload(
    router: Router, content: bytes, name: str, key: str | None = None, purpose: str = "user_data"
) -> str:
    data = aiohttp.FormData({"purpose": purpose})
    data.add_field("file", content, filename=name)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with router.http.post(router.url + "/v1/files", data=data, headers=headers) as response:
        assert response.status == 200, await response.read()
        ident: str = (await response.json())["id"]
        return ident


def parts(upstream: Upstream) -> list[dict[str, Any]]:
    """The content that the endpoint got with the last request."""
    body = upstream.requests[-1].json
    message = body["input" if "input" in body else "messages"][-1]
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


@pytest.mark.parametrize("dialect", ["chat", "ollama", "messages"])
async def test_the_text_of_an_uploaded_file(dialect: Dialect, tmp_path: Path) -> None:
    async with router_for(dialect, tmp_path) as (router, upstream):
        ident = await upload(router, docx(SAID), "moon.docx")
        reply = await router.ask(input=given(file_id=ident))

        assert reply.status == 200, reply.body
        text = "\n".join(part["text"] for part in parts(upstream))
        assert text == f"File moon.docx:\n{SAID}\n\nWhat is it?"


@pytest.mark.parametrize("dialect", ["chat", "ollama"])
async def test_a_pdf_is_text_to_most(dialect: Dialect, tmp_path: Path) -> None:
    async with router_for(dialect, tmp_path) as (router, upstream):
        sources: list[dict[str, Any]] = [
            {"file_id": await upload(router, pdf(SAID), "a.pdf")},
            {"file_data": data_url(pdf(SAID)), "filename": "a.pdf"},
            {"file_data": base64.b64encode(pdf(SAID)).decode(), "filename": "a.pdf"},
        ]
        for source in sources:
            assert (await router.ask(input=given(**source))).status == 200
            assert parts(upstream)[0]["text"].startswith(f"File a.pdf:\n{SAID}")


async def test_a_pdf_stays_one_where_it_is_read(tmp_path: Path) -> None:
    content = pdf(SAID)
    source = {
        "type": "base64",
        "media_type": "application/pdf",
        "data": base64.b64encode(content).decode(),
    }
    async with router_for("messages", tmp_path) as (router, upstream):
        ident = await upload(router, content, "a.pdf")
        for part in (
            {"file_id": ident},
            {"file_data": data_url(content, "application/octet-stream"), "filename": "a.pdf"},
        ):
            assert (await router.ask(input=given(**part))).status == 200
            assert parts(upstream)[0] == {"type": "document", "source": source, "title": "a.pdf"}


async def test_native_endpoints_get_the_data(tmp_path: Path) -> None:
    """They know other ids only."""
    async with router_for("responses", tmp_path) as (router, upstream):
        ident = await upload(router, docx(SAID), "moon.docx")
        assert (await router.ask(input=given(file_id=ident))).status == 200
        assert parts(upstream)[0] == {
            "type": "input_file",
            "filename": "moon.docx",
            "file_data": data_url(docx(SAID), DOCX),
        }
        for part in ({"file_id": "file-of-theirs"}, {"file_url": "https://example.com/a.pdf"}):
            assert (await router.ask(input=given(**part))).status == 200
            assert parts(upstream)[0] == {"type": "input_file", **part}


@pytest.mark.parametrize(("dialect", "reads"), [("chat", True), ("responses", False)])
async def test_what_is_read_may_be_configured(
    dialect: Dialect, reads: bool, tmp_path: Path
) -> None:
    fields = {"capabilities": {"*": {"files": reads}}}
    async with router_for(dialect, tmp_path, fields=fields) as (router, upstream):
        ident = await upload(router, pdf(SAID), "a.pdf")
        assert (await router.ask(input=given(file_id=ident))).status == 200
        part = parts(upstream)[0]
        if reads:
            file = {"filename": "a.pdf", "file_data": data_url(pdf(SAID))}
            assert part == {"type": "file", "file": file}
        else:
            assert part["type"] == "input_text"
            assert SAID in part["text"]


@pytest.mark.parametrize("dialect", ["chat", "ollama", "messages"])
async def test_a_file_by_url(dialect: Dialect, tmp_path: Path) -> None:
    async with (
        serving(page=file(PAGE, Content_Type="text/html")) as files,
        router_for(dialect, tmp_path, fetch={"hosts": [files.host]}) as (router, upstream),
    ):
        reply = await router.ask(input=given(file_url=files.url("/page")))

        assert reply.status == 200, reply.body
        assert parts(upstream)[0]["text"].startswith("File page:\n")
        assert SAID in parts(upstream)[0]["text"]


async def test_urls_go_through_the_guard(tmp_path: Path) -> None:
    async with router_for("chat", tmp_path) as (router, upstream):
        for url in ("http://127.0.0.1:1/a", "http://169.254.169.254/latest", "file:///etc/passwd"):
            reply = await router.ask(input=given(file_url=url))
            assert (reply.status, reply.error["code"]) == (400, "invalid_file_url"), url
            assert reply.error["param"] == "input[0].content[0].file_url"
        assert upstream.requests == []


async def test_urls_may_be_closed(tmp_path: Path) -> None:
    async with router_for("chat", tmp_path, fetch={"files": False}) as (router, _):
        reply = await router.ask(input=given(file_url="https://example.com/a.pdf"))
        assert (reply.status, reply.error["code"]) == (400, "unsupported_value")


async def test_an_uploaded_image_is_seen(tmp_path: Path) -> None:
    async with router_for("ollama", tmp_path) as (router, upstream):
        ident = await upload(router, PNG, "a.png", purpose="vision")
        image = [{"role": "user", "content": [{"type": "input_image", "file_id": ident}]}]
        assert (await router.ask(input=image)).status == 200
        sent = upstream.requests[-1].json["messages"][-1]["images"]
        assert sent == [base64.b64encode(PNG).decode()]


@pytest.mark.parametrize(
    ("content", "name", "code", "words"),
    [
        (b"\x89PNG\r\n\x1a\n", "a.png", "unsupported_file", "It is an image (PNG)."),
        (b"PK\x03\x04 nothing", "a.docx", "invalid_file", "It is damaged"),
        (b"", "a.txt", "invalid_file", "There is no text in it."),
    ],
)
async def test_a_file_that_cannot_be_read(
    tmp_path: Path, content: bytes, name: str, code: str, words: str
) -> None:
    async with router_for("chat", tmp_path) as (router, upstream):
        reply = await router.ask(input=given(file_id=await upload(router, content, name)))

        assert reply.status == 400
        assert reply.error["code"] == code
        assert reply.error["param"] == "input[0].content[0].file_id"
        assert words in reply.error["message"]
        assert upstream.requests == []


@pytest.mark.parametrize("data", ["%%%", "data:application/pdf;base64,%%%", "data:x"])
async def test_broken_data(tmp_path: Path, data: str) -> None:
    async with router_for("chat", tmp_path) as (router, _):
        reply = await router.ask(input=given(file_data=data))
        assert (reply.status, reply.error["code"]) == (400, "invalid_value")


@pytest.mark.parametrize("source", ["file_data", "file_url"])
async def test_an_empty_source_is_named(tmp_path: Path, source: str) -> None:
    async with router_for("chat", tmp_path) as (router, _):
        reply = await router.ask(input=given(**{source: ""}))
        assert (reply.status, reply.error["param"]) == (400, f"input[0].content[0].{source}")


async def test_all_files_together_are_limited(tmp_path: Path) -> None:
    async with router_for("chat", tmp_path, files={"max_request_mb": 0.001}) as (router, _):
        ident = await upload(router, b"x" * 2000, "a.txt")
        reply = await router.ask(input=given(file_id=ident))
        assert (reply.status, reply.error["code"]) == (400, "file_too_large")


KEYS = {"keys": [{"name": name, "key": f"sk-{name}"} for name in ("alice", "bob")]}


@pytest.mark.parametrize("dialect", ["responses", "chat", "ollama", "messages"])
async def test_another_keys_file_is_not_there(dialect: Dialect, tmp_path: Path) -> None:
    cache = {"mode": "always", "scope": "shared"}
    async with router_for(dialect, tmp_path, auth=KEYS, cache=cache) as (router, upstream):
        ident = await upload(router, SAID.encode(), "a.txt", "sk-alice")

        async def ask(key: str) -> Reply:
            body = {"model": "m", "input": given(file_id=ident), "temperature": 0}
            return await fetch(
                router.http,
                "POST",
                router.url + "/v1/responses",
                data=orjson.dumps(body),
                headers={"Authorization": f"Bearer {key}"},
            )

        assert (await ask("sk-alice")).status == 200
        reply = await ask("sk-bob")
        assert reply.status == 404
        assert reply.error["message"] == f"File with id '{ident}' not found."
        assert reply.error["param"] == "input[0].content[0].file_id"
        assert len(upstream.requests) == 1


async def test_a_conversation_goes_on_with_its_files(tmp_path: Path) -> None:
    """What is stored is the id; each turn has the text."""
    async with router_for("chat", tmp_path) as (router, upstream):
        ident = await upload(router, docx(SAID), "moon.docx")
        first = (await router.ask(input=given(file_id=ident))).json
        reply = await router.ask(input="And the sun?", previous_response_id=first["id"])

        assert reply.status == 200
        said = orjson.dumps(upstream.requests[-1].json["messages"][0]).decode()
        assert SAID in said
        url = f"{router.url}/v1/responses/{first['id']}/input_items"
        items = (await fetch(router.http, "GET", url)).json["data"]
        assert items[0]["content"][0] == {"type": "input_file", "file_id": ident}


async def test_tokens_are_counted_with_the_text(tmp_path: Path) -> None:
    async with router_for("chat", tmp_path) as (router, _):
        ident = await upload(router, b"word " * 4000, "a.md")
        url = router.url + "/v1/responses/input_tokens"
        body = {"model": "m", "input": given(file_id=ident)}
        reply = await fetch(router.http, "POST", url, data=orjson.dumps(body))
        assert reply.json["input_tokens"] > 3000


async def test_another_model_takes_what_it_reads(tmp_path: Path) -> None:
    """A file whose text nobody can extract goes to the endpoint that reads it."""
    async with (
        Upstream(default=SPEECH["chat"].script()) as chat,
        Upstream(default=SPEECH["responses"].script()) as native,
        routing(
            endpoint(chat, "chat", "one"),
            endpoint(native, "responses", "two"),
            files={"path": str(tmp_path)},
        ) as router,
    ):
        for _ in range(3):
            data = data_url(b"\x89PNG\r\n\x1a\n\0", "application/x-other")
            assert (await router.ask(input=given(file_data=data))).status == 200
        assert chat.requests == []
        assert len(native.requests) == 3


async def test_documents_of_anthropics_clients(tmp_path: Path) -> None:
    source = {
        "type": "base64",
        "media_type": "application/pdf",
        "data": base64.b64encode(pdf(SAID)).decode(),
    }
    document = {"type": "document", "source": source, "title": "moon"}
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": [document]}]}
    async with router_for("ollama", tmp_path) as (router, upstream):
        url = router.url + "/v1/messages"
        reply = await fetch(router.http, "POST", url, data=orjson.dumps(body))
        assert reply.status == 200, reply.body
        assert SAID in parts(upstream)[0]["text"]

"""Images by URL at endpoints that take them as data only, through a whole router."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import orjson
import pytest
from aiohttp import web

from router.fetch import guard
from router.settings.schema import Dialect
from tests.support.admin import ADMIN, explained
from tests.support.fetch import fetch
from tests.support.files import PNG, Files, file, serving
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Script, Upstream, Wire, streamed, whole

DATA = base64.b64encode(PNG).decode()
GIF = b"GIF89a" + bytes(9)


def answers(dialect: Dialect = "ollama", stream: bool = False) -> Script:
    speech = SPEECH[dialect]
    if stream:
        return streamed(*speech.pieces, kind=speech.kind)
    return whole(speech.whole)


def seen(*urls: str) -> list[dict[str, Any]]:
    """An input with these images."""
    text = {"type": "input_text", "text": "What is this?"}
    images = [{"type": "input_image", "image_url": url} for url in urls]
    return [{"role": "user", "content": [text, *images]}]


def sent(upstream: Upstream) -> list[str]:
    """The images that the endpoint got with the last request."""
    messages = upstream.requests[-1].json["messages"]
    return [image for message in messages for image in message.get("images", ())]


def listed(files: Files, **fields: Any) -> dict[str, Any]:
    return {"fetch": {"hosts": [files.host], **fields}}


async def post(router: Router, path: str, body: dict[str, Any]) -> Reply:
    return await fetch(router.http, "POST", router.url + path, data=orjson.dumps(body))


@pytest.mark.parametrize("stream", [False, True])
async def test_they_are_fetched_and_sent_as_data(stream: bool) -> None:
    async with (
        serving(a=file(), b=file(GIF, Content_Type="application/octet-stream")) as files,
        Upstream(answers(stream=stream)) as upstream,
        routing(endpoint(upstream, "ollama"), **listed(files)) as router,
    ):
        inline = f"data:image/png;base64,{DATA}"
        given = seen(files.url("/a"), inline, files.url("/b"), files.url("/a"))
        reply = await router.ask(stream=stream, input=given)
        assert reply.status == 200, reply.body
        assert sent(upstream) == [DATA, DATA, base64.b64encode(GIF).decode(), DATA]
        assert sorted(files.paths) == ["/a", "/b"]  # each once


async def test_in_every_api() -> None:
    async with (
        serving(a=file()) as files,
        Upstream(default=answers()) as upstream,
        routing(endpoint(upstream, "ollama"), **listed(files)) as router,
    ):
        url = files.url("/a")
        chat = {"type": "image_url", "image_url": {"url": url}}
        anthropic = {"type": "image", "source": {"type": "url", "url": url}}
        result = {
            "type": "function_call_output",
            "call_id": "c",
            "output": [{"type": "input_image", "image_url": url}],
        }
        call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
        for path, body in (
            ("/v1/responses", {"input": [call, result]}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": [chat]}]}),
            (
                "/v1/messages",
                {"max_tokens": 9, "messages": [{"role": "user", "content": [anthropic]}]},
            ),
        ):
            reply = await post(router, path, {"model": "m", **body})
            assert reply.status == 200, reply.body
            assert sent(upstream) == [DATA], path
        assert files.paths == ["/a"] * 3


@pytest.mark.parametrize("dialect", ["chat", "responses"])
async def test_others_get_the_url(dialect: Dialect) -> None:
    async with (
        serving(a=file()) as files,
        Upstream(answers(dialect)) as upstream,
        routing(endpoint(upstream, dialect), **listed(files)) as router,
    ):
        assert (await router.ask(input=seen(files.url("/a")))).status == 200
        assert files.url("/a").encode() in upstream.requests[0].body
        assert files.asked == []


async def test_once_for_all_attempts() -> None:
    outcomes = [whole(b'{"error": "out of memory"}', 500), answers()]

    async def script(wire: Wire) -> None:
        await outcomes.pop(0)(wire)

    async with (
        serving(a=file()) as files,
        Upstream(default=script) as one,
        Upstream(default=script) as two,
        routing(
            endpoint(one, "ollama", "one"), endpoint(two, "ollama", "two"), **listed(files)
        ) as router,
    ):
        reply = await router.ask(input=seen(files.url("/a")))
        assert (reply.status, reply.headers["X-Pointsman-Attempts"]) == (200, "2")
        assert sent(one) == sent(two) == [DATA]
        assert files.paths == ["/a"]


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("missing", "failed_to_download_image", "status 404"),
        ("page", "unsupported_image_media_type", "image/png"),
        ("text", "unsupported_image_media_type", "GIF, JPEG, PNG or WebP"),
        ("large", "image_too_large", "larger than 1 MiB"),
    ],
)
async def test_what_cannot_be_had_is_named(name: str, code: str, says: str) -> None:
    handlers = {
        "a": file(),
        "page": file(b"<html>", Content_Type="text/html"),
        "text": file(b"no image", Content_Type="image/png"),
        "large": file(PNG + bytes(2**20)),
    }
    async with (
        serving(**handlers) as files,
        Upstream() as upstream,
        routing(endpoint(upstream, "ollama"), **listed(files, max_mb=1)) as router,
    ):
        secret = files.url(f"/{name}?signature=s3cret")
        reply = await router.ask(input=seen(files.url("/a"), secret))
        assert reply.status == 400
        error = reply.error
        assert (error["type"], error["code"]) == ("invalid_request_error", code)
        assert error["param"] == "input[0].content[2].image_url"
        assert says in error["message"]
        chat = {"type": "image_url", "image_url": {"url": secret}}
        body = {"model": "m", "messages": [{"role": "user", "content": [chat]}]}
        reply = await post(router, "/v1/chat/completions", body)
        assert reply.error["param"] == "messages[0].content[0].image_url.url"
        assert upstream.requests == []
        assert "s3cret" not in repr(router.log)


async def test_all_images_together_are_no_larger_than_a_body() -> None:
    async with (
        serving(a=file(PNG + bytes(700_000)), b=file(PNG + bytes(700_000))) as files,
        Upstream() as upstream,
        routing(endpoint(upstream, "ollama"), **listed(files), server={"max_body_mb": 1}) as router,
    ):
        reply = await router.ask(input=seen(files.url("/a"), files.url("/b")))
        assert (reply.status, reply.error["code"]) == (400, "image_too_large")
        assert "together" in reply.error["message"]


async def test_no_more_than_so_many() -> None:
    async with (
        serving() as files,
        Upstream() as upstream,
        routing(endpoint(upstream, "ollama"), **listed(files)) as router,
    ):
        reply = await router.ask(input=seen(*(files.url(f"/{n}") for n in range(65))))
        assert (reply.status, reply.error["param"]) == (400, "input[0].content[65].image_url")
        assert files.asked == []


async def test_nothing_inside_is_asked_by_default() -> None:
    async with (
        serving(a=file()) as files,
        Upstream() as upstream,
        routing(endpoint(upstream, "ollama")) as router,
    ):
        reply = await router.ask(input=seen(files.url("/a")))
        assert (reply.status, reply.error["code"]) == (400, "invalid_image_url")
        assert "public" in reply.error["message"]
        assert files.asked == []


async def test_switched_off() -> None:
    async with (
        serving(a=file()) as files,
        Upstream() as upstream,
        routing(endpoint(upstream, "ollama"), **listed(files, images=False)) as router,
    ):
        reply = await router.ask(input=seen(files.url("/a")))
        assert (reply.status, reply.error["code"]) == (400, "unsupported_value")
        assert "data:image/png;base64" in reply.error["message"]
        assert files.asked == []


async def test_who_takes_urls_is_left_where_an_image_cannot_be_had() -> None:
    async with (
        serving() as files,
        Upstream() as one,
        Upstream(answers("chat")) as two,
        routing(
            endpoint(one, "ollama", "one"), endpoint(two, "chat", "two"), **listed(files)
        ) as router,
    ):
        reply = await router.ask(input=seen(files.url("/gone")))
        assert (reply.status, reply.headers["X-Pointsman-Endpoint"]) == (200, "two")


async def test_a_client_that_leaves_ends_the_fetch_and_holds_no_slot() -> None:
    async def never(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    async with (
        serving(a=never, b=never) as files,
        Upstream(answers()) as upstream,
        routing(endpoint(upstream, "ollama", max_in_flight=1), **listed(files)) as router,
    ):
        asked = asyncio.create_task(router.ask(input=seen(files.url("/a"), files.url("/b"))))
        await files.until(lambda: files.under_way == 2)  # both at once
        assert (await router.ask(input="hi")).status == 200  # meanwhile the only slot is free
        asked.cancel()
        await files.until(lambda: files.under_way == 0)
        assert len(upstream.requests) == 1


async def test_explained_without_being_fetched() -> None:
    async with (
        serving(a=file()) as files,
        Upstream() as upstream,
        routing(endpoint(upstream, "ollama"), **listed(files), admin=ADMIN) as router,
    ):
        found = await explained(router, {"model": "m", "input": seen(files.url("/a"))})
        [message] = found["request"]["body"]["messages"]
        assert message["images"] == ["(base64 of the image)"]
        assert any("not fetched" in note for note in found["notes"])
        assert files.asked == []


async def test_a_router_without_file_descriptors_does_not_blame_the_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        Upstream(default=answers()) as upstream,
        routing(endpoint(upstream, "ollama"), fetch={"hosts": ["127.0.0.1:1"]}) as router,
    ):
        given = seen("http://127.0.0.1:1/a")
        assert (await router.ask(input=given)).error["code"] == "failed_to_download_image"
        monkeypatch.setattr(guard, "is_shortage", lambda _: True)
        reply = await router.ask(input=given)
        assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
        assert reply.error["code"] == "file_descriptors_exhausted"
        assert not upstream.requests

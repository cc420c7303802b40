"""The description as a router serves it, to programs and to people."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import AsyncIterator
from importlib import resources
from typing import Any, Final

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from router.http.description.api import DescriptionApi
from tests.support.router import Router, routing

PATHS: Final = ("/openapi.json", "/docs")
PAGE: Final = resources.files("router.http.description").joinpath("page.html").read_text("utf-8")
MOST_LINES: Final = 400


@pytest.fixture
async def router() -> AsyncIterator[Router]:
    hidden = {
        "name": "zebra-endpoint",
        "url": "http://127.0.0.1:9/v1",
        "dialect": "chat",
        "models": ["zebra-model"],
        "api_key": "sk-zebra-upstream",
    }
    keys = [{"name": "zebra-team", "key": "sk-zebra-client"}]
    async with routing(hidden, auth={"keys": keys}, admin={"key": "sk-zebra-admin"}) as running:
        yield running


@pytest.mark.parametrize("path", PATHS)
async def test_whoever_may_connect_may_read_it(router: Router, path: str) -> None:
    async with router.http.get(router.url + path) as response:
        body = await response.read()
        assert response.status == 200
        assert b"zebra" not in body
        length = response.headers["Content-Length"]
    async with router.http.head(router.url + path) as response:
        assert response.status == 200
        assert response.headers["Content-Length"] == length
        assert await response.read() == b""


@pytest.mark.parametrize("path", PATHS)
async def test_what_a_client_has_is_not_sent_again(router: Router, path: str) -> None:
    async with router.http.get(router.url + path) as response:
        tag = response.headers["ETag"]
    for given in (tag, f'"other", W/{tag}', "*"):
        headers = {"If-None-Match": given}
        async with router.http.get(router.url + path, headers=headers) as response:
            assert response.status == 304
            assert await response.read() == b""
            assert response.headers["ETag"] == tag
    for given in ('"other"', "nonsense"):
        headers = {"If-None-Match": given}
        async with router.http.get(router.url + path, headers=headers) as response:
            assert response.status == 200


async def test_the_document_is_json(router: Router) -> None:
    async with router.http.get(router.url + "/openapi.json") as response:
        assert response.content_type == "application/json"
        described = orjson.loads(await response.read())
    assert described["openapi"].startswith("3.1")
    assert described["info"]["version"]


async def test_it_is_made_for_the_first_who_asks() -> None:
    made = 0

    def describe() -> dict[str, Any]:
        nonlocal made
        made += 1
        return {"openapi": "3.1.0"}

    api = DescriptionApi(describe)
    assert made == 0
    request = make_mocked_request("GET", "/openapi.json")
    for _ in range(2):
        answer = await api.openapi(request)
        assert isinstance(answer, web.Response)
        assert answer.body == b'{"openapi":"3.1.0"}'
    assert made == 1


async def test_nothing_but_what_is_in_the_page_runs_in_it(router: Router) -> None:
    async with router.http.get(router.url + "/docs") as response:
        text = await response.text()
        policy = response.headers["Content-Security-Policy"]
    assert text == PAGE
    said = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert said["default-src"] == "'none'"
    assert said["connect-src"] == "'self'"
    for kind in ("script", "style"):
        (inline,) = re.findall(f"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert said[f"{kind}-src"] == f"'sha256-{digest}'"
    assert "unsafe" not in policy


def test_the_page_is_small_and_needs_nobody() -> None:
    assert len(PAGE.splitlines()) < MOST_LINES
    assert not re.search(
        r"https?://|//[a-z]+\.|@import|url\(|innerHTML|eval\(| style=| on[a-z]+=", PAGE
    )
    assert "prefers-color-scheme: dark" in PAGE


def test_what_the_page_looks_for_is_in_it() -> None:
    wanted = set(re.findall(r'getElementById\("([a-z]+)"\)', PAGE))
    assert wanted
    assert wanted <= set(re.findall(r'\bid="([a-z]+)"', PAGE))


async def test_it_is_there_in_somebody_elses_application() -> None:
    one = {"name": "one", "url": "http://127.0.0.1:9/v1", "dialect": "chat"}
    async with routing(one, foreign=True) as router:
        for path in PATHS:
            async with router.http.get(router.url + path) as response:
                assert response.status == 200

"""What refusals taught is forgotten, so that an upgraded engine is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from router.core.exchange import AnswerKind
from router.errors import NotSupported, UpstreamRouteMissing
from router.settings.schema import Dialect, EndpointSettings
from router.upstream.embeddings import UnsupportedOperations
from router.upstream.responses import ResponsesAdapter
from tests.support.exchanges import an_exchange
from tests.support.reloading import reload
from tests.support.router import Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Received, Script, Upstream, json_answer

TOOL = {"type": "function", "name": "find", "parameters": {"type": "object"}}
GROUP = {"type": "namespace", "name": "crm", "description": "Customers", "tools": [TOOL]}


@dataclass(frozen=True)
class Lesson:
    """``asked`` is what a client asks, ``refused`` how the endpoint refuses a part of it, and
    ``tried`` whether a request has that part.
    """

    dialect: Dialect
    refused: Script
    tried: Callable[[Received], bool]
    asked: dict[str, Any] = field(default_factory=dict)


def no(message: str, status: int = 400, **more: Any) -> Script:
    return json_answer({"error": {"message": message, **more}}, status)


LESSONS = {
    "a type of tool": Lesson(
        "responses",
        no("Unknown type of tool: namespace"),
        lambda request: request.json["tools"][0]["type"] == "namespace",
        {"tools": [GROUP]},
    ),
    "encrypted reasoning": Lesson(
        "responses",
        no("Encrypted content is not supported with this model.", param="include"),
        lambda request: bool(request.json.get("include")),
    ),
    "chats": Lesson(
        "responses",
        no("Not Found", 404),
        lambda request: request.path == "/v1/chat/completions",
        {"chat": True},
    ),
    "token counts of streams": Lesson(
        "chat",
        no("stream_options is not supported"),
        lambda request: "stream_options" in request.json,
        {"stream": True},
    ),
    "tools": Lesson(
        "chat",
        no("This model does not support tools"),
        lambda request: "tools" in request.json,
        {"tools": [TOOL]},
    ),
}


async def comes_back(router: Router, upstream: Upstream, dialect: Dialect) -> None:
    host = router.deployment().endpoint.host
    host.unreachable(time.monotonic())
    assert host.reachable(time.monotonic())


async def is_undrained(router: Router, upstream: Upstream, dialect: Dialect) -> None:
    for way in ("drain", "undrain"):
        url = f"{router.url}/admin/endpoints/one/{way}"
        async with router.http.post(url, headers={"Authorization": "Bearer boss"}) as response:
            assert response.status == 200, await response.text()


async def is_configured_anew(router: Router, upstream: Upstream, dialect: Dialect) -> None:
    changed = endpoint(upstream, dialect, max_in_flight=7)
    assert await reload(router, changed, admin={"key": "boss"}) == [
        "endpoint changed: one (max_in_flight)"
    ]


@pytest.mark.parametrize("news", [comes_back, is_undrained, is_configured_anew])
@pytest.mark.parametrize("lesson", LESSONS.values(), ids=LESSONS)
async def test_an_endpoint_that_may_be_another_is_tried_again(
    lesson: Lesson, news: Callable[..., Any]
) -> None:
    async with (
        Upstream(lesson.refused, default=SPEECH[lesson.dialect].script()) as upstream,
        routing(endpoint(upstream, lesson.dialect), admin={"key": "boss"}) as router,
    ):

        async def tried() -> list[bool]:
            upstream.requests.clear()
            await router.ask(**lesson.asked)
            return [lesson.tried(request) for request in upstream.requests]

        assert (await tried())[0]
        assert True not in await tried()
        await news(router, upstream, lesson.dialect)
        assert await tried() == [True]


@pytest.mark.parametrize("lesson", LESSONS.values(), ids=LESSONS)
async def test_after_a_while_it_is_tried_again(
    lesson: Lesson, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which every probe looks at."""
    async with (
        Upstream(lesson.refused, default=SPEECH[lesson.dialect].script()) as upstream,
        routing(endpoint(upstream, lesson.dialect)) as router,
    ):
        registry, deployment = router.fleet.registry, router.deployment()
        await router.ask(**lesson.asked)
        for later, tried in ((3500.0, False), (3601.0, True)):
            upstream.requests.clear()
            now = time.monotonic() + later
            monkeypatch.setattr(registry, "_clock", lambda now=now: now)
            registry.probed(deployment.endpoint)
            await router.ask(**lesson.asked)
            assert (True in map(lesson.tried, upstream.requests)) is tried


def test_what_cannot_be_done_at_all() -> None:
    now = 100.0
    operations = UnsupportedOperations(lambda: now)
    asked = an_exchange(body={"model": "m"}, model="m")
    assert operations.retry(AnswerKind.EMBEDDINGS, "m")(UpstreamRouteMissing("no"))
    operations.forget(100.0)
    with pytest.raises(NotSupported):
        operations.check(AnswerKind.EMBEDDINGS, asked, "m")
    operations.forget(100.1)
    operations.check(AnswerKind.EMBEDDINGS, asked, "m")


def test_compaction() -> None:
    settings = EndpointSettings(name="box", url="http://box/v1", dialect="responses")
    adapter = ResponsesAdapter(settings)
    assert not adapter._cannot_compact(UpstreamRouteMissing("no"))
    adapter.forget(time.monotonic() - 1.0)
    assert adapter.compacts is False
    adapter.forget(time.monotonic() + 1.0)
    assert adapter.compacts is None

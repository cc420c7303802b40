"""Token counts of models whose endpoint has no counter."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.support.fetch import fetch
from tests.support.router import Router, endpoint, routing
from tests.support.upstream import Script, Upstream, whole

HELLO = "Say hello."
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}


def reporting(tokens: int | None) -> Script:
    """An answer of a model that made so many tokens of the prompt."""
    usage = {"prompt_tokens": tokens, "completion_tokens": 1}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "hello"},
        "finish_reason": "stop",
    }
    return whole(orjson.dumps({"choices": [choice], "usage": usage if tokens else None}))


async def count(router: Router, given: Any, path: str = "/v1/responses/input_tokens") -> int:
    field = "messages" if "messages" in path else "input"
    body = orjson.dumps({"model": "m", field: given})
    reply = await fetch(router.http, "POST", router.url + path, data=body)
    assert reply.status == 200, reply.body
    assert reply.headers["X-Pointsman-Estimated"] == "true"
    return int(reply.json["input_tokens"])


async def test_the_template_has_its_share_of_each_message() -> None:
    async with Upstream() as upstream, routing(endpoint(upstream, "chat")) as router:
        one = await count(router, HELLO)
        message = {"role": "user", "content": HELLO}
        assert one == await count(router, [message]) == 3 + 4 + 4  # text, frame, opening
        assert await count(router, [message] * 3) == 3 * (3 + 4) + 4 - 1  # 30 characters are 8
        assert await count(router, [message], "/v1/messages/count_tokens") == one


@pytest.mark.parametrize("chat", [False, True])
async def test_a_model_that_reports_corrects_its_counts(chat: bool) -> None:
    async with (
        Upstream(default=reporting(26)) as upstream,
        routing(endpoint(upstream, "chat", models=["m", "n"])) as router,
    ):
        assert await count(router, HELLO) < 20
        assert (await router.ask(chat=chat, input=HELLO)).status == 200
        assert 24 <= await count(router, HELLO) <= 28
        long = await count(router, "word " * 2000)
        assert 2400 <= long <= 3000  # one short prompt says little of a long one
        other = orjson.dumps({"model": "n", "input": HELLO})
        path = f"{router.url}/v1/responses/input_tokens"
        reply = await fetch(router.http, "POST", path, data=other)
        assert reply.json["input_tokens"] < 20  # another model has another template


@pytest.mark.parametrize(
    ("answer", "given"),
    [
        (reporting(None), {"input": HELLO}),
        (reporting(900), {"input": [{"role": "user", "content": [IMAGE]}]}),
        (reporting(900), {"input": HELLO, "truncation": "auto"}),
        (whole(b'{"error": {"message": "no"}}', 400), {"input": HELLO}),
    ],
    ids=["no report", "an image", "perhaps cut", "refused"],
)
async def test_what_says_nothing_of_the_text_is_not_learned(
    answer: Script, given: dict[str, Any]
) -> None:
    async with Upstream(answer) as upstream, routing(endpoint(upstream, "chat")) as router:
        before = await count(router, HELLO)
        await router.ask(**given)
        assert len(upstream.requests) == 1
        assert await count(router, HELLO) == before

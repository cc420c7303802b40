"""Compacted conversations at other routers, other endpoints, and on the bill."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.core.usage_record import Kind
from tests.support.compacting import (
    SUMMARY,
    compacting,
    compaction_of,
    texts_of,
    upstream_of,
)
from tests.support.fleet import DIALECTS
from tests.support.router import endpoint, routing
from tests.support.state import database_url
from tests.support.upstream import Upstream, by_path, json_answer, whole
from tests.support.waiting import until

__all__ = ["database_url"]

JSON = dict[str, Any]

LONG: list[JSON] = [
    {"role": "user", "content": "I am Ann."},
    {"role": "assistant", "content": "Noted. " * 2000},
    {"role": "user", "content": "What is my name?"},
]
MANAGED = [{"type": "compaction", "compact_threshold": 2000}]
TRIGGER = {"type": "compaction_trigger"}
KEYS = ["a-secret-of-the-settings", "a-former-secret-of-the-settings"]


def kinds(response: JSON) -> list[str]:
    return [item["type"] for item in response["output"]]


async def test_any_router_of_one_database_reads_it_and_after_a_restart(database_url: str) -> None:
    state = {"url": database_url}
    async with (
        compacting("chat", state=state) as one,
        compacting("ollama", state=state) as two,
    ):
        chained = await two.ask(input=LONG, context_management=MANAGED)
        again = await one.ask(input="Sure?", previous_response_id=chained["id"])
        assert again["output_text"] == "Ann"
        compacted = await one.compact(input=LONG)
        assert (await two.ask(input=compacted["output"]))["output_text"] == "Ann"
    async with compacting("responses", state=state) as three:
        assert (await three.ask(input=compacted["output"]))["output_text"] == "Ann"
        error = await three.refused(key="sk-bob", input=compacted["output"])
        assert error["code"] == "invalid_encrypted_content"


async def test_keys_of_the_settings_are_shared_without_a_database() -> None:
    async with compacting("chat", compaction={"keys": KEYS[1:]}) as one:
        compacted = await one.compact(input=LONG)
    async with compacting("chat", compaction={"keys": KEYS}) as two:
        assert (await two.ask(input=compacted["output"]))["output_text"] == "Ann"
        newer = await two.compact(input=LONG)
    async with compacting("chat", compaction={"keys": KEYS[1:]}) as three:
        error = await three.refused(input=newer["output"])
        assert (error["status"], error["code"]) == (400, "invalid_encrypted_content")
        assert error["param"] == "input[2].encrypted_content"
        assert "no longer there" in error["message"]


@pytest.mark.parametrize("by", DIALECTS)
async def test_what_a_vendor_encrypted_stays_its_own(by: Any) -> None:
    theirs = {"type": "compaction", "encrypted_content": "gAAAAAB"}
    async with compacting(by) as on:
        if by == "responses":
            await on.ask(input=[theirs, *LONG])
            assert theirs in on.upstream.requests[-1].json["input"]
            return
        error = await on.refused(input=[theirs, *LONG])
        assert (error["status"], error["param"]) == (400, "input[0]")


COMPACTED = {
    "id": "resp_1",
    "object": "response.compaction",
    "created_at": 1_700_000_000,
    "output": [{"id": "cmp_1", "type": "compaction", "encrypted_content": "gAAAAAB"}],
    "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
}
ANSWERED = {
    "id": "resp_2",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "output": COMPACTED["output"],
    "usage": COMPACTED["usage"],
}


def vendor() -> Upstream:
    """An endpoint that compacts by itself."""
    return Upstream(
        default=by_path(
            {
                "/v1/responses/compact": json_answer(COMPACTED),
                "/v1/responses": whole(orjson.dumps(ANSWERED)),
            }
        )
    )


async def test_who_is_known_to_compact_is_sent_the_orders() -> None:
    async with vendor() as upstream, compacting("responses", upstream) as on:
        item = compaction_of((await on.compact(input=LONG))["output"])
        assert not item["encrypted_content"].startswith("pmc1.")
        response = await on.ask(input=[*LONG, TRIGGER], context_management=MANAGED)
        assert kinds(response) == ["compaction"]
        sent = upstream.requests[-1].json
        assert (sent["input"][-1], sent["context_management"]) == (TRIGGER, MANAGED)
        assert len(upstream.requests) == 2


async def test_what_a_router_made_is_told_to_a_vendor_as_a_message() -> None:
    async with vendor() as upstream:
        async with compacting("chat", compaction={"keys": KEYS}) as one:
            made = await one.compact(input=LONG)
        async with compacting("responses", upstream, compaction={"keys": KEYS}) as two:
            await two.ask(input=[*made["output"], {"role": "user", "content": "And?"}])
            assert any(SUMMARY in text for text in texts_of(upstream.requests[-1]))
            await two.compact(input=made["output"])
            assert upstream.requests[-1].path == "/v1/responses/compact"
            assert any(SUMMARY in text for text in texts_of(upstream.requests[-1]))


async def test_who_has_no_route_is_asked_for_it_once() -> None:
    async with upstream_of("responses") as upstream, compacting("responses", upstream) as on:
        for _ in range(2):
            assert "compaction" in kinds(await on.compact(input=LONG))
        paths = [request.path.removeprefix("/v1/responses") for request in upstream.requests]
        assert paths == ["/compact", "", ""]


async def test_an_endpoint_that_fails_is_no_endpoint_that_cannot() -> None:
    broken = json_answer({"error": {"message": "Too long", "code": "context_length_exceeded"}}, 400)
    async with (
        Upstream(default=broken) as upstream,
        compacting("responses", upstream) as on,
    ):
        error = await on.refused("/responses/compact", input=LONG)
        assert (error["status"], error["code"]) == (400, "context_length_exceeded")
        assert {request.path for request in upstream.requests} == {"/v1/responses/compact"}


async def test_the_router_does_it_for_all_where_it_is_told_to() -> None:
    async with (
        upstream_of("responses") as upstream,
        compacting("responses", upstream, compaction={"run": "router"}) as on,
    ):
        await on.compact(input=LONG)
        assert [request.path for request in upstream.requests] == ["/v1/responses"]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_ledger_knows_what_a_summary_took(stream: bool) -> None:
    async with (
        upstream_of("chat") as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        reply = await router.ask(input=LONG, context_management=MANAGED, stream=stream)
        assert reply.status == 200
        await until(lambda: len(router.rows) == 2)
        summary, answer = router.rows
        assert (summary.operation, answer.operation) == ("compaction", "responses")
        assert summary.kind is answer.kind is Kind.FIRST
        assert summary.tokens.total == answer.tokens.total == 15
        assert summary.response == answer.response
        assert summary.request == answer.request
        await router.metric_becomes(
            1, "pointsman_compactions_total", cause="threshold", result="ok"
        )
        assert reply.headers["X-Pointsman-Endpoint"] == "one"


async def test_a_summary_is_paid_for() -> None:
    budget = {"period": "total", "tokens": 100_000}
    keys = [{"name": "ann", "key": "sk-ann", "budgets": [budget]}]
    async with compacting("chat", auth={"keys": keys}) as on:
        await on.ask(input=LONG, context_management=MANAGED)
        headers = {"Authorization": "Bearer sk-ann"}
        async with on.http.get(f"{on.url}/v1/usage", headers=headers) as response:
            told = await response.json()
        assert told["budgets"][0]["spent"] == 30


async def test_without_budget_no_summary_is_asked_for() -> None:
    budget = {"period": "total", "tokens": 100}
    keys = [{"name": "ann", "key": "sk-ann", "budgets": [budget]}]
    async with compacting("chat", auth={"keys": keys}) as on:
        for path, given in (("/responses/compact", LONG), ("/responses", [*LONG, TRIGGER])):
            error = await on.refused(path, input=given)
            assert error["status"] == 429
        assert not on.upstream.requests


async def test_models_that_a_key_may_not_use_stay_out_of_its_reach() -> None:
    keys = [{"name": "ann", "key": "sk-ann", "models": ["other"]}]
    async with compacting("chat", auth={"keys": keys}) as on:
        error = await on.refused("/responses/compact", input=LONG)
        assert error["status"] in (403, 404)
        assert not on.upstream.requests

"""What is left out of a request is named, or the request refused: for every API in one way."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.dialects.dropped import DROPPED_PARAMETERS, dropped_header, refuse_dropped
from router.errors import InvalidRequest
from router.http.body import misspelt
from router.settings.schema import Dialect
from tests.support.fetch import fetch
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, whole

STRICT: dict[str, Any] = {"server": {"unsupported": "strict"}}
MESSAGES: dict[str, Any] = {
    "model": "m",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "hi"}],
    "container": "left-out",
}


def speaking(dialect: Dialect) -> Upstream:
    return Upstream(default=whole(SPEECH[dialect].whole))


async def ask(router: Router, **fields: Any) -> Reply:
    """Ask by another API, whose request has a field that no Responses request has."""
    return await fetch(
        router.http, "POST", f"{router.url}/v1/messages", json={**MESSAGES, **fields}
    )


async def test_what_two_translations_leave_out_is_in_one_header() -> None:
    async with (
        speaking("responses") as upstream,
        routing(endpoint(upstream, "responses")) as router,
    ):
        reply = await ask(router)
        assert (reply.status, reply.headers[DROPPED_PARAMETERS]) == (200, "container")
        reply = await ask(router, stop_sequences=["x"])
        assert (reply.status, reply.headers[DROPPED_PARAMETERS]) == (
            200,
            "container, stop_sequences",
        )
        assert all("stop" not in request.json for request in upstream.requests)


@pytest.mark.parametrize("dialect", ["responses", "chat", "ollama"])
async def test_where_nothing_may_be_left_out_nobody_is_asked(dialect: Dialect) -> None:
    async with (
        speaking(dialect) as upstream,
        routing(endpoint(upstream, dialect), **STRICT) as router,
    ):
        reply = await ask(router)
        assert reply.status == 400
        assert "container" in reply.json["error"]["message"]
        assert upstream.requests == []
        assert (await ask(router, container=None)).status == 200


async def test_responses_go_up_as_they_came() -> None:
    async with (
        speaking("responses") as upstream,
        routing(endpoint(upstream, "responses"), **STRICT) as router,
    ):
        reply = await router.ask(stop=["x"], whatever=1)
        assert (reply.status, reply.headers.get(DROPPED_PARAMETERS)) == (200, None)
        assert upstream.requests[0].json["whatever"] == 1


@pytest.mark.parametrize(
    ("dialect", "fields", "dropped"),
    [
        ("chat", {"n": 2, "moderation": {"model": "x"}}, "moderation, n"),
        ("ollama", {"service_tier": "flex", "text": {"verbosity": "high"}},
         "text.verbosity, service_tier"),
        ("ollama", {"service_tier": "auto", "parallel_tool_calls": False}, None),
    ],
)  # fmt: skip
async def test_responses(dialect: Dialect, fields: dict[str, Any], dropped: str | None) -> None:
    async with (
        speaking(dialect) as upstream,
        routing(endpoint(upstream, dialect)) as lenient,
        routing(endpoint(upstream, dialect), **STRICT) as strict,
    ):
        reply = await lenient.ask(**fields)
        assert (reply.status, reply.headers.get(DROPPED_PARAMETERS)) == (200, dropped)
        reply = await strict.ask(**fields)
        if dropped is None:
            assert reply.status == 200
            return
        assert (reply.status, reply.error["code"]) == (400, "unsupported_parameter")
        assert reply.error["param"] == dropped.split(", ")[0]


@pytest.mark.parametrize("name", ["temprature", "temperatrue", "tempereture", "maxOutputTokens"])
@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("dialect", ["responses", "chat", "ollama"])
async def test_a_field_that_is_nearly_a_known_one(dialect: Dialect, chat: bool, name: str) -> None:
    spoken: Dialect = "chat" if chat and dialect == "responses" else dialect
    async with (
        speaking(spoken) as upstream,
        routing(endpoint(upstream, dialect)) as lenient,
        routing(endpoint(upstream, dialect), **STRICT) as strict,
    ):
        field: dict[str, Any] = {name: 1}
        reply = await lenient.ask(chat=chat, **field)
        assert (reply.status, reply.headers[DROPPED_PARAMETERS]) == (200, name)
        assert name not in upstream.requests[0].json
        reply = await strict.ask(chat=chat, **field)
        assert (reply.status, reply.error["code"]) == (400, "unsupported_parameter")
        assert reply.error["param"] == name
        assert len(upstream.requests) == 1


PLAIN: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "hi"},
    "/v1/embeddings": {"input": "hi"},
    "/v1/rerank": {"query": "hi", "documents": ["ho"]},
}
ANSWERS: dict[str, dict[str, Any]] = {
    "/v1/completions": {"object": "text_completion", "choices": [{"index": 0, "text": "ho"}]},
    "/v1/embeddings": {"object": "list", "data": [{"index": 0, "embedding": [0.5]}]},
    "/v1/rerank": {"results": [{"index": 0, "relevance_score": 0.5}]},
}
NEARLY = {
    "/v1/completions": "temprature",
    "/v1/embeddings": "encodingFormat",
    "/v1/rerank": "return_document",
}


@pytest.mark.parametrize("path", PLAIN)
async def test_nearly_a_known_field_of_other_operations(path: str) -> None:
    name = NEARLY[path]
    body = {"model": "m", **PLAIN[path], name: 1}
    answer = orjson.dumps({"model": "m", **ANSWERS[path], "usage": {"prompt_tokens": 1}})
    async with (
        Upstream(default=whole(answer)) as upstream,
        routing(endpoint(upstream, "chat")) as lenient,
        routing(endpoint(upstream, "chat"), **STRICT) as strict,
    ):
        reply = await fetch(lenient.http, "POST", lenient.url + path, json=body)
        assert (reply.status, reply.headers[DROPPED_PARAMETERS]) == (200, name)
        assert name not in upstream.requests[0].json
        reply = await fetch(strict.http, "POST", strict.url + path, json=body)
        assert (reply.status, reply.error["code"]) == (400, "unsupported_parameter")
        assert reply.error["param"] == name
        assert len(upstream.requests) == 1


EXTENSIONS: dict[str, tuple[str, ...]] = {
    "vLLM": (
        "add_special_tokens", "allowed_token_ids", "bad_words", "cache_salt", "guided_choice",
        "guided_decoding_backend", "guided_grammar", "guided_json", "guided_regex", "ignore_eos",
        "include_stop_str_in_output", "kv_transfer_params", "length_penalty", "logits_processors",
        "min_p", "min_tokens", "normalize", "priority", "prompt_logprobs", "repetition_penalty",
        "request_id", "return_token_ids", "return_tokens_as_token_ids", "skip_special_tokens",
        "spaces_between_special_tokens", "stop_token_ids", "structured_outputs", "top_k",
        "truncate_prompt_tokens", "use_beam_search", "vllm_xargs",
    ),
    "SGLang": ("custom_logit_processor", "lora_path", "return_hidden_states", "rid"),
    "llama.cpp": (
        "cache_prompt", "dry_multiplier", "grammar", "id_slot", "json_schema", "min_keep",
        "mirostat", "n_predict", "n_probs", "post_sampling_probs", "response_fields",
        "return_tokens", "samplers", "t_max_predict_ms", "timings_per_token", "typical_p",
    ),
    "Text Embeddings Inference": (
        "inputs", "prompt_name", "raw_scores", "return_text", "texts", "truncate",
        "truncation_direction",
    ),
    "Jina": ("embedding_type", "late_chunking", "normalized", "task"),
    "Cohere": (
        "embedding_types", "input_type", "max_chunks_per_doc", "max_tokens_per_doc", "priority",
        "rank_fields",
    ),
}  # fmt: skip


@pytest.mark.parametrize("server", EXTENSIONS)
def test_what_servers_have_beside_the_api_is_no_slip(server: str) -> None:
    assert misspelt(EXTENSIONS[server]) == []


@pytest.mark.parametrize("chat", [False, True])
async def test_fields_of_engines_pass_and_openais_own_do_not(chat: bool) -> None:
    engines: dict[str, Any] = {
        "top_k": 5,
        "min_p": 0.1,
        "guided_json": {},
        "min_tokens": 1,
        "models": ["m"],
    }
    own: dict[str, Any] = {} if chat else {"client_metadata": {"thread": "t"}}
    async with (
        speaking("chat") as upstream,
        routing(endpoint(upstream, "chat"), **STRICT) as router,
    ):
        reply = await router.ask(chat=chat, **engines, **own)
        assert (reply.status, reply.headers.get(DROPPED_PARAMETERS)) == (200, None)
        sent = upstream.requests[0].json
        assert engines.items() <= sent.items()
        assert "client_metadata" not in sent


@pytest.mark.parametrize("dialect", ["responses", "chat", "ollama"])
@pytest.mark.parametrize(
    ("fields", "param"),
    [({"max_tool_calls": 0}, "max_tool_calls"), ({"conversation": "invalid"}, "conversation")],
)
async def test_what_no_dialect_takes(dialect: Dialect, fields: dict[str, Any], param: str) -> None:
    async with speaking(dialect) as upstream, routing(endpoint(upstream, dialect)) as router:
        reply = await router.ask(**fields)
        assert (reply.status, reply.error["param"]) == (400, param)
        assert upstream.requests == []


def test_a_clients_names_are_made_fit_for_a_header() -> None:
    assert dropped_header([]) == {}
    assert dropped_header(["a", "b", "a"]) == {DROPPED_PARAMETERS: "a, b"}
    assert dropped_header(["x\r\nSet-Cookie: a=b", "ö", "n" * 99, "tools[0].a"]) == {
        DROPPED_PARAMETERS: "x??Set-Cookie:?a?b, ?, " + "n" * 64 + ", tools[0].a"
    }
    many = dropped_header(map(str, range(100)))[DROPPED_PARAMETERS].split(", ")
    assert (len(many), many[-1]) == (33, "...")


def test_a_refusal_names_the_field() -> None:
    refuse_dropped((), {})
    with pytest.raises(InvalidRequest) as caught:
        refuse_dropped(("mcp", "n"), {"tools": [{"type": "function"}, {"type": "mcp"}]})
    assert (caught.value.param, caught.value.code) == ("tools[1]", "unsupported_parameter")
    with pytest.raises(InvalidRequest) as caught:
        refuse_dropped(("n",), {"tools": "odd"})
    assert caught.value.param == "n"


CODEX: dict[str, Any] = {
    "model": "m",
    "input": "hi",
    "tools": [
        {"type": "function", "name": "exec_command", "parameters": {"type": "object"}},
        {
            "type": "namespace",
            "name": "mcp__tickets",
            "description": "",
            "tools": [{"type": "function", "name": "find", "parameters": {"type": "object"}}],
        },
        {"type": "web_search"},
    ],
}
"""What Codex offers besides its own functions: MCP servers, and a hosted tool."""


async def test_a_tool_of_codex_that_nobody_runs_is_dropped() -> None:
    async with speaking("chat") as upstream, routing(endpoint(upstream, "chat")) as router:
        reply = await fetch(router.http, "POST", f"{router.url}/v1/responses", json=CODEX)
        assert (reply.status, reply.headers[DROPPED_PARAMETERS]) == (200, "web_search")
        (request,) = upstream.requests
        names = [tool["function"]["name"] for tool in request.json["tools"]]
        assert names == ["exec_command", "mcp__tickets__find"]


async def test_an_endpoint_may_refuse_what_it_is_sent_instead() -> None:
    refusal = {"error": {"message": "'tools[1].type' must be known.", "param": "tools[1].type"}}
    async with (
        Upstream(default=whole(orjson.dumps(refusal), status=400)) as upstream,
        routing(endpoint(upstream, "responses")) as router,
    ):
        reply = await fetch(router.http, "POST", f"{router.url}/v1/responses", json=CODEX)
        assert reply.status == 400
        assert reply.json["error"]["param"] == "tools[1].type"
        first, second = upstream.requests
        assert first.json["tools"] == CODEX["tools"]
        assert {tool["type"] for tool in second.json["tools"]} == {"function", "web_search"}

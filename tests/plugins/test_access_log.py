"""The access log of a real process: one line per request, and nothing private in it."""

from __future__ import annotations

import asyncio
import hashlib
import re
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import orjson
from structlog.testing import capture_logs
from yarl import URL

from plugins.access_log import AccessLog
from router.core.exchange import Outcome
from tests.support.exchanges import an_exchange
from tests.support.fetch import fetch
from tests.support.fleet import http_client, routed, simulated

ROOT = Path(__file__).parents[2]
KEY = "sk-very-secret"
ODD = f"/nowhere/%0a%22{'x' * 500}"
WRONG_KEY = "sk-somebody-elses"
PROMPT = "say exactly: the answer is private"
CONFIG = """
server: {port: 0, shutdown_delay: 0}
auth: {keys: [{name: team-a, key: KEY}]}
endpoints: [{name: one, url: "URL", dialect: chat, api_key: sk-upstream-secret}]
logging: {format: json}
"""


async def served(tmp_path: Path, url: str, requests: Any) -> list[dict[str, Any]]:
    """Run a router in a process of its own while ``requests(base_url)`` runs; its log."""
    file = tmp_path / "pointsman.yaml"
    file.write_text(CONFIG.replace("KEY", KEY).replace("URL", url))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router", "serve", "--config", str(file)), cwd=ROOT, stderr=PIPE
    )
    assert process.stderr is not None
    lines: list[bytes] = []
    try:
        async with asyncio.timeout(40):
            while b"listening" not in (line := await process.stderr.readline()):
                lines.append(line)
            await requests(orjson.loads(line)["url"])
            process.send_signal(signal.SIGTERM)
            lines += (await process.stderr.read()).splitlines()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return [orjson.loads(line) for line in lines]


async def test_one_line_per_request_and_nothing_private(tmp_path: Path) -> None:
    body = {"model": "sim-chat", "input": PROMPT, "instructions": "Hush, hush."}
    ask = {"headers": {"Authorization": f"Bearer {KEY}"}}

    async def requests(url: str) -> None:
        async with http_client() as http:
            for fields in ({}, {"stream": True}, {"model": "unknown"}, {"temperature": 9}):
                await fetch(http, "POST", f"{url}/v1/responses", json={**body, **fields}, **ask)
            wrong = {"Authorization": f"Bearer {WRONG_KEY}", "X-Request-Id": "mine"}
            await fetch(http, "POST", f"{url}/v1/responses", json=body, headers=wrong)
            await fetch(http, "GET", f"{url}/v1/responses/resp_private", **ask)
            odd = URL(url + ODD + "?private=query", encoded=True)
            async with http.get(odd, headers=ask["headers"]) as answer:
                await answer.read()
            await fetch(http, "GET", f"{url}/health")

    async with simulated("chat") as (endpoint,):
        log = await served(tmp_path, endpoint["url"], requests)
    lines = [line for line in log if line["component"] == "access"]
    seen = [(line["route"], line["status"], line["outcome"]) for line in lines]
    assert seen == [
        ("/v1/responses", 200, "ok"),
        ("/v1/responses", 200, "ok"),
        ("/v1/responses", 404, "refused"),
        ("/v1/responses", 400, "refused"),
        ("/v1/responses", 401, "refused"),
        ("/v1/responses/{id}", 404, "refused"),
        ("other", 404, "refused"),
    ]
    whole, stream, unknown, _, refused, _, nowhere = lines
    for line in (whole, stream):
        assert line["caller"] == "team-a"
        assert (line["model"], line["endpoint"], line["attempts"]) == ("sim-chat", "one", 1)
        assert line["input_tokens"] > 0
        assert line["output_tokens"] > 0
        assert 0 < line["ms"] < 20_000
    assert (whole["stream"], stream["stream"]) == (False, True)
    assert "first_output_ms" not in whole
    assert 0 < stream["first_output_ms"] <= stream["ms"]
    assert (unknown["model"], unknown["error"]) == ("unknown", "model_not_found")
    assert refused["request_id"] == "mine"
    assert "caller" not in refused
    assert refused["refused_key"] == hashlib.sha256(WRONG_KEY.encode()).hexdigest()[:8]
    assert not any("refused_key" in line for line in lines if line is not refused)
    assert nowhere["path"] == ODD[:200]
    assert not any("path" in line for line in lines if line is not nowhere)
    for line in lines:
        assert line["client"] == "127.0.0.1"
        assert re.fullmatch(r"Python/[0-9.]+", line["agent"])
    private = re.compile(r"private|hush|sk-", re.I)
    for line in log:
        assert not private.search(orjson.dumps(line).decode()), line


def test_what_is_not_known_is_left_out_and_long_names_are_cut() -> None:
    exchange = an_exchange(route="/v1/responses", started=5.0)
    log = AccessLog()
    with capture_logs() as lines:
        log.ended(exchange)
        exchange.model = "x" * 100_000
        exchange.result.outcome = Outcome.CANCELLED
        log.ended(exchange)
    first, second = lines
    assert not {"model", "endpoint", "error", "input_tokens", "first_output_ms"} & set(first)
    assert (first["ms"], first["outcome"]) == (0.0, None)
    assert (len(second["model"]), second["outcome"]) == (200, "cancelled")


async def test_without_a_key_there_is_no_fingerprint_and_without_an_agent_no_product() -> None:
    keys = {"keys": [{"name": "a", "key": "sk-a"}]}
    async with (
        simulated("chat") as endpoints,
        routed(*endpoints, auth=keys, logging={"access": True}) as url,
        http_client() as client,
    ):
        with capture_logs() as lines:
            for agent in ("", "(odd) one", "OpenAI/Python 1.2.3 (x)", "curl/8.1.2", "a" * 500):
                await fetch(client, "GET", f"{url}/v1/models", headers={"User-Agent": agent})
    found = [line for line in lines if line["event"] == "request"]
    assert not any({"caller", "refused_key"} & set(line) for line in found)
    agents = [line.get("agent") for line in found]
    assert agents == [None, None, "OpenAI/Python", "curl/8.1.2", "a" * 64]


async def test_a_refusal_names_the_limit_or_the_budget() -> None:
    keys = [
        {"name": "few", "key": "sk-few", "limits": {"requests_per_minute": 1}},
        {"name": "poor", "key": "sk-poor", "budgets": [{"period": "day", "tokens": 1}]},
    ]
    told = []
    async with (
        simulated("chat") as endpoints,
        routed(*endpoints, auth={"keys": keys}, logging={"access": True}) as url,
        http_client() as client,
    ):
        with capture_logs() as lines:
            for key in ("sk-few", "sk-few", "sk-poor"):
                body = {"model": "sim-chat", "input": "x", "max_output_tokens": 20}
                ask: dict[str, Any] = {"headers": {"Authorization": f"Bearer {key}"}, "json": body}
                async with client.post(f"{url}/v1/responses", **ask) as answer:
                    await answer.read()
        told = [line.get("limit") for line in lines if line["event"] == "request"]
    assert told == [None, "requests_per_minute", "budget key day"]

"""Secrets, prompts and answers that were planted are in nothing that a router writes."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

import aiohttp
import orjson
import pytest

from router.settings.schema import Dialect
from tests.support.processes import Processes, RouterProcess, free_port
from tests.support.speech import SPEECH, Speech
from tests.support.upstream import Received, Upstream, Wire, json_answer, whole
from tests.support.waiting import until

SECRETS: Final = {
    name: f"sk-{name}-Zq7Xw9Kv3Tn5"
    for name in (
        "client",
        "other",
        "admin",
        "upstream",
        "redis",
        "wrong",
        "broken",
        "state",
        "option",
    )
}
_PLUGIN: Final = "tests.support.plugins:Recorder"
PROMPT: Final = "quxilombary"
ANSWER: Final = "vontreskadil"
DIALECTS: Final[tuple[Dialect, ...]] = get_args(Dialect)
STATUSES: Final = (400, 401, 404, 413, 422, 429, 500, 503)
PLAYS: Final = ("broken", "early", "garbage", "cut", *(f"status{s}" for s in STATUSES))


class _Talkative(Upstream):
    """An upstream that repeats the key it was called with, and the whole request, in its errors.

    What it is to do stands in the request, as ``play:WHAT``. ``keys`` are those it was given.
    """

    def __init__(self) -> None:
        super().__init__(default=self._answer, on_get=self._refuse)
        self.keys: set[str] = set()
        self.waiting = 0

    def _words(self, request: Received) -> str:
        given = request.headers.get("authorization") or request.headers.get("x-api-key", "")
        self.keys.add(given)
        self.keys |= {request.headers[name] for name in ("x-api-key",) if name in request.headers}
        return f"no: {given}, {request.body.decode()}, {ANSWER}"

    async def _refuse(self, wire: Wire) -> None:
        body = orjson.dumps({"error": self._words(wire.request)})
        status = 500 if wire.request.path.startswith("/asked/") else 404
        kind = {"Content-Type": "application/json"}
        reason = SECRETS["upstream"]
        wire.head(status, kind, framing="length", length=len(body), reason=reason)
        wire.piece(body)

    async def _answer(self, wire: Wire) -> None:
        request = wire.request
        speech = next((s for s in SPEECH.values() if _takes(request.path, s.path)), None)
        if speech is None:
            await self._refuse(wire)
            return
        words = self._words(request)
        play = request.body.partition(b"play:")[2].partition(b" ")[0].decode()
        if play.startswith("status"):
            error: Any = {"message": words, "type": "x", "code": "too_bad", "param": "input"}
            if speech is SPEECH["ollama"]:
                error = words
            await json_answer({"error": error}, int(play[6:]))(wire)
        elif play == "garbage":
            await whole(f"data: {{{words}\n\n".encode(), kind=speech.kind)(wire)
        elif play == "well" and not request.json.get("stream"):
            await whole(_marked(speech.whole))(wire)
        else:
            await self._stream(wire, speech, play, words)

    async def _stream(self, wire: Wire, speech: Speech, play: str, words: str) -> None:
        wire.head(200, {"Content-Type": speech.kind})
        wire.piece(speech.opening)
        if play != "early":
            wire.piece(_marked(speech.words[0]))
        if play in ("broken", "early"):
            said = orjson.dumps(words)[1:-1]
            wire.piece(speech.error.replace(b"the GPU is on fire", said))
        elif play == "cut":
            wire.close()
            return
        elif play == "hold":
            self.waiting += 1
            await wire.gone.wait()
        else:
            wire.piece(_marked(b"".join((*speech.words[1:], speech.closing))))
        wire.end()


def _takes(path: str, speech: str) -> bool:
    """Whether this is an endpoint's name and the path of a dialect."""
    return path.count("/") == speech.count("/") + 1 and path.endswith(speech)


def _marked(speech: bytes) -> bytes:
    return speech.replace(b"Hello", ANSWER.encode())


def _client() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20))


class _Clients:
    """Ask the router; ``shown`` is every body that holds no answer, by what was asked."""

    def __init__(self, router: RouterProcess, http: aiohttp.ClientSession) -> None:
        self.router = router
        self.shown: list[tuple[str, int, str]] = []
        self.answers: list[str] = []
        self._http = http

    async def send(
        self, method: str, path: str, key: str | None = "client", **options: Any
    ) -> tuple[int, str]:
        """Status and body; a stream that breaks off is as long as it is."""
        headers = dict(options.pop("headers", {}))
        if key is not None:
            headers["Authorization"] = f"Bearer {SECRETS.get(key, key)}"
        url, body = self.router.url + path, b""
        async with self._http.request(method, url, headers=headers, **options) as response:
            try:
                async for piece in response.content.iter_any():
                    body += piece
            except aiohttp.ClientPayloadError:
                body += b"(cut)"
            text = body.decode(errors="replace")
            if response.status >= 400 or "/v1/" not in path or '"failed"' in text:
                self.shown.append((f"{method} {path} {options}", response.status, text))
            else:
                self.answers.append(text)
            return response.status, text

    async def ask(self, play: str, dialect: str, *, stream: bool, chat: bool, **more: Any) -> int:
        """The status of a request for an answer."""
        prompt, body = (
            f"play:{play} {PROMPT}",
            {"model": f"{play}-{dialect}", "stream": stream, **more},
        )
        if chat:
            body |= {"messages": [{"role": "user", "content": prompt}], "user": PROMPT}
            status, _ = await self.send("POST", "/v1/chat/completions", json=body)
        else:
            body |= {"input": prompt, "instructions": PROMPT, "metadata": {"m": PROMPT}}
            status, _ = await self.send("POST", "/v1/responses", json=body)
        return status

    async def ask_as_claude(self, play: str, dialect: str, *, stream: bool) -> int:
        """The same with Anthropic's API, and its header for the key."""
        body = {
            "model": f"{play}-{dialect}",
            "max_tokens": 100,
            "stream": stream,
            "system": PROMPT,
            "metadata": {"user_id": PROMPT},
            "messages": [{"role": "user", "content": f"play:{play} {PROMPT}"}],
        }
        headers = {"x-api-key": SECRETS["client"]}
        status, _ = await self.send("POST", "/v1/messages", None, json=body, headers=headers)
        return status

    async def in_background(self, play: str) -> None:
        """A background run, to its end."""
        body = {"model": f"{play}-chat", "input": f"play:{play} {PROMPT} aside", "background": True}
        status, text = await self.send("POST", "/v1/responses", json=body)
        assert status == 200, text
        async with asyncio.timeout(60):
            while '"queued"' in text or '"in_progress"' in text:
                await asyncio.sleep(0.02)
                ident = orjson.loads(text)["id"]
                _, text = await self.send("GET", f"/v1/responses/{ident}")

    async def leave(self, upstream: _Talkative) -> None:
        """Begin to read a stream, and go away."""
        body = {"model": "hold-chat", "stream": True, "input": f"play:hold {PROMPT}"}
        headers = {"Authorization": f"Bearer {SECRETS['client']}"}
        url = f"{self.router.url}/v1/responses"
        async with self._http.post(url, json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            await response.content.readuntil(ANSWER.encode())
        assert upstream.waiting == 1


@pytest.mark.parametrize("form", ["json", "console"])
async def test_nothing_planted_is_found(tmp_path: Path, form: str) -> None:
    upstream = _Talkative()
    async with upstream, _client() as http:
        with Processes(tmp_path) as processes:
            settings = _settings(upstream.address, tmp_path, form)
            router = await processes.router("router", settings)
            clients = _Clients(router, http)
            await _good(clients)
            await _bad(clients)
            await clients.leave(upstream)
            virtual = await _keys(clients)
            await _reloads(clients, settings)
            for path in ("/metrics", "/ready", "/health", "/", "/openapi.json"):
                await clients.send("GET", path)
            for path in ("/admin/endpoints", "/admin/usage", "/admin/keys", "/admin/cache"):
                await clients.send("GET", path, "admin")
            journal = b"".join(file.read_bytes() for file in (tmp_path / "usage").iterdir())
            modes = {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "usage").iterdir()}
            router.signal(signal.SIGTERM)
            assert await router.ended() == 0
    log = router.log.read_text()
    _check_that_it_happened(log, clients, upstream, journal)
    secrets = {**SECRETS, **virtual}
    places = [("log", line) for line in log.splitlines()]
    places.append(("journal", journal.decode()))
    places += [(what, text) for what, _, text in clients.shown if "GET /metrics" in what]
    found = list(_found({**secrets, "prompt": PROMPT, "answer": ANSWER}, places))
    shown = [(f"{status} {what}"[:200], text) for what, status, text in clients.shown]
    found += _found(secrets, shown)
    found += _found(secrets, [("answer", text) for text in clients.answers])
    assert not found, "\n".join([f"{len(found)} leaks, such as", *found[:20]])
    assert modes == {0o600}
    for name in ("usage", "cache"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700, name


def _found(planted: dict[str, str], places: list[tuple[str, str]]) -> Iterator[str]:
    """What is where."""
    for where, text in places:
        for name, value in planted.items():
            if value in text:
                at = text.index(value)
                yield f"{name} is in {where}: {text[:120]} … {text[max(0, at - 100) : at + 40]}"


def _check_that_it_happened(
    log: str, clients: _Clients, upstream: _Talkative, journal: bytes
) -> None:
    for event in ("attempt failed", "limits cannot be counted", "configuration refused",
                  "configuration reloaded", "admin refused", "bad HTTP", "virtual key created",
                  "endpoint lists no models", "endpoint cannot be used", "draining"):  # fmt: skip
        assert event in log, f"{event} is not in the log"
    assert upstream.keys == {f"Bearer {SECRETS['upstream']}", SECRETS["upstream"]}
    assert any(ANSWER in text for text in clients.answers)
    assert any("pointsman_" in text for _, _, text in clients.shown)
    assert any("[api_key]" in text for _, _, text in clients.shown)
    assert journal.count(b"\n") > 20
    statuses = {status for _, status, _ in clients.shown}
    assert {400, 401, 404, 429, 502, 503} <= statuses, statuses


def _settings(url: str, directory: Path, form: str) -> dict[str, Any]:
    common = {"api_key": SECRETS["upstream"], "capabilities": {"*": {"context_length": 9000}}}
    endpoints = [
        {
            "name": dialect,
            "url": f"{url}/{dialect}{SPEECH[dialect].prefix}",
            "dialect": dialect,
            "models": [f"{play}-{dialect}" for play in ("well", "hold", *PLAYS)],
            **common,
        }
        for dialect in DIALECTS
    ]
    endpoints.append({"name": "asked", "url": f"{url}/asked/v1", "dialect": "chat", **common})
    limits = {"requests_per_minute": 10_000, "tokens_per_minute": 10**9}
    redis = f"redis://:{SECRETS['redis']}@127.0.0.1:{free_port()}/0"
    return {
        "auth": {
            "keys": [
                {"name": "ann", "key": SECRETS["client"], "limits": limits},
                {"name": "bob", "key": SECRETS["other"], "models": ["well-chat"]},
            ]
        },
        "admin": {"key": SECRETS["admin"]},
        "endpoints": endpoints,
        "balance": {"breaker": {"failures": 999, "ratio": 1.0}},
        "state": {"url": f"sqlite:///{directory / 'state.db'}"},
        "cache": {"mode": "always", "store": f"disk://{directory / 'cache'}"},
        "accounts": {
            "journal": str(directory / "usage"),
            "list_prices": False,
            "limits": {"store": redis, "on_down": "fail_open"},
        },
        "logging": {"level": "debug", "format": form, "access": True},
        "plugins": [{"plugin": _PLUGIN, "options": {"key": SECRETS["option"]}}],
    }


async def _good(clients: _Clients) -> None:
    for dialect in DIALECTS:
        for stream in (False, True):
            for chat in (False, True):
                assert await clients.ask("well", dialect, stream=stream, chat=chat) == 200
            assert await clients.ask_as_claude("well", dialect, stream=stream) == 200
        assert await clients.ask("well", dialect, stream=False, chat=False) == 200  # from the cache
    await clients.in_background("well")


async def _bad(clients: _Clients) -> None:
    """Errors of the upstream, and of clients."""
    for play in PLAYS:
        for dialect in DIALECTS:
            await clients.ask(play, dialect, stream=True, chat=False, store=False)
            await clients.ask(play, dialect, stream=play == "early", chat=True)
            await clients.ask_as_claude(play, dialect, stream=play != "early")
    for play in ("status400", "early", "broken", "garbage"):
        await clients.in_background(play)
    await clients.ask("status400", "nobody", stream=False, chat=False)
    good = {"model": "well-responses", "input": f"play:well {PROMPT}"}
    for key in (None, "wrong", SECRETS["client"] + "x", "admin", "other", "Bearer", "é"):
        await clients.send("POST", "/v1/responses", key, json=good)
        await clients.send("GET", "/admin/keys", key if key != "admin" else "client")
    wrong = SECRETS["wrong"]
    for headers in ({"X-Api-Key": wrong}, {"Authorization": f"Basic {wrong}"}):
        await clients.send("POST", "/v1/responses", None, json=good, headers=headers)
        await clients.send("POST", "/v1/messages", None, json=good, headers=headers)
    await clients.send("GET", f"/v1/models?key={wrong}", None)
    await clients.send("GET", f"/v1/models?key={SECRETS['client']}")
    text = json.dumps(good)
    for data in (text[:-1], text + "}", text.encode() + b"\xff", f'"{PROMPT}"', f"[{PROMPT}]"):
        await clients.send("POST", "/v1/responses", data=data)
        await clients.send("POST", "/v1/chat/completions", data=data)
        await clients.send("POST", "/v1/messages", data=data)
    for fault in ({"input": {PROMPT: 1}}, {"tools": [{"type": PROMPT}]}, {PROMPT: PROMPT},
                  {"temperature": PROMPT}, {"previous_response_id": PROMPT}):  # fmt: skip
        await clients.send("POST", "/v1/responses", json={**good, **fault})
    port = int(clients.router.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET / {PROMPT}\r\nAuthorization: Bearer {wrong}\r\n\r\n".encode())
    clients.shown.append(("nonsense", 400, (await reader.read()).decode()))
    writer.close()
    await writer.wait_closed()


async def _keys(clients: _Clients) -> dict[str, str]:
    """Virtual keys, by what they are here; they are shown once, and not looked for there."""
    made: dict[str, str] = {}
    for name, path, body in (
        ("virtual", "/admin/keys", {"name": "eve", "limits": {"requests_per_minute": 10}}),
        ("rotated", "/admin/keys/eve/rotate", {"grace": 60}),
    ):
        status, text = await clients.send("POST", path, "admin", json=body)
        assert status in (200, 201), text
        clients.shown.pop()
        made[name] = orjson.loads(text)["key"]
    for key in made.values():
        status, _ = await clients.send("GET", "/v1/models", key)
        assert status == 200
        await clients.send("GET", "/v1/usage", key)
        ask = {"model": "status422-chat", "input": f"play:status422 {PROMPT}"}
        await clients.send("POST", "/v1/responses", key, json=ask)
    await clients.send("GET", "/admin/keys/eve", "admin")
    await clients.send("DELETE", "/admin/keys/eve", "admin")
    for key in made.values():
        status, _ = await clients.send("GET", "/v1/models", key)
        assert status == 401
    return made


async def _reloads(clients: _Clients, settings: dict[str, Any]) -> None:
    """The file is broken in many ways, and good in the end."""
    router, broken = clients.router, SECRETS["broken"]
    server = json.loads(router.text_of(settings))
    key, endpoint = server["auth"]["keys"][0], server["endpoints"][0]
    url = f"redis://:{broken}@127.0.0.1:notaport"
    for change in (
        {"auth": {"keys": [{**key, "key": [broken]}]}},
        {"auth": {"keys": [{"name": broken, "key": broken}, {"name": broken, "key": broken}]}},
        {"auth": {"keys": broken}},
        {"endpoints": [{**endpoint, "api_key": {broken: broken}}]},
        {"endpoints": [{**endpoint, "api_key": broken + "\n"}]},
        {"endpoints": [{**endpoint, "url": f"http://me:{broken}@127.0.0.1:1/v1"}]},
        {"admin": {"key": [broken]}},
        {"admin": {"key": SECRETS["client"]}},
        {"cache": {"store": url}},
        {"accounts": {"limits": {"store": url}}},
        {"state": {"url": f"postgresql://me:{SECRETS['state']}@127.0.0.1:notaport/x"}},
        {"plugins": [{"plugin": _PLUGIN, "options": [broken]}]},
        {"plugins": [{"plugin": "limits", "options": {"key": broken}}]},
        {"plugins": [{"plugin": "nowhere:make", "options": {"key": broken}, broken: broken}]},
        {"plugins": [{"plugin": "nowhere", "options": {"key": broken}}]},
        {"state": {"url": f"mysql://me:{SECRETS['state']}@127.0.0.1/x"}},
    ):
        router.config.write_text(json.dumps({**server, **change}))
        status, text = await clients.send("POST", "/admin/reload", "admin")
        assert status == 400, (change, text)
    router.config.write_text(f"auth: {{keys: [{{name: x, key: '{broken}\n")
    before = router.log.read_text().count("configuration refused")
    router.signal(signal.SIGHUP)
    await until(lambda: router.log.read_text().count("configuration refused") > before)
    server["auth"]["keys"][1]["key"] = broken
    server["plugins"][0]["options"]["key"] = broken
    router.config.write_text(json.dumps(server))
    status, text = await clients.send("POST", "/admin/reload", "admin")
    assert status == 200, text

"""A real engine, a router in front of it, and the same question to both."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from router.settings.schema import Dialect
from tests.matrix.asking import BODIES, POSTED, Ask
from tests.matrix.said import Said, read
from tests.support.fetch import fetch
from tests.support.processes import Process
from tests.support.router import Reply, Router, routing

__all__ = ["DIALECTS", "PATIENCE", "Behind", "Engine", "Own", "body_for", "in_front_of"]

DIALECTS: Final[tuple[Dialect, ...]] = ("chat", "responses")
"""What the engines are configured as; both of them speak both."""

PATIENCE: Final = 180.0
"""Seconds until an engine that does not answer counts as broken: machines are busy."""

_LIMITS: Final = {
    "Responses": "max_output_tokens",
    "Chat Completions": "max_tokens",
    "Completions": "max_tokens",
    "Anthropic Messages": "max_tokens",
}


@dataclass(frozen=True)
class Own:
    """What an engine answers when it is asked itself; ``logprobs`` as ``Said`` has them."""

    text: str
    usage: tuple[int, int]
    logprobs: list[tuple[str, int]]


class Engine:
    """A server of models as a process; ``model`` is its own name for the only one it has."""

    def __init__(self, process: Process, url: str, model: str) -> None:
        self.url = url
        self.model = model
        self._process = process

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._process.running

    def start(self) -> None:
        """Run it; it is not ready yet."""
        self._process.start()

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._process.kill()

    def status(self, path: str) -> int | None:
        """The status of a GET; None where nobody listens."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as response:
                status: int = response.status
                return status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    def until(self, *statuses: int) -> int:
        """Wait until ``/health`` is answered with one of these; fail where it ends before."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            assert self._process.running, self._process.last_words()
            if (status := self.status("/health")) in statuses:
                return status
            time.sleep(0.02)
        raise AssertionError(f"{self._process.name}:\n{self._process.last_words()}")

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What the engine itself answers."""
        request = urllib.request.Request(
            self.url + path,
            json.dumps({"stream": False, **body, "model": self.model}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            answer: dict[str, Any] = json.load(response)
        return answer

    def answer(self, question: str, most: int, **fields: Any) -> Own:
        """Its answer to a question, in so many tokens at most, at temperature 0."""
        messages = [{"role": "user", "content": question}]
        body = {"messages": messages, "max_tokens": most, "temperature": 0, **fields}
        answer = self.ask("/v1/chat/completions", body)
        [choice] = answer["choices"]
        entries = (choice.get("logprobs") or {}).get("content") or ()
        usage = answer["usage"]
        return Own(
            choice["message"]["content"],
            (usage["prompt_tokens"], usage["completion_tokens"]),
            [(entry["token"], len(entry["top_logprobs"])) for entry in entries],
        )

    def slots(self) -> list[dict[str, Any]]:
        """What llama.cpp says of its slots."""
        with urllib.request.urlopen(self.url + "/slots", timeout=PATIENCE) as response:
            slots: list[dict[str, Any]] = json.load(response)
        return slots


@dataclass
class Behind:
    """An engine behind a router that calls its model ``small``."""

    engine: Engine
    dialect: Dialect
    router: Router
    http: aiohttp.ClientSession

    async def post(self, path: str, body: dict[str, Any]) -> Reply:
        """Ask the router."""
        return await fetch(self.http, "POST", self.router.url + path, json=body)

    async def ask(self, surface: str, ask: Ask, most: int, **fields: Any) -> Said:
        """Ask through an API; at most so many tokens are wanted, at temperature 0."""
        body = body_for(surface, ask, most) | fields
        reply = await self.post(POSTED[surface], body)
        assert reply.status == 200, reply.body
        return read(surface, reply, stream=ask.stream)


def body_for(surface: str, ask: Ask, most: int) -> dict[str, Any]:
    """The body of a request for at most so many tokens, the likeliest ones."""
    body = BODIES[surface](ask) | {"model": "small"}
    if surface in _LIMITS:
        return body | {_LIMITS[surface]: most, "temperature": 0}
    return body | {"options": {"num_predict": most, "temperature": 0}}


@asynccontextmanager
async def in_front_of(
    engine: Engine,
    dialect: Dialect,
    *,
    models: list[str] | None = None,
    stream_whole_answers: bool = False,
    **sections: Any,
) -> AsyncIterator[Behind]:
    """A router in front of the engine, which finds its models out unless they are given."""
    endpoint = {
        "name": "engine",
        "url": engine.url + "/v1",
        "dialect": dialect,
        "aliases": {"small": engine.model},
        "stream_whole_answers": stream_whole_answers,
        "timeouts": {"connect": 10, "first_byte": PATIENCE, "idle": PATIENCE, "total": PATIENCE},
    }
    if models is not None:
        endpoint["models"] = models
    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    async with (
        aiohttp.ClientSession(timeout=timeout) as http,
        routing(endpoint, **sections) as router,
    ):
        yield Behind(engine, dialect, router, http)

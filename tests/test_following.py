"""``pointsman serve`` in a process of its own, whose configuration changes while it runs."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from router.settings.schema import Dialect
from tests.support.calling import answering
from tests.support.client import Client
from tests.support.fleet import http_client
from tests.support.processes import Process, Processes, RouterProcess
from tests.support.router import endpoint
from tests.support.speech import SPEECH
from tests.support.sse import check_responses_stream, parse_events
from tests.support.upstream import Upstream, Wire, streamed
from tests.support.waiting import until

DIALECT: Dialect = "chat"
CHAT = SPEECH[DIALECT]
OLD, NEW = "sk-old-secret", "sk-new-secret"
LOGS = {"access": False, "format": "json"}

RELOADED = "configuration reloaded"
REFUSED = "configuration refused, nothing is changed"


def settings(upstream: Upstream, key: str, **sections: Any) -> dict[str, Any]:
    """The configuration of a router for one client, in front of ``upstream``."""
    limits = {"first_byte": 30, "idle": 30, "total": 60}
    return {
        "endpoints": [endpoint(upstream, DIALECT, timeouts=limits)],
        "auth": {"keys": [{"name": key[3:6], "key": key}]},
        "state": {"url": "sqlite:///:memory:"},
        **sections,
    }


def written(process: RouterProcess, changes: Mapping[str, Any] | str) -> None:
    """Put another configuration in the place of the file, in one step."""
    text = changes if isinstance(changes, str) else process.text_of(changes)
    fresh = process.config.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(process.config)


def logged(process: Process, *events: str) -> list[dict[str, Any]]:
    """The lines of the log about these events."""
    lines = [line for line in process.log.read_bytes().splitlines() if line.startswith(b"{")]
    return [line for line in map(orjson.loads, lines) if line["event"] in events]


async def hang_up(process: RouterProcess) -> dict[str, Any]:
    """Send SIGHUP; the line in the log that says what came of it."""
    before = len(logged(process, RELOADED, REFUSED))
    process.signal(signal.SIGHUP)
    await until(lambda: len(logged(process, RELOADED, REFUSED)) > before)
    return logged(process, RELOADED, REFUSED)[-1]


async def status_for(http: aiohttp.ClientSession, process: RouterProcess, key: str) -> int:
    """The status of a request with this key."""
    headers = {"Authorization": f"Bearer {key}"}
    async with http.get(f"{process.url}/v1/models", headers=headers) as response:
        return response.status


async def well_ended(process: Process) -> None:
    """Stop it; it must not have left a traceback."""
    process.signal(signal.SIGTERM)
    assert await process.ended() == 0, process.last_words()
    assert process.complaints(of=["Traceback"]) == []


async def test_a_signal_changes_the_keys_and_no_stream(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def goes_on(wire: Wire) -> None:
        await go_on.wait()
        for piece in (*CHAT.words[1:], CHAT.closing):
            wire.piece(piece)
        wire.end()

    pausing = streamed(CHAT.opening, CHAT.words[0], kind=CHAT.kind, then=goes_on)
    async with Upstream(pausing) as upstream, http_client() as http:
        with Processes(tmp_path) as processes:
            process = await processes.router("router", settings(upstream, OLD))
            assert await status_for(http, process, OLD) == 200
            client = await Client.open(process.url)
            client.ask(stream=True, headers=f"Authorization: Bearer {OLD}\r\nConnection: close\r\n")
            head = await client.until(b"Hello")
            written(process, settings(upstream, NEW))
            line = await hang_up(process)
            assert (line["event"], line["level"]) == (RELOADED, "info")
            assert line["changed"] == ["key added: new", "key removed: old"]
            assert await status_for(http, process, NEW) == 200
            assert await status_for(http, process, OLD) == 401
            go_on.set()
            body = (head + await client.rest()).split(b"\r\n\r\n", 1)[1]
            events = parse_events(unchunked(body))
            assert check_responses_stream(events)["output_text"] == CHAT.text
            await well_ended(process)
            assert process.complaints() == []


def unchunked(body: bytes) -> bytes:
    """What is in a chunked body."""
    data = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        data += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    return data


async def test_a_bad_file_is_refused_with_its_reasons(tmp_path: Path) -> None:
    async with answering(DIALECT) as upstream, http_client() as http:
        good = settings(upstream, OLD)
        (one,) = good["endpoints"]
        bad: list[tuple[Mapping[str, Any] | str, list[str]]] = [
            ("endpoints: [", [":1: is not valid YAML: "]),
            ({**good, "balance": {"polcy": "fastest"}}, ["balance.polcy: unknown key, did you"]),
            (
                {**good, "auth": {"keys": [{"name": "x", "key": "${NOT_SET_AT_ALL}"}]}},
                ["auth.keys[0].key: the environment variable NOT_SET_AT_ALL is not set"],
            ),
            (
                {**good, "endpoints": [one, {**one, "weight": -1}]},
                [
                    "endpoints[1].name: is already the name of another endpoint",
                    "endpoints[1].weight: must be greater than 0",
                ],
            ),
            (
                {**good, "state": {"url": "sqlite:///elsewhere.db"}, "metrics": {"require_key": 1}},
                ["metrics.require_key: takes a restart", "state.url: takes a restart"],
            ),
            ({**good, "plugins": ["nowhere:make"]}, ["plugins[0]: nowhere:make: there is no"]),
        ]
        with Processes(tmp_path) as processes:
            process = await processes.router("router", good)
            for content, reasons in bad:
                written(process, content)
                line = await hang_up(process)
                assert (line["event"], line["level"]) == (REFUSED, "error")
                assert line["file"] == str(process.config)
                assert len(line["reasons"]) == len(reasons)
                for told, reason in zip(line["reasons"], reasons, strict=True):
                    assert reason in told
                assert await status_for(http, process, OLD) == 200
            process.config.unlink()
            line = await hang_up(process)
            (reason,) = line["reasons"]
            assert reason == f"{process.config}: cannot be read: No such file or directory"
            assert await status_for(http, process, OLD) == 200
            await well_ended(process)
            assert all(REFUSED in complaint for complaint in process.complaints())


async def test_a_changed_file_is_taken_over_unasked(tmp_path: Path) -> None:
    async with answering(DIALECT) as upstream, http_client() as http:
        with Processes(tmp_path) as processes:
            process = await processes.router("router", settings(upstream, OLD))
            written(process, settings(upstream, NEW, fallbacks={"big": ["m"]}))
            await until(lambda: bool(logged(process, RELOADED)))
            (line,) = logged(process, RELOADED)
            assert line["changed"] == ["key added: new", "key removed: old", "fallbacks changed"]
            assert await status_for(http, process, NEW) == 200
            await well_ended(process)


async def test_the_log_follows(tmp_path: Path) -> None:
    async with answering(DIALECT) as upstream, http_client() as http:
        logging = {**LOGS, "access": True}
        quiet, loud = {**logging, "level": "warning"}, {**logging, "level": "info"}
        with Processes(tmp_path) as processes:
            process = await processes.router("router", settings(upstream, OLD, logging=logging))
            written(process, settings(upstream, OLD, logging=quiet))
            process.signal(signal.SIGHUP)

            async def reloads() -> int:
                async with http.get(f"{process.url}/metrics") as response:
                    text = await response.text()
                (line,) = [at for at in text.splitlines() if 'reloads_total{result="ok"' in at]
                return int(float(line.split()[-1]))

            async with asyncio.timeout(30):
                while await reloads() < 1:  # noqa: ASYNC110 (nothing else tells)
                    await asyncio.sleep(0.05)
            before = len(logged(process, "request"))
            assert await status_for(http, process, OLD) == 200
            written(process, settings(upstream, OLD, logging=loud))
            line = await hang_up(process)
            assert line["changed"] == ["logging changed: level"]
            assert len(logged(process, RELOADED)) == 1
            assert len(logged(process, "request")) == before
            assert await status_for(http, process, OLD) == 200
            await until(lambda: len(logged(process, "request")) == before + 1)
            await well_ended(process)


async def test_without_a_file_a_closed_terminal_ends_it(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "router", "demo", "--port", "0")
    process = Process("demo", command, tmp_path / "demo.log")
    process.start()
    try:
        await until(lambda: bool(logged(process, "listening")))
        process.signal(signal.SIGHUP)
        await until(lambda: not process.running)
        assert logged(process, "draining")
    finally:
        process.kill()

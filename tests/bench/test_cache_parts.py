"""The parts of the cache's benchmark."""

from __future__ import annotations

import asyncio
import gc
import time
from itertools import count
from typing import Any

import orjson
import pytest

from cache.store import StoreError

from .bodies import Request, make_requests
from .cache_door import CompletionsChecker, as_completions, numbered
from .cache_filling import Pretended, asked, entries, fill, make_cache, questions
from .cache_report import Findings
from .cache_setup import told
from .cache_watch import Watch
from .children import BenchError
from .shapes import Shape, chat_body, chat_writes

SHAPE = Shape(4, 0)


def bodies(requests: list[Request]) -> list[dict[str, Any]]:
    """Those of requests on the wire, whose length is checked."""
    found = []
    for request in requests:
        head, _, data = request.wire.partition(b"\r\n\r\n")
        assert b"Content-Length: %d" % len(data) in head.split(b"\r\n")
        found.append(orjson.loads(data))
    return found


def test_findings_know_what_is_met() -> None:
    findings = Findings()
    findings.add("one", "low enough", [1.0, 2.0, 9.0], "ms", at_most=2.0)
    findings.add("one", "not high enough", 1.4, "x off", at_least=1.5)
    findings.add("two", "told only", 7.0, "s", note="a note")
    assert [figure.met for figure in findings.figures] == [True, False, None]
    assert [figure.title for figure in findings.missed()] == ["not high enough"]
    lines = findings.table()
    assert [line for line in lines if line.startswith("-- ")] == ["-- one", "-- two"]
    assert "NOT MET" in lines[3]
    assert lines[5].endswith("(a note)")
    assert [one["met"] for one in findings.as_json()] == [True, False, None]
    with pytest.raises(ValueError, match="nothing was measured"):
        findings.add("two", "nothing", [], "s")


def test_numbered_requests_are_all_for_something_else() -> None:
    requests = make_requests(SHAPE, stream=False, key="k", count=6)
    made = bodies(numbered(requests, count(1), 20))
    keys = {asked(str(body["input"]), limit=body["max_output_tokens"])[1].key for body in made}
    assert len(keys) == 20


def test_completions_ask_for_the_same_text() -> None:
    requests = make_requests(SHAPE, stream=True, key="k", count=12)
    for body in bodies(list(map(as_completions, requests))):
        assert body["messages"]
        assert all(isinstance(message["content"], str) for message in body["messages"])
        assert body["stream"] is True


def test_answers_in_the_form_of_completions_are_checked() -> None:
    checker, other = CompletionsChecker(), Shape(4, 0, 1)
    assert checker.body(chat_body(SHAPE), SHAPE) is None
    assert checker.body(chat_body(SHAPE), other) is not None
    assert checker.body(b"{}", SHAPE) is not None
    stream = b"".join(chat_writes(SHAPE, True))
    assert checker.stream(stream, SHAPE) is None
    assert checker.stream(stream, other) is not None
    assert checker.stream(stream[:-20], SHAPE) is not None


def test_what_a_process_has_told_is_found_among_its_output() -> None:
    assert told(b'a line\nFIGURES {"a": 1.5}\nanother', "it") == {"a": 1.5}
    with pytest.raises(BenchError, match="nothing"):
        told(b"a line", "it")


async def test_what_is_filled_is_found() -> None:
    texts, vectors = questions(40)
    cache = make_cache("memory://", 1 << 24, Pretended("e"))
    await cache.open()
    try:
        epoch = await cache.store.epoch()
        assert await fill(cache.store, entries(texts, vectors, "e", epoch)) == 40
        for text in texts:
            assert (await cache.store.get(asked(text)[1].key)).entry is not None
    finally:
        await cache.close()


async def test_a_store_that_cannot_be_used_is_no_store_to_fill() -> None:
    cache = make_cache("redis://127.0.0.1:1/0", 1 << 24)
    with pytest.raises(StoreError):
        await cache.store.epoch()
    await cache.store.close()


def test_the_watch_finds_what_holds_up_the_loop() -> None:
    async def holds_up() -> None:
        until = time.thread_time() + 0.03
        while time.thread_time() < until:
            pass

    async def collects() -> None:
        gc.collect()

    async def main() -> dict[str, Any]:
        watch = Watch()
        with watch.watching():
            await asyncio.sleep(0)
            await asyncio.create_task(collects())
            await asyncio.create_task(holds_up())
            seen = watch.report()
            watch.reset()
            assert watch.report()["own"] == 0.0
        return seen

    seen = asyncio.run(main())
    assert seen["own"] >= 30.0
    assert seen["wall"] >= 30.0
    assert seen["gc"] > 0.0
    assert "holds_up" in seen["where"][0]

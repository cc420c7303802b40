"""The parts of the benchmark that decide what a run says: checks, bodies, ratios, failures."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import shapes
from .bodies import Request, make_requests
from .check import Checker
from .children import BenchError, Children
from .load import Load, Result
from .mock import serve
from .report import DOOR_GOALS, DOOR_ROWS, Figures, Spread, judge, table, verdict_lines
from .run import main
from .shapes import MOCK_RESPONSE_ID, Shape

SHAPE = Shape(20, 0, 2)

Events = list[dict[str, Any]]


def _framed(events: Events) -> bytes:
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events
    )


def _with_id(response_id: str) -> Events:
    events = shapes.response_events(SHAPE)
    for event in events:
        if "response" in event:
            event["response"]["id"] = response_id
    return events


# -- shapes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [Shape(1, 0), Shape(64, 20, 3), Shape(9999, 9999, 1)])
def test_a_shape_survives_its_name(shape: Shape) -> None:
    assert Shape.parse(shape.model) == shape


@pytest.mark.parametrize("name", ["", "gpt", "mock-n0-d1-v0", "mock-n4-d1-v9", "mock-n4-d1-v0x"])
def test_other_names_are_no_shapes(name: str) -> None:
    with pytest.raises(ValueError, match="not a model of the mock"):
        Shape.parse(name)


def test_variants_have_different_texts() -> None:
    assert len({Shape(5, 0, variant).text for variant in range(shapes.VARIANTS)}) == shapes.VARIANTS


def test_every_dialect_streams_the_same_text() -> None:
    chat = b"".join(shapes.chat_writes(SHAPE, True)).removesuffix(b"data: [DONE]\n\n")
    chunks = [json.loads(frame[6:]) for frame in chat.split(b"\n\n") if frame]
    text = [c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"]]
    assert "".join(text) == SHAPE.text
    assert chunks[-1]["usage"]["completion_tokens"] == SHAPE.deltas

    lines = [json.loads(line) for line in b"".join(shapes.ollama_writes(SHAPE)).splitlines()]
    assert "".join(line["message"]["content"] for line in lines) == SHAPE.text

    stream = b"".join(shapes.responses_writes(SHAPE))
    assert stream.count(b"data:") == SHAPE.events
    assert Checker(own_ids=False).stream(stream, SHAPE) is None


def test_the_first_delta_is_in_the_first_write() -> None:
    assert b"output_text.delta" in shapes.responses_writes(SHAPE)[0]
    assert json.dumps(SHAPE.pieces[0])[1:-1].encode() in shapes.chat_writes(SHAPE, False)[0]


# -- the checker ------------------------------------------------------------------------------


def _drop_delta(events: Events) -> Events:
    events = [e for e in events if e.get("delta") != SHAPE.pieces[3]]
    return [{**e, "sequence_number": n} for n, e in enumerate(events)]


def _swap(events: Events) -> Events:
    events[6], events[7] = events[7], events[6]
    return events


def _set(place: int, **values: object) -> Callable[[Events], Events]:
    def damage(events: Events) -> Events:
        events[place].update(values)
        return events

    return damage


def _set_response(place: int, **values: object) -> Callable[[Events], Events]:
    def damage(events: Events) -> Events:
        events[place]["response"].update(values)
        return events

    return damage


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda events: [], "no events"),
        (lambda events: events[:-1], "ends with response.output_item.done"),
        (lambda events: events[1:], "sequence_number 1"),
        (_swap, "event 6 has the sequence_number 7"),
        (_drop_delta, "another text"),
        (_set(5, delta="x"), "another text"),
        (_set(5, delta=None), "a delta is not text"),
        (_set(5, sequence_number=None), "event 5 has the sequence_number None"),
        (_set(-1, response=None), "carries no response"),
        (_set(-4, text="x"), "output_text.done"),
        (_set_response(-1, id="resp_other"), "changes from"),
        (_set_response(-1, status="in_progress"), "status is 'in_progress'"),
        (_set_response(-1, output=[]), "the output is ''"),
        (_set_response(-1, output=[None, {"type": "message", "content": 3}]), "the output is ''"),
        (_set_response(-1, usage=None), "usage is None"),
    ],
)
def test_a_damaged_stream_is_noticed(damage: Callable[[Events], Events], fault: str) -> None:
    found = Checker(own_ids=True).stream(_framed(damage(_with_id("resp_a"))), SHAPE)
    assert found is not None
    assert fault in found


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (b"event: response.completed\n", b"", "is named None"),
        (b"event: response.completed", b"event: response.failed", "is named"),
        (b'data: {"type": "response.completed"', b'data: {"typ', "not JSON"),
        (b'data: {"type": "response.completed"', b'data: {"kind": "x"', "has no type"),
        (b"event: response.completed", b"id: 7", "neither event nor data"),
    ],
)
def test_a_damaged_frame_is_noticed(old: bytes, new: bytes, fault: str) -> None:
    stream = _framed(_with_id("resp_a"))
    assert old in stream
    found = Checker(own_ids=True).stream(stream.replace(old, new), SHAPE)
    assert found is not None
    assert fault in found


def test_a_stream_cut_anywhere_is_noticed() -> None:
    stream = _framed(_with_id("resp_a"))
    assert Checker(own_ids=True).stream(stream, SHAPE) is None
    assert all(Checker(own_ids=True).stream(stream[:end], SHAPE) for end in range(len(stream)))


def test_comments_are_no_events() -> None:
    stream = _framed(_with_id("resp_a")).replace(
        b"event: response.comp", b": a\n\nevent: response.comp"
    )
    assert Checker(own_ids=True).stream(stream, SHAPE) is None


def test_ids_must_be_the_targets_own_and_new() -> None:
    checker = Checker(own_ids=True)
    assert checker.stream(_framed(_with_id("resp_a")), SHAPE) is None
    assert "two answers" in str(checker.stream(_framed(_with_id("resp_a")), SHAPE))
    assert "upstream's" in str(checker.stream(_framed(_with_id(MOCK_RESPONSE_ID)), SHAPE))
    assert "resp_" in str(checker.stream(_framed(_with_id("chatcmpl-1")), SHAPE))


def test_a_whole_body_is_checked() -> None:
    body = shapes.responses_body(SHAPE)
    passing, own = Checker(own_ids=False), Checker(own_ids=True)
    assert passing.body(body, SHAPE) is None
    assert "upstream's" in str(own.body(body, SHAPE))
    assert own.body(body.replace(MOCK_RESPONSE_ID.encode(), b"resp_a"), SHAPE) is None
    assert "the output is" in str(passing.body(body, Shape(20, 0, 1)))
    assert "not JSON" in str(passing.body(body[:-1], SHAPE))
    assert "not a response object" in str(passing.body(b"[]", SHAPE))


# -- bodies -----------------------------------------------------------------------------------


def _content(request: Request) -> dict[str, Any]:
    head, _, body = request.wire.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert b"Authorization: Bearer k\r\n" in head
    content: dict[str, Any] = json.loads(body)
    return content


def test_bodies_vary_and_repeat_for_one_seed() -> None:
    requests = make_requests(SHAPE, stream=True, key="k")
    bodies = [_content(request) for request in requests]
    assert len({request.wire for request in requests}) == len(requests)
    assert requests == make_requests(SHAPE, stream=True, key="k")
    assert requests != make_requests(SHAPE, stream=True, key="k", seed=2)

    sizes = sorted(len(request.wire) for request in requests)
    assert sizes[-1] > 4 * sizes[0]
    assert {type(body["input"]) for body in bodies} == {str, list}
    for field in ("instructions", "tools", "metadata"):
        having = sum(field in body for body in bodies)
        assert 0 < having < len(bodies)


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_bodies_ask_for_what_is_expected(stream: bool, store: bool) -> None:
    more = {"previous_response_id": "resp_a"}
    for request in make_requests(SHAPE, stream=stream, key="k", store=store, more=more):
        body = _content(request)
        assert body["store"] is store
        assert body["previous_response_id"] == "resp_a"
        assert body.get("stream", False) is stream
        assert Shape.parse(body["model"]) == request.shape


# -- medians, ratios, targets -----------------------------------------------------------------


def _figures(name: str, **rounds: list[float]) -> Figures:
    figures = Figures()
    for target, values in rounds.items():
        for number, value in enumerate(values):
            figures.add(target, number, {name: value})
    return figures


def test_ratios_are_taken_round_by_round() -> None:
    figures = _figures("whole_cpu_us", baseline=[100, 200, 100], chat=[200, 200, 300])
    assert figures.spread("chat", "whole_cpu_us") == Spread(200, 200, 300)
    assert figures.ratio("chat", "whole_cpu_us") == Spread(2, 1, 3)
    assert figures.ratio("ollama", "whole_cpu_us") is None


def test_rounds_without_a_baseline_give_no_ratio() -> None:
    figures = _figures("whole_cpu_us", baseline=[100, 0], chat=[200, 200, 300])
    assert figures.ratio("chat", "whole_cpu_us") == Spread(2, 2, 2)


def test_added_time_is_what_lies_above_the_direct_way() -> None:
    figures = _figures("first_ms", direct=[0.5, 1.0], baseline=[1.0, 2.0], chat=[2.0, 2.5])
    assert figures.spread("chat", "added_ms") == Spread(1.5, 1.5, 1.5)
    assert figures.ratio("chat", "added_ms") == Spread(2.25, 1.5, 3.0)
    assert figures.spread("direct", "added_ms") is None


@pytest.mark.parametrize(("cpu", "met"), [(200.0, True), (201.0, False), (None, None)])
def test_a_target_is_met_missed_or_not_measured(cpu: float | None, met: bool | None) -> None:
    own = [] if cpu is None else [cpu]
    figures = _figures("whole_cpu_us", baseline=[100.0], responses=own)
    verdict = judge(figures, ["responses"], DOOR_GOALS)[0]
    assert (verdict.goal.name, verdict.met) == ("whole_cpu_us", met)
    assert all(v.met is None for v in judge(figures, ["responses"], DOOR_GOALS)[1:])


@pytest.mark.parametrize(("cpu", "met"), [(210.0, True), (211.0, False)])
def test_messages_are_compared_with_responses(cpu: float, met: bool) -> None:
    figures = _figures("whole_cpu_us", baseline=[100.0], responses=[200.0], messages=[cpu])
    verdict = judge(figures, ["messages"], DOOR_GOALS)[0]
    assert (verdict.goal.name, verdict.goal.unit, verdict.met) == (
        *("whole_cpu_us", "x responses"),
        met,
    )


def test_the_table_says_which_targets_are_missed() -> None:
    figures = _figures("held_kib", responses=[39.0], chat=[41.0])
    verdicts = judge(figures, ["responses", "chat"], DOOR_GOALS)
    lines = verdict_lines(figures, verdicts)
    told = {line.split()[4]: line for line in lines if line.startswith("memory per open stream")}
    assert told["responses"].endswith("  met")
    assert told["chat"].endswith("NOT MET")
    assert not any("idle" in line for line in lines)


def test_a_table_has_the_rows_that_were_measured() -> None:
    figures = _figures("whole_cpu_us", baseline=[100.0], chat=[250.0])
    head, row, ratio = table(figures, ["baseline", "chat"], DOOR_ROWS)
    assert head.split() == ["baseline", "chat"]
    assert row.split() == ["non-stream,", "64", "at", "once", "CPU", "us/request", "100.0", "250.0"]
    assert ratio.split() == ["x", "baseline", "2.50"]


# -- load and processes, over real sockets ----------------------------------------------------


async def _load(port: int, *, stream: bool) -> Result:
    requests = make_requests(SHAPE, stream=stream, key="k", count=12)
    async with Load(("127.0.0.1", port), requests, 3) as load:
        return await load.run(limit=10, each=4)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_load_generator_gets_right_answers_from_the_mock(stream: bool) -> None:
    async with await serve("127.0.0.1", 0) as server:
        result = await _load(server.sockets[0].getsockname()[1], stream=stream)
    checker = Checker(own_ids=False)
    check = checker.stream if stream else checker.body
    assert result.failures == []
    assert result.answers == len(result.samples) == 12
    assert result.events == (12 * SHAPE.events if stream else 0)
    assert len(result.first_ms) == (12 if stream else 0)
    assert len(result.whole_ms) == 12
    assert min(result.whole_ms) >= min(result.first_ms, default=0) >= 0
    assert [check(s.body, s.request.shape) for s in result.samples] == [None] * 12


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (b"HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nbusy", "status 503 busy"),
        (
            _HEAD + b"b\r\ndata: 1\n\nda\r\n7\r\nta: 2\n\n\r\n0\r\n\r\n",
            "a short stream: 2 events of 28",
        ),
        (_HEAD + b"9\r\ndata: 1\n\n\r\n", "the connection was closed before"),
        (b"nonsense\r\n\r\n", "the answer is not HTTP"),
    ],
)
async def test_the_load_generator_reports_bad_answers(answer: bytes, failure: str) -> None:
    async def handle(decoder: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await decoder.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        requests = make_requests(SHAPE, stream=True, key="k", count=1)
        async with Load(server.sockets[0].getsockname(), requests, 1) as load:
            result = await load.run(limit=10, each=1)
    assert len(result.failures) == 1
    assert result.failures[0].startswith(failure)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are pinned on Linux only")
async def test_processes_end_with_their_context(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    with Children(tmp_path) as children:
        stays = children.start("stays", core, ["-c", "import time; time.sleep(60)"])
        fails = children.start("fails", core, ["-c", "raise SystemExit('no such thing')"])
        with pytest.raises(BenchError, match="ended by itself"):
            await fails.ready(1, "/")
        assert stays.process.poll() is None
    assert "no such thing" in fails.last_words()
    assert stays.process.returncode is not None


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dialects", "grpc"],
        ["--databases", "mysql"],
        ["--only", "speed"],
        ["--rounds", "99"],
        ["--large", "9"],
        ["--json", "no/such/x.json"],
    ],
)
def test_wrong_options_are_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err

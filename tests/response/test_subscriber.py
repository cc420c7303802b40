"""One client's answer, passed on to another."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects.chat.decode_stream import ChatDecoder
from router.dialects.chat.passthrough import ChatPassthrough
from router.dialects.chat.replay import chunks
from router.dialects.responses.decode_stream import ResponsesDecoder
from router.dialects.responses.fields import OWN_FIELDS
from router.dialects.responses.schema import echo_fields
from router.errors import Overloaded
from router.response.builder import ResponseBuilder, StreamState
from router.response.frame import Frame
from router.response.replay import replay
from router.response.subscriber import ChatFollower, ResponseFollower
from tests.support import chat as chats
from tests.support import native as natives
from tests.support.answers import answer, call, message, reasoning, text
from tests.support.order import check_order
from tests.support.reading import BROKEN, FUZZ, NOW, decoded, make_builder, native, read_all, sse

OWN = {
    "store": False,
    "metadata": {"mine": "1"},
    "user": "me",
    "prompt_cache_key": "k",
    "safety_identifier": "s",
    "previous_response_id": "resp_before",
}
LEADS: dict[str, Any] = {
    "store": True,
    "metadata": {"theirs": "1"},
    "user": "them",
    "conversation": "conv_theirs",
    "prompt": {"id": "pmpt_theirs"},
}


def follower_builder(*, muted: bool = False, **request: Any) -> ResponseBuilder:
    """A builder whose ids are like no leader's, made a little later."""
    count = iter(range(900, 1000))
    echo = echo_fields({"model": "m", "input": "x", **OWN, **request}, model="m")
    return ResponseBuilder(
        echo=echo,
        own_fields=OWN_FIELDS,
        new_id=lambda p: f"{p}{next(count)}",
        now=lambda: NOW + 60,
        muted=muted,
    )


def of_native(leader: ResponseBuilder) -> list[Frame]:
    """A native stream: the endpoint has a say in the fields of its snapshots."""
    items = [natives.reasoning("blob"), natives.message("One", "Two"), natives.call("f", "{}")]
    more: dict[str, Any] = {"tools": [{"type": "mcp", "server_label": "x"}], "temperature": 0.3}
    events = natives.events(*items, **more)
    for event in events[:2]:
        event["response"] |= more
    return read_all(ResponsesDecoder(leader, "acc0"), native(*events))


def of_chat(leader: ResponseBuilder) -> list[Frame]:
    data = chats.chat({"reasoning": "hm"}, chats.text("Hello "), chats.text("you"))
    return read_all(ChatDecoder(leader), data)


def of_replay(leader: ResponseBuilder) -> list[Frame]:
    return replay(leader, answer(reasoning(("a b",)), message(text("b c")), call())).frames


LEADERS: dict[str, Callable[[ResponseBuilder], list[Frame]]] = {
    "native": of_native,
    "chat": of_chat,
    "replay": of_replay,
}
LIFECYCLE = {"response.created", "response.in_progress", "response.completed"}


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("kind", LEADERS)
def test_a_follower_gets_the_same_as_its_own(kind: str, size: int) -> None:
    leader = make_builder(**LEADS)
    theirs = LEADERS[kind](leader)
    builder = follower_builder()
    follower = ResponseFollower(builder)
    mine: list[Frame] = []
    for at in range(0, len(theirs), size):
        assert follower.final is None
        mine += follower.frames(theirs[at : at + size])
        assert builder.sequence == len(mine)
    assert [frame.type for frame in mine] == [frame.type for frame in theirs]
    for old, new in zip(theirs, mine, strict=True):
        if old.type not in LIFECYCLE:
            assert new is old
    final, led = check_order(decoded(mine)), theirs[-1].json()["response"]
    for event in decoded(mine):
        if "response" in event:
            assert {name: event["response"][name] for name in OWN} == OWN
            assert event["response"]["id"] == builder.id
            assert event["response"]["created_at"] == builder.created_at == NOW + 60
            assert not event["response"].keys() & {"conversation", "prompt"}
    others = led.keys() - OWN.keys() - {"id", "created_at", "conversation", "prompt"}
    assert {name: final[name] for name in others} == {name: led[name] for name in others}
    assert follower.final == final == builder.final
    assert builder.state is StreamState.ENDED
    assert leader.id not in b"".join(frame.data for frame in mine).decode()


@pytest.mark.parametrize("kind", LEADERS)
def test_nothing_in_between_is_decoded(kind: str) -> None:
    theirs = [Frame(frame.type, frame.data) for frame in LEADERS[kind](make_builder())]
    ResponseFollower(follower_builder()).frames(theirs)
    assert {frame.type for frame in theirs if frame._json is not None} == LIFECYCLE


@pytest.mark.parametrize("kind", LEADERS)
def test_a_follower_that_was_opened_before(kind: str) -> None:
    theirs = LEADERS[kind](make_builder(**LEADS))
    builder = follower_builder()
    opening = builder.open()
    follower = ResponseFollower(builder)
    mine = [*opening, *follower.frames(theirs)]
    final = check_order(decoded(mine))
    told = opening[0].json()["response"]
    changed = {name for name in final if final[name] != told.get(name)}
    assert changed == {"status", "completed_at", "output", "output_text", "usage"}


@pytest.mark.parametrize("kind", LEADERS)
def test_the_end_can_be_another(kind: str) -> None:
    builder = follower_builder()
    follower = ResponseFollower(builder)
    mine = follower.frames(LEADERS[kind](make_builder()))
    assert follower.final is not None
    mine[-1] = builder.end_otherwise({**follower.final, "metadata": {"other": "1"}})
    assert decoded(mine)[-1]["sequence_number"] == len(mine) - 1
    assert follower.fail(BROKEN) == []


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("kind", LEADERS)
def test_a_stream_that_fails_anywhere(kind: str, told: bool) -> None:
    whole = LEADERS[kind](make_builder())
    error = Overloaded("Too much.")
    for cut in range(len(whole)):
        builder = follower_builder()
        mine = builder.open() if told else []
        follower = ResponseFollower(builder)
        mine += follower.frames(whole[:cut])
        mine += follower.fail(error)
        events = decoded(mine)
        # A single opening event is no beginning that a leader makes, but numbers still follow.
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        failed = events[-1]["response"]
        assert failed["error"] == {"code": "server_error", "message": "Too much."}
        assert failed["status"] == "failed"
        assert follower.final == builder.final == failed
        assert follower.fail(error) == []
        done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
        assert failed["output"][: len(done)] == done
        assert {name: failed[name] for name in OWN} == OWN
        if cut > 1:
            opening = events[0]["response"]
            for name in ("id", "created_at", "tools", "instructions", "temperature", "model"):
                assert failed[name] == opening[name]


def test_the_item_that_was_broken_off_is_in_the_output() -> None:
    whole = of_chat(make_builder())
    cut = max(n for n, frame in enumerate(whole) if frame.type == "response.output_text.delta")
    follower = ResponseFollower(follower_builder())
    mine = [*follower.frames(whole[: cut + 1]), *follower.fail(BROKEN)]
    final = check_order(decoded(mine))
    assert final["output"][-1]["status"] == "incomplete"
    assert final["output_text"] == "Hello you"


def test_other_ends_and_a_queue() -> None:
    leader = make_builder()
    decoder = ChatDecoder(leader)
    cut = read_all(decoder, chats.chat(chats.text("Hi"), finish="length"))
    follower = ResponseFollower(follower_builder())
    final = check_order(decoded(follower.frames(cut)))
    assert final["status"] == "incomplete"
    assert final["incomplete_details"] == {"reason": "max_output_tokens"}

    leader = make_builder()
    queued = leader.queue()
    rest = [*leader.open(), leader.end(leader.snapshot("completed", [], None))]
    builder = follower_builder()
    mine = ResponseFollower(builder).frames([*queued[:1], *queued[1:], *rest[1:]])
    events = decoded(mine)
    statuses = [(event["response"]["status"], event["response"]["id"]) for event in events]
    assert statuses == [
        ("queued", builder.id),
        ("queued", builder.id),
        ("completed", builder.id),
    ]

    failed = ChatDecoder(make_builder())
    frames = [*failed.feed(chats.chat(chats.text("Hi"), finish=None, done=False))]
    follower = ResponseFollower(follower_builder())
    final = check_order(decoded(follower.frames([*frames, *failed.fail(BROKEN)])))
    assert final["error"]["message"] == BROKEN.message
    assert follower.final == final


def test_events_that_name_the_response() -> None:
    extra = {"type": "response.new_tool.progress", "response_id": "resp_theirs", "text": "x"}
    quoted = {"type": "response.new_tool.text", "text": '"response_id":"resp_theirs"'}
    nested = {"type": "response.new_tool.text", "of": {"response_id": "resp_theirs"}}
    events = natives.events(natives.message("Hi"))
    events[3:3] = [extra, quoted, nested]
    theirs = read_all(ResponsesDecoder(make_builder(), "acc0"), native(*events))
    builder = follower_builder()
    mine = ResponseFollower(builder).frames(theirs)
    assert mine[3].json() == {**extra, "sequence_number": 3, "response_id": builder.id}
    assert mine[4] is theirs[4]
    assert mine[5] is theirs[5]
    assert [event["sequence_number"] for event in decoded(mine)] == list(range(len(mine)))


def test_another_model_than_the_one_asked_for() -> None:
    theirs = replay(make_builder(), answer(message(text("x")))).frames
    builder = follower_builder()
    final = check_order(decoded(ResponseFollower(builder).frames(theirs)))
    assert final["model"] == builder.snapshot("cancelled")["model"] == "m-2026"


@pytest.mark.parametrize("muted", [False, True])
def test_a_whole_answer(muted: bool) -> None:
    led = of_native(make_builder(**LEADS))[-1].json()["response"]
    builder = follower_builder(muted=muted)
    follower = ResponseFollower(builder)
    final = follower.whole(led)
    assert final == follower.final == builder.final
    assert {name: final[name] for name in OWN} == OWN
    assert (final["id"], final["created_at"]) == (builder.id, NOW + 60)
    assert not final.keys() & {"conversation", "prompt"}
    others = led.keys() - OWN.keys() - {"id", "created_at", "conversation", "prompt"}
    assert {name: final[name] for name in others} == {name: led[name] for name in others}
    assert led["metadata"] == {"theirs": "1"}
    assert builder.state is StreamState.ENDED


CHAT = answer(message(text("Hello big world")), call(), call(call_id="chatcmpl-12345678"))


def told(follower: ChatFollower, frames: list[Frame]) -> list[Any]:
    """What the follower is sent; the last is ``[DONE]``."""
    *mine, done = follower.frames(frames)
    assert done.data == b"[DONE]"
    return [orjson.loads(frame.data) for frame in mine]


@pytest.mark.parametrize("asked", [False, True])
def test_a_chat_follower(asked: bool) -> None:
    theirs = chunks(CHAT, id="chatcmpl-12345678", created=7, include_usage=True)
    mine = told(ChatFollower("chatcmpl-mine", asked), theirs)
    expected = chunks(CHAT, id="chatcmpl-mine", created=7, include_usage=True)[:-1]
    if not asked:
        del expected[-1]
    assert mine == [frame.json() for frame in expected]


STYLES: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "compact": orjson.dumps,
    "spaced": lambda chunk: json.dumps(chunk).encode(),
    "sorted": lambda chunk: orjson.dumps(chunk, option=orjson.OPT_SORT_KEYS),
    "id last": lambda chunk: orjson.dumps(dict(reversed(list(chunk.items())))),
}


def counting(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the module decodes from here on."""
    decoded: list[bytes] = []

    class Counting:
        dumps = staticmethod(orjson.dumps)

        @staticmethod
        def loads(data: bytes) -> Any:
            decoded.append(data)
            return orjson.loads(data)

    monkeypatch.setattr("router.response.subscriber.orjson", Counting)
    return decoded


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("id", ["chatcmpl-12345678", "cmpl-ü-12345678", "c", "", 'a"b\\c"12345678'])
def test_however_the_leaders_chunks_are_written(
    id: str, style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = chunks(CHAT, id=id, created=7, include_usage=False)[:-1]
    theirs = [*(Frame("", STYLES[style](frame.json())) for frame in made), Frame("", b"[DONE]")]
    decoded = counting(monkeypatch)
    mine = told(ChatFollower("chatcmpl-mine", False), theirs)
    assert mine == [{**frame.json(), "id": "chatcmpl-mine"} for frame in made]
    if id == "chatcmpl-12345678":
        assert len(decoded) == 2  # the first, and one that names a call alike


def test_ids_that_change_and_events_without_one() -> None:
    ids = ["chatcmpl-first", "chatcmpl-first", "chatcmpl-second", "x"]
    theirs = [Frame("", orjson.dumps({**chats.chat_chunk(content=i), "id": i})) for i in ids]
    error = Frame("", orjson.dumps(BROKEN.envelope()))
    mine = ChatFollower("mine", False).frames([*theirs, error])
    assert [orjson.loads(frame.data).get("id") for frame in mine] == ["mine"] * 4 + [None]
    assert [f.json()["choices"][0]["delta"]["content"] for f in mine[:4]] == ids
    assert mine[-1].data == error.data


def test_only_the_usage_chunk_is_left_out() -> None:
    usage = chats.USAGE
    head = {"id": "chatcmpl-12345678"}
    theirs = [
        {**head, **chats.chat_chunk(content='"choices":[] "usage"'), **head, "usage": usage},
        {**head, "choices": [], "prompt_filter_results": [{"usage": 1}]},
        {**head, "choices": [], "usage": None},
        {**head, "choices": [], "usage": usage},
    ]
    for style in STYLES.values():
        frames = [*(Frame("", style(chunk)) for chunk in theirs), Frame("", b"[DONE]")]
        assert len(told(ChatFollower("mine", False), frames)) == 3
        assert len(told(ChatFollower("mine", True), frames)) == 4


def test_a_chat_passthrough_is_followed() -> None:
    data = sse(
        *({**chats.chat_chunk(content=word), "id": "chatcmpl-abcdefgh"} for word in ("a", "b")),
        {**chats.chat_chunk("stop"), "id": "chatcmpl-abcdefgh"},
        {"id": "chatcmpl-abcdefgh", "choices": [], "usage": chats.USAGE},
        b"[DONE]",
    )
    theirs = read_all(ChatPassthrough(model="m", wants_usage=True), data)
    assert len(told(ChatFollower("mine", False), theirs)) == 3
    assert {chunk["id"] for chunk in told(ChatFollower("mine", True), theirs)} == {"mine"}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("id", ["chatcmpl-12345678", "c", None])
def test_a_whole_completion(id: str | None, style: str) -> None:
    theirs = orjson.loads(chats.completion({"content": '"id":"chatcmpl-12345678"'}))
    if id is not None:
        theirs["id"] = id
    mine = orjson.loads(ChatFollower("mine", False).whole(STYLES[style](theirs)))
    assert mine == ({**theirs, "id": "mine"} if id is not None else theirs)


@FUZZ
@given(st.sampled_from(list(LEADERS)), st.lists(st.integers(1, 6), max_size=30), st.booleans())
def test_however_the_batches_come(kind: str, sizes: list[int], told: bool) -> None:
    theirs: list[Frame] = LEADERS[kind](make_builder())
    builder = follower_builder()
    mine = builder.open() if told else []
    follower = ResponseFollower(builder)
    rest = theirs
    for size in sizes:
        mine += follower.frames(rest[:size])
        rest = rest[size:]
    mine += follower.frames(rest)
    check_order(decoded(mine))

"""Requests are remembered by their bytes, by route, caller and key, and no more than there is room
for.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from router.core.key import Key
from router.core.known_requests import KnownRequests, recalled

KEY = Key("a")
LONGEST = 16 * 1024


def an_exchange(known: KnownRequests | None, caller: str = "a", key: Key | None = KEY) -> Any:
    """What is looked at of an exchange."""
    plugin_set = SimpleNamespace(chain=SimpleNamespace(known=known))
    context = SimpleNamespace(caller=caller, key=key, plugin_set=plugin_set)
    request = SimpleNamespace(route="/v1/responses")
    return SimpleNamespace(context=context, request=request, known=None, body={}, dropped=())


def read(raw: bytes) -> dict[str, Any]:
    """Stands for what reads a body."""
    return {"read": raw}


def ask(known: KnownRequests, raw: bytes, *, keep: int | None = None, **who: Any) -> Any:
    """Have a request read, and perhaps remembered with notes of so many bytes."""
    exchange = an_exchange(known, **who)
    exchange.body = recalled(exchange, read, raw)
    if keep is not None:
        known.keep(exchange, "notes", keep)
    return exchange


def test_a_remembered_request_is_not_read_again() -> None:
    known = KnownRequests()
    first = ask(known, b"x", keep=10)
    assert first.known.notes is None
    again = ask(known, b"x")
    assert again.body is first.body
    assert again.known.notes == "notes"


def test_others_do_not_know_it() -> None:
    known = KnownRequests()
    ask(known, b"x", keep=10)
    for other in (
        ask(known, b"y"),
        ask(known, b"x", caller="b"),
        ask(known, b"x", key=Key("a", models=("m",))),
        ask(known, b"x", key=None),
    ):
        assert other.known.notes is None


def test_without_anybody_who_remembers_there_is_nothing_to_know() -> None:
    exchange = an_exchange(None)
    assert recalled(exchange, read, b"x") == {"read": b"x"}
    assert exchange.known is None


def test_a_long_body_is_not_remembered() -> None:
    known = KnownRequests()
    assert ask(known, b"x" * (LONGEST + 1), keep=10).known is None
    assert len(known) == 0


def test_the_least_recently_asked_make_room() -> None:
    known = KnownRequests(max_bytes=1000)
    for raw in (b"a", b"b", b"c"):
        ask(known, raw, keep=292)
    assert (len(known), known.bytes) == (3, 900)
    ask(known, b"a")
    ask(known, b"d", keep=292)
    assert [ask(known, raw).known.notes for raw in (b"a", b"b", b"c", b"d")] == [
        "notes",
        None,
        "notes",
        "notes",
    ]
    assert known.bytes == 900
    ask(known, b"e", keep=2000)  # has no room at all
    assert (len(known), known.bytes) == (3, 900)


def test_what_is_remembered_anew_counts_once() -> None:
    known = KnownRequests()
    for size in (10, 20):
        ask(known, b"x", keep=size)
        assert known.bytes == size + 8

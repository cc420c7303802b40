"""What a request may ask of the cache, and that it is never more than the configuration allows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache.controls import CachePolicy, Controls, ControlsError, read_controls

ALWAYS = CachePolicy("always", ttl=600, threshold=0.9, semantic=True)
ON_REQUEST = CachePolicy("on-request", ttl=600, threshold=0.9, semantic=True)


def read(
    header: str | None = None, cache: Any = None, nomyo: Any = None, policy: CachePolicy = ALWAYS
) -> Controls:
    return read_controls(policy, header, cache, nomyo)


def test_nothing_said() -> None:
    assert read() == Controls(
        asked=True,
        lookup=True,
        store=True,
        only_if_cached=False,
        max_age=None,
        ttl=600,
        threshold=0.9,
        semantic=True,
        tags=(),
    )
    unasked = read(policy=ON_REQUEST)
    assert (unasked.asked, unasked.lookup, unasked.store) == (False, False, False)
    assert read(header="", policy=ON_REQUEST) == unasked
    assert read(header="", cache={}) == read()


@pytest.mark.parametrize(
    ("header", "lookup", "store", "only", "max_age"),
    [
        ("no-cache", False, True, False, None),
        ("no-store", True, False, False, None),
        ("no-cache, no-store", False, False, False, None),
        ("No-Cache,NO-STORE", False, False, False, None),
        ("max-age=60", True, True, False, 60),
        ("MAX-AGE=60", True, True, False, 60),
        ('max-age="60"', True, True, False, 60),
        ("max-age=0", False, True, False, 0),
        ("max-age=000", False, True, False, 0),
        ("max-age=60, max-age=30", True, True, False, 30),
        ("max-age=30,,, max-age=60", True, True, False, 30),
        ("max-age=99999999999999999999999999", True, True, False, 2**31),
        ("max-age=" + "9" * 5000, True, True, False, 2**31),
        ("max-age=0000000000000060", True, True, False, 60),
        ("only-if-cached", True, True, True, None),
        ("no-store, only-if-cached , max-age=5", True, False, True, 5),
        # Unknown, malformed, or about something else: ignored.
        ("max-age", True, True, False, None),
        ("max-age=", True, True, False, None),
        ("max-age=-5", True, True, False, None),
        ("max-age=1.5", True, True, False, None),
        ("max-age=٣", True, True, False, None),
        ("min-fresh=5, max-stale=5, max-stale, no-transform, private", True, True, False, None),
        ('extension="no-store, no-cache", x=y', True, True, False, None),
        ('extension="a \\" no-store, no-cache"', True, True, False, None),
        ("no-cachet, no_store", True, True, False, None),
        ('"no-store"', True, True, False, None),
        (",=,;, =no-store", True, True, False, None),
        ('max-age="60', True, True, False, None),
        ('x="open, no-store', True, True, False, None),
        ("\\", True, True, False, None),
    ],
)
def test_the_header(
    header: str, lookup: bool, store: bool, only: bool, max_age: float | None
) -> None:
    controls = read(header)
    found = (controls.lookup, controls.store, controls.only_if_cached, controls.max_age)
    assert found == (lookup, store, only, max_age)


@pytest.mark.parametrize(
    ("header", "cache", "nomyo", "asked"),
    [
        (None, True, None, True),
        (None, {}, None, True),
        (None, {"use": True}, None, True),
        (None, {"ttl": 5}, None, True),
        (None, {"use": False}, None, False),
        (None, False, None, False),
        (None, None, {"cache": True}, True),
        (None, None, {"cache": False}, False),
        (None, None, {"cache": None}, False),
        (None, None, {"other": 1}, False),
        (None, True, {"cache": False}, False),
        (None, False, {"cache": True}, False),
        ("max-age=5", None, None, True),
        ("max-age=0", None, None, False),
        ("no-cache", None, None, False),
        ("no-store", None, None, False),
        ("only-if-cached", None, None, True),
        ("max-age=5", False, None, False),
        ("only-if-cached", {"use": False}, None, False),
        ("only-if-cached", None, {"cache": False}, False),
        ("max-stale=5", None, None, False),
    ],
)
def test_where_the_cache_has_to_be_asked_for(
    header: str | None, cache: Any, nomyo: Any, asked: bool
) -> None:
    controls = read(header, cache, nomyo, ON_REQUEST)
    assert controls.asked is asked
    if not asked:
        assert (controls.lookup, controls.store, controls.only_if_cached) == (False,) * 3


@pytest.mark.parametrize(
    ("header", "cache", "nomyo"),
    [(None, False, None), (None, {"use": False}, None), ("max-age=5", None, {"cache": False})],
)
def test_where_it_is_on_a_request_can_refuse_it(header: str | None, cache: Any, nomyo: Any) -> None:
    controls = read(header, cache, nomyo)
    assert (controls.asked, controls.lookup, controls.store) == (False, False, False)


def test_a_request_that_asks_can_still_be_strict() -> None:
    fresh = read("no-cache", True, policy=ON_REQUEST)
    assert (fresh.asked, fresh.lookup, fresh.store) == (True, False, True)


def test_the_body() -> None:
    controls = read(
        None,
        {
            "store": False,
            "max_age": 5.5,
            "ttl": 60,
            "threshold": 0.95,
            "semantic": False,
            "only_if_cached": True,
            "tags": ["a", "b c", "a", "é"],
        },
    )
    assert controls == Controls(True, True, False, True, 5.5, 60, 0.95, False, ("a", "b c", "é"))


def test_the_body_loosens_nothing() -> None:
    loose = {"ttl": 6000, "threshold": 0.1, "semantic": True, "store": True, "use": True}
    assert read(None, loose) == read()
    off = CachePolicy("always", ttl=600, threshold=0.9, semantic=False)
    assert not read(None, {"semantic": True}, policy=off).semantic


def test_null_is_not_there() -> None:
    names = ("use", "store", "max_age", "ttl", "threshold", "semantic", "only_if_cached", "tags")
    assert read(None, dict.fromkeys(names)) == read()


def test_the_lower_age_counts() -> None:
    assert read("max-age=5", {"max_age": 9}).max_age == 5
    assert read("max-age=9", {"max_age": 5}).max_age == 5
    assert not read("max-age=9", {"max_age": 0}).lookup


def test_what_is_kept_for_no_time_is_not_kept() -> None:
    assert not read(None, {"ttl": 0}).store


@pytest.mark.parametrize(
    ("cache", "param", "message"),
    [
        (
            5,
            "cache",
            "Invalid type for 'cache': expected a boolean or an object, "
            "but got an integer instead.",
        ),
        (
            {"threshold": "0.9"},
            "cache.threshold",
            "Invalid type for 'cache.threshold': expected a number, but got a string instead.",
        ),
        (
            {"ttl": True},
            "cache.ttl",
            "Invalid type for 'cache.ttl': expected a number, but got a boolean instead.",
        ),
        (
            {"ttl": -1},
            "cache.ttl",
            "Invalid 'cache.ttl': integer below minimum value. Expected a value >= 0, "
            "but got -1 instead.",
        ),
        (
            {"threshold": 1.5},
            "cache.threshold",
            "Invalid 'cache.threshold': decimal above maximum value. Expected a value <= 1, "
            "but got 1.5 instead.",
        ),
        (
            {"max_age": float("nan")},
            "cache.max_age",
            "Invalid 'cache.max_age': expected a finite number.",
        ),
        (
            {"use": 1},
            "cache.use",
            "Invalid type for 'cache.use': expected a boolean, but got an integer instead.",
        ),
        (
            {"tags": "a"},
            "cache.tags",
            "Invalid type for 'cache.tags': expected an array, but got a string instead.",
        ),
        (
            {"tags": ["a", 1]},
            "cache.tags[1]",
            "Invalid type for 'cache.tags[1]': expected a string, but got an integer instead.",
        ),
        (
            {"tags": ["a"] * 9},
            "cache.tags",
            "Invalid 'cache.tags': array too long. Expected an array with maximum length 8, "
            "but got an array with length 9 instead.",
        ),
        (
            {"tags": ["a" * 65]},
            "cache.tags[0]",
            "Invalid 'cache.tags[0]': string too long. Expected a string with maximum length 64, "
            "but got a string with length 65 instead.",
        ),
        (
            {"tags": [""]},
            "cache.tags[0]",
            "Invalid 'cache.tags[0]': expected at least one character, all printable.",
        ),
        (
            {"tags": ["a\n"]},
            "cache.tags[0]",
            "Invalid 'cache.tags[0]': expected at least one character, all printable.",
        ),
        ({"tll": 5}, "cache.tll", "Unknown parameter: 'cache.tll'."),
        ({"t" * 99: None}, f"cache.{'t' * 64}", f"Unknown parameter: 'cache.{'t' * 64}'."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_named(cache: Any, param: str, message: str) -> None:
    with pytest.raises(ControlsError) as caught:
        read(None, cache)
    assert (caught.value.param, str(caught.value)) == (param, message)


@pytest.mark.parametrize(("nomyo", "param"), [("x", "nomyo"), ({"cache": "x"}, "nomyo.cache")])
def test_nomyo_is_checked_as_well(nomyo: Any, param: str) -> None:
    with pytest.raises(ControlsError) as caught:
        read(None, None, nomyo)
    assert caught.value.param == param


POLICY = st.builds(
    CachePolicy,
    st.sampled_from(["on-request", "always"]),
    st.floats(0, 1e6),
    st.floats(0, 1),
    st.booleans(),
    st.booleans(),
)
DIRECTIVE = st.sampled_from(
    ["no-cache", "no-store", "max-age=0", "max-age=60", "only-if-cached", "x", "max-age=9999999"]
)
HEADER = st.none() | st.lists(DIRECTIVE, max_size=4).map(",".join) | st.text(max_size=30)
SECONDS = st.none() | st.floats(0, 1e9) | st.integers(0, 2**63)
CACHE = (
    st.none()
    | st.booleans()
    | st.fixed_dictionaries(
        {},
        optional={
            "use": st.none() | st.booleans(),
            "store": st.none() | st.booleans(),
            "max_age": SECONDS,
            "ttl": SECONDS,
            "threshold": st.none() | st.floats(0, 1) | st.integers(0, 1),
            "semantic": st.none() | st.booleans(),
            "only_if_cached": st.none() | st.booleans(),
            "tags": st.lists(st.sampled_from(["a", "b"]), max_size=3),
        },
    )
)
NOMYO = st.none() | st.fixed_dictionaries({"cache": st.none() | st.booleans()})


@given(POLICY, HEADER, CACHE, NOMYO)
def test_a_request_is_never_looser_than_the_policy(
    policy: CachePolicy, header: str | None, cache: Any, nomyo: Any
) -> None:
    controls = read_controls(policy, header, cache, nomyo)
    assert controls.ttl <= policy.ttl
    assert controls.threshold >= policy.threshold
    assert policy.semantic or not controls.semantic
    assert controls.asked or not (controls.lookup or controls.store or controls.only_if_cached)
    assert not (controls.store and controls.ttl == 0)
    if policy.mode == "on-request" and controls.asked:
        bare = read_controls(policy, None, cache, nomyo).asked
        assert bare or (
            header is not None and ("max-age" in header.lower() or "only" in header.lower())
        )


@given(POLICY, HEADER, CACHE, NOMYO)
def test_whatever_is_said_beside_it_a_refusal_holds(
    policy: CachePolicy, header: str | None, cache: Any, nomyo: Any
) -> None:
    said = ", ".join(filter(None, ["no-cache, no-store", header]))
    controls = read_controls(policy, said, cache, nomyo)
    assert not controls.lookup
    assert not controls.store
    assert not read_controls(policy, header, False, nomyo).asked
    assert not read_controls(policy, header, cache, {"cache": False}).asked

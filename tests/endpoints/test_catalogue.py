"""Which names an endpoint serves, and what it calls them itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.upstream import Listed
from router.endpoints.catalogue import Catalogue
from router.settings.schema import EndpointSettings


def catalogue(dialect: str = "chat", listed: list[str] | None = None, **fields: Any) -> Catalogue:
    """The catalogue of an endpoint that has listed these models, or nothing yet."""
    settings = {"name": "one", "url": "http://127.0.0.1:1", "dialect": dialect, **fields}
    made = Catalogue(EndpointSettings.model_validate(settings))
    if listed is not None:
        made.update(listed)
    return made


CLAUDES = {"*-opus-*": "z", "claude-*": "a", "claude-opus-*": "b", "claude-exact": "c"}
PATTERNS = ["gpt-5*", "o[13]-mini", "exact"]


@pytest.mark.parametrize(
    ("made", "asked", "found"),
    [
        # discovered
        (catalogue(), "a", None),
        (catalogue(listed=["a", "b"]), "b", "b"),
        (catalogue(listed=["a"]), "A", None),
        (catalogue(listed=["a"]), "", None),
        (catalogue(listed=[]), "a", None),
        # configured names need not be listed, and hide what else is
        (catalogue(models=["a"]), "a", "a"),
        (catalogue(models=["a"], listed=["b"]), "a", "a"),
        (catalogue(models=["a"], listed=["b"]), "b", None),
        # patterns admit what is not listed
        (catalogue(models=PATTERNS), "gpt-5", "gpt-5"),
        (catalogue(models=PATTERNS), "gpt-5-turbo", "gpt-5-turbo"),
        (catalogue(models=PATTERNS), "GPT-5", None),
        (catalogue(models=PATTERNS), "my-gpt-5", None),
        (catalogue(models=PATTERNS), "o1-mini", "o1-mini"),
        (catalogue(models=PATTERNS), "o2-mini", None),
        (catalogue(models=PATTERNS, listed=["o2-mini"]), "o2-mini", None),
        (catalogue(models=PATTERNS), "exact", "exact"),
        (catalogue(models=["*"]), "anything/at:all", "anything/at:all"),
        # aliases
        (catalogue(aliases={"small": "a"}, listed=["a"]), "small", "a"),
        (catalogue(aliases={"small": "a"}, listed=["a"]), "a", "a"),
        (catalogue(aliases={"small": "a"}, listed=["b"]), "small", None),
        (catalogue(aliases={"small": "a"}), "small", "a"),
        (catalogue(aliases={"small": "a"}, models=["b"]), "small", "a"),
        (catalogue(aliases={"small": "a"}, models=["b"]), "a", None),
        (catalogue(aliases={"small": "gpt-5"}, models=PATTERNS), "small", "gpt-5"),
        (catalogue(aliases={"a": "b"}, listed=["a", "b"]), "a", "b"),
        (catalogue(aliases={"a": "b", "b": "a"}, listed=["a", "b"]), "a", "b"),
        # patterns of aliases: for what has no name of its own
        (catalogue(aliases=CLAUDES, models=["a"]), "claude-x", "a"),
        (catalogue(aliases=CLAUDES, models=["a"]), "claude-opus-4", "b"),
        (catalogue(aliases=CLAUDES, models=["a"]), "claude-exact", "c"),
        (catalogue(aliases=CLAUDES, models=["a"]), "claud", None),
        (catalogue(aliases=CLAUDES, models=["a", "claude-x"]), "claude-x", "claude-x"),
        (catalogue(aliases=CLAUDES, models=["*"]), "claude-x", "a"),
        (catalogue(aliases=CLAUDES, models=["*"], listed=["claude-x"]), "claude-x", "claude-x"),
        (catalogue(aliases=CLAUDES, models=["d"], listed=["claude-x"]), "claude-x", "a"),
        (catalogue(aliases=CLAUDES, listed=["a"]), "claude-x", "a"),
        (catalogue(aliases=CLAUDES, listed=["a", "claude-x"]), "claude-x", "claude-x"),
        (catalogue(aliases=CLAUDES, listed=["b"]), "claude-x", None),
        (catalogue(aliases=CLAUDES), "claude-x", None),  # it may have one of this name
        (catalogue(aliases=CLAUDES), "claude-exact", "c"),
        (catalogue("ollama", ["a:latest"], aliases=CLAUDES), "claude-x:latest", "a:latest"),
        # Ollama's tag
        (catalogue("ollama", ["llama3:latest"]), "llama3", "llama3:latest"),
        (catalogue("ollama", ["llama3:latest"]), "llama3:latest", "llama3:latest"),
        (catalogue("ollama", ["llama3:8b"]), "llama3", None),
        (catalogue("ollama", models=["llama3"]), "llama3:latest", "llama3"),
        (catalogue("ollama", models=["llama3:latest"]), "llama3", "llama3:latest"),
        (catalogue("ollama", ["llama3:latest"], models=["llama*"]), "llama3", "llama3:latest"),
        (catalogue("ollama", ["llama3:latest"], models=["*:latest"]), "llama3", "llama3:latest"),
        (catalogue("ollama", ["a:latest"], aliases={"small": "a"}), "small", "a:latest"),
        (catalogue("chat", ["llama3:latest"]), "llama3", None),
    ],
)  # fmt: skip
def test_resolve(made: Catalogue, asked: str, found: str | None) -> None:
    assert made.resolve(asked) == found


def test_patterns_of_aliases_are_not_listed() -> None:
    made = catalogue(aliases=CLAUDES, models=["a", "b", "c"])
    assert made.public_names() == ["a", "b", "c", "claude-exact"]
    assert made.may_serve("claude-*")
    assert made.may_serve("claude-x")
    assert made.may_serve("gpt-*") is False
    assert catalogue(aliases=CLAUDES).serves_any


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (catalogue(), []),
        (catalogue(listed=["b", "a", "b"]), ["b", "a"]),
        (catalogue(models=["b", "x*", "a"], listed=["xy", "a", "z"]), ["b", "a", "xy"]),
        (catalogue(models=["x*"]), []),
        (catalogue(listed=["a"], aliases={"small": "a", "none": "c"}), ["a", "small"]),
        (catalogue(models=["b"], aliases={"small": "a"}), ["b", "small"]),
        (catalogue("ollama", ["a:latest", "b:1"]), ["a:latest", "b:1"]),
        (catalogue("ollama", ["a:latest"], models=["a", "a*"]), ["a"]),
    ],
)
def test_public_names(made: Catalogue, names: list[str]) -> None:
    assert made.public_names() == names


def test_what_was_listed_stays_until_something_else_is() -> None:
    made = catalogue()
    assert (made.known, made.serves_any) == (False, False)
    assert made.update(["a"])
    assert (made.known, made.serves_any) == (True, True)
    assert not made.update(["a"])
    assert not made.update(["a", "a"])
    assert made.update(["a", "b"])
    assert made.update([])
    assert made.resolve("a") is None
    assert not made.update([])


def test_an_empty_first_list_is_news_too() -> None:
    assert catalogue().update([])


@pytest.mark.parametrize(
    ("made", "serves"),
    [
        (catalogue(), False),
        (catalogue(listed=[]), False),
        (catalogue(listed=["a"]), True),
        (catalogue(models=["a"]), True),
        (catalogue(models=["a*"]), True),
        (catalogue(listed=[], aliases={"small": "a"}), False),
    ],
)
def test_serves_any(made: Catalogue, serves: bool) -> None:
    assert made.serves_any is serves


def test_known_names_are_every_name_but_matches_of_patterns() -> None:
    made = catalogue("ollama", ["x1:latest", "y"], models=["a", "x*"], aliases={"small": "b"})
    assert made.known_names() == {"a", "x1", "x1:latest", "small", "b"}
    assert made.resolve("x2") == "x2"


names = st.text("ab:*[?", min_size=1, max_size=4)


@given(
    dialect=st.sampled_from(["chat", "ollama"]),
    models=st.none() | st.lists(names, min_size=1, max_size=4),
    aliases=st.dictionaries(names, names, max_size=3),
    listed=st.none() | st.lists(names.map(lambda name: name + ":latest") | names, max_size=5),
)
def test_whatever_is_listed_to_clients_is_served(
    dialect: str,
    models: list[str] | None,
    aliases: dict[str, str],
    listed: list[str] | None,
) -> None:
    made = catalogue(dialect, listed, models=models, aliases=aliases)
    public = made.public_names()
    assert len(set(public)) == len(public)
    assert all(made.resolve(name) is not None for name in public)
    assert set(public) <= made.known_names()
    # What it resolves to, it knows: nobody is sent elsewhere by asking again.
    if not aliases:
        assert all(made.resolve(str(made.resolve(name))) == made.resolve(name) for name in public)


def test_what_is_told_of_models() -> None:
    made = catalogue("ollama", listed=["a:latest", "b", "c"])
    assert (made.in_memory("a"), made.context_of("a")) == (None, None)
    told = [Listed("a:latest"), Listed("b", True, 4096), Listed("c", False)]
    assert made.describe(told, ["a:latest"])
    assert [made.in_memory(name) for name in ("a", "a:latest", "b", "c")] == [
        True,
        True,
        True,
        False,
    ]
    assert [made.context_of(name) for name in ("a", "b", "b:latest")] == [None, 4096, 4096]
    # Only another context is a change of what is served.
    assert not made.describe(told, [])
    assert [made.in_memory(name) for name in ("a", "b", "c")] == [False, True, False]
    assert not made.describe(told, None)
    assert [made.in_memory(name) for name in ("a", "b", "c")] == [None, True, False]
    assert made.describe([Listed("b", None, 8192)], None)
    assert made.context_of("b") == 8192


def test_what_was_told_outlives_other_settings() -> None:
    old = catalogue(listed=["a"])
    old.describe([Listed("a", False, 4096)], None)
    new = catalogue(aliases={"x": "a"})
    new.adopt(old)
    assert (new.resolve("x"), new.in_memory("a"), new.context_of("a")) == ("a", False, 4096)

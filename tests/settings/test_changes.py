"""How two configurations differ, and what of it takes a restart."""

from __future__ import annotations

from typing import Any

import pytest

from router.settings.changes import changes, needing_restart
from router.settings.schema import Settings

ALICE = {"name": "alice", "key": "sk-alice"}
BOB = {"name": "bob", "key": "sk-bob"}
BOX: dict[str, Any] = {
    "name": "box",
    "url": "http://10.0.0.1/v1",
    "dialect": "chat",
    "api_key": "sk-box",
}
LAP = {**BOX, "name": "lap", "url": "http://10.0.0.2/v1"}


def settings(*endpoints: dict[str, Any], **sections: Any) -> Settings:
    return Settings.model_validate({"endpoints": endpoints or (BOX,), **sections})


CASES: list[tuple[str, Settings, Settings, list[str]]] = [
    ("nothing", settings(), settings(), []),
    ("an endpoint more", settings(BOX), settings(LAP, BOX), ["endpoint added: lap"]),
    ("an endpoint less", settings(BOX, LAP), settings(LAP), ["endpoint removed: box"]),
    ("another order", settings(BOX, LAP), settings(LAP, BOX), ["endpoints in another order"]),
    (
        "an endpoint's fields",
        settings(BOX, LAP),
        settings({**BOX, "api_key": "sk-new", "timeouts": {"idle": 3}, "aliases": {"a": "b"}}, LAP),
        ["endpoint changed: box (api_key, aliases, timeouts.idle)"],
    ),
    (
        "an endpoint by another name",
        settings(BOX),
        settings({**BOX, "name": "crate"}),
        ["endpoint added: crate", "endpoint removed: box"],
    ),
    (
        "keys",
        settings(auth={"keys": [ALICE]}),
        settings(auth={"keys": [{**ALICE, "key": "sk-new"}, BOB]}),
        ["key changed: alice (key)", "key added: bob"],
    ),
    ("no keys any more", settings(auth={"keys": [BOB]}), settings(), ["key removed: bob"]),
    (
        "sections",
        settings(),
        settings(
            balance={"policy": "fastest", "breaker": {"failures": 9}},
            logging={"level": "debug"},
            admin={"key": "sk-admin"},
            fallbacks={"big": ["small"]},
            plugins=["my.plugins:make"],
        ),
        [
            "balance changed: policy, breaker.failures",
            "logging changed: level",
            "admin changed: key",
            "fallbacks changed",
            "plugins changed",
        ],
    ),
    (
        "options of a plugin",
        settings(plugins=[{"plugin": "a", "options": {"key": "sk-old"}}]),
        settings(plugins=[{"plugin": "a", "options": {"key": "sk-new"}}]),
        ["plugins changed"],
    ),
    (
        "plugins in another order",
        settings(plugins=["a", "b"]),
        settings(plugins=["b", "a"]),
        ["plugins changed"],
    ),
]


@pytest.mark.parametrize(
    ("old", "new", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_what_changes(old: Settings, new: Settings, expected: list[str]) -> None:
    assert list(changes(old, new)) == expected
    assert needing_restart(old, new) == []


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"server": {"port": 9000, "host": "::1"}}, ["server.host", "server.port"]),
        ({"server": {"port": 8080}}, []),
        ({"state": {"url": "sqlite:///other.db", "lease": 9}}, ["state.url", "state.lease"]),
        ({"metrics": {"require_key": True}}, ["metrics.require_key"]),
        ({"balance": {"max_attempts": 9}, "logging": {"access": False}}, []),
    ],
)
def test_what_takes_a_restart(sections: dict[str, Any], expected: list[str]) -> None:
    assert needing_restart(settings(), settings(**sections)) == expected

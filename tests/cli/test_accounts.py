"""What ``pointsman check`` says of keys, and of where limits are counted."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from router.cli.accounts import glance, remarks
from router.cli.prices import costs
from router.probing.endpoint import ProbeResult
from router.settings.schema import Settings
from tests.support.commands import Ended, pointsman
from tests.support.redis import redis_server

ENDPOINT = {"name": "a", "url": "http://127.0.0.1:1", "dialect": "chat"}
SECRET = "hunter2-is-secret"


def settings(store: str = "memory://", **sections: Any) -> Settings:
    accounts = {"limits": {"store": store}, **sections.pop("accounts", {})}
    closed = {"metrics": {"require_key": True}}
    return Settings.model_validate(
        {"endpoints": [ENDPOINT], "accounts": accounts, **closed, **sections}
    )


def answer(*models: str, error: str | None = None) -> ProbeResult:
    return ProbeResult(speaks=("chat",), models=models, error=error, latency=0.0)


def test_limits_in_memory() -> None:
    assert glance(settings()) == (True, "limits  memory: ok")


def test_limits_in_a_redis_that_answers() -> None:
    with redis_server() as server:
        assert glance(settings(server.url))[0]
        asyncio.run(server.command("CONFIG", "SET", "requirepass", SECRET))
        url = server.url.replace("redis://", f"redis://:{SECRET}@")
        assert glance(settings(f"{url}/3")) == (
            True,
            f"limits  Redis at 127.0.0.1:{server.port}/3: ok",
        )
        usable, line = glance(settings(server.url))
        assert (usable, line) == (
            False,
            f"limits  accounts.limits.store: FAILED: Redis at 127.0.0.1:{server.port}/0 does not "
            "answer as it should: AuthenticationError",
        )


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (f"redis://me:{SECRET}@127.0.0.1:1/0", "Redis at 127.0.0.1:1/0 does not answer"),
        (f"redis://me:{SECRET}@127.0.0.1:1/0#x", "has a '#'"),
        (f"redis://me:{SECRET}@127.0.0.1:1/0?timeout=5", "has options that are not known"),
    ],
)
def test_limits_where_nobody_counts_them(url: str, why: str) -> None:
    usable, line = glance(settings(url))
    assert not usable
    assert line.startswith("limits  accounts.limits.store: FAILED: ")
    assert why in line
    assert SECRET not in line


def test_a_redis_that_does_not_answer_or_is_full() -> None:
    with redis_server() as server:
        asyncio.run(server.command("CONFIG", "SET", "maxmemory", "1"))
        usable, line = glance(settings(server.url))
        assert (usable, "OutOfMemoryError" in line) == (False, True)
        server.freeze(True)
        try:
            began = time.monotonic()
            usable, line = glance(settings(server.url))
        finally:
            server.freeze(False)
    assert (usable, time.monotonic() - began < 10) == (False, True)
    assert "Redis at 127.0.0.1" in line or "no answer within" in line


def test_slips_in_configured_keys() -> None:
    ann = {"name": "ann", "key": "sk-ann", "models": ["m", "old", "n*"], "tags": ["Team-A"]}
    found = settings(
        auth={"keys": [{"name": "cfg", "key": "sk-cfg"}, ann]},
        accounts={"tags": {"team-a": {"budgets": [{"period": "day", "usd": 1}]}}},
        fallbacks={"old": ["m"]},
        state={"url": "sqlite:///:memory:"},
    )
    sound, said = remarks(found, [answer("m")])
    assert sound
    assert said == [
        "keys   auth.keys[1].models[2]: no endpoint serves a model 'n*' at the moment.",
        "keys   auth.keys[1].tags[0]: 'Team-A' has no budget; did you mean 'team-a'?",
    ]
    assert len(remarks(found, [answer(error="HTTP 500")])[1]) == 1


@pytest.mark.parametrize(
    ("keys", "metrics", "told"),
    [
        ([{"name": "a", "key": "sk-a"}], {}, True),
        ([{"name": "a", "key": "sk-a"}], {"require_key": True}, False),
        ([{"name": "a", "key": "sk-a"}], {"key": "sk-scraper"}, False),
        ([], {}, False),
    ],
)
def test_metrics_that_are_open_where_there_are_keys(
    keys: list[Any], metrics: dict[str, Any], told: bool
) -> None:
    found = settings(auth={"keys": keys}, metrics=metrics, state={"url": "sqlite:///:memory:"})
    _, said = remarks(found, [answer("m")])
    line = "keys   /metrics is open to everybody, and names keys, models and endpoints: "
    assert said == ([line + "set metrics.key"] if told else [])


def test_fallbacks_that_lead_nowhere() -> None:
    given = settings(
        fallbacks={
            "a": ["b", "c"],
            "b": ["b", "a:latest"],
            "claude-*": "b",
            "gpt-*": {"models": ["d"], "for_keys": "any"},
        },
        default_model="e",
    )
    sound, said = remarks(given, [answer("a", "b")])
    assert not sound
    assert said == [
        "models fallbacks.b[0]: a model is no fallback of itself",
        "models FAILED: fallbacks.a[1]: no endpoint serves a model 'c'",
        "models FAILED: fallbacks.b[1]: no endpoint serves a model 'a:latest'",
        "models FAILED: fallbacks.gpt-*[0]: no endpoint serves a model 'd'",
        "models FAILED: default_model: no endpoint serves a model 'e'",
    ]
    silent = remarks(given, [answer(error="refused")])
    assert silent == (True, ["models fallbacks.b[0]: a model is no fallback of itself"])


def test_a_model_for_summaries_that_nobody_serves() -> None:
    sound, said = remarks(settings(compaction={"model": "c"}), [answer("a", "b")])
    assert not sound
    assert said == ["models FAILED: compaction.model: no endpoint serves a model 'c'"]
    assert remarks(settings(compaction={"model": "b"}), [answer("a", "b")]) == (True, [])


def test_a_fallback_behind_a_pattern_of_aliases_is_served() -> None:
    own = {**ENDPOINT, "models": ["a"], "aliases": {"claude-*": "a"}}
    given = Settings.model_validate({"endpoints": [own], "fallbacks": {"x": ["claude-y", "b"]}})
    sound, said = remarks(given, [answer("a")])
    assert (sound, len(said)) == (False, 1)
    assert "fallbacks.x[1]" in said[0]


def test_what_is_behind_a_pattern_has_a_price_too() -> None:
    own = {**ENDPOINT, "models": ["fixed", "many-*"], "aliases": {"short": "own"}}
    prices = {"prices": {"many-a": {"input": 1, "output": 2}, "own": {"input": 3, "output": 4}}}
    given = Settings.model_validate({"endpoints": [own], "accounts": prices})
    told = [*costs(given, given.endpoints[0], ["many-a", "many-b", "other"])]
    priced = [line.split(":")[0].split() for line in told[:-1]]
    assert priced == [["costs", "many-a"], ["costs", "own"]]
    assert told[-1] == "  NO PRICE   fixed, many-b"


def test_long_lists_are_cut() -> None:
    keys = [{"name": f"k{n}", "key": f"sk-{n}", "models": ["x"]} for n in range(30)]
    found = settings(auth={"keys": keys}, state={"url": "sqlite:///:memory:"})
    _, said = remarks(found, [answer("m")])
    assert (len(said), said[-1]) == (21, "keys   and 10 more")


def run(*arguments: str) -> Ended:
    return asyncio.run(pointsman(*arguments))


def test_names_of_virtual_keys_that_were_taken(tmp_path: Path) -> None:
    file, path = tmp_path / "pointsman.yaml", tmp_path / "state.db"

    def write(*names: str) -> dict[str, Any]:
        keys = [{"name": name, "key": f"sk-{name}"} for name in names]
        sections = {
            "endpoints": [ENDPOINT],
            "auth": {"keys": keys},
            "state": {"url": f"sqlite:///{path}"},
            "metrics": {"require_key": True},
        }
        file.write_text(json.dumps(sections))
        return sections

    sections = write("cfg")
    assert remarks(Settings.model_validate(sections), [answer("m")]) == (True, [])
    assert not path.exists()
    for name in ("ann", "bob"):
        assert run("keys", "create", name, "--config", str(file)).status == 0
    assert run("keys", "revoke", "bob", "--config", str(file)).status == 0
    write("cfg", "ann", "bob")
    checked = run("check", "--config", str(file))
    assert [line for line in checked.out.splitlines() if line.startswith("keys")] == [
        "keys   auth.keys[1]: a virtual key has the name 'ann', too, and is refused"
    ]
    path.write_bytes(b"no database at all" * 100)
    broken = run("check", "--config", str(file))
    assert broken.status == 2
    assert "keys " not in broken.out

"""``pointsman keys`` as it is used: what is on standard output, what a router then knows."""

from __future__ import annotations

import argparse
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from router.cli.keys import add_arguments
from router.cli.keys_table import table
from router.usage.keys import looks_like_ours
from tests.support.commands import Ended, pointsman, pointsman_process
from tests.support.keys import here
from tests.support.state import database_url, opened

__all__ = ["database_url"]

ROOT = Path(__file__).parents[2]
DEADLINE = 60.0
COMMAND = ("-m", "router", "keys")


async def keys(config: Path, command: str, *options: str) -> Ended:
    """Run ``pointsman keys COMMAND OPTIONS --config CONFIG`` to its end."""
    return await pointsman("keys", command, *options, "--config", str(config))


def written(path: Path, url: str, *names: str) -> Path:
    """A file of settings with these keys and a database at ``url``."""
    endpoint = {"name": "a", "url": "http://127.0.0.1:1", "dialect": "ollama"}
    auth = {"keys": [{"name": name, "key": f"sk-{name}"} for name in names]}
    file = path / "pointsman.yaml"
    sections = {"endpoints": [endpoint], "state": {"url": url}, "auth": auth}
    file.write_text(json.dumps(sections))
    return file


async def test_a_key_from_its_beginning_to_its_end(tmp_path: Path, database_url: str) -> None:
    config = written(tmp_path, database_url, "cfg")
    made = await keys(
        config, "create", "ann", "--models", "gpt-*, llama3", "--endpoints", "a*",
        "--expires", "30d", "--tag", "a", "--tag", "b", "--budget", "50usd/month",
        "--budget", "2_000_000tokens/day", "--rpm", "60", "--concurrent", "4", "--priority", "2",
        "--default-model", "llama3",
    )  # fmt: skip
    secret = made.out.removesuffix("\n")
    assert made.status == 0
    assert looks_like_ours(secret)
    assert "ann" in made.err
    assert secret not in made.err
    async with opened(database_url) as database, here(database) as router:
        assert await router.name(secret) == "ann"
        changed = await keys(
            config, "update", "ann", "--all-models", "--rpm", "none", "--tpm", "9", "--no-budgets"
        )
        assert (changed.status, changed.out) == (0, "")
        key = await router.store.get("ann")
        assert key is not None
        assert key.spec is not None
        assert (key.spec.models, key.spec.endpoints, key.spec.budgets) == (None, ("a*",), ())
        assert (key.spec.tags, key.spec.priority) == (("a", "b"), 2)
        assert key.spec.default_model == "llama3"
        assert (key.spec.limits.tokens_per_minute, key.spec.limits.concurrent) == (9, 4)
        assert key.spec.limits.requests_per_minute is None
        rotated = await keys(config, "rotate", "ann", "--grace", "1h")
        new = rotated.out.removesuffix("\n")
        assert "the old one is good until" in rotated.err
        await router.virtual.refresh()
        assert [await router.name(one) for one in (secret, new)] == ["ann", "ann"]
        assert [await router.name(one, later=3601) for one in (secret, new)] == [None, "ann"]
        assert (await keys(config, "revoke", "ann")).status == 0
        await router.virtual.refresh()
        assert [await router.name(one) for one in (secret, new)] == [None, None]
    found = json.loads((await keys(config, "list", "--json")).out)
    assert [key["name"] for key in found] == ["cfg", "ann"]
    assert found[1]["limits"] == {"tokens_per_minute": 9, "concurrent": 4}
    table = await keys(config, "list")
    lines = table.out.splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["name", "source", "state"],
        ["cfg", "configuration", "active"],
        ["ann", "virtual", "revoked"],
    ]
    assert lines[2].endswith("all     a,b   9 tok/min 4 at once  -")
    for text in (secret, new, "sk-cfg"):
        assert text not in table.out + table.err


async def test_what_is_refused(tmp_path: Path) -> None:
    config = written(tmp_path, f"sqlite:///{tmp_path / 'state.db'}", "cfg")
    ended = await keys(config, "revoke", "ann")
    assert (ended.status, ended.out) == (2, "")
    assert "There is no virtual key 'ann'" in ended.err
    assert not (tmp_path / "state.db").exists()
    assert (await keys(config, "create", "ann", "--expires", "2999-01-01")).status == 0
    for command, told in (
        (("create", "ann"), "There is, or was, a key named 'ann'"),
        (("create", "bob", "--expires", "soon"), "Invalid 'expires'"),
        (
            ("create", "bob", "--endpoints", "box"),
            "'endpoints[0]': matches no endpoint; known are: a",
        ),
        (("create", "bob", "--tag", "x", "--tag", "x"), "Invalid 'tags[1]': repeats tags[0]."),
        (
            ("update", "ann", "--budget", "1usd/day", "--budget", "2usd/day"),
            "'budgets[1]': repeats",
        ),
        (("update", "cfg", "--rpm", "1"), "auth.keys[0]"),
    ):
        ended = await keys(config, *command)
        assert (ended.status, ended.out) == (2, "")
        assert told in ended.err
        assert ended.err.count("\n") == 1


def parsed(*options: str) -> argparse.Namespace:
    """What a command line says of a key."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(["update", "ann", "--config", "x.yaml", *options])


@pytest.mark.parametrize(
    "options",
    [
        ("--budget", "50eur/month"),
        ("--budget", "50usd"),
        ("--budget", "1.5tokens/day"),
        ("--rpm", "0"),
        ("--rpm", "-1"),
        ("--tpm", "many"),
        ("--models", "a,"),
        ("--expires", "999999999w"),
    ],
)
def test_command_lines_that_cannot_be(
    options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parsed(*options)
    assert caught.value.code == 2
    assert options[0] in capsys.readouterr().err


def test_what_a_command_line_says() -> None:
    given = parsed("--budget", "2.5usd/week", "--budget", "1_000tokens/total", "--rpm", "none")
    assert given.budgets == [{"period": "week", "usd": 2.5}, {"period": "total", "tokens": 1000}]
    assert given.rpm is None
    for absent in ("models", "endpoints", "tags", "expires", "priority", "tpm"):
        assert absent not in vars(given)
    assert parsed("--default-model", "none").default_model is None
    assert parsed("--expires", "never").expires is None
    assert parsed("--expires", "2999-01-01").expires == "2999-01-01"
    before = datetime.now(UTC)
    moment = datetime.fromisoformat(parsed("--expires", "1.5h").expires)
    assert timedelta(0) <= moment - before - timedelta(hours=1.5) < timedelta(minutes=1)
    cleared = vars(parsed("--all-models", "--all-endpoints", "--no-tags", "--no-budgets"))
    assert [cleared[name] for name in ("models", "endpoints", "tags", "budgets")] == [None] * 4


async def test_processes_of_their_own(tmp_path: Path) -> None:
    """The secret is all that standard output has, also where it is a pipe."""
    config = str(written(tmp_path, f"sqlite:///{tmp_path / 'state.db'}", "cfg"))
    made = await pointsman_process("keys", "create", "ann", "--config", config)
    assert made.status == 0
    assert looks_like_ours(made.out.removesuffix("\n"))
    found = await pointsman_process("keys", "list", "--json", "--config", config)
    assert (found.status, found.err) == (0, "")
    assert [key["name"] for key in json.loads(found.out)] == ["cfg", "ann"]


async def test_where_no_key_can_be_made(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    ended = await keys(written(tmp_path, f"sqlite:///{path}"), "create", "ann")
    assert (ended.status, ended.out) == (1, "")
    assert "auth.keys is empty" in ended.err
    assert not path.exists()
    ended = await keys(written(tmp_path, "sqlite:///:memory:", "cfg"), "create", "ann")
    assert (ended.status, ended.out) == (1, "")
    assert "in the router's memory" in ended.err
    nothing = await keys(written(tmp_path, f"sqlite:///{path}"), "list")
    assert (nothing.status, nothing.out, nothing.err) == (0, "", "there are no keys\n")


async def test_what_may_be_a_slip_is_told(tmp_path: Path) -> None:
    config = written(tmp_path, f"sqlite:///{tmp_path / 'state.db'}", "cfg")
    sections = json.loads(config.read_text())
    sections["accounts"] = {"tags": {"team-a": {"budgets": [{"period": "day", "usd": 1}]}}}
    sections["endpoints"][0]["models"] = ["m"]
    config.write_text(json.dumps(sections))
    made = await keys(config, "create", "ann", "--models", "m,n", "--tag", "Team-A")
    assert made.status == 0
    assert looks_like_ours(made.out.removesuffix("\n"))
    assert made.err.splitlines()[:3] == [
        f"there was no database yet: made {tmp_path / 'state.db'}",
        "warning: models[1]: no endpoint serves a model 'n' at the moment.",
        "warning: tags[0]: 'Team-A' has no budget; did you mean 'team-a'?",
    ]
    # An endpoint that is asked for its models may serve it.
    del sections["endpoints"][0]["models"]
    config.write_text(json.dumps(sections))
    changed = await keys(config, "update", "ann", "--models", "n")
    assert (changed.status, changed.err) == (0, "changed ann\n")


@pytest.mark.parametrize(
    ("fields", "limits", "budgets"),
    [
        ({}, "-", "-"),
        (
            {
                "limits": {
                    "requests_per_minute": 60,
                    "tokens_per_minute": 100_000,
                    "concurrent": 4,
                },
                "budgets": [
                    {"period": "day", "usd": 5.0},
                    {"period": "month", "tokens": 2_000_000},
                ],
            },
            "60/min 100k tok/min 4 at once",
            "$5/day 2M tok/month",
        ),
        (
            {
                "limits": {"tokens_per_minute": 1234},
                "model_limits": {"gpt-*": {"requests_per_minute": 1500}, "x": {}},
                "budgets": [
                    {"period": "total", "usd": 1234567.5},
                    {"period": "week", "usd": 0.0001},
                ],
            },
            "1234 tok/min; gpt-*: 1.5k/min",
            "$1234567.50/total $0.0001/week",
        ),
        ({"model_limits": {"m" * 99: {"concurrent": 1}}}, "m" * 37 + "...", "-"),
    ],
)
def test_what_the_table_says(fields: dict[str, Any], limits: str, budgets: str) -> None:
    shown = {"name": "ann", "source": "virtual", "state": "active", **fields}
    _, line = table([shown])
    assert re.split(r" {2,}", line) == [
        "ann", "virtual", "active", "-", "never", "all", "-", limits, budgets,
    ]  # fmt: skip


def test_a_terminal_obeys_nothing_in_the_table() -> None:
    key = {"name": "ann", "source": "virtual", "state": "active"}
    _, line = table([{**key, "models": ["\x1b[31m"], "model_limits": {"\r": {"concurrent": 1}}}])
    assert "?[31m" in line
    assert line.isprintable()

"""``pointsman state`` as it is used: exit status, what a user reads, beside a running router."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from router.cli.main import main
from router.state.responses import ResponseStore
from tests.support.commands import Ended, pointsman, pointsman_process
from tests.support.damage import executed
from tests.support.processes import Processes, RouterProcess
from tests.support.state import database_url, opened
from tests.support.stored import message, stored

__all__ = ["database_url"]

ROOT = Path(__file__).parents[2]
DEADLINE = 60.0


async def state(config: Path, command: str, *options: str) -> Ended:
    """Run ``pointsman state COMMAND --config CONFIG OPTIONS`` to its end."""
    return await pointsman("state", command, "--config", str(config), *options)


def configured(path: Path, url: str) -> Path:
    """A file of settings whose database is at ``url``."""
    endpoint = {"name": "a", "url": "http://127.0.0.1:1", "dialect": "ollama"}
    file = path / "pointsman.yaml"
    file.write_text(json.dumps({"endpoints": [endpoint], "state": {"url": url}}))
    return file


@pytest.fixture
def config(tmp_path: Path, database_url: str) -> Path:
    """Settings with an empty database of each kind."""
    return configured(tmp_path, database_url)


@pytest_asyncio.fixture
async def filled(config: Path, database_url: str) -> AsyncIterator[Path]:
    """The same with two responses of ann's and one of bob's."""
    async with opened(database_url) as database:
        for ident, owner in (("resp_a", "ann"), ("resp_b", "bob"), ("resp_c", "ann")):
            row = stored(ident, owner=owner, given=[message("m_" + ident)])
            await database.write(*ResponseStore(database).added(row))
    yield config


async def test_before_the_first_start(config: Path) -> None:
    files = os.listdir(config.parent)
    checked = await state(config, "check")
    assert (checked.status, checked.err) == (0, "")
    assert "made at the first start" in checked.out
    vacuumed = await state(config, "vacuum")
    assert (vacuumed.status, vacuumed.err) == (0, "")
    assert "made at the first start" in vacuumed.out
    exported = await state(config, "export", "--owner", "ann")
    assert (exported.status, exported.out) == (0, "")
    assert exported.err == "nothing is stored for ann\n"
    assert os.listdir(config.parent) == files


async def test_check_of_what_is_whole(filled: Path) -> None:
    checked = await state(filled, "check")
    assert (checked.status, checked.err) == (0, "")
    assert re.search(r"^  schema +version \d+$", checked.out, re.M)
    assert re.search(r"^  responses +3, the oldest of 1970-01-01 00:16 UTC$", checked.out, re.M)
    assert checked.out.endswith("\nno problem found\n")
    as_json = json.loads((await state(filled, "check", "--json")).out)
    assert as_json["counts"]["responses"] == 3
    assert as_json["problems"] == []


async def test_check_names_what_is_broken(filled: Path, database_url: str) -> None:
    await executed(
        database_url,
        "UPDATE responses SET status = 'queued' WHERE owner = 'ann'",
        "UPDATE responses SET body = CAST('x' AS {blob}) WHERE owner = 'bob'",
    )
    checked = await state(filled, "check")
    assert (checked.status, checked.err) == (2, "")
    assert checked.out.endswith(
        "\n2 problems found\n"
        "  unfinished responses that no run will finish: 2\n    resp_a\n    resp_c\n"
        "  responses whose JSON is broken: 1\n    resp_b\n"
    )
    as_json = await state(filled, "check", "--json")
    assert as_json.status == 2
    assert [problem["count"] for problem in json.loads(as_json.out)["problems"]] == [2, 1]


async def test_a_newer_database_is_left_alone(filled: Path, database_url: str) -> None:
    await executed(database_url, "UPDATE pointsman_schema SET version = 99")
    for command in (("check",), ("vacuum",), ("export", "--owner", "ann")):
        refused = await state(filled, *command)
        assert (refused.status, refused.out) == (1, "")
        assert refused.err.count("\n") == 1
        assert "schema version 99" in refused.err
        assert str(filled) in refused.err


async def test_a_file_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with opened(f"sqlite:///{path}") as database:
        given = [message("m", "x" * 500_000)]
        await database.write(*ResponseStore(database).added(stored("resp_a", given=given)))
    os.truncate(path, path.stat().st_size // 2)
    config = configured(tmp_path, f"sqlite:///{path}")
    checked = await state(config, "check")
    assert (checked.status, checked.err) == (2, "")
    assert "the file is damaged" in checked.out
    for command in (("vacuum",), ("export", "--owner", "ann")):
        refused = await state(config, *command)
        assert (refused.status, refused.out) == (1, "")
        assert refused.err.count("\n") == 1
        assert "damaged" in refused.err


@pytest.mark.parametrize("command", [("check",), ("vacuum",), ("export", "--owner", "ann")])
async def test_a_server_that_is_not_there(tmp_path: Path, command: tuple[str, ...]) -> None:
    config = configured(tmp_path, "postgresql://me:hunter2@127.0.0.1:1/none")
    refused = await state(config, *command)
    assert (refused.status, refused.out) == (1, "")
    assert refused.err.startswith(f"{config}: state: The PostgreSQL database cannot be used")
    assert refused.err.count("\n") == 1
    assert "hunter2" not in refused.err


async def test_export_into_a_file(filled: Path) -> None:
    output = filled.parent / "ann.jsonl"
    output.write_text("of before\n")
    done = await state(filled, "export", "--owner", "ann", "--output", str(output))
    assert (done.status, done.out) == (0, "")
    assert done.err == "2 responses, 0 conversations, 0 prompts, 0 rows of usage\n"
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(line["type"], line["id"]) for line in lines] == [
        ("response", "resp_a"),
        ("response", "resp_c"),
    ]
    assert lines[0]["input_items"][0]["id"] == "m_resp_a"
    assert (await state(filled, "export", "--owner", "ann")).out == output.read_text()


async def test_an_export_that_fails_leaves_the_file_of_before(
    filled: Path, database_url: str
) -> None:
    output = filled.parent / "ann.jsonl"
    output.write_text("of before\n")
    await executed(database_url, "UPDATE pointsman_schema SET version = 99")
    done = await state(filled, "export", "--owner", "ann", "--output", str(output))
    assert done.status == 1
    assert output.read_text() == "of before\n"
    assert [name for name in os.listdir(filled.parent) if "ann" in name] == ["ann.jsonl"]
    nowhere = str(filled.parent / "none" / "ann.jsonl")
    done = await state(filled, "export", "--owner", "ann", "--output", nowhere)
    assert (done.status, done.err) == (
        1,
        f"{nowhere}: cannot be written: No such file or directory\n",
    )


async def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with opened(f"sqlite:///{path}") as database:
        for number in range(30):
            row = stored(f"resp_{number}", given=[message("m", "x" * 100_000)])
            await database.write(*ResponseStore(database).added(row))
    config = configured(tmp_path, f"sqlite:///{path}")
    line = f"{sys.executable} -m router state export --owner ann --config {config} | head -c 20"
    process = await asyncio.create_subprocess_shell(
        line, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(DEADLINE):
        out, err = await process.communicate()
    assert out == b'{"type":"response","'
    assert err == b""


def test_check_of_everything_tells_of_the_database_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configured(tmp_path, f"sqlite:///{tmp_path}/state.db")
    assert main(["check", "--config", str(config)]) == 2  # the endpoint does not answer
    line = f"\nstate  sqlite:///{tmp_path}/state.db  not there yet, made at the first start\n"
    assert line in capsys.readouterr().out
    config = configured(tmp_path, "postgresql://me:hunter2@127.0.0.1:1/none?password=hunter2")
    assert main(["check", "--config", str(config)]) == 2
    out = capsys.readouterr().out
    assert "\nstate  postgresql://me@127.0.0.1:1/none  FAILED: " in out
    assert "hunter2" not in out


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["state"], "COMMAND"),
        (["state", "check"], "--config"),
        (["state", "fly", "--config", "f"], "invalid choice"),
        (["state", "export", "--config", "f"], "--owner"),
    ],
)
def test_wrong_command_lines(
    argv: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert named in capsys.readouterr().err


class Live:
    """A router under load, and what it has acknowledged."""

    def __init__(self, router: RouterProcess, http: aiohttp.ClientSession) -> None:
        self.router = router
        self.acknowledged: set[str] = set()
        self._http = http

    async def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self._http.post(self.router.url + "/v1" + path, json=body) as reply:
            answer: dict[str, Any] = await reply.json()
            assert reply.status == 200, answer
            return answer

    async def load(self, until: Callable[[], bool]) -> None:
        """Foreground and background responses, turns of a conversation, one after the other."""
        conversation = (await self.call("/conversations", {}))["id"]
        ask = {"model": "sim-chat", "input": "Count from 1 to 9"}
        while not until():
            for more in ({}, {"background": True}, {"conversation": conversation}):
                answer = await self.call("/responses", {**ask, **more})
                self.acknowledged.add(answer["id"])


@pytest_asyncio.fixture
async def live(tmp_path: Path, database_url: str) -> AsyncIterator[Live]:
    """A router on each kind of database."""
    with Processes(tmp_path) as processes:
        endpoint = await processes.backend("chat")
        settings = {"endpoints": [endpoint], "state": {"url": database_url}}
        router = await processes.router("router", settings)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as http:
            yield Live(router, http)
        assert router.complaints() == []


async def test_beside_a_router_under_load(live: Live) -> None:
    async def beside(command: str, *options: str) -> Ended:
        config = str(live.router.config)
        return await pointsman_process("state", command, "--config", config, *options)

    end = time.monotonic() + DEADLINE
    done = False
    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(live.load(lambda: done or time.monotonic() > end))
        for _ in range(3):
            checked = json.loads((await beside("check", "--json")).out)
            assert checked["problems"] == []
            assert checked["counts"]["routers"] == 1
            vacuumed = await beside("vacuum")
            assert (vacuumed.status, vacuumed.err) == (0, "")
            before = set(live.acknowledged)
            exported = await beside("export", "--owner", "default")
            assert exported.status == 0
            lines = [json.loads(line) for line in exported.out.splitlines()]
            there = {line["id"] for line in lines if line["type"] == "response"}
            assert before <= there
        done = True
    assert len(live.acknowledged) >= 12

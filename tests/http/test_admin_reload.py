"""Reloading the configuration's file by an admin route, in a router that was started with one."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from router import reload
from router.serve import serve
from router.settings.watch import ConfigFile
from tests.support.admin import ADMIN_KEY
from tests.support.fetch import fetch
from tests.support.fleet import http_client
from tests.support.router import Reply, endpoint


class Served:
    """A router that runs, and its file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config: dict[str, Any] = {
            "server": {"port": 0, "drain_timeout": 0},
            "endpoints": [endpoint("http://127.0.0.1:1", "chat")],
            "state": {"url": "sqlite:///:memory:"},
            "logging": {"access": False},
            "admin": {"key": ADMIN_KEY},
        }
        self.url = ""

    def write(self, **sections: Any) -> None:
        """Change the file."""
        self.config |= sections
        self.path.write_bytes(orjson.dumps(self.config))

    async def reload(self, key: str = ADMIN_KEY) -> Reply:
        async with http_client() as http:
            headers = {"Authorization": f"Bearer {key}"}
            return await fetch(http, "POST", f"{self.url}/admin/reload", headers=headers)


@pytest.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    """A router that does not look at its file by itself."""
    monkeypatch.setattr(reload, "_LOOK_SECONDS", 3600.0)
    served = Served(tmp_path / "pointsman.yaml")
    served.write()
    config = ConfigFile(served.path, {})
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    running = asyncio.create_task(
        serve(config.load(), config, on_ready=ready.set_result, stop=stop)
    )
    try:
        served.url = await asyncio.wait_for(ready, 60)
        yield served
    finally:
        stop.set()
        await asyncio.wait_for(running, 60)
        gc.unfreeze()


async def test_what_has_changed_is_told(served: Served) -> None:
    served.write(balance={"queue_size": 3})
    with capture_logs() as log:
        reply = await served.reload()
    assert (reply.status, reply.json["ok"]) == (200, True)
    assert reply.json["said"] == ["balance changed: queue_size"]
    assert [line["event"] for line in log] == ["configuration reloaded", "admin"]
    assert (await served.reload()).json["said"] == []


async def test_another_key(served: Served) -> None:
    served.write(admin={"key": "sk-another"})
    assert (await served.reload()).status == 200
    assert (await served.reload()).status == 401
    assert (await served.reload("sk-another")).status == 200


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"balance": {"queue_size": -1}}, "balance.queue_size"),
        ({"server": {"port": 1, "drain_timeout": 0}}, "server.port"),
        ({"plugins": ["nowhere:nothing"]}, "nowhere"),
    ],
    ids=["invalid", "needs a restart", "plugin"],
)
async def test_a_bad_one_changes_nothing(
    served: Served, sections: dict[str, Any], reason: str
) -> None:
    served.write(admin={"key": "sk-another"}, **sections)
    reply = await served.reload()
    assert (reply.status, reply.error["code"]) == (400, "configuration_refused")
    assert reason in reply.error["message"]
    assert "sk-another" not in reply.error["message"]
    assert (await served.reload("sk-another")).status == 401


async def test_a_file_that_is_gone(served: Served) -> None:
    served.path.unlink()
    reply = await served.reload()
    assert (reply.status, reply.error["code"]) == (400, "configuration_refused")
    assert "cannot be read" in reply.error["message"]


async def test_a_bug_is_no_success(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("router.settings.watch.ConfigFile.reload")
    reply = await served.reload()
    assert (reply.status, reply.error["code"]) == (500, "internal_error")

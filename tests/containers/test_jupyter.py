"""Code in the kernels of a real Jupyter server."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from router.containers.jupyter.runner import JupyterRunner
from router.containers.runner import ContainerGone, ContainerRef, RunnerFailed
from router.settings.code_interpreter import JupyterRunnerSettings
from tests.support.calling_model import Said, calling, outputs_of
from tests.support.fleet import http_client, routed
from tests.support.guests import python_packages
from tests.support.processes import Process, free_port
from tests.support.upstream import Received, Upstream

pytestmark = pytest.mark.integration

PACKAGES = ("jupyter-server==2.21.1", "ipykernel==7.4.0")

TOKEN = secrets.token_hex(16)
MEMORY = 4 << 30


@asynccontextmanager
async def jupyter(directory: Path) -> AsyncIterator[str]:
    """The base URL of a server."""
    port = free_port()
    python = await asyncio.to_thread(python_packages, *PACKAGES)
    command = [str(python), "-m", "jupyter_server", "--allow-root", "--no-browser"]
    command += [
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        "--ServerApp.ip=127.0.0.1",
    ]
    command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={directory}"]
    process = Process("jupyter", command, directory / "jupyter.log")
    process.start()
    url = f"http://127.0.0.1:{port}"
    try:
        await process.answers(f"{url}/api")
        yield url
    finally:
        process.kill()


def settings(url: str, **gateway: Any) -> dict[str, Any]:
    return {"gateways": [{"url": url, "token": TOKEN, "keys": ["default"], **gateway}]}


async def test_a_kernel_is_a_container(tmp_path: Path) -> None:
    async with jupyter(tmp_path) as url:
        runner = JupyterRunner(JupyterRunnerSettings.model_validate(settings(url)))
        assert await runner.problem() is None
        ref = ContainerRef("cntr_a", "default", "", MEMORY)
        ref = ContainerRef("cntr_a", "default", await runner.open(ref), MEMORY)
        outcome = await runner.execute(ref, "x = 41\nprint('so')\nx + 1", 20, 1000)
        assert (outcome.outcome, outcome.logs) == ("completed", "so\n42\n")
        outcome = await runner.execute(ref, "1 / 0", 20, 1000)
        assert outcome.outcome == "error"
        assert "ZeroDivisionError" in outcome.logs
        assert "\x1b" not in outcome.logs

        data = bytes(range(256)) * 4000
        await runner.write(ref, "a.bin", "1", data[:500_000], last=False)
        await runner.write(ref, "a.bin", "1", data[500_000:], last=True)
        await runner.execute(ref, "import os; os.symlink('/etc/passwd', 'link')", 20, 1000)
        assert [(file.path, file.bytes) for file in await runner.files(ref)] == [
            ("a.bin", len(data))
        ]
        assert await runner.read(ref, "a.bin", 0, 524_288) == data[:524_288]
        with pytest.raises(RunnerFailed):
            await runner.read(ref, "link", 0, 100)
        await runner.delete(ref, "a.bin")
        assert await runner.files(ref) == []

        outcome = await runner.execute(ref, "import time\nprint('begun')\ntime.sleep(60)", 2, 1000)
        assert (outcome.outcome, outcome.lost) == ("timeout", False)
        assert outcome.logs.startswith("begun\n")
        assert (await runner.execute(ref, "x", 20, 1000)).logs == "41\n"
        outcome = await runner.execute(ref, "while True: print('y' * 1000)", 2, 1000)
        assert outcome.outcome == "timeout"
        assert len(outcome.logs) < 1200

        picture = (
            "import base64\nfrom IPython.display import Image, display\n"
            "display(Image(data=base64.b64decode('iVBORw0KGgo='), format='png'))"
        )
        outcome = await runner.execute(ref, picture, 20, 1000)
        assert outcome.images == ("iVBORw0KGgo=",)
        outcome = await runner.execute(ref, "import os\nos._exit(1)", 20, 1000)
        assert (outcome.outcome, outcome.lost) == ("ended", True)

        folder = ref.handle.partition(":")[2]
        await runner.end(ref)
        with pytest.raises(ContainerGone):
            await runner.execute(ref, "1", 20, 1000)
        assert not _is_there(folder)
        await runner.close()


def _is_there(folder: str) -> bool:
    return os.path.exists(folder)


async def test_it_runs_the_code_of_a_model_and_any_router_reaches_it(tmp_path: Path) -> None:
    def answer(request: Received) -> Said:
        outputs = outputs_of(request)
        code = ["x = 41", "open('out.txt', 'w').write('hello'); x + 1", "x + 2"]
        if len(outputs) < wanted:
            return [("code_interpreter", {"code": code[len(outputs)]})]
        return ["See /mnt/data/out.txt: " + " ".join(outputs)]

    async with (
        jupyter(tmp_path) as url,
        Upstream(default=calling("chat", answer)) as model,
        http_client() as http,
    ):
        endpoint = {"name": "one", "dialect": "chat", "models": ["m"], "url": f"{model.address}/v1"}
        code = {"jupyter": settings(url)}
        tools = {"run": {"code_interpreter": "router"}, "code_interpreter": code}
        state = {"url": f"sqlite:///{tmp_path}/state.db"}
        tool = {"type": "code_interpreter", "container": {"type": "auto"}}
        body = {"model": "m", "input": "Go", "tools": [tool]}
        body["include"] = ["code_interpreter_call.outputs"]

        async def ask(router: str, **fields: Any) -> Any:
            async with http.post(f"{router}/v1/responses", json={**body, **fields}) as told:
                data = await told.read()
                assert told.status == 200, data
                return orjson.loads(data)

        async with (
            routed(endpoint, tools=tools, state=state) as one,
            routed(endpoint, tools=tools, state=state) as other,
        ):
            wanted = 2
            first = await ask(one)
            call, message = first["output"][1], first["output"][-1]
            assert call["outputs"] == [{"type": "logs", "logs": "42\n"}]
            citation = message["content"][0]["annotations"][0]
            assert citation["filename"] == "out.txt"
            wanted = 3
            second = await ask(other, previous_response_id=first["id"])
            call = second["output"][0]
            assert call["outputs"] == [{"type": "logs", "logs": "43\n"}]
            path = f"/v1/containers/{call['container_id']}/files/{citation['file_id']}/content"
            async with http.get(other + path) as content:
                assert await content.read() == b"hello"
            async with http.delete(f"{other}/v1/containers/{call['container_id']}") as gone:
                assert gone.status == 200


async def test_a_key_without_a_gateway_runs_no_code(tmp_path: Path) -> None:
    given = settings("http://127.0.0.1:1", keys=["team-a"])
    runner = JupyterRunner(JupyterRunnerSettings.model_validate(given))
    with pytest.raises(RunnerFailed, match="no Jupyter gateway"):
        await runner.open(ContainerRef("cntr_a", "team-b", "", MEMORY))
    assert "no connection can be made" in (await runner.problem() or "")
    await runner.close()


async def test_a_gateway_that_refuses_the_token_is_named(tmp_path: Path) -> None:
    async with jupyter(tmp_path) as url:
        wrong = settings(url, token="wrong")
        runner = JupyterRunner(JupyterRunnerSettings.model_validate(wrong))
        assert "it answered 403" in (await runner.problem() or "")
        await runner.close()
        with_kernel = settings(url, kernel="julia")
        runner = JupyterRunner(JupyterRunnerSettings.model_validate(with_kernel))
        assert "has no kernel 'julia'; it has python3" in (await runner.problem() or "")
        await runner.close()


async def test_what_runs_is_interrupted_when_the_caller_leaves(tmp_path: Path) -> None:
    async with jupyter(tmp_path) as url, aiohttp.ClientSession():
        runner = JupyterRunner(JupyterRunnerSettings.model_validate(settings(url)))
        ref = ContainerRef("cntr_a", "default", "", MEMORY)
        ref = ContainerRef("cntr_a", "default", await runner.open(ref), MEMORY)
        running = asyncio.create_task(runner.execute(ref, "import time; time.sleep(99)", 90, 99))
        await asyncio.sleep(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await runner.execute(ref, "1", 20, 1000)).logs == "1\n"
        await runner.end(ref)
        await runner.close()


async def test_who_has_to_wait_does_not_interrupt_what_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.containers.jupyter.runner._FILE_SECONDS", 1.0)
    async with jupyter(tmp_path) as url:
        ours = JupyterRunner(JupyterRunnerSettings.model_validate(settings(url)))
        others = JupyterRunner(JupyterRunnerSettings.model_validate(settings(url)))
        ref = ContainerRef("cntr_a", "default", "", MEMORY)
        ref = ContainerRef("cntr_a", "default", await ours.open(ref), MEMORY)
        code = "import time; time.sleep(4); 'done'"
        running = asyncio.create_task(ours.execute(ref, code, 60, 1000))
        await asyncio.sleep(0.5)
        for runner in (ours, others):
            with pytest.raises(RunnerFailed, match="busy"):
                await runner.files(ref)
        outcome = await running
        assert (outcome.outcome, outcome.logs) == ("completed", "'done'\n")
        await ours.end(ref)
        await ours.close()
        await others.close()

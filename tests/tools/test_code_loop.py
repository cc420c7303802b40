"""Code of models run by the router, for a model on an endpoint of any dialect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import pytest
from openai import AsyncOpenAI

from router.containers.local.sandbox import Sandbox
from router.settings.schema import Dialect
from tests.support.calling_model import Said, asked_tools, calling, outputs_of
from tests.support.fleet import DIALECTS, http_client, routed
from tests.support.order import check_order, parse_sse
from tests.support.sandboxes import needs_sandboxes
from tests.support.upstream import Received, Upstream
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, needs_sandboxes]

JSON = dict[str, Any]
TOOL = {"type": "code_interpreter", "container": {"type": "auto"}}
OUTPUTS = ["code_interpreter_call.outputs"]
CUBE = "print(round((19910212 * 20250910) ** (1 / 3), 4))"


def runs(*codes: str, then: Callable[[list[str]], str] = "|".join) -> Callable[[Received], Said]:
    """A model that has one code after the other run, and then says what came of them."""

    def answer(request: Received) -> Said:
        outputs = outputs_of(request)
        if len(outputs) < len(codes) and asked_tools(request):
            return [("code_interpreter", {"code": codes[len(outputs)]})]
        return [then(outputs) or "-"]

    return answer


class Coding:
    """A router that runs code, and its client and model."""

    def __init__(self, url: str, http: aiohttp.ClientSession, model: Upstream) -> None:
        self.url, self.http, self.model = url, http, model

    async def ask(self, **fields: Any) -> JSON:
        """The final Response object; a stream's is checked on its way."""
        body = {"model": "m", "input": "Go", "tools": [TOOL], "include": OUTPUTS, **fields}
        async with self.http.post(f"{self.url}/v1/responses", json=body) as answer:
            data = await answer.read()
        assert answer.status == 200, data
        if fields.get("stream"):
            return check_order(parse_sse(data))
        response: JSON = orjson.loads(data)
        return response

    @property
    def client(self) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key="sk", max_retries=0)


@asynccontextmanager
async def coding(
    answer: Callable[[Received], Said], dialect: Dialect = "chat", **settings: Any
) -> AsyncIterator[Coding]:
    async with Upstream(default=calling(dialect, answer)) as model, http_client() as http:
        endpoint = {"name": "one", "dialect": dialect, "models": ["m"]}
        endpoint["url"] = model.address + ("" if dialect == "ollama" else "/v1")
        tools = settings.pop("tools", {})
        code = {"local": {"disk_mb": 16}, **settings.pop("code", {})}
        tools = {"run": {"code_interpreter": "router"}, "code_interpreter": code, **tools}
        async with routed(endpoint, tools=tools, **settings) as url:
            yield Coding(url, http, model)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_code_is_run_and_its_output_told(dialect: Dialect, stream: bool) -> None:
    async with coding(runs(CUBE), dialect) as at:
        response = await at.ask(stream=stream, input="The cube root of 19910212 * 20250910?")
        call, message = response["output"]
        assert (call["type"], call["status"]) == ("code_interpreter_call", "completed")
        assert call["code"] == CUBE
        assert call["outputs"] == [{"type": "logs", "logs": "73876.5846\n"}]
        assert call["container_id"].startswith("cntr_")
        assert message["content"][0]["text"] == "73876.5846"
        assert response["usage"]["output_tokens_details"]["tool_output_tokens"] > 0
        assert asked_tools(at.model.requests[0]) == ["code_interpreter"]


async def test_outputs_are_told_to_those_that_ask_for_them() -> None:
    async with coding(runs("print(1)")) as at:
        call, message = (await at.ask(include=[]))["output"]
        assert call["outputs"] is None
        assert message["content"][0]["text"] == "1"


async def test_state_is_kept_within_a_response_and_along_a_chain() -> None:
    def answer(request: Received) -> Said:
        outputs = outputs_of(request)
        code = ["x = 41", "x + 1", "x + 2"]
        return (
            [("code_interpreter", {"code": code[len(outputs)]})]
            if len(outputs) < wanted
            else [" ".join(outputs)]
        )

    wanted = 2
    async with coding(answer) as at:
        first = await at.ask()
        assert [item["type"] for item in first["output"]].count("code_interpreter_call") == 2
        assert first["output"][-1]["content"][0]["text"] == "(no output) 42"
        wanted = 3
        second = await at.ask(previous_response_id=first["id"])
        [call] = [item for item in second["output"] if item["type"] == "code_interpreter_call"]
        assert call["container_id"] == first["output"][0]["container_id"]
        assert call["outputs"] == [{"type": "logs", "logs": "43\n"}]


async def test_files_that_code_makes_are_cited() -> None:
    text = "See [the table](sandbox:/mnt/data/out.csv), or out.csv.gz."
    code = "open('out.csv', 'w').write('a,b'); open('other', 'w').close()"
    for stream in (False, True):
        async with coding(runs(code, then=lambda _: text)) as at, at.client as client:
            call, message = (await at.ask(stream=stream))["output"]
            [citation] = message["content"][0]["annotations"]
            assert citation["type"] == "container_file_citation"
            assert citation["filename"] == "out.csv"
            cited = text[citation["start_index"] : citation["end_index"]]
            assert cited == "sandbox:/mnt/data/out.csv"
            content = await client.containers.files.content.retrieve(
                citation["file_id"], container_id=call["container_id"]
            )
            assert content.read() == b"a,b"
        assert "/mnt/data/out.csv (3 bytes)" in outputs_of(at.model.requests[1])[0]


async def test_code_that_fails_is_told_to_the_model_and_ends_nothing() -> None:
    async with coding(runs("print('so far')\n1/0", "import os; os._exit(3)", "2")) as at:
        response = await at.ask()
        first, second, third, message = response["output"]
        assert first["status"] == "completed"
        assert "ZeroDivisionError" in first["outputs"][0]["logs"]
        assert second["status"] == "failed"
        assert "The interpreter ended." in second["outputs"][0]["logs"]
        assert third["outputs"] == [{"type": "logs", "logs": "2\n"}]
        assert "variables are gone" in message["content"][0]["text"]


async def test_images_are_shown() -> None:
    code = "class P:\n  def _repr_png_(self): return b'png'\nP()"
    async with coding(runs(code)) as at:
        call, _ = (await at.ask())["output"]
        assert call["outputs"] == [{"type": "image", "url": "data:image/png;base64,cG5n"}]
    async with coding(runs(code), code={"images": False}) as at:
        call, _ = (await at.ask())["output"]
        assert call["outputs"] == []


async def test_code_that_takes_too_long_is_stopped_and_what_it_printed_is_kept() -> None:
    code = "print('begun')\nwhile True: pass"
    async with coding(runs(code), tools={"call_timeout": 4}) as at:
        call, _ = (await at.ask())["output"]
        assert call["status"] == "failed"
        assert call["outputs"][0]["logs"].startswith("begun\n")
        assert "took too long" in call["outputs"][0]["logs"]


async def test_a_container_of_ones_own_is_used() -> None:
    async with coding(runs("open('in.txt').read()")) as at, at.client as client:
        container = await client.containers.create(name="mine")
        await client.containers.files.create(container.id, file=("in.txt", b"hello"))
        tool = {"type": "code_interpreter", "container": container.id}
        call, _ = (await at.ask(tools=[tool]))["output"]
        assert call["container_id"] == container.id
        assert call["outputs"] == [{"type": "logs", "logs": "'hello'\n"}]
        offered = at.model.requests[0].json["tools"][0]["function"]["description"]
        assert "/mnt/data/in.txt" in offered


@pytest.mark.parametrize(
    ("container", "param"),
    [
        (None, "tools[0].container"),
        (1, "tools[0].container"),
        ("cntr_none", "tools[0].container"),
        ({"type": "never"}, "tools[0].container.type"),
        ({"type": "auto", "memory_limit": "3g"}, "tools[0].container.memory_limit"),
        ({"type": "auto", "file_ids": [1]}, "tools[0].container.file_ids[0]"),
        ({"type": "auto", "file_ids": ["file-no"]}, "tools[0].container.file_ids[0]"),
        (
            {"type": "auto", "network_policy": {"type": "allowlist", "allowed_domains": ["x"]}},
            "tools[0].container.network_policy",
        ),
    ],
)
async def test_a_container_that_cannot_be_is_refused(container: Any, param: str) -> None:
    async with coding(runs("1")) as at:
        tool = {"type": "code_interpreter", "container": container}
        body = {"model": "m", "input": "Go", "tools": [tool]}
        async with at.http.post(f"{at.url}/v1/responses", json=body) as answer:
            error = (await answer.json())["error"]
        assert (answer.status, error["param"]) == (400, param), error
        assert at.model.requests == []


async def test_a_container_that_has_died_is_replaced_where_any_will_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    boxes: list[Sandbox] = []
    start = Sandbox.start

    async def started(self: Sandbox) -> str:
        boxes.append(self)
        return await start(self)

    def say(request: Received) -> Said:
        return runs(*["1"] * wanted)(request)

    monkeypatch.setattr(Sandbox, "start", started)
    wanted = 1
    async with coding(say) as at, at.client as client:
        first = await at.ask()
        wanted = 2
        own = await client.containers.create(name="mine")
        for box in boxes:
            await box.end()
        second = await at.ask(previous_response_id=first["id"])
        [call] = [item for item in second["output"] if item["type"] == "code_interpreter_call"]
        assert call["status"] == "completed"
        assert call["container_id"] != first["output"][0]["container_id"]
        tool = {"type": "code_interpreter", "container": own.id}
        body = {"model": "m", "input": "Go", "tools": [tool]}
        async with at.http.post(f"{at.url}/v1/responses", json=body) as answer:
            error = (await answer.json())["error"]
        assert (answer.status, error["param"]) == (400, "tools[0].container"), error


async def test_code_goes_on_in_another_container_where_its_own_has_died(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    execute = Sandbox.ask

    async def dying(self: Sandbox, do: str, *given: Any, **fields: Any) -> Any:
        if fields.get("code") == "die":
            await self.end()
        return await execute(self, do, *given, **fields)

    monkeypatch.setattr(Sandbox, "ask", dying)
    async with coding(runs("die", "6 * 7")) as at:
        died, ran, message = (await at.ask())["output"]
        assert (died["status"], ran["status"]) == ("failed", "completed")
        assert died["container_id"] != ran["container_id"]
        assert message["content"][0]["text"].endswith("|42")


async def test_functions_of_the_client_make_no_events_of_code() -> None:
    function = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
    async with coding(lambda _: [("weather", {})]) as at:
        body = {"model": "m", "input": "Go", "tools": [TOOL, function], "stream": True}
        async with at.http.post(f"{at.url}/v1/responses", json=body) as answer:
            events = parse_sse(await answer.read())
        assert not [event for event in events if "code_interpreter_call" in event["type"]]
        [call] = check_order(events)["output"]
        assert call["type"] == "function_call"


async def test_messages_and_background_runs_tell_the_code() -> None:
    async with coding(runs("6 * 7")) as at, at.client as client:
        asked: Any = {"model": "m", "input": "Go", "tools": [TOOL]}
        stream = await client.responses.create(
            **asked, stream=True, background=True, extra_body={"enable_response_messages": True}
        )
        events = [event async for event in stream]
        last: Any = events[-1]
        said = last.response.model_extra["output_messages"]
        assert [message["recipient"] for message in said[:1]] == ["python"]
        replayed = await client.responses.retrieve(last.response.id, stream=True, starting_after=5)
        assert [event async for event in replayed] == events[6:]


async def test_without_a_runner_the_tool_is_dropped_and_named() -> None:
    async with (
        Upstream(default=calling("chat", lambda _: ["No code"])) as model,
        http_client() as http,
        routed(
            {"name": "one", "dialect": "chat", "models": ["m"], "url": model.address + "/v1"}
        ) as url,
    ):
        body = {"model": "m", "input": "Go", "tools": [TOOL]}
        async with http.post(f"{url}/v1/responses", json=body) as answer:
            assert answer.headers["X-Pointsman-Dropped-Parameters"] == "code_interpreter"
        assert asked_tools(model.requests[0]) == []


async def test_a_key_may_be_kept_from_running_code() -> None:
    keys = [{"name": "a", "key": "sk-a", "tools": ["web_search"]}]
    async with coding(runs("1"), auth={"keys": keys}) as at:
        headers = {"Authorization": "Bearer sk-a"}
        for path, body in (
            ("responses", {"model": "m", "input": "Go", "tools": [TOOL]}),
            ("containers", {"name": "mine"}),
        ):
            async with at.http.post(f"{at.url}/v1/{path}", json=body, headers=headers) as answer:
                assert answer.status == 403


async def test_code_stops_when_the_client_leaves() -> None:
    async with coding(runs("import time\ntime.sleep(300)"), tools={"call_timeout": 200}) as at:
        tool = {"type": "code_interpreter"}
        async with at.client as client:
            container = await client.containers.create(name="mine")
            asked = asyncio.create_task(
                client.responses.create(
                    model="m",
                    input="Go",
                    tools=[{**tool, "container": container.id}],  # type: ignore[list-item]
                )
            )
            await until(lambda: bool(at.model.requests))
            await asyncio.sleep(0.2)
            asked.cancel()
            # Its files can be listed as soon as nothing runs any more.
            files = await client.containers.files.list(container.id)
            assert files.data == []

"""``pointsman probe``: exit status, what can be pasted, and what is only told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from router.balance.capability import Feature, configured
from router.cli.main import main
from router.settings.load import parse_settings
from tests.support.fleet import simulated
from tests.support.upstream import refused_port


def entry(endpoint: dict[str, Any]) -> str:
    """An endpoint as a configuration has it, with a line for each field."""
    return "  - " + "    ".join(f"{field}: {value!r}\n" for field, value in endpoint.items())


def config(path: Path, *endpoints: dict[str, Any]) -> str:
    file = path / "pointsman.yaml"
    file.write_text("endpoints:\n" + "".join(map(entry, endpoints)))
    return str(file)


async def run(*argv: str) -> int:
    """The command on a thread, since it runs a loop of its own."""
    return await asyncio.to_thread(main, argv)


async def test_what_it_prints_can_be_pasted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with simulated("chat", "ollama") as (chat, ollama):
        chat["models"], ollama["models"] = ["sim-chat"], ["sim-llama:latest"]
        endpoints = [chat, {**ollama, "num_ctx": 4096}]
        assert await run("probe", "--config", config(tmp_path, *endpoints)) == 0
    shown = capsys.readouterr()
    blocks = shown.out.split("\n\n")
    text = "endpoints:\n" + "".join(
        f"{entry(endpoint)}{block}\n" for endpoint, block in zip(endpoints, blocks, strict=True)
    )
    one, two = parse_settings(text, source="pasted", environ={}).endpoints
    assert configured(one.capabilities, "sim-chat").has & Feature.TOOLS
    assert one.capabilities["sim-chat"].stream_usage is True
    able = configured(two.capabilities, "sim-llama")
    assert able.has == Feature.TOOLS | Feature.VISION | Feature.REASONING
    assert able.context == 4096
    assert sorted(shown.err.splitlines()) == [
        "asking chat about 'sim-chat'",
        "asking ollama about 'sim-llama:latest'",
    ]


async def test_only_some_endpoints_and_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with simulated("chat", "ollama", models=["a", "b"]) as backends, refused_port() as url:
        gone = {"name": "gone", "url": url, "dialect": "ollama"}
        file = config(tmp_path, *backends, gone)

        async def probe(*options: str) -> tuple[int, str, str]:
            status = await run("probe", "--config", file, "--timeout", "20", *options)
            shown = capsys.readouterr()
            return status, shown.out, shown.err

        status, out, err = await probe("--endpoint", "chat", "--model", "b")
        assert (status, err) == (0, "asking chat about 'b'\n")
        assert list(yaml.safe_load(out)["capabilities"]) == ["b"]

        status, out, err = await probe("--endpoint", "ollama", "--model", "a", "--deep")
        assert status == 0
        assert yaml.safe_load(out)["capabilities"]["a"]["json_schema"] is True

        # One has none of them; and then none has.
        nothing = "it serves none of the models that are asked for"
        few = {**backends[0], "name": "few", "models": ["b"]}
        await asyncio.to_thread(config, tmp_path, *backends, few)
        both = ("--endpoint", "chat", "--endpoint", "few")
        status, out, err = await probe(*both, "--model", "a")
        assert (status, err, out.count(nothing)) == (0, "asking chat about 'a'\n", 1)
        status, out, err = await probe(*both, "--model", "elsewhere")
        assert (status, err, out.count(nothing)) == (2, "", 2)

        # One of them could not be asked.
        await asyncio.to_thread(config, tmp_path, *backends, gone)
        status, out, err = await probe()
        assert status == 2
        assert "# No connection to endpoint 'gone': connection refused.\n" in out
        assert "stream_usage: true\n" in out


def test_an_endpoint_that_is_not_configured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = config(tmp_path, {"name": "one", "url": "http://127.0.0.1:1", "dialect": "chat"})
    assert main(["probe", "--config", file, "--endpoint", "two", "--endpoint", "one"]) == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", f"pointsman: there is no endpoint 'two' in {file}\n")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["probe"], "--config"),
        (["probe", "--config", "f", "--timeout", "0"], "must be a number of seconds above 0"),
        (["probe", "--config", "f", "--timeout", "nan"], "must be a number of seconds above 0"),
        (["probe", "--config", "f", "--timeout", "soon"], "must be a number of seconds above 0"),
    ],
)
def test_wrong_command_lines(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_settings_that_are_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "none.yaml"
    assert main(["probe", "--config", str(file)]) == 1
    assert capsys.readouterr().err == f"{file}: cannot be read: No such file or directory\n"

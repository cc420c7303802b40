"""The command line: exit status and what a user reads, with real processes and sockets."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from router.cli.main import main
from tests.support.upstream import Upstream, by_path, whole

ROOT = Path(__file__).parents[2]
DEADLINE = 30  # seconds for a child process to say or do something


@contextmanager
def command(*args: str) -> Iterator[subprocess.Popen[str]]:
    """``python -m router ARGS`` while the block runs; killed afterwards where it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "router", *args],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE)


@contextmanager
def simulated(dialect: str, *args: str) -> Iterator[str]:
    """The base URL of a simulated backend on a free port."""
    with command("simulate", "--dialect", dialect, "--port", "0", *args) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert match, line
        yield match[0]


@contextmanager
def listing(status: int, body: bytes) -> Iterator[str]:
    """The base URL of a backend that lists its models so, and refuses every chat request."""

    refuses = by_path({"/v1/chat/completions": whole(b"{}", 400)})
    upstream = Upstream(default=refuses, on_get=whole(body, status))
    loop = asyncio.new_event_loop()

    def run(work: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(DEADLINE)

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        run(upstream.__aenter__())
        yield f"{upstream.address}/v1"
        run(upstream.__aexit__())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(DEADLINE)
        loop.close()


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port: int = server.getsockname()[1]
        return port


def config(path: Path, *endpoints: str) -> str:
    file = path / "pointsman.yaml"
    text = "endpoints:\n" + "".join(f"  - {{{line}}}\n" for line in endpoints)
    file.write_text(f'{text}state: {{url: "sqlite:///{path}/state.db"}}\n')
    return str(file)


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    names = ("serve", "demo", "check", "probe", "simulate", "--version")
    assert all(name in shown for name in names)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, contextlib\n"
        "from router.cli.main import main\n"
        "with contextlib.suppress(SystemExit): main(['--help'])\n"
        "print(sorted({'aiohttp', 'pydantic', 'asyncio', 'yaml'} & set(sys.modules)))"
    )
    shown = subprocess.check_output(
        [sys.executable, "-c", code], cwd=ROOT, text=True, timeout=DEADLINE
    )
    assert shown.splitlines()[-1] == "[]"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert re.fullmatch(r"pointsman (\d+\.\d+\.\d+|\(not installed\))\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "COMMAND"),
        (["fly"], "invalid choice"),
        (["serve"], "--config"),
        (["serve", "--config", "f", "--port", "x"], "must be a number from 0 to 65535"),
        (["serve", "--config", "f", "--port", "65536"], "must be a number from 0 to 65535"),
        (["demo", "--port", "-1"], "--port"),
        (["check"], "--config"),
        (["simulate", "--port", "1"], "--dialect"),
        (["simulate", "--dialect", "smoke", "--port", "1"], "invalid choice"),
        (["simulate", "--dialect", "chat"], "--port"),
        (
            ["simulate", "--dialect", "chat", "--port", "0", "--models", "a,,b"],
            "must be names with commas between them",
        ),
        (
            ["simulate", "--dialect", "ollama", "--port", "0", "--load-seconds", "nan"],
            "must be a number of seconds",
        ),
        (
            ["simulate", "--dialect", "ollama", "--port", "0", "--load-seconds", "-1"],
            "must be a number of seconds",
        ),
    ],
)
def test_wrong_command_lines(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["serve", "check"])
def test_mistakes_of_the_settings_are_listed(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = config(tmp_path, "name: a, url: nowhere, dialect: chatt", "name: a")
    assert main([name, "--config", file]) == 1
    shown = capsys.readouterr()
    assert shown.err.splitlines() == [
        f"{file}:2: endpoints[0].dialect: must be one of "
        "'responses', 'chat', 'ollama' or 'messages'",
        f'{file}:2: endpoints[0].url: must be a URL like "https://host:port/v1"',
        f"{file}:3: endpoints[1].dialect: is required",
        f"{file}:3: endpoints[1].name: is already the name of another endpoint",
        f"{file}:3: endpoints[1].url: is required",
    ]
    assert shown.out == ""


@pytest.mark.parametrize("name", ["serve", "check"])
def test_a_file_that_is_not_there(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "none.yaml"
    assert main([name, "--config", str(file)]) == 1
    assert capsys.readouterr().err == f"{file}: cannot be read: No such file or directory\n"


def test_serve_on_an_open_address_needs_a_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = config(tmp_path, 'name: a, url: "http://127.0.0.1:1", dialect: chat')
    assert main(["serve", "--config", file, "--host", "0.0.0.0"]) == 1
    assert "auth.keys: needs at least one key" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["serve", "demo"])
def test_a_port_that_is_in_use(name: str, tmp_path: Path) -> None:
    file = config(tmp_path, 'name: a, url: "http://127.0.0.1:1", dialect: chat')
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        args = ["serve", "--config", file] if name == "serve" else ["demo"]
        with command(*args, "--port", port) as process:
            assert process.wait(DEADLINE) == 1
            assert process.stdout is not None
            assert process.stderr is not None
            shown = process.stdout.read() + process.stderr.read()
    assert "already in use" in shown
    assert port in shown
    assert "Traceback" not in shown


def test_serve_answers_until_it_is_told_to_stop(tmp_path: Path) -> None:
    port = free_port()
    with simulated("chat") as base:
        file = config(tmp_path, f'name: a, url: "{base}/v1", dialect: chat')
        with command("serve", "--config", file, "--port", str(port)) as process:
            status = wait_for(port, process)
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE) == 0
    assert status.endswith(" 200 OK\n")


def wait_for(port: int, process: subprocess.Popen[str]) -> str:
    """The status line of ``GET /health``, as soon as somebody listens on ``port``."""
    end = time.monotonic() + DEADLINE
    while process.poll() is None and time.monotonic() < end:
        try:
            with closing(socket.create_connection(("127.0.0.1", port), DEADLINE)) as client:
                client.sendall(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
                return client.makefile().readline()
        except ConnectionRefusedError:
            time.sleep(0.05)
    return f"nobody listens; the process ended with {process.returncode}"


@pytest.mark.parametrize("name", ["serve", "check"])
def test_plugins_that_are_not_there(name: str, tmp_path: Path) -> None:
    file = config(tmp_path, 'name: a, url: "http://127.0.0.1:1", dialect: chat')
    with Path(file).open("a") as settings:
        settings.write('plugins: ["nowhere.to_be:found", "router.plugin:Nothing"]\n')
    with command(name, "--config", file) as process:
        out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1
    assert err.splitlines() == [
        f"{file}: plugins[0]: nowhere.to_be:found: there is no module 'nowhere'; is it installed?",
        f"{file}: plugins[1]: router.plugin:Nothing: the module 'router.plugin' has no 'Nothing'",
    ]
    assert out == ""


def test_check_shows_what_each_endpoint_speaks_and_serves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with simulated("chat", "--models", "m-1,m-2") as chat, simulated("ollama") as ollama:
        file = config(
            tmp_path,
            f'name: one, url: "{chat}/v1", dialect: chat, models: [m-1, m-3, "x*"]',
            f'name: two, url: "{ollama}", dialect: ollama',
        )
        status = main(["check", "--config", file])
    shown = capsys.readouterr().out
    assert status == 0, shown
    first, one, two, stores, last = shown.strip().split("\n\n")
    state, cache, limits = stores.splitlines()
    assert first == f"{file} is valid; asking 2 endpoints"
    assert f"one  {chat}/v1" in one
    assert re.search(r"reachable +in \d+ ms", one)
    assert re.search(r"dialect +chat$", one, re.M)
    assert re.search(r"serves +m-1, m-2$", one, re.M)
    assert re.search(r"NOT LISTED +m-3 \(configured\)$", one, re.M)
    assert re.search(r"dialect +ollama$", two, re.M)
    assert "NOT LISTED" not in two
    assert state == f"state  sqlite:///{tmp_path}/state.db  not there yet, made at the first start"
    assert cache == "cache  off"
    assert limits == "limits  memory: ok"
    assert last == "2 of 2 answered"


def test_check_tells_which_endpoint_does_not_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with simulated("responses") as base:
        file = config(
            tmp_path,
            f'name: up, url: "{base}/v1", dialect: responses',
            f'name: down, url: "http://127.0.0.1:{free_port()}/v1", dialect: chat',
        )
        assert main(["check", "--config", file]) == 2
    shown = capsys.readouterr().out
    assert re.search(r"^down .*\n +FAILED +\S", shown, re.M)
    assert shown.endswith("1 of 2 answered\n")


def test_check_says_that_another_dialect_is_spoken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with simulated("chat") as base:
        file = config(tmp_path, f'name: a, url: "{base}/v1", dialect: responses')
        assert main(["check", "--config", file]) == 0
    assert "responses is configured, BUT IT SPEAKS chat\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("models", "status", "line"),
    [
        (", models: [m]", 0, "serves     what is configured; it does not tell: HTTP 404"),
        ("", 2, "FAILED     HTTP 404"),
    ],
)
def test_check_of_an_endpoint_that_lists_nothing(
    models: str, status: int, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with listing(404, b"{}") as url:
        file = config(tmp_path, f'name: a, url: "{url}", dialect: chat{models}')
        assert main(["check", "--config", file]) == status
    assert f"\n  {line}" in capsys.readouterr().out


def test_check_shows_names_that_a_terminal_does_not_obey_and_not_all_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["red\x1b[31m", *(f"m{number}" for number in range(60))]
    body = json.dumps({"data": [{"id": name} for name in names]}).encode()
    with listing(200, body) as url:
        file = config(tmp_path, f'name: a, url: "{url}", dialect: chat')
        assert main(["check", "--config", file]) == 0
    shown = capsys.readouterr().out
    assert "serves     red?[31m, m0, m1, " in shown
    assert ", m48 and 11 more\n" in shown


def test_simulate_serves_the_models_it_is_given() -> None:
    with simulated("chat", "--models", "a, b") as base:
        port = int(base.rsplit(":", 1)[1])
        with closing(socket.create_connection(("127.0.0.1", port), DEADLINE)) as client:
            client.sendall(b"GET /v1/models HTTP/1.0\r\nHost: localhost\r\n\r\n")
            answer = client.makefile().read()
    assert '"a"' in answer
    assert '"b"' in answer


def test_simulate_takes_its_time_to_load() -> None:
    message = {"role": "user", "content": "hi"}
    body = json.dumps({"model": "sim-llama", "messages": [message], "stream": False}).encode()
    with simulated("ollama", "--load-seconds", "0.05") as base:
        request = Request(f"{base}/api/chat", body)
        with urlopen(request, timeout=DEADLINE) as answer:
            assert json.loads(answer.read())["load_duration"] >= 50_000_000


@pytest.mark.parametrize("command", ["--help", "--version", "check --config FILE"])
def test_a_reader_that_leaves_is_no_reason_for_a_traceback(command: str, tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_text(
        f"endpoints: [{{name: one, url: 'http://127.0.0.1:1/v1', dialect: chat}}]\n"
        f"state: {{url: 'sqlite:///{tmp_path}/state.db'}}\n"
    )
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "router", *command.replace("FILE", str(file)).split()],
            cwd=ROOT,
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    assert ended.stderr == b""
    # argparse itself passes over what it cannot write of its help.
    assert ended.returncode in ((0, 141) if command == "--help" else (141,))

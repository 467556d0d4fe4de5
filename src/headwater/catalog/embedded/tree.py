"""A tree maps keys to contents, in 256 shards by the key's digest; a change copies only the shards that it touches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headwater.catalog.embedded.codec import (
    decode_content,
    decode_key,
    decode_shard,
    digest_of,
    encode_content,
    encode_shard,
    with_texts,
)
from headwater.catalog.embedded.model import Shard, Tree
from headwater.catalog.embedded.objects import Encoded, ReadsObjects, path_of
from headwater.catalog.model import Change, Content, Difference, Put, TableKey
from headwater.kernel.ids import Ulid

SHARDS = 256


def shard_of(key: TableKey) -> int:
    """The shard that a key is in: the first byte of its digest."""
    return hashlib.sha256(str(key).encode()).digest()[0]


@dataclass(frozen=True)
class Planted:
    """A changed tree, and the objects that must be stored for it."""

    tree: Tree
    objects: Mapping[str, Encoded]


class Trees:
    """Reads trees, and makes new ones from old ones."""

    def __init__(self, objects: ReadsObjects) -> None:
        self._objects = objects

    def content(self, tree: Tree, keys: Iterable[TableKey]) -> dict[TableKey, Content]:
        """Those of the keys that are there; reads only their shards, and only them there."""
        homes = {key: tree[shard] for key in keys if (shard := shard_of(key)) in tree}
        shards = self._read(homes.values())
        return {
            key: decode_content(shards[digest].contents[str(key)], path_of(digest))
            for key, digest in homes.items()
            if str(key) in shards[digest].contents
        }

    def contents(self, tree: Tree) -> dict[TableKey, Content]:
        """Everything."""
        return self._all_of(tree.values())

    def diff(self, old: Tree, new: Tree) -> tuple[Difference, ...]:
        """What differs, in the order of keys; reads only the shards that differ."""
        touched = [shard for shard in old.keys() | new.keys() if old.get(shard) != new.get(shard)]
        before = self._all_of(old[shard] for shard in touched if shard in old)
        after = self._all_of(new[shard] for shard in touched if shard in new)
        return tuple(
            Difference(key, before.get(key), after.get(key))
            for key in sorted(before.keys() | after.keys())
            if before.get(key) != after.get(key)
        )

    def changed(self, tree: Tree, changes: Mapping[TableKey, Change], attempt: Ulid) -> Planted:
        """The tree after these changes; its new shards are this attempt's own."""
        by_shard: dict[int, dict[str, Change]] = {}
        for key, change in changes.items():
            by_shard.setdefault(shard_of(key), {})[str(key)] = change
        present = self._read(tree[shard] for shard in by_shard if shard in tree)
        new_tree = dict(tree)
        objects: dict[str, Encoded] = {}
        for shard, part in by_shard.items():
            changed = _changed(present[new_tree.pop(shard)] if shard in tree else Shard({}), part)
            if changed.contents:
                data = encode_shard(changed, attempt)
                new_tree[shard] = digest_of(data)
                objects[new_tree[shard]] = Encoded(data, decode_shard, changed)
        return Planted(new_tree, objects)

    def is_whole(self, tree: Tree) -> bool:
        """Whether every shard is stored."""
        return self._objects.are_there(tree.values())

    def _all_of(self, digests: Iterable[str]) -> dict[TableKey, Content]:
        return {
            decode_key(name, path_of(digest)): decode_content(values, path_of(digest))
            for digest, shard in self._read(digests).items()
            for name, values in shard.contents.items()
        }

    def _read(self, digests: Iterable[str]) -> dict[str, Shard]:
        return self._objects.get_all(digests, decode_shard)


def _changed(shard: Shard, changes: Mapping[str, Change]) -> Shard:
    """The shard after these changes, by the key's text; what they do not touch keeps its JSON."""
    put = {name: encode_content(change.content) for name, change in changes.items() if isinstance(change, Put)}
    contents = {name: values for name, values in shard.contents.items() if name not in changes}
    texts = {name: text for name, text in shard.texts.items() if name not in changes}
    return with_texts(Shard({**contents, **put}, texts))

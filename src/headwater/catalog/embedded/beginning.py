"""A commit without parents: what a lake begins with, and a branch that shares nothing with the others."""

from __future__ import annotations

from dataclasses import replace

from headwater.catalog.embedded.codec import decode_commit, digest_of, encode_commit
from headwater.catalog.embedded.model import StoredCommit
from headwater.catalog.embedded.objects import Encoded, Objects
from headwater.catalog.embedded.tree import Trees
from headwater.catalog.model import Commit, NamespaceContent, Put, TableKey
from headwater.catalog.names import DEFAULT_NAMESPACE
from headwater.kernel.clock import Clock
from headwater.kernel.ids import new_ulid
from headwater.kernel.randomness import Randomness


def plant(objects: Objects, actor: str, message: str, clock: Clock, randomness: Randomness) -> StoredCommit:
    """Put a commit that holds the namespace `default` alone; no ref leads to it yet."""
    attempt, default = (new_ulid(clock, randomness) for _ in range(2))
    first = {TableKey.of_namespace((DEFAULT_NAMESPACE,)): Put(NamespaceContent(default))}
    planted = Trees(objects).changed({}, first, attempt)
    commit = Commit("", (), actor, message, {}, clock.now())
    data = encode_commit(commit, (), planted.tree, attempt)
    stored = StoredCommit(replace(commit, hash=digest_of(data)), (), planted.tree)
    objects.put_all({**planted.objects, stored.commit.hash: Encoded(data, decode_commit, stored)})
    return stored

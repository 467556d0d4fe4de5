"""Every commit that is stored: those that refs lead to, those of branches that are gone, and those on their way.

A ref may still be made on any of them that is whole and not behind the horizon, so whoever deletes what no commit leads
to asks about all of them. The names are listed before the manifest is read: what landed in between, the refs lead to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from headwater.catalog.embedded.codec import decode_commit, decode_if_commit
from headwater.catalog.embedded.decide import is_kept
from headwater.catalog.embedded.model import Manifest, StoredCommit
from headwater.catalog.embedded.objects import Objects, path_of
from headwater.catalog.model import Retained
from headwater.kernel.errors import CorruptError
from headwater.storage.errors import ObjectNotFoundError


def retained(objects: Objects, names: frozenset[str], manifest: Manifest) -> Iterator[Retained]:
    """Each once; what refs lead to comes first, so that its parts of trees need not be read to be told from commits."""
    left, known = set(names), set()
    ahead = [(ref.hash, datetime.max.replace(tzinfo=UTC)) for ref in manifest.refs.values()]
    while ahead:
        name, current_until = ahead.pop()
        if name in known:
            continue
        known.add(name)
        left.discard(name)
        try:
            stored = objects.get(name, decode_commit)
        except ObjectNotFoundError:
            if is_kept(manifest, name, current_until):
                raise CorruptError(
                    f"the commit {name} is missing, though a ref leads to it",
                    hint="restore it from a copy of the lake",
                    path=path_of(name),
                ) from None
            continue
        left.difference_update(stored.tree.values())
        # A first parent was the head until its child came; one that was merged counts by its own time.
        for number, (parent, time) in enumerate(zip(stored.commit.parents, stored.parent_times, strict=True)):
            ahead.append((parent, time if number else stored.commit.committed_at))
        yield _told(stored, manifest, is_whole=True)
    for name in sorted(left):
        try:
            loose = objects.get(name, decode_if_commit)
        except ObjectNotFoundError:
            continue  # swept meanwhile: nothing leads to it
        if isinstance(loose, StoredCommit):
            yield _told(loose, manifest, is_whole=names.issuperset(loose.tree.values()))


def _told(stored: StoredCommit, manifest: Manifest, *, is_whole: bool) -> Retained:
    commit = stored.commit
    readable = is_whole and is_kept(manifest, commit.hash, commit.committed_at)
    return Retained(replace(commit, properties=dict(commit.properties)), readable)

"""Reading the embedded catalog: refs and horizons from the latest manifest, everything else from immutable objects.

An object is read first and judged by a manifest that was read after it: what the manifest then calls kept, nobody had
begun to collect. An object that is missing all the same was collected between the two, and a fresh look at the
horizon says so; if it does not, the lake is damaged.

A commit is kept until the horizon passes the commit that superseded it, so every moment since the horizon can be
travelled to. Who superseded it, a commit itself does not know: the log does, and it is asked only about commits that
would be behind the horizon otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile

from headwater.catalog.embedded.codec import MIGRATIONS, Migrations, decode_commit, decode_manifest
from headwater.catalog.embedded.decide import found_branch, found_ref, is_kept, is_under_a_ref, judge_kept
from headwater.catalog.embedded.hold import Holds
from headwater.catalog.embedded.model import MARKER, Manifest, StoredCommit
from headwater.catalog.embedded.objects import Objects, ReadsObjects, path_of
from headwater.catalog.embedded.retained import retained
from headwater.catalog.embedded.tree import Trees
from headwater.catalog.errors import BehindHorizonError, CommitNotFoundError
from headwater.catalog.model import Commit, Content, Difference, Horizons, Ref, Retained, TableKey
from headwater.kernel.errors import CorruptError, UsageError
from headwater.kernel.ids import Ulid
from headwater.sequence.history import History
from headwater.sequence.model import Entry, PinLostError
from headwater.storage.errors import ObjectNotFoundError

_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Seen:
    """The latest manifest, and the entry of the history that holds it."""

    entry: Entry
    manifest: Manifest


class EmbeddedReader:
    """What can be asked of a lake. Safe to share among threads."""

    def __init__(self, history: History, objects: Objects, lake: Ulid, *, migrations: Migrations = MIGRATIONS) -> None:
        self.name = history.store.name
        self.lake = lake
        self._history = history
        self._objects = objects
        self._trees = Trees(objects)
        self._migrations = migrations
        self._holds = Holds()
        self._last_seen: Seen | None = None

    def refs(self) -> tuple[Ref, ...]:
        """Every branch and tag, by name."""
        refs = self._seen().manifest.refs
        return tuple(refs[name] for name in sorted(refs))

    def ref(self, name: str) -> Ref:
        """The branch or tag, or `RefNotFoundError`."""
        return found_ref(self._seen().manifest, name)

    def horizons(self) -> Horizons:
        """How far back history and staged objects are kept."""
        return self._seen().manifest.horizons

    def retained(self) -> Iterator[Retained]:
        """Every commit that is stored, whether or not a ref leads to it."""
        names = self._objects.names()
        return retained(self._objects, names, self._seen().manifest)

    def commit_at(self, at: str) -> Commit:
        """The commit of this hash."""
        return handed_out(self._kept(at).commit)

    def log(self, at: str, *, limit: int | None = None) -> Iterator[Commit]:
        """The commit and its ancestors along first parents, newest first; it ends at the history horizon."""
        if limit is not None and limit < 0:
            raise UsageError(f"a log cannot have {limit} entries", limit=limit)
        return self._walk(self._kept(at), limit)

    def contents(self, at: str, *, namespace: tuple[str, ...] | None = None) -> Iterator[tuple[TableKey, Content]]:
        """Everything at a commit, or in one namespace of it, in the order of keys."""
        stored = self._kept(at)
        with self._reading(stored.commit):
            found = self._trees.contents(stored.tree)
        return iter([(key, found[key]) for key in sorted(found) if namespace is None or key.is_in(namespace)])

    def content(self, at: str, keys: Sequence[TableKey]) -> Mapping[TableKey, Content]:
        """Those of the keys that exist; only their shards are read."""
        return self._content_of(self._kept(at), keys)

    def known_content(self, at: str, keys: Sequence[TableKey]) -> Mapping[TableKey, Content]:
        """The same without another look at the manifest, unless something is missing."""
        return self._content_of(self._stored(at), keys)

    def _content_of(self, stored: StoredCommit, keys: Sequence[TableKey]) -> Mapping[TableKey, Content]:
        with self._reading(stored.commit):
            return self._trees.content(stored.tree, keys)

    def diff(self, old: str, new: str) -> tuple[Difference, ...]:
        """What differs between two commits; only the shards that differ are read."""
        before, after = self._kept(old), self._kept(new)
        with self._reading(before.commit, after.commit):
            return self._trees.diff(before.tree, after.tree)

    def outcome(self, branch: str, operation: Ulid, *, above: str | None = None) -> Commit | None:
        """The commit of this operation in the branch's log, as far as history is kept, or down to the commit `above`.

        A branch that was set back meanwhile does not lead there: its whole log is looked through then.
        """
        seen = self._seen()
        head = found_branch(seen.manifest, branch).hash
        newer = takewhile(lambda commit: commit.hash != above, self.log(head))
        found = next((commit for commit in newer if commit.operation == operation), None)
        if found is not None:
            self._history.settle(seen.entry.id)  # whoever is told may give up what else tells of it (P20)
        return found

    def _seen(self) -> Seen:
        entry = self._history.latest()
        if entry is None:
            raise UsageError(
                f"{self.name} is a lake that was never finished: it has {MARKER}, but no manifest",
                hint="run `headwater init` again",
                lake=self.name,
            )
        path = self._history.namespace.path_of(entry.id)
        manifest = decode_manifest(entry.payload, path, self._migrations)
        if manifest.lake != self.lake:
            raise CorruptError(
                f"{self.name}: {path} belongs to lake {manifest.lake}, but {MARKER} says {self.lake}",
                hint="two lakes were copied into one another; restore one of them",
                path=path,
            )
        self._last_seen = Seen(entry, manifest)
        return self._last_seen

    def _remembered_under(self, commit: str) -> Seen | None:
        """A manifest that was the latest when it was seen, if a ref stands on the commit there."""
        seen = self._last_seen
        return seen if seen is not None and is_under_a_ref(seen.manifest, commit) else None

    def _stored(self, at: str, objects: ReadsObjects | None = None) -> StoredCommit:
        """The commit object, wherever it stands."""
        if not _HASH.fullmatch(at):
            raise CommitNotFoundError(at, "a hash has 64 hex digits")
        try:
            return (objects or self._objects).get(at, decode_commit)
        except ObjectNotFoundError:
            if is_under_a_ref(self._seen().manifest, at):
                raise self._missing(path_of(at)) from None
            raise CommitNotFoundError(at) from None

    def _kept(self, at: str) -> StoredCommit:
        """The commit object, judged by a manifest that was read after it."""
        stored = self._stored(at)
        self._judge_kept(stored.commit)
        return stored

    def _judge_kept(self, commit: Commit) -> None:
        """It is held, or the latest manifest keeps it; behind the horizon, a hold that was lost is what to tell."""
        lost: PinLostError | None = None
        try:
            if self._holds.check(commit.hash):
                return
        except PinLostError as error:
            lost = error
        try:
            self._judge_kept_by(self._seen().manifest, commit)
        except BehindHorizonError:
            if lost is not None:
                raise lost from None
            raise

    def _judge_kept_by(self, manifest: Manifest, commit: Commit) -> None:
        judge_kept(manifest, commit.hash, self._current_until(manifest, commit))

    def _current_until(self, manifest: Manifest, commit: Commit) -> datetime:
        """When the commit was superseded; or its own time, if that suffices to keep it, or nothing superseded it."""
        if is_kept(manifest, commit.hash, commit.committed_at):
            return commit.committed_at
        looked_at: set[str] = set()
        for ref in manifest.refs.values():
            above: str | None = ref.hash
            while above is not None and above not in looked_at:
                looked_at.add(above)
                child = self._if_there(above)
                if child is None or not is_kept(manifest, "", child.commit.committed_at):
                    break  # and so is all beneath it: times only grow
                above = child.commit.parents[0] if child.commit.parents else None
                if above == commit.hash:
                    return child.commit.committed_at
        return commit.committed_at

    def _if_there(self, at: str) -> StoredCommit | None:
        try:
            return self._objects.get(at, decode_commit)
        except ObjectNotFoundError:
            return None

    def _walk(self, start: StoredCommit, limit: int | None) -> Iterator[Commit]:
        stored, count = start, 0
        manifest = self._seen().manifest
        while limit is None or count < limit:
            yield handed_out(stored.commit)
            count += 1
            if not stored.commit.parents:
                return
            parent, superseded_at = stored.commit.parents[0], stored.commit.committed_at
            if not is_kept(manifest, parent, superseded_at):
                return
            found = self._if_there(parent)
            if found is None:
                if is_kept(self._seen().manifest, parent, superseded_at):
                    raise self._missing(path_of(parent))
                return  # collected while we walked
            stored = found

    @contextmanager
    def _reading(self, *commits: Commit) -> Iterator[None]:
        """An object that these commits lead to and that is not there: collected since, or damage."""
        try:
            yield
        except ObjectNotFoundError as error:
            for commit in commits:
                self._judge_kept(commit)
            raise self._missing(str(error.fields["path"])) from error

    def _missing(self, path: str) -> CorruptError:
        return CorruptError(
            f"{self.name}: {path} is missing, though a commit that is kept leads to it",
            hint="restore it from a copy of the lake",
            path=path,
        )


def handed_out(commit: Commit) -> Commit:
    """The commit for a caller to keep: what the caller does to its properties does not reach what is remembered."""
    return replace(commit, properties=dict(commit.properties))

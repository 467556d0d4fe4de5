"""The catalog port. One conformance suite (tests/conformance/test_catalog.py) holds every backend to it.

- A commit is atomic over all of its tables, and strict: it lands on the head that the request names, or not at all.
  A request that names no head lands on whatever the head is, while its expected versions hold there.
- Several requests in one call are judged in order, each on what those before it made; each that is accepted is a commit
  of its own, and one that is refused disturbs none of the others.
- Expected versions, of touched and of merely read tables, are judged against the head that is really there, and
  before the head itself: who lost a table hears `ExpectedVersionMismatchError`, who only lost the branch hears
  `RefConflictError` and may retry on the new head.
- An error that is no `OutcomeUnknownError` means that nothing was changed, and nothing will be.
- A commit's time is UTC and never precedes its first parent's (hazard P13).
- Content of an older commit (a revert, a merge) is put only by who holds that commit, until the new one is reported:
  a collector knows nothing of a commit that is still on its way. A merge parent must itself be kept at that moment.
- A commit whose writer heard a conflict gets into no log by any act of its writer.
- A request that says when it began is refused, at the commit itself, once the staging horizon has passed that (P10).
- Whatever is put has an existing namespace around it; a namespace that holds something is not deleted.
- Hashes are opaque. A backend may give new contents an id of its own: read back what was committed.
- A lake has, from its beginning, the branch `main`, which cannot be deleted, and in it the namespace `default`.
- Where commits take one parent only, the backend keeps a merge parent in a property, and shows it in `parents`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from headwater.catalog.model import (
    Commit,
    CommitRequest,
    Content,
    Difference,
    Horizons,
    Ref,
    RefKind,
    Retained,
    TableKey,
)
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.ids import Ulid
from headwater.sequence.protocol import Sequencer


class Held(Protocol):
    """What `hold` gives: the means to find out whether it still holds."""

    def check(self) -> None:
        """Raise `PinLostError` when what is held may have been collected; whatever was read since is in doubt."""
        ...


class TableHeads(Protocol):
    """Where tables are sequenced namespaces of their own: the head of each."""

    def head(self, location_path: str) -> Sequencer:
        """The history of the metadata of the table at this path in the lake."""
        ...


class Keeping(Protocol):
    """What a cleanup stands on, where the lake's files are ours to delete: how far back anything is kept."""

    def horizons(self) -> Horizons:
        """How far back history and staged files are kept."""
        ...

    def publish_staging_horizon(self, moment: datetime) -> datetime:
        """Refuse changes that began before `moment` from now on (hazard P10); it only rises. Returns where it is."""
        ...

    def retained(self) -> Iterator[Retained]:
        """Every commit that is stored, deleted branches' too; one that cannot be read is an error."""
        ...


class Catalog(Protocol):
    """Refs, commits, and what is in them."""

    @property
    def name(self) -> str:
        """The lake's URL, without secrets; errors begin with it."""
        ...

    @property
    def heads(self) -> TableHeads | None:
        """The tables' own heads, where the backend has them and may write them."""
        ...

    @property
    def keeping(self) -> Keeping | None:
        """What a cleanup stands on, where the backend has heads."""
        ...

    def refs(self) -> tuple[Ref, ...]:
        """Every branch and tag, by name."""
        ...

    def ref(self, name: str) -> Ref:
        """The branch or tag, or `RefNotFoundError`."""
        ...

    def create_ref(self, kind: RefKind, name: str, at: str) -> Ref:
        """A new branch or tag at an existing commit; `RefExistsError` when the name is taken."""
        ...

    def create_empty_branch(self, name: str) -> Ref:
        """A new branch without history, that has nothing in it but namespaces; `RefExistsError` when it is taken."""
        ...

    def delete_ref(self, name: str, expected: str, *, incarnation: Ulid | None = None) -> None:
        """Remove it while it is at `expected`, and of this incarnation if one is named, else `RefConflictError`."""
        ...

    def assign_ref(self, name: str, to: str, expected: str, *, incarnation: Ulid | None = None) -> Ref:
        """Move it from `expected` to another existing commit, else `RefConflictError`; likewise."""
        ...

    def commit_at(self, at: str) -> Commit:
        """The commit of this hash, or `CommitNotFoundError`, or `BehindHorizonError`."""
        ...

    def log(self, at: str, *, limit: int | None = None) -> Iterator[Commit]:
        """The commit and its ancestors along first parents, newest first, as far as history is kept."""
        ...

    def contents(self, at: str, *, namespace: tuple[str, ...] | None = None) -> Iterator[tuple[TableKey, Content]]:
        """Everything at a commit in the order of keys, or everything in one namespace, at any depth."""
        ...

    def content(self, at: str, keys: Sequence[TableKey]) -> Mapping[TableKey, Content]:
        """Those of the keys that exist at a commit; what is not asked for costs nothing."""
        ...

    def known_content(self, at: str, keys: Sequence[TableKey]) -> Mapping[TableKey, Content]:
        """The same where the caller has just found a ref on the commit, or made it: whether it is kept is not asked.

        What a commit holds never changes, so nothing can be told wrong here; what is gone is an error as ever.
        """
        ...

    def diff(self, old: str, new: str) -> tuple[Difference, ...]:
        """The keys whose content differs between two commits, in order."""
        ...

    def commit(self, request: CommitRequest) -> Commit:
        """Commit, or say why not; `CommitOutcomeUnknownError` when even that is not known."""
        ...

    def commit_all(self, requests: Sequence[CommitRequest]) -> tuple[Commit | HeadwaterError, ...]:
        """Commit each on what those before it made: for each its commit, or the error that `commit` would raise.

        Where the backend can, all of them land at once. An error that is raised, instead of returned, is that of all:
        nothing was changed.
        """
        ...

    def outcome(self, branch: str, operation: Ulid, *, above: str | None = None) -> Commit | None:
        """The commit of this operation in the branch's log, as far as history is kept.

        Who knows a head that the branch had before the operation looks only `above` it, not through all of history.
        """
        ...

    def hold(self, at: str, *, holder: str) -> AbstractContextManager[Held]:
        """While it lasts, nothing that the commit leads to is collected. `holder` says to people who it is."""
        ...

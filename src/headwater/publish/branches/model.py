"""What a merge talks about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata

from headwater.catalog.model import Commit, Difference, NamespaceContent, TableContent, TableKey, ViewContent
from headwater.kernel.errors import ConflictError
from headwater.publish.model import Wish

# How many keys of rows a conflict names.
MOST_KEYS_NAMED = 3


@dataclass(frozen=True)
class Place:
    """A table or view of a branch: under which key, and at which version."""

    key: TableKey
    content: TableContent | ViewContent

    @property
    def content_id(self) -> str:
        """The identity by which it is followed from branch to branch."""
        return self.content.content_id


@dataclass(frozen=True)
class Since:
    """What the source changed since one base.

    `unchanged` are identities that the target holds as they are in that base, though their documents lie elsewhere (a
    rollback has restored them).
    """

    changes: tuple[Difference, ...]
    unchanged: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Take:
    """The target takes what the source made of a table or view; `after` None drops it.

    `before` is what the target holds of it, None when it is new there.
    """

    before: Place | None
    after: Place | None

    @property
    def key(self) -> TableKey:
        """Where it will be, or was."""
        place = self.after or self.before
        assert place is not None  # a take is of something
        return place.key

    @property
    def is_view(self) -> bool:
        """Whether it is a view."""
        place = self.after or self.before
        return place is not None and isinstance(place.content, ViewContent)


@dataclass(frozen=True)
class Combine:
    """Both sides changed a table: what they made of it must be combined, under `key`.

    There are several bases where the branches have been merged crosswise, and these do not hold the same of it.
    """

    key: TableKey
    bases: tuple[TableContent, ...]
    source: TableContent
    target: Place


@dataclass(frozen=True)
class TakeNamespace:
    """The target takes a namespace as the source has it; `after` None drops it."""

    key: TableKey
    before: NamespaceContent | None
    after: NamespaceContent | None


@dataclass(frozen=True)
class Conflict:
    """Why a table cannot be merged; `keys` are a few of the rows that are in the way."""

    key: TableKey
    reason: str
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        rows = f" ({'; '.join(self.keys)})" if self.keys else ""
        return f"{self.key} {self.reason}{rows}"


Step = Take | Combine | TakeNamespace


@dataclass(frozen=True)
class Combined:
    """A table that both sides changed, apart from its rows: the document of `of_source` or of the target, brought up
    to date. `needs_rows` says that rows changed on both sides."""

    metadata: TableMetadata
    of_source: bool
    needs_rows: bool


@dataclass(frozen=True)
class Planned:
    """A merge that may be published: the wish, and the keys of the target that it changes."""

    wish: Wish
    keys: tuple[TableKey, ...]


@dataclass(frozen=True)
class Merged:
    """What a merge did: its commit, and the tables, views and namespaces that it changed.

    There is no commit when everything was merged before.
    """

    commit: Commit | None
    tables: tuple[TableKey, ...]


class MergeConflictError(ConflictError):
    """Both branches changed the same thing in different ways. Nothing was written."""

    def __init__(self, source: str, into: str, conflicts: Sequence[Conflict]) -> None:
        found = tuple(sorted(conflicts, key=lambda each: each.key))
        super().__init__(
            f"{source} cannot be merged into {into}: {'; '.join(map(str, found))}",
            hint=f"nothing was changed; change {source} or {into} until they agree about these, then merge again",
            source=source,
            into=into,
            conflicts=[{"table": str(each.key), "reason": each.reason, "keys": list(each.keys)} for each in found],
        )
        self.conflicts = found

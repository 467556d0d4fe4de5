"""What a script comes to, and what became of it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.view.metadata import ViewMetadata

from headwater.catalog.model import Commit, Content, TableContent, TableKey
from headwater.kernel.ids import Ulid
from headwater.publish.schema.places import Place
from headwater.publish.schema.wanted import CreateView
from headwater.tables.model import TableVersion


@dataclass(frozen=True)
class Standing:
    """What a plan is made on: what the branch holds for every key that was looked up, None where there is nothing.

    `tables` are the documents of the tables among them. `names` are all tables and views, so that a name that differs
    from another in capitals alone is found out. `around` are tables that the script does not name, and that refer to
    one that it does, or are referred to.
    """

    contents: Mapping[TableKey, Content | None]
    tables: Mapping[TableKey, TableVersion]
    views: Mapping[TableKey, ViewMetadata]
    names: frozenset[TableKey] = frozenset()
    around: frozenset[TableKey] = frozenset()


@dataclass(frozen=True)
class PlannedTable:
    """A table as it will be. `base` and `pinned` are what it is now, None for a new one.

    `why` are the statements that change it. `check_rows` says that the rows that are there must be looked at.
    """

    key: TableKey
    metadata: TableMetadata
    base: TableVersion | None
    pinned: TableContent | None
    origin: TableKey | None
    why: tuple[str, ...]
    check_rows: bool

    @property
    def renamed_from(self) -> TableKey | None:
        """The name that it had, if that is another."""
        return None if self.origin == self.key else self.origin


@dataclass(frozen=True)
class Plan:
    """Everything that a script changes.

    `tables` are those whose document changes, by the key that they will have. `views` are to be made or replaced: what
    they yield is asked when everything else is known. `namespaces` are new ones with their properties.
    """

    tables: Mapping[TableKey, PlannedTable]
    dropped: Mapping[TableKey, tuple[TableContent, tuple[str, ...]]]
    views: Mapping[TableKey, tuple[CreateView, str, Place | None]]
    dropped_views: Mapping[TableKey, str]
    namespaces: Mapping[TableKey, tuple[Mapping[str, str], str]]
    dropped_namespaces: Mapping[TableKey, str]


# What became of it


class Action(enum.StrEnum):
    """What happens to a table, view or namespace."""

    CREATE = "create"
    ALTER = "alter"
    RENAME = "rename"
    DROP = "drop"


class Kind(enum.StrEnum):
    """What a name stands for."""

    TABLE = "table"
    VIEW = "view"
    NAMESPACE = "namespace"


@dataclass(frozen=True)
class ObjectChange:
    """One name that a script changes, and the statements by which it does."""

    action: Action
    kind: Kind
    key: TableKey
    statements: tuple[str, ...]
    renamed_from: TableKey | None = None

    def as_json(self) -> dict[str, object]:
        """It, as commands and servers show it."""
        return {
            "action": str(self.action),
            "kind": str(self.kind),
            "name": str(self.key),
            "renamed_from": str(self.renamed_from) if self.renamed_from else None,
            "statements": list(self.statements),
        }


@dataclass(frozen=True)
class Applied:
    """What a script did: one commit, or None when it was only tried, or changes nothing."""

    operation: Ulid
    commit: Commit | None
    changes: tuple[ObjectChange, ...]
    dry_run: bool = False

"""What a diff finds: tables to look at, manifests to read, files that are needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.catalog.model import Content, TableContent, TableKey
from headwater.tables.reach import ReachKind


@dataclass(frozen=True)
class TableGoal:
    """A table at the target of `main`, and the version of it that the replica shows already, if any."""

    key: TableKey
    after: TableContent
    before: TableContent | None


@dataclass(frozen=True)
class Goal:
    """Where a run goes.

    `tables` have changed, or may have. `others` are views and namespaces, which hold no data files; None is absent.
    Names that are not among them stay as the replica shows them, unless `is_full` says that these are all there are.
    """

    tables: tuple[TableGoal, ...]
    others: Mapping[TableKey, Content | None]
    is_full: bool


@dataclass(frozen=True)
class Needed:
    """A file that the target needs, spelled as its metadata spells it."""

    kind: ReachKind
    uri: str
    size_bytes: int

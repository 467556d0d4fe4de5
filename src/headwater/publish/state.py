"""The lake as a writer finds it: one commit of one branch, on which everything that the writer does is based."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from headwater.catalog.model import Content, Ref, TableKey
from headwater.catalog.port import Catalog
from headwater.query import TableSource
from headwater.query.at_commit import Documents, TablesAt
from headwater.tables.files import Files
from headwater.tables.model import TableVersion


class State(TableSource, Protocol):
    """The lake as it stood when the transaction began."""

    @property
    def ref(self) -> Ref:
        """The branch, then."""
        ...

    @property
    def files(self) -> Files:
        """The files of its tables."""
        ...

    def content(self, key: TableKey) -> Content | None:
        """What the branch held for this key."""
        ...

    def table(self, key: TableKey) -> TableVersion:
        """The table of this name; one that is not there is an error."""
        ...


class StateAt(TablesAt):
    """The state that a branch is in now."""

    def __init__(self, catalog: Catalog, documents: Documents, ref: Ref) -> None:
        super().__init__(catalog, documents, ref.hash)
        self.ref = ref
        self.files = documents.files

    def inside(self, namespace: TableKey) -> Iterator[TableKey]:
        """Everything in a namespace, at any depth: tables, views and namespaces."""
        return (key for key, _ in self._catalog.contents(self._hash, namespace=namespace.elements))

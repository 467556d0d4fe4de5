"""The lake as a writer finds it: one commit of one branch, on which everything that the writer does is based."""

from __future__ import annotations

from typing import Protocol

from headwater.catalog.model import Content, Ref, TableKey
from headwater.query import TableSource
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

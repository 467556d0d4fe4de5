"""The lake as it will be, to be asked before it is."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.table.metadata import TableMetadata

from headwater.catalog.model import Content, Ref, TableKey
from headwater.catalog.names import DEFAULT_NAMESPACE
from headwater.publish.questions import Questions, with_nulls
from headwater.publish.schema.model import Plan, PlannedTable
from headwater.publish.state import State
from headwater.query import OpenTable, OpenView, QueryOptions
from headwater.query.views import DUCKDB
from headwater.tables.files import Files
from headwater.tables.model import TableVersion


class StateAfter:
    """The lake as it will be: what is asked of rows and views is asked of this. Contents are those of now."""

    def __init__(self, state: State, planned: Plan) -> None:
        self._state = state
        self._planned = planned
        renamed = (each.renamed_from for each in planned.tables.values())
        self._gone = {*planned.dropped, *planned.dropped_views, *(key for key in renamed if key is not None)}

    @property
    def ref(self) -> Ref:
        """The branch."""
        return self._state.ref

    @property
    def files(self) -> Files:
        """The files of its tables."""
        return self._state.files

    def names(self) -> Iterable[TableKey]:
        """Every table and view."""
        return ({*self._state.names()} - self._gone) | self._planned.tables.keys() | self._planned.views.keys()

    def open(self, key: TableKey) -> OpenTable | OpenView | None:
        """The table or view of this name, or None."""
        if key in self._planned.tables:
            return OpenTable(with_nulls(self._planned.tables[key].metadata))
        if key in self._planned.views:
            wanted, _, _ = self._planned.views[key]
            return OpenView(wanted.sql, DUCKDB, (DEFAULT_NAMESPACE,), wanted.columns)
        return None if key in self._gone else self._state.open(key)

    def planned(self, key: TableKey) -> PlannedTable | None:
        """The table, if it changes."""
        return self._planned.tables.get(key)

    def content(self, key: TableKey) -> Content | None:
        """What the branch holds for this key until the commit."""
        return self._state.content(key)

    def table(self, key: TableKey) -> TableVersion:
        """The table of this name; one that is not there is an error."""
        planned = self._planned.tables.get(key)
        return TableVersion(planned.metadata) if planned is not None else self._state.table(key)


class Asking(Questions):
    """Asks of the lake as it will be, and knows the documents as they will be."""

    def __init__(self, after: StateAfter, options: QueryOptions) -> None:
        super().__init__(after, options)
        self._after = after

    def metadata_of(self, key: TableKey) -> TableMetadata | None:
        """The table's metadata; None when there is no such table."""
        planned = self._after.planned(key)
        return planned.metadata if planned is not None else super().metadata_of(key)

"""What a writer asks about rows: SQL over the committed state, with what is pending laid over it.

Everything that a question reads is noted, because it must be unchanged when the writer publishes (P8).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from uuid import UUID

import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from headwater import query
from headwater.catalog.model import Content, TableKey
from headwater.kernel.errors import HeadwaterError
from headwater.publish.sql.selects import placed
from headwater.publish.state import State
from headwater.query import OpenTable, OpenView, Pending, QueryOptions
from headwater.tables.create import schema_from_arrow

_NOTHING_PENDING = Pending()
_NOTHING_SHOWN: Mapping[TableKey, pa.Table] = {}


class Questions:
    """Asks on behalf of one writer. `reads` holds the version of every table that any question has read so far.

    It is an `Ask` of publish/constraints: who has other pending rows meanwhile sets `pending` before asking again.
    """

    def __init__(self, state: State, options: QueryOptions, *, pending: Pending = _NOTHING_PENDING) -> None:
        self.pending = pending
        self.reads: dict[TableKey, Content | None] = {}
        self._state = state
        self._options = options

    def __call__(
        self, sql: str, shown: Mapping[TableKey, pa.Table] = _NOTHING_SHOWN, *, places_of: TableKey | None = None
    ) -> pa.Table:
        """The answer to a SELECT. `shown` are rows in memory under keys of their own, for this question alone.

        The table of `places_of` is shown once more, as selects.py says, with the places of its rows.
        """
        pending = self.pending if places_of is None else self._placed(places_of)
        if shown:
            pending = replace(
                pending,
                rows={**pending.rows, **shown},
                overrides={**pending.overrides, **{key: _bare(rows.schema) for key, rows in shown.items()}},
            )
        positions = frozenset() if places_of is None else frozenset({placed(places_of)})
        options = replace(self._options, positions=positions)
        with _named(places_of):
            return query.run(sql, _Noting(self._state, self.reads), self._state.files, options=options, pending=pending)

    def _placed(self, key: TableKey) -> Pending:
        metadata = self.metadata_of(key)
        if metadata is None:
            return self.pending
        self.reads[key] = self._state.content(key)
        pending, shown = self.pending, placed(key)
        return replace(
            pending,
            rows={**pending.rows, shown: pending.rows[key]} if key in pending.rows else pending.rows,
            deletes={**pending.deletes, shown: pending.deletes[key]} if key in pending.deletes else pending.deletes,
            overrides={**pending.overrides, shown: metadata},
        )

    def metadata_of(self, key: TableKey) -> TableMetadata | None:
        """The table's metadata; None when there is no such table.

        It is not noted as read: who only looks whether rows of another table matter must not lose to its writers. Who
        changes what two tables demand of each other publishes new versions of both.
        """
        if key in self.pending.overrides:
            return self.pending.overrides[key]
        found = self._state.open(key)
        return found.metadata if isinstance(found, OpenTable) else None


class _Noting:
    """A source that notes the version of everything that is read."""

    def __init__(self, state: State, reads: dict[TableKey, Content | None]) -> None:
        self._state = state
        self._reads = reads

    def names(self) -> Sequence[TableKey]:
        """Every table and view."""
        return tuple(self._state.names())

    def open(self, key: TableKey) -> OpenTable | OpenView | None:
        """The table or view, noted; one that is not there is noted too."""
        self._reads[key] = self._state.content(key)
        return self._state.open(key)


def with_nulls(metadata: TableMetadata) -> TableMetadata:
    """The table as it is read to be judged: who takes a column for required looks for no null in it."""
    schema = metadata.schema()
    fields = (each.model_copy(update={"required": False}) for each in schema.fields)
    shown = Schema(*fields, schema_id=schema.schema_id)
    others = [each for each in metadata.schemas if each.schema_id != schema.schema_id]
    return metadata.model_copy(update={"schemas": [*others, shown]})


@contextmanager
def _named(key: TableKey | None) -> Iterator[None]:
    """Errors name the table itself, not what it is shown as."""
    try:
        yield
    except HeadwaterError as error:
        if key is not None and error.fields.get("table") == str(placed(key)):
            error.fields["table"] = str(key)
            error.message = error.message.replace(str(placed(key)), str(key))
            error.args = (error.message,)
        raise


def _bare(arrow: pa.Schema) -> TableMetadata:
    """Metadata for rows that are nowhere but in memory."""
    schema = schema_from_arrow(arrow, format_version=3)
    return TableMetadataV3(
        location="memory",
        table_uuid=UUID(int=0),
        last_updated_ms=0,
        last_column_id=schema.highest_field_id,
        schemas=[schema],
        current_schema_id=schema.schema_id,
        partition_specs=[UNPARTITIONED_PARTITION_SPEC],
        default_spec_id=UNPARTITIONED_PARTITION_SPEC.spec_id,
        sort_orders=[UNSORTED_SORT_ORDER],
        default_sort_order_id=UNSORTED_SORT_ORDER.order_id,
    )

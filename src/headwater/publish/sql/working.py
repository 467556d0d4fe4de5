"""A table under a transaction: what is pinned, and the rows and deletes that are laid over it.

Rows are kept in the pieces in which they came, so that many statements cost what each of them brings. A `Mark` is the
state at one moment, to which the table can be set back: what it holds is never changed in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import NestedField, PrimitiveType
from pyroaring import BitMap64

from headwater.catalog.model import TableContent, TableKey
from headwater.kernel.errors import UsageError
from headwater.publish.constraints.declared import columns_counted
from headwater.publish.sql.answers import fit_answer
from headwater.publish.sql.selects import FILE, POSITION, ROW_ID, WAS, Shape
from headwater.tables.arrow import constant
from headwater.tables.model import ROW_ID_COLUMN, TableUsageError, TableVersion
from headwater.tables.user_rows import fit_keys

# Arrow data of any library, or rows as dicts from column to value.
GivenRows: TypeAlias = "pa.Table | pa.RecordBatch | Sequence[Mapping[str, object]]"

# Beyond this many pieces, rows are copied into one.
_PIECES = 64


@dataclass(frozen=True)
class Mark:
    """The state of a table at one moment."""

    chunks: list[pa.Table]
    chunk_count: int
    deletes: Mapping[str, BitMap64]
    removed_count: int


class WorkingTable:
    """A table that a transaction changes."""

    def __init__(self, key: TableKey, version: TableVersion, pinned: TableContent) -> None:
        metadata = version.metadata
        self.version = version
        self.pinned = pinned
        self.shape = Shape(key, metadata.schema(), metadata.format_version >= 3, columns_counted(metadata))
        self.deletes: Mapping[str, BitMap64] = {}
        arrow = schema_to_pyarrow(metadata.schema(), include_field_ids=False)
        self._arrow = pa.schema([each.with_nullable(True) for each in arrow])  # noqa: FBT003
        ids = pa.schema([(ROW_ID, pa.int64())] if self.shape.keeps_ids else [])
        self._chunks: list[pa.Table] = [pa.Table.from_batches([], pa.schema([*self._arrow, *ids]))]
        self._removed: list[pa.Table] = []

    @property
    def rows(self) -> pa.Table:
        """The rows that are pending, with the ids that they keep (v3)."""
        if len(self._chunks) > 1:
            joined = pa.concat_tables(self._chunks)
            pieces = max((each.num_chunks for each in joined.columns), default=0)
            self._chunks = [joined.combine_chunks() if pieces > _PIECES else joined]
        return self._chunks[0]

    @property
    def staged_rows(self) -> pa.Table | None:
        """The rows as they are written, or None when there are none."""
        if not self.rows.num_rows:
            return None
        return self.rows.rename_columns([ROW_ID_COLUMN if each == ROW_ID else each for each in self.rows.column_names])

    @property
    def removed(self) -> pa.Table | None:
        """What constraints need of the committed rows that go."""
        return pa.concat_tables(self._removed) if self._removed else None

    @property
    def is_changed(self) -> bool:
        """Whether anything is to be committed."""
        return bool(self.rows.num_rows or self.deletes)

    def mark(self) -> Mark:
        """The state now."""
        return Mark(self._chunks, len(self._chunks), self.deletes, len(self._removed))

    def reset(self, mark: Mark) -> None:
        """The state as it was then. What was appended to the same pieces since is behind its count."""
        self._chunks = mark.chunks[: mark.chunk_count]
        self.deletes = mark.deletes
        del self._removed[mark.removed_count :]

    def fit(self, given: GivenRows) -> pa.Table:
        """Rows from outside, their columns taken by name, as the table has them."""
        rows = self._as_table(given)
        columns = {self.shape.column(each): rows[place] for place, each in enumerate(rows.column_names)}
        if len(columns) != rows.num_columns:
            raise TableUsageError(f"a column is given twice: {', '.join(rows.column_names)}", hint="leave one out")
        fields = [each for each in self.shape.schema.fields if each.name in columns]
        numbers = {
            each.name: _whole(columns[each.name], self._arrow.field(each.name).type, each.name) for each in fields
        }
        return fit_keys(pa.table(numbers), fields) if fields else rows

    def append(self, rows: pa.Table, ids: pa.ChunkedArray | None = None) -> None:
        """Add rows. A column that is not given has its default, which is null where the table says nothing."""
        columns = []
        for field in self.shape.schema.fields:
            if field.name in rows.column_names:
                columns.append(_cast(rows[field.name], self._arrow.field(field.name).type, field))
            else:
                columns.append(constant(field.write_default, field.field_type, rows.num_rows))
        if self.shape.keeps_ids:
            columns.append(ids if ids is not None else pa.nulls(rows.num_rows, pa.int64()))
        self._chunks.append(pa.Table.from_arrays(columns, schema=self._chunks[0].schema))

    def remove(self, found: pa.Table) -> None:
        """Rows by their places: in a file of the table, or pending."""
        is_pending = pc.is_null(found[FILE])
        pending = found[POSITION].filter(is_pending)
        if len(pending):
            kept = np.ones(self.rows.num_rows, bool)
            kept[pending.to_numpy()] = False
            self._chunks = [self.rows.filter(pa.array(kept))]
        committed = found.filter(pc.invert(is_pending))
        if committed.num_rows:
            self.deletes = _with_places(self.deletes, committed)
            if self.shape.needed:
                self._removed.append(self.was(committed))

    def refuse_twice(self, found: pa.Table) -> None:
        """An error when a row is found more than once: it cannot become two."""
        places = found.select([FILE, POSITION])
        if places.group_by([FILE, POSITION]).aggregate([]).num_rows != places.num_rows:
            raise UsageError(
                f"a row of {self.shape.table} would be changed more than once by one statement",
                hint="let each row match at most one row of the source",
                table=str(self.shape.table),
            )

    def was(self, found: pa.Table) -> pa.Table:
        """What constraints need of the rows, as they were before."""
        return found.select([WAS + each for each in self.shape.needed]).rename_columns(list(self.shape.needed))

    def ids(self, found: pa.Table) -> pa.ChunkedArray | None:
        """The ids that rows keep when they are changed: a row of the table has one, a pending row what it was given."""
        if not self.shape.keeps_ids:
            return None
        is_pending = pc.is_null(found[FILE])
        own = self.rows[ROW_ID].take(pc.if_else(is_pending, found[POSITION], pa.scalar(None, pa.int64())))
        return pc.if_else(is_pending, own, found[ROW_ID])

    def _as_table(self, given: GivenRows) -> pa.Table:
        if isinstance(given, pa.Table):
            return given
        if isinstance(given, pa.RecordBatch):
            return pa.Table.from_batches([given])
        if hasattr(given, "__arrow_c_stream__"):
            return pa.table(given)
        if not isinstance(given, Sequence) or not all(isinstance(each, Mapping) for each in given):
            raise TableUsageError("rows are an Arrow table, a record batch, or a list of dicts from column to value")
        names = dict.fromkeys(each for row in given for each in row)
        if not all(isinstance(each, str) for each in names) or (given and not names):
            raise TableUsageError("rows name their columns: a row is a dict from column to value, of one or more")
        return pa.table({each: self._values(given, each) for each in names})

    def _values(self, given: Sequence[Mapping[str, object]], said: str) -> pa.Array:
        column = self.shape.column(said)
        kind, values = self._arrow.field(column).type, [row.get(said) for row in given]
        try:
            # Arrow would cut 3.5 down to 3 for a whole number. Left to itself it finds the type, which then has to fit.
            return pa.array(values) if _has_integers(kind) else pa.array(values, kind)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
            raise TableUsageError(
                f"column {column} of {self.shape.table} is {kind}: {error}", hint="convert the values", column=column
            ) from error


def _has_integers(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return False
    within = (kind.field(place).type for place in range(kind.num_fields))
    return bool(pa.types.is_integer(kind)) or any(_has_integers(each) for each in within)


def _whole(values: pa.ChunkedArray, kind: pa.DataType, column: str) -> pa.ChunkedArray:
    """Whole numbers of another width, which fit as long as each of them does."""
    if not pa.types.is_integer(values.type) or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return values
    try:
        return values.cast(kind)
    except pa.ArrowInvalid as error:
        raise TableUsageError(
            f"column {column} does not hold all of the values: {error}", hint="widen the column", column=column
        ) from error


def _cast(values: pa.ChunkedArray, kind: pa.DataType, field: NestedField) -> pa.ChunkedArray:
    if values.type == kind:
        return values
    if not isinstance(field.field_type, PrimitiveType):
        return fit_answer(values, field)
    if pa.types.is_null(kind) and values.null_count == len(values):
        return pa.chunked_array([pa.nulls(len(values))])
    try:
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableUsageError(f"column {field.name} cannot be written by SQL: {error}", column=field.name) from error


def _with_places(deletes: Mapping[str, BitMap64], found: pa.Table) -> Mapping[str, BitMap64]:
    """The deletes and these; the ones that are there stay what they are, because a mark may hold them."""
    encoded = found[FILE].dictionary_encode().unify_dictionaries().combine_chunks()
    codes, positions = encoded.indices.to_numpy(), found[POSITION].to_numpy().astype(np.uint64)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(encoded.dictionary) + 1))
    together = dict(deletes)
    for place, file in enumerate(encoded.dictionary.to_pylist()):
        new = BitMap64(positions[order[starts[place] : starts[place + 1]]])
        together[file] = together[file] | new if file in together else new
    return together

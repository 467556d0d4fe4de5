"""Rows that somebody wants to have in a table, fitted to its schema by the names of the columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, NestedField, PrimitiveType, StructType

from headwater.kernel.errors import HeadwaterError
from headwater.tables.arrow import arrow_type, plain_schema
from headwater.tables.extra_columns import LINEAGE
from headwater.tables.fitting import fit_columns
from headwater.tables.model import TableUsageError


def fit_rows(batch: pa.RecordBatch, schema: Schema, stored: Sequence[NestedField]) -> pa.RecordBatch:
    """The rows as a file holds them: in the fields that are stored, which may be some of lineage too."""
    lineage = [each for each in stored if each in LINEAGE]
    arrays = fit_columns(batch, (*schema.fields, *lineage), RowsOfUser())
    named = dict(zip((each.name for each in (*schema.fields, *lineage)), arrays, strict=True))
    return pa.RecordBatch.from_arrays(
        [_pruned(named[each.name], each.field_type) for each in stored], schema=plain_schema(stored)
    )


def fit_keys(rows: pa.Table, fields: Sequence[NestedField]) -> pa.Table:
    """These columns of some rows, as the table has them; nulls may be in all of them."""
    optional = [each.model_copy(update={"required": False}) for each in fields]
    names = [each.name for each in optional]
    fitted = [fit_columns(batch, optional, RowsOfUser()) for batch in batches_of(rows.select(names))]
    columns = [pa.chunked_array([each[place] for each in fitted]) for place in range(len(names))]
    return pa.table(columns, names=names)


def batches_of(rows: pa.Table) -> list[pa.RecordBatch]:
    """The rows; an empty batch when there are none, so that the columns are checked even then."""
    none = [pa.nulls(0, each.type) for each in rows.schema]
    return rows.to_batches() or [pa.RecordBatch.from_arrays(none, schema=rows.schema)]


def lineage_in(batch: pa.RecordBatch, metadata: TableMetadata) -> list[NestedField]:
    """Which columns of row lineage the rows carry; before v3 there is no such thing."""
    own = {each.name for each in metadata.schema().fields}
    if metadata.format_version < 3:
        return []
    return [each for each in LINEAGE if each.name in batch.schema.names and each.name not in own]


def _pruned(values: pa.Array, kind: IcebergType) -> pa.Array:
    """Without the fields of the unknown type inside of it."""
    if not isinstance(kind, StructType) or values.type == arrow_type(kind):
        return values
    children = [_pruned(values.field(each.name), each.field_type) for each in kind.fields]
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(kind)), mask=values.is_null())


class RowsOfUser:
    """Rows that somebody wants to have in the table: by name, and no looser than the table."""

    lenient = False

    def name_of(self, field: NestedField) -> str | None:
        """Its name."""
        return field.name

    def converted(self, values: pa.Array, kind: PrimitiveType, path: str) -> pa.Array:  # noqa: ARG002
        """As they are."""
        return values

    def instead(self, field: NestedField, path: str) -> object:
        """The write default; a required field without one must be given."""
        if field.write_default is None and field.required:
            raise TableUsageError(
                f"column {path} is required, and missing in the rows",
                hint="give it, or make the column optional",
                column=path,
            )
        return field.write_default

    def unfit(self, path: str, wanted: IcebergType, found: pa.DataType, why: str) -> HeadwaterError:
        """The error for a column of another type."""
        return TableUsageError(
            f"column {path} is {wanted} in the table, and {found} in the rows" + (f": {why}" if why else ""),
            hint="convert it before, or change the type of the column",
            column=path,
            expected=str(wanted),
            actual=str(found),
        )

    def null(self, path: str) -> HeadwaterError:
        """The error for a null in a required column."""
        return TableUsageError(
            f"column {path} is required, and null in some of the rows",
            hint="fill it, or make the column optional",
            column=path,
        )

    def check_names(self, names: Sequence[str], fields: Sequence[NestedField], path: str) -> None:
        """Refuse columns that the table does not have, or that are there twice."""
        known = {each.name for each in fields}
        for place, name in enumerate(names):
            full = f"{path}.{name}" if path else name
            if name not in known:
                raise TableUsageError(
                    f"column {full} is not in the table",
                    hint=f"add it to the table, or leave it out; the table has {', '.join(sorted(known))}",
                    column=full,
                )
            if name in names[:place]:
                raise TableUsageError(f"column {full} is twice in the rows", hint="leave one out", column=full)

"""Columns of structs, lists and maps as DuckDB answers them, on their way into a table.

DuckDB gives UUIDs within them out as text, and what is fixed in length as octets of any.
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.types import NestedField, PrimitiveType, UnknownType, UUIDType

from headwater.query.arrow import uuids_of
from headwater.tables.arrow import arrow_type
from headwater.tables.fitting import fit_columns
from headwater.tables.user_rows import RowsOfUser, batches_of


def fit_answer(values: pa.ChunkedArray, field: NestedField) -> pa.ChunkedArray:
    """The column as the table has it; whether the column itself may be null is judged elsewhere."""
    optional = field.model_copy(update={"required": False})
    fitted = [fit_columns(batch, [optional], _Answer())[0] for batch in batches_of(pa.table({field.name: values}))]
    return pa.chunked_array(fitted)


class _Answer(RowsOfUser):
    """What DuckDB has cast to the table's types already, in its own words."""

    def converted(self, values: pa.Array, kind: PrimitiveType, path: str) -> pa.Array:
        """The values in the column's type."""
        if isinstance(kind, UUIDType) and not isinstance(values.type, pa.BaseExtensionType):
            return uuids_of(values)
        if isinstance(kind, UnknownType) and values.null_count == len(values):
            return pa.nulls(len(values), arrow_type(kind))
        try:
            return values.cast(arrow_type(kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise self.unfit(path, kind, values.type, str(error)) from error

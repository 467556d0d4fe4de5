"""Given rows become rows of the table: by name, in its types, without loss; or an error names row and column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, PrimitiveType

from headwater.kernel.errors import HeadwaterError
from headwater.publish.load.casting import UnfitError, cast_exactly
from headwater.publish.load.decide import match_columns
from headwater.publish.load.model import Fitted, Piece
from headwater.tables.arrow import plain_schema
from headwater.tables.fitting import fit_columns
from headwater.tables.model import TableUsageError
from headwater.tables.user_rows import RowsOfUser


def conformed(pieces: Iterable[Piece], schema: Schema) -> Iterator[Fitted]:
    """The rows as the table has them, all of its columns; those not given have their write default, or null."""
    arrow = plain_schema(schema.fields)
    known = [each.name for each in schema.fields]
    for piece in pieces:
        names = match_columns(piece.batch.schema.names, known, piece.origin)
        batch = piece.batch.rename_columns(list(names)) if list(names) != piece.batch.schema.names else piece.batch
        yield Fitted(piece.origin, _fit(batch, piece, schema, arrow), frozenset(names), piece.is_sparse)


def _fit(batch: pa.RecordBatch, piece: Piece, schema: Schema, arrow: pa.Schema) -> pa.RecordBatch:
    rows = _RowsOfLoad(from_text=piece.is_text)

    def fit(part: pa.RecordBatch) -> list[pa.Array]:
        return fit_columns(part, schema.fields, rows)

    def first_unfit() -> tuple[int, TableUsageError]:
        """The place of the first row that does not fit, and what is wrong with it."""
        first, last = 0, batch.num_rows
        while True:
            middle = max(first + 1, (first + last) // 2)
            try:
                fit(batch.slice(first, middle - first))
            except TableUsageError as error:
                if middle - first == 1:
                    return first, error
                last = middle
            else:
                first = middle

    try:
        return pa.RecordBatch.from_arrays(fit(batch), schema=arrow)
    except TableUsageError:
        fit(batch.slice(0, 0))  # what no row could satisfy is no fault of a row
    place, error = first_unfit()
    row = piece.rows_before + place + 1
    raise TableUsageError(
        f"row {row} of {piece.origin}: {error.message}",
        hint=error.hint,
        **{**error.fields, "row": row, "source": piece.origin},
    )


class _RowsOfLoad(RowsOfUser):
    """Rows of a load: values may have another type, if each of them survives the way into the table's."""

    def __init__(self, *, from_text: bool) -> None:
        self._from_text = from_text

    def converted(self, values: pa.Array, kind: PrimitiveType, path: str) -> pa.Array:
        """The values in the column's type, exactly; or as they are, if that is not to be tried."""
        try:
            found = cast_exactly(values, kind, from_text=self._from_text)
        except UnfitError as error:
            raise self.unfit(path, kind, values.type, str(error)) from error
        return values if found is None else found

    def unfit(self, path: str, wanted: IcebergType, found: pa.DataType, why: str) -> HeadwaterError:
        """The error for values that the column cannot hold."""
        what = f"column {path} is {wanted} in the table, and "
        what += f"{found} in the source" if not self._from_text else "this is none"
        return TableUsageError(
            what + (f": {why}" if why else ""),
            hint="convert it before, or change the type of the column",
            column=path,
            expected=str(wanted),
            actual=str(found),
        )

    def null(self, path: str) -> HeadwaterError:
        """The error for a null in a required column."""
        return TableUsageError(
            f"column {path} is required, and null", hint="fill it, or make the column optional", column=path
        )

"""What a scan reads of each part, and which rows it takes."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.ingest.apply.model import BadRequestError
from headwater.ingest.buffer.model import BlockView
from headwater.ingest.model import TIMESTAMP_COLUMN, Bools, TableShape, Timestamp
from headwater.ingest.scan.model import Comparison, Predicate, ScanRequest

_OPERATORS: dict[Comparison, Callable[[pa.ChunkedArray, pa.Scalar], pa.ChunkedArray]] = {
    Comparison.EQUAL: pc.equal,
    Comparison.NOT_EQUAL: pc.not_equal,
    Comparison.LESS: pc.less,
    Comparison.LESS_EQUAL: pc.less_equal,
    Comparison.GREATER: pc.greater,
    Comparison.GREATER_EQUAL: pc.greater_equal,
}


_WITHOUT_ORDER = frozenset({Comparison.IS_NULL, Comparison.IS_NOT_NULL, Comparison.NOT_EQUAL})
# Values that Python does not compare, as null or moments with nanoseconds, or has no year for.
_INCOMPARABLE = (TypeError, ValueError, OverflowError)


class RowTest(NamedTuple):
    """A predicate that was found to make sense: the column, and what says of its values whether they fit."""

    column: str
    fits: Callable[[pa.ChunkedArray], pa.ChunkedArray]


class Ages(enum.Enum):
    """How many rows of a row group were committed after a timestamp."""

    NONE_LATER = "none"
    SOME_LATER = "some"
    ALL_LATER = "all"


def output_schema(request: ScanRequest, shape: TableShape) -> pa.Schema:
    """The columns that the scan gives, in the order in which they were asked for."""
    if request.columns is None:
        return shape.schema
    for name in (*request.columns, *(each.column for each in request.predicates)):
        _refuse_unknown(name, shape)
    if not request.columns:
        raise BadRequestError(f"no column of {shape.name} is asked for", hint="name one, or leave columns out for all")
    if len(set(request.columns)) != len(request.columns):
        raise BadRequestError(f"a column of {shape.name} is asked for twice", hint="name each once")
    return pa.schema([shape.schema.field(name) for name in request.columns])


def columns_to_read(request: ScanRequest, schema: pa.Schema, *, has_later_rows: bool) -> list[str]:
    """What is read of a part: the output, what is compared, and timestamps only where a row may be too young."""
    names = [*schema.names, *(each.column for each in request.predicates)]
    if has_later_rows:
        names.append(TIMESTAMP_COLUMN)
    return list(dict.fromkeys(names))


def row_tests(predicates: Sequence[Predicate], shape: TableShape) -> tuple[RowTest, ...]:
    """The predicates; one that does not fit the table is refused."""
    return tuple(_row_test(each, shape) for each in predicates)


def matching(tests: Sequence[RowTest], rows: pa.Table) -> Bools | None:
    """Which rows fit all of the tests, and nothing where there are none; what is compared with null does not fit."""
    if not tests:
        return None
    fits = reduce(pc.and_, (each.fits(rows.column(each.column)) for each in tests))
    if not pc.any(fits).as_py():
        return np.zeros(len(fits), np.bool_)  # to unpack what is all the same costs more than to compare it
    found: Bools = fits.fill_null(fill_value=False).to_numpy()
    return found


def places_of(footer: pq.FileMetaData) -> dict[str, int]:
    """Where columns stand that are not nested."""
    paths = [footer.schema.column(place).path for place in range(footer.num_columns)]
    # A dot may be part of a name, or stand between a column and what is nested in it.
    return {path: place for place, path in enumerate(paths) if "." not in path}


def ages_of(column: pq.ColumnChunkMetaData | None, timestamp: Timestamp) -> Ages:
    """Whether rows of a row group are younger than the timestamp, by what is said of the column of timestamps."""
    if column is None or not column.is_stats_set or not column.statistics.has_min_max:
        return Ages.SOME_LATER
    if column.statistics.min > timestamp:
        return Ages.ALL_LATER
    return Ages.SOME_LATER if column.statistics.max > timestamp else Ages.NONE_LATER


def may_fit(predicates: Sequence[Predicate], shape: TableShape, block: BlockView) -> bool:
    """Whether a block can have a row that fits, by bounds that are found once; in doubt it may."""
    if block.bounds is None:
        return True
    return all(_may_fit(each, shape, block.rows, block.bounds) for each in predicates)


def _may_fit(
    predicate: Predicate, shape: TableShape, rows: pa.Table, bounds: dict[str, pa.StructScalar | None]
) -> bool:
    if predicate.column not in bounds:
        try:
            bounds[predicate.column] = pc.min_max(rows.column(predicate.column))
        except pa.ArrowNotImplementedError:
            bounds[predicate.column] = None  # a type without an order
    found = bounds[predicate.column]
    if found is None or predicate.comparison in _WITHOUT_ORDER:
        return True
    try:
        low, high = found["min"].as_py(), found["max"].as_py()
        return _is_within(predicate.comparison, low, high, _literal(predicate, shape).as_py())
    except _INCOMPARABLE:
        return True


def may_hold(predicate: Predicate, shape: TableShape, column: pq.ColumnChunkMetaData | None) -> bool:
    """Whether a row group can have a row that fits, by what is said of the predicate's column; in doubt it may."""
    if column is None or not column.is_stats_set:
        return True
    statistics = column.statistics
    if predicate.comparison is Comparison.IS_NULL:
        return not statistics.has_null_count or statistics.null_count > 0
    if predicate.comparison in _WITHOUT_ORDER or not statistics.has_min_max:
        return True
    try:
        return _is_within(predicate.comparison, statistics.min, statistics.max, _literal(predicate, shape).as_py())
    except _INCOMPARABLE:
        return True


def _is_within(comparison: Comparison, low: Any, high: Any, wanted: Any) -> bool:
    match comparison:
        case Comparison.EQUAL:
            return bool(low <= wanted <= high)
        case Comparison.LESS:
            return bool(low < wanted)
        case Comparison.LESS_EQUAL:
            return bool(low <= wanted)
        case Comparison.GREATER:
            return bool(high > wanted)
        case Comparison.GREATER_EQUAL:
            return bool(high >= wanted)
    return True


def _row_test(predicate: Predicate, shape: TableShape) -> RowTest:
    _refuse_unknown(predicate.column, shape)
    if predicate.comparison is Comparison.IS_NULL:
        return RowTest(predicate.column, pc.is_null)
    if predicate.comparison is Comparison.IS_NOT_NULL:
        return RowTest(predicate.column, pc.is_valid)
    compared, literal = _OPERATORS[predicate.comparison], _stored(_literal(predicate, shape))
    return RowTest(predicate.column, lambda column: compared(_stored(column), literal))


def _stored(value: Any) -> Any:
    """Values of a type that Arrow keeps as another one, as UUIDs, as that other one: only those can be compared."""
    return value.cast(value.type.storage_type) if isinstance(value.type, pa.BaseExtensionType) else value


def _literal(predicate: Predicate, shape: TableShape) -> pa.Scalar:
    wanted: pa.DataType = shape.schema.field(predicate.column).type
    value: Any = predicate.literal
    try:
        made = pa.scalar(value)
        if made.type == wanted:
            return made
        return made.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise BadRequestError(
            f"{predicate.column} is {wanted}, and {value!r} cannot be compared with it", hint=str(error)
        ) from error


def _refuse_unknown(name: str, shape: TableShape) -> None:
    if name not in shape.schema.names:
        raise BadRequestError(
            f"{shape.name} has no column {name}", hint="columns: " + ", ".join(shape.schema.names), column=name
        )

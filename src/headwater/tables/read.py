"""Reading one data file of a scan as Arrow, in the schema of the scan, without the rows that were deleted.

Columns are found by field id. What a file does not hold comes from its partition, else from the column's initial
default, else it is null. Only the columns that are asked for, or that a filter or an equality delete looks at, are
read, a row group at a time.

The order for each batch: deleted positions, equality deletes, filter, projection. Positions count all rows of the file.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import (
    BoundBooleanExpressionVisitor,
    _InclusiveMetricsEvaluationVisitor,
    bind,
    extract_field_ids,
    rewrite_not,
    visit,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField, parse_mapping_from_json
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DateType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from pyroaring import BitMap64

from headwater.kernel.errors import HeadwaterError
from headwater.tables.files import FileReader, normalise
from headwater.tables.model import (
    DELETE_FILE_PATH_ID,
    DELETE_FILE_POSITION_ID,
    FILE_COLUMN,
    FILE_COLUMN_ID,
    POSITION_COLUMN,
    POSITION_COLUMN_ID,
    ROW_ID_COLUMN,
    ROW_ID_COLUMN_ID,
    UPDATED_COLUMN,
    UPDATED_COLUMN_ID,
    FileTask,
    ScanPlan,
    TableCorruptError,
    TableFile,
    TableUsageError,
    UnsupportedTableError,
)
from headwater.tables.parquet import check_types, fit_columns, leaf_of, plain
from headwater.tables.vectors import read_vector

NAME_MAPPING = "schema.name-mapping.default"
# The columns of a scan that are not of the table, in the order in which they are shown.
EXTRA_COLUMNS = {
    FILE_COLUMN: NestedField(FILE_COLUMN_ID, FILE_COLUMN, StringType()),
    POSITION_COLUMN: NestedField(POSITION_COLUMN_ID, POSITION_COLUMN, LongType()),
    ROW_ID_COLUMN: NestedField(ROW_ID_COLUMN_ID, ROW_ID_COLUMN, LongType()),
    UPDATED_COLUMN: NestedField(UPDATED_COLUMN_ID, UPDATED_COLUMN, LongType()),
}

_DELETE_COLUMNS = (
    NestedField(DELETE_FILE_PATH_ID, "file_path", StringType(), required=True),
    NestedField(DELETE_FILE_POSITION_ID, "pos", LongType(), required=True),
)
_ALWAYS_TRUE = AlwaysTrue()
_FIELD_ID = b"PARQUET:field_id"
_ROWS_PER_BATCH = 1 << 17
# Every batch is compared with all equality deletes, so batches are large when there are any.
_ROWS_PER_BATCH_COMPARED = 1 << 20
# Stored types whose statistics are bounds as they stand: in all others NaN, a unit or an order may hide something.
_BOUNDED: dict[type[PrimitiveType], tuple[pa.DataType, ...]] = {
    IntegerType: (pa.int32(),),
    LongType: (pa.int32(), pa.int64()),
    DateType: (pa.date32(),),
    TimestampType: (pa.timestamp("us"),),
    TimestamptzType: (pa.timestamp("us", "UTC"),),
}
# A file up to this size is read whole, in one request.
_SMALL_FILE_BYTES = 1 << 20


# ---------------------------------------------------------------------------- files


class _SpanFile(io.RawIOBase):
    """A file whose bytes are fetched when they are asked for."""

    def __init__(self, files: FileReader, location: str, size_bytes: int) -> None:
        super().__init__()
        self._files, self._location, self._size_bytes = files, location, size_bytes
        self._place = 0
        self._whole: bytes | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size_bytes}[whence]
        self._place = start + offset
        return self._place

    def read(self, size: int = -1) -> bytes:
        end = self._size_bytes if size < 0 else min(self._place + size, self._size_bytes)
        data = self._fetch(self._place, end) if end > self._place else b""
        self._place += len(data)
        return data

    def _fetch(self, start: int, end: int) -> bytes:
        if self._size_bytes > _SMALL_FILE_BYTES:
            return self._files.read(self._location, span=(start, end))
        if self._whole is None:
            self._whole = self._files.read(self._location)
        return self._whole[start:end]


@contextmanager
def _naming(location: str) -> Iterator[None]:
    """Errors of the Parquet reader become errors that name the file."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise TableCorruptError(location, f"cannot be read as Parquet: {error}") from error


class _ParquetSource:
    """One open Parquet file, and which of its columns has which field id."""

    def __init__(self, files: FileReader, file: TableFile, mapping: Sequence[MappedField] | None) -> None:
        self.location = file.file_path
        if file.file_format != FileFormat.PARQUET:
            raise UnsupportedTableError(
                f"{self.location} is a file of the format {file.file_format.value}, and only Parquet is read",
                hint="rewrite it as Parquet with an engine that reads it",
                path=self.location,
                format=file.file_format.value,
            )
        source = pa.PythonFile(_SpanFile(files, self.location, file.file_size_in_bytes), mode="r")
        with _naming(self.location):
            self._parquet = pq.ParquetFile(source, pre_buffer=True, coerce_int96_timestamp_unit="us")
            self._nodes = _Nodes(self._parquet.schema_arrow, mapping, self.location)
        self.names = self._nodes.names

    def batches(
        self, fields: Iterable[NestedField], rows_per_batch: int, groups: _GroupFilter | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The columns that these fields need, with the position of the first row of each batch.

        Row groups that cannot match, by what Parquet says of them, are left out.
        """
        columns = self._nodes.leaves_for(fields)
        position = 0
        for group in range(self._parquet.num_row_groups):
            rows = self._parquet.metadata.row_group(group).num_rows
            if groups is not None and not groups.may_match(self._measured(group, groups.kinds)):
                position += rows
                continue
            seen = 0
            for batch in self._group(group, rows, columns, rows_per_batch):
                yield position + seen, batch
                seen += batch.num_rows
            if seen != rows:
                raise TableCorruptError(self.location, f"has {seen} rows where its footer says {rows}")
            position += rows

    def _group(self, group: int, rows: int, columns: list[int], rows_per_batch: int) -> Iterator[pa.RecordBatch]:
        if not columns:  # nothing but the number of rows is asked for
            yield from (_no_columns(min(rows_per_batch, rows - at)) for at in range(0, rows, rows_per_batch))
            return
        with _naming(self.location):
            yield from self._parquet.reader.iter_batches(rows_per_batch, row_groups=[group], column_indices=columns)

    def _measured(self, group: int, kinds: Mapping[int, PrimitiveType]) -> TableFile:
        """One row group, as if it were a file, with what its statistics tell of these columns."""
        footer = self._parquet.metadata.row_group(group)
        nulls: dict[int, int] = {}
        bounds: tuple[dict[int, bytes], dict[int, bytes]] = ({}, {})
        for field_id, kind in kinds.items():
            leaf, found = self._nodes.plain_leaves.get(field_id, (None, None))
            chunk = None if leaf is None else footer.column(leaf)
            if chunk is None or not chunk.is_stats_set:
                continue
            if chunk.statistics.has_null_count:
                nulls[field_id] = chunk.statistics.null_count
            if chunk.statistics.has_min_max and found in _BOUNDED.get(type(kind), ()):
                bounds[0][field_id] = to_bytes(kind, chunk.statistics.min_raw)
                bounds[1][field_id] = to_bytes(kind, chunk.statistics.max_raw)
        measured = TableFile.from_args(
            _table_format_version=3,
            record_count=footer.num_rows,
            value_counts=dict.fromkeys(nulls, footer.num_rows),
            null_value_counts=nulls,
            lower_bounds=bounds[0],
            upper_bounds=bounds[1],
        )
        return cast(TableFile, measured)


@dataclass(frozen=True)
class _GroupFilter:
    """A filter for whole row groups, and the types of the columns that it looks at."""

    bound: BooleanExpression
    kinds: Mapping[int, PrimitiveType]

    def may_match(self, group: TableFile) -> bool:
        return bool(visit(self.bound, _InclusiveMetricsEvaluationVisitor(group)))


def _no_columns(rows: int) -> pa.RecordBatch:
    """A batch that has rows, and nothing in them."""
    return pa.RecordBatch.from_struct_array(
        pa.StructArray.from_arrays([], fields=[], mask=pa.array(np.zeros(rows, dtype=bool)))
    )


class _Nodes:
    """The columns of a Parquet file by field id: their own, or those that the name mapping gives them."""

    def __init__(self, schema: pa.Schema, mapping: Sequence[MappedField] | None, location: str) -> None:
        self.names: dict[int, str] = {}
        self._own_ids = any(_has_id(each) for each in schema)
        if not self._own_ids and mapping is None and len(schema):
            raise UnsupportedTableError(
                f"{location} has no field ids, and the table has no name mapping",
                hint=f"set the table property {NAME_MAPPING}",
                path=location,
            )
        self._count = 0
        # Columns outside of lists and maps: which one of the file they are, and of what type.
        self.plain_leaves: dict[int, tuple[int, pa.DataType]] = {}
        self._roots = [self._node(each, mapping or (), each.name) for each in schema]

    def _node(self, field: pa.Field, mapping: Sequence[MappedField], name: str, *, repeated: bool = False) -> _Node:
        mapped = next((each for each in mapping if name in each.names), None)
        if self._own_ids:
            text = (field.metadata or {}).get(_FIELD_ID)
            field_id = int(text) if text is not None else None
        else:
            field_id = mapped.field_id if mapped is not None else None  # one without fields is false
        if field_id is not None:
            self.names.setdefault(field_id, field.name)
        below = mapped.fields if mapped is not None else ()
        first = self._count
        within = repeated or not pa.types.is_struct(field.type)
        children = tuple(self._node(child, below, name, repeated=within) for child, name in _children(field.type))
        if not children:
            self._count += 1
            if field_id is not None and not repeated:
                self.plain_leaves[field_id] = (first, field.type)
        return _Node(field_id, first, children)

    def leaves_for(self, fields: Iterable[NestedField]) -> list[int]:
        """Which primitive columns have to be read."""
        wanted = set(_ids_in(fields))
        return sorted({leaf for root in self._roots for leaf in root.leaves_for(wanted)})


@dataclass(frozen=True)
class _Node:
    field_id: int | None
    first_leaf: int
    children: tuple[_Node, ...]

    def leaves_for(self, wanted: set[int]) -> list[int]:
        if self.field_id not in wanted:
            return []
        # Where nothing below is wanted, one column still tells which of the values are null.
        return [leaf for child in self.children for leaf in child.leaves_for(wanted)] or [self.first_leaf]


def _has_id(field: pa.Field) -> bool:
    return _FIELD_ID in (field.metadata or {}) or any(_has_id(child) for child, _ in _children(field.type))


def _children(kind: pa.DataType) -> list[tuple[pa.Field, str]]:
    """The fields inside of a type, with the names that name mappings have for them."""
    if pa.types.is_struct(kind):
        return [(each, each.name) for each in kind]
    if pa.types.is_map(kind):
        return [(kind.key_field, "key"), (kind.item_field, "value")]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [(kind.value_field, "element")]
    return []


def _ids_in(fields: Iterable[NestedField]) -> Iterator[int]:
    for each in fields:
        yield each.field_id
        match each.field_type:
            case StructType() as inner:
                yield from _ids_in(inner.fields)
            case ListType() as inner:
                yield from _ids_in((inner.element_field,))
            case MapType() as inner:
                yield from _ids_in((inner.key_field, inner.value_field))


class _ColumnsOfFile:
    """Columns of a stored file: found by field id, and as other writers may have stored them."""

    lenient = True

    def __init__(self, location: str, names: Mapping[int, str], partition: Mapping[int, object]) -> None:
        self._location, self._names, self._partition = location, names, partition

    def name_of(self, field: NestedField) -> str | None:
        return self._names.get(field.field_id)

    def instead(self, field: NestedField, path: str) -> object:
        if field.field_id in self._partition:
            return self._partition[field.field_id]
        if field.initial_default is None and field.required:
            raise TableCorruptError(self._location, f"has no column {path}, which is required")
        return field.initial_default

    def unfit(self, path: str, wanted: IcebergType, found: pa.DataType, why: str) -> HeadwaterError:
        return TableCorruptError(
            self._location, f"has the column {path} as {found}, not {wanted}" + (f": {why}" if why else "")
        )

    def null(self, path: str) -> HeadwaterError:
        return TableCorruptError(self._location, f"has nulls in the column {path}, which is required")

    def check_names(self, names: Sequence[str], fields: Sequence[NestedField], path: str) -> None:
        """Columns that the schema does not have (any more) are passed over."""


def _partition_constants(file: TableFile, metadata: TableMetadata) -> dict[int, object]:
    """Columns whose value the partition of the file gives, by field id."""
    spec = metadata.specs().get(file.spec_id)
    if spec is None:
        raise TableCorruptError(file.file_path, f"is of partition spec {file.spec_id}, which the table does not have")
    return {
        each.source_id: file.partition[place]
        for place, each in enumerate(spec.fields)
        if isinstance(each.transform, IdentityTransform)
    }


def _mapping(metadata: TableMetadata) -> Sequence[MappedField] | None:
    text = metadata.properties.get(NAME_MAPPING)
    if text is None:
        return None
    try:
        return parse_mapping_from_json(text).root
    except ValueError as error:
        raise TableUsageError(
            f"the table property {NAME_MAPPING} is no name mapping: {error}",
            hint="set it to a name mapping as the Iceberg specification has it",
            property=NAME_MAPPING,
        ) from error


# ---------------------------------------------------------------------------- single columns, and filters on them


@dataclass(frozen=True)
class _Key:
    """A primitive column outside of lists and maps, that can be compared."""

    field_id: int
    field: NestedField
    path: tuple[str, ...]
    kind: PrimitiveType

    def values(self, batch: pa.RecordBatch, fitting: _ColumnsOfFile) -> pa.Array:
        """The column, on its own."""
        found = fit_columns(batch, (self.field,), fitting)[0]
        return plain(pc.struct_field(found, list(self.path[1:])) if len(self.path) > 1 else found)


def _key(schema: Schema, field_id: int) -> _Key:
    pruned = prune_columns(schema, {field_id}, select_full_types=False)
    leaf = leaf_of(schema, field_id)
    return _Key(field_id, pruned.fields[0], leaf.path, leaf.kind)


def _bound(row_filter: BooleanExpression, schema: Schema) -> BooleanExpression:
    try:
        return bind(schema, rewrite_not(row_filter), case_sensitive=True)
    except (ValueError, TypeError) as error:
        raise TableUsageError(
            f"the filter does not fit the table: {error}", hint=f"the table has {', '.join(schema.column_names)}"
        ) from error


class _Filter(BoundBooleanExpressionVisitor[pa.Array]):
    """Which rows match: as in SQL, a comparison with null is unknown, and what is unknown does not match."""

    def __init__(self, columns: Mapping[int, pa.Array], rows: int) -> None:
        self._columns, self._rows = columns, rows

    def _of(self, term: Any) -> pa.Array:
        return self._columns[term.ref().field.field_id]

    def _compare(self, name: str, term: Any, literal: Literal[Any]) -> pa.Array:
        column = self._of(term)
        return pc.call_function(name, [column, pa.scalar(literal.value, column.type)])

    def visit_in(self, term: Any, literals: set[Any]) -> pa.Array:
        column = self._of(term)
        found = pc.is_in(column, value_set=pa.array(list(literals), column.type))
        return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.bool_()))

    def visit_not_in(self, term: Any, literals: set[Any]) -> pa.Array:
        return pc.invert(self.visit_in(term, literals))

    def visit_is_nan(self, term: Any) -> pa.Array:
        return pc.is_nan(self._of(term))

    def visit_not_nan(self, term: Any) -> pa.Array:
        return pc.invert(pc.is_nan(self._of(term)))

    def visit_is_null(self, term: Any) -> pa.Array:
        return self._of(term).is_null()

    def visit_not_null(self, term: Any) -> pa.Array:
        return self._of(term).is_valid()

    def visit_equal(self, term: Any, literal: Any) -> pa.Array:
        return self._compare("equal", term, literal)

    def visit_not_equal(self, term: Any, literal: Any) -> pa.Array:
        return self._compare("not_equal", term, literal)

    def visit_greater_than_or_equal(self, term: Any, literal: Any) -> pa.Array:
        return self._compare("greater_equal", term, literal)

    def visit_greater_than(self, term: Any, literal: Any) -> pa.Array:
        return self._compare("greater", term, literal)

    def visit_less_than(self, term: Any, literal: Any) -> pa.Array:
        return self._compare("less", term, literal)

    def visit_less_than_or_equal(self, term: Any, literal: Any) -> pa.Array:
        return self._compare("less_equal", term, literal)

    def visit_starts_with(self, term: Any, literal: Any) -> pa.Array:
        return pc.starts_with(self._of(term), literal.value)

    def visit_not_starts_with(self, term: Any, literal: Any) -> pa.Array:
        return pc.invert(self.visit_starts_with(term, literal))

    def visit_true(self) -> pa.Array:
        return pa.repeat(pa.scalar(True), self._rows)  # noqa: FBT003

    def visit_false(self) -> pa.Array:
        return pa.repeat(pa.scalar(False), self._rows)  # noqa: FBT003

    def visit_not(self, child_result: pa.Array) -> pa.Array:
        return pc.invert(child_result)

    def visit_and(self, left_result: pa.Array, right_result: pa.Array) -> pa.Array:
        return pc.and_kleene(left_result, right_result)

    def visit_or(self, left_result: pa.Array, right_result: pa.Array) -> pa.Array:
        return pc.or_kleene(left_result, right_result)


# ---------------------------------------------------------------------------- deletes


def deleted_positions(files: FileReader, task: FileTask) -> BitMap64:
    """Positions of the task's data file that its vector and its position delete files delete."""
    found = BitMap64() if task.vector is None else read_vector(files, task.vector)
    wanted = normalise(task.file.file_path)
    for each in task.positions:
        found |= _positions_in(files, each, wanted)
    if found and found.max() >= task.file.record_count:
        raise TableCorruptError(
            task.file.file_path, f"has {task.file.record_count} rows, and a delete of the row at {found.max()}"
        )
    return found


def _positions_in(files: FileReader, deletes: TableFile, wanted: str) -> BitMap64:
    """What a position delete file says of one data file; it may speak of many."""
    by_name = [
        MappedField.model_validate({"field-id": each.field_id, "names": [each.name]}) for each in _DELETE_COLUMNS
    ]
    source = _ParquetSource(files, deletes, by_name)
    fitting = _ColumnsOfFile(deletes.file_path, source.names, {})
    found = BitMap64()
    for _, batch in source.batches(_DELETE_COLUMNS, _ROWS_PER_BATCH):
        paths, positions = fit_columns(batch, _DELETE_COLUMNS, fitting)
        spellings = [each for each in pc.unique(paths).to_pylist() if normalise(each) == wanted]
        chosen = positions.filter(pc.is_in(paths, value_set=pa.array(spellings, paths.type)))
        found |= BitMap64(chosen.to_numpy().astype(np.uint64))
    return found


@dataclass(frozen=True)
class _EqualityDeletes:
    """Rows that are equal to one of these in all keys are deleted; a null equals a null."""

    keys: tuple[_Key, ...]
    deleted: pa.Table

    def kept(self, batch: pa.RecordBatch, fitting: _ColumnsOfFile) -> np.ndarray[Any, Any]:
        """Which rows of the batch are not deleted."""
        names = self.deleted.column_names
        rows = pa.table([each.values(batch, fitting) for each in self.keys], names=names)
        # Grouping is what compares nulls as equal.
        both = pa.concat_tables([self.deleted, rows]).append_column(
            "row", pa.array(np.concatenate((np.full(self.deleted.num_rows, -1), np.arange(batch.num_rows))))
        )
        grouped = both.group_by(names, use_threads=False).aggregate([("row", "min"), ("row", "list")])
        hit = grouped.filter(pc.equal(grouped.column("row_min"), -1)).column("row_list")
        places = pc.list_flatten(hit).to_numpy()
        kept = np.ones(batch.num_rows, dtype=bool)
        kept[places[places >= 0]] = False
        return kept


def _equality_deletes(files: FileReader, task: FileTask, plan: ScanPlan) -> list[_EqualityDeletes]:
    by_ids: dict[tuple[int, ...], list[TableFile]] = {}
    for each in task.equality:
        if not each.equality_ids:
            raise TableCorruptError(each.file_path, "is an equality delete file without equality ids")
        by_ids.setdefault(tuple(sorted(each.equality_ids)), []).append(each)
    loaded = (_load_equality(files, ids, group, plan) for ids, group in by_ids.items())
    return [each for each in loaded if each is not None]


def _load_equality(
    files: FileReader, ids: tuple[int, ...], deletes: Sequence[TableFile], plan: ScanPlan
) -> _EqualityDeletes | None:
    keys = tuple(_key(_schema_with(each, plan, deletes[0]), each) for each in ids)
    names = [str(each) for each in ids]
    tables = []
    for file in deletes:
        source = _ParquetSource(files, file, _mapping(plan.metadata))
        missing = [each for each in ids if each not in source.names]
        if missing:
            raise TableCorruptError(file.file_path, f"deletes by field {missing[0]}, and has no such column")
        fitting = _ColumnsOfFile(file.file_path, source.names, {})
        tables += [
            pa.table([each.values(batch, fitting) for each in keys], names=names)
            for _, batch in source.batches((each.field for each in keys), _ROWS_PER_BATCH)
        ]
    if not tables:
        return None
    distinct = pa.concat_tables(tables).group_by(names, use_threads=False).aggregate([]).select(names)
    return _EqualityDeletes(keys, distinct)


def _schema_with(field_id: int, plan: ScanPlan, deletes: TableFile) -> Schema:
    """The schema to compare a column by: that of the scan, or the newest that still had the column."""
    for schema in (plan.schema, plan.metadata.schema(), *sorted(plan.metadata.schemas, key=lambda s: -s.schema_id)):
        if field_id in schema.field_ids:
            return schema
    raise TableCorruptError(deletes.file_path, f"deletes by field {field_id}, which no schema of the table has")


# ---------------------------------------------------------------------------- the scan of one file


def read_schema(plan: ScanPlan, columns: tuple[str, ...] | None = None, extra: frozenset[str] = frozenset()) -> Schema:
    """The schema of what `read_task` yields: the columns in the order asked for, then the extra ones."""
    if columns is None:
        chosen = plan.schema.fields
    else:
        by_name = {each.name: each for each in plan.schema.fields}
        for name in columns:
            if name not in by_name:
                raise TableUsageError(
                    f"column {name} is not in the table", hint=f"the table has {', '.join(by_name)}", column=name
                )
        chosen = tuple(by_name[name] for name in columns)
    for name in sorted(extra - EXTRA_COLUMNS.keys()):
        raise TableUsageError(
            f"column {name} is not one that a scan can add",
            hint=f"it can add {', '.join(EXTRA_COLUMNS)}",
            column=name,
        )
    schema = Schema(*chosen, *(field for name, field in EXTRA_COLUMNS.items() if name in extra))
    check_types(schema)
    return schema


def read_task(
    files: FileReader,
    task: FileTask,
    *,
    plan: ScanPlan,
    columns: tuple[str, ...] | None = None,
    row_filter: BooleanExpression = _ALWAYS_TRUE,
    extra: frozenset[str] = frozenset(),
) -> Iterator[pa.RecordBatch]:
    """The live rows of one data file that match, batch by batch; none of the batches is empty."""
    schema = read_schema(plan, columns, extra)
    bound = _bound(row_filter, plan.schema)
    if isinstance(bound, AlwaysFalse):
        return iter(())
    return _scan(files, task, plan, schema, bound)


def _scan(
    files: FileReader, task: FileTask, plan: ScanPlan, schema: Schema, bound: BooleanExpression
) -> Iterator[pa.RecordBatch]:
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    source = _ParquetSource(files, task.file, _mapping(plan.metadata))
    fitting = _ColumnsOfFile(task.file.file_path, source.names, _partition_constants(task.file, plan.metadata))
    filtered = () if isinstance(bound, AlwaysTrue) else tuple(_key(plan.schema, each) for each in _refs(bound))
    equality = _equality_deletes(files, task, plan)
    deleted = np.asarray(deleted_positions(files, task).to_array(), dtype=np.int64)
    needed = [
        *schema.fields,
        *(each.field for each in filtered),
        *(key.field for each in equality for key in each.keys),
    ]
    rows_per_batch = _ROWS_PER_BATCH_COMPARED if equality else _ROWS_PER_BATCH
    groups = _GroupFilter(bound, {each.field_id: each.kind for each in filtered}) if filtered else None
    for position, batch in source.batches(needed, rows_per_batch, groups):
        kept = np.ones(batch.num_rows, dtype=bool)
        first, last = np.searchsorted(deleted, (position, position + batch.num_rows))
        kept[deleted[first:last] - position] = False
        for each in equality:
            kept &= each.kept(batch, fitting)
        if not isinstance(bound, AlwaysTrue):
            found = {each.field_id: each.values(batch, fitting) for each in filtered}
            matches = visit(bound, _Filter(found, batch.num_rows))
            kept &= matches.fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003
        if kept.any():
            yield _shown(batch, position, kept, task, schema, arrow, fitting)


def _refs(bound: BooleanExpression) -> list[int]:
    return sorted(extract_field_ids(bound))


def _shown(
    batch: pa.RecordBatch,
    position: int,
    kept: np.ndarray[Any, Any],
    task: FileTask,
    schema: Schema,
    arrow: pa.Schema,
    fitting: _ColumnsOfFile,
) -> pa.RecordBatch:
    """The rows that are kept, in the schema of the scan."""
    places = np.flatnonzero(kept)
    if len(places) < batch.num_rows:
        batch = batch.take(pa.array(places)) if batch.num_columns else _no_columns(len(places))
    positions = pa.array(places + position, pa.int64())
    own = [each for each in schema.fields if each.field_id not in _EXTRA_IDS]
    arrays = fit_columns(batch, own, fitting)
    arrays += [
        _extra(each.name, batch, positions, task, fitting) for each in schema.fields if each.field_id in _EXTRA_IDS
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow) if arrays else _no_columns(len(places))


_EXTRA_IDS = frozenset(each.field_id for each in EXTRA_COLUMNS.values())


def _extra(name: str, batch: pa.RecordBatch, positions: pa.Array, task: FileTask, fitting: _ColumnsOfFile) -> pa.Array:
    first_row_id = task.file.first_row_id
    match name:
        case "_file":
            return pa.repeat(pa.scalar(task.file.file_path, pa.large_string()), len(positions))
        case "_pos":
            return positions
    field = EXTRA_COLUMNS[name]
    stored = fitting.name_of(field)
    own = fit_columns(batch, (field,), fitting)[0] if stored is not None else pa.nulls(len(positions), pa.int64())
    if first_row_id is None:  # written before the table had row ids
        return own
    if name == ROW_ID_COLUMN:
        return pc.coalesce(own, pc.add(positions, first_row_id))
    return pc.coalesce(own, pa.scalar(task.sequence_number, pa.int64()))


def positions_of(files: FileReader, task: FileTask, metadata: TableMetadata, row_filter: BooleanExpression) -> BitMap64:
    """Positions of the live rows of a data file that match the filter, by the current schema."""
    plan = ScanPlan(metadata, metadata.schema(), None, (task,))
    found = BitMap64()
    for batch in read_task(
        files, task, plan=plan, columns=(), row_filter=row_filter, extra=frozenset({POSITION_COLUMN})
    ):
        found |= BitMap64(batch.column(0).to_numpy().astype(np.uint64))
    return found

"""Rows become data files: fitted to the schema, split by partition, sorted, encoded as Parquet, measured and stored.

Nothing here takes a name apart: columns are found whole by their name or by their field id, so a name may have dots.
Bounds and counts are taken from the rows themselves, not from the statistics that Parquet keeps of them: those leave
out long values, and a bound over what is left would hide rows.
"""

from __future__ import annotations

import hashlib
import math
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import MetricModeTypes, MetricsMode, match_metrics_mode, schema_to_pyarrow
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, TimeTransform, Transform, TruncateTransform
from pyiceberg.transforms import VoidTransform as Void
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)
from pyroaring import BitMap64

from headwater.kernel.errors import HeadwaterError
from headwater.kernel.randomness import Randomness
from headwater.tables.model import (
    DELETE_FILE_PATH_ID,
    DELETE_FILE_POSITION_ID,
    ROW_ID_COLUMN,
    ROW_ID_COLUMN_ID,
    UPDATED_COLUMN,
    UPDATED_COLUMN_ID,
    NewFile,
    TableFile,
    TableUsageError,
    UnsupportedTableError,
)

T = TypeVar("T")
Rows: TypeAlias = pa.Table | Iterable[pa.RecordBatch]

DATA_PATH = "write.data.path"
TARGET_FILE_SIZE = "write.target-file-size-bytes"
ROW_GROUP_SIZE = "write.parquet.row-group-size-bytes"
COMPRESSION = "write.parquet.compression-codec"
COMPRESSION_LEVEL = "write.parquet.compression-level"
BLOOM_FILTER = "write.parquet.bloom-filter-enabled.column."
METRICS_DEFAULT = "write.metadata.metrics.default"
METRICS_COLUMN = "write.metadata.metrics.column."

_MEGABYTE = 1 << 20
_ROWS_PER_GROUP = 1 << 20
_LONGEST_SEGMENT = 120
_BOUND_LENGTH = "truncate(16)"
_LINEAGE = (
    NestedField(ROW_ID_COLUMN_ID, ROW_ID_COLUMN, LongType()),
    NestedField(UPDATED_COLUMN_ID, UPDATED_COLUMN, LongType()),
)


class FileSink(Protocol):
    """Where new files go. Called from several threads."""

    def write(self, files: Iterable[NewFile]) -> None:
        """Store these files."""
        ...


@dataclass(frozen=True)
class WriteOptions:
    """How rows are written; what the files look like is said by the properties of the table."""

    threads: int = 4
    buffer_size_bytes: int = 512 * _MEGABYTE


# ---------------------------------------------------------------------------- columns that fit


class Fitting(Protocol):
    """How columns from outside become columns of a schema. Writing finds them by name, reading by field id."""

    # Whether what other writers store may be taken for what it must mean.
    lenient: bool

    def name_of(self, field: NestedField) -> str | None:
        """What the field is called outside."""
        ...

    def instead(self, field: NestedField, path: str) -> object:
        """The value of a field that is not there."""
        ...

    def unfit(self, path: str, wanted: IcebergType, found: pa.DataType, why: str) -> HeadwaterError:
        """The error for a column of another type."""
        ...

    def null(self, path: str) -> HeadwaterError:
        """The error for a null where none may be."""
        ...

    def check_names(self, names: Sequence[str], fields: Sequence[NestedField], path: str) -> None:
        """Refuse columns that nobody knows, where that is an error."""
        ...


def arrow_type(kind: IcebergType) -> pa.DataType:
    """The Arrow type that holds values of an Iceberg type, without field ids."""
    return schema_to_pyarrow(kind, include_field_ids=False)


def fit_columns(batch: pa.RecordBatch, fields: Sequence[NestedField], fitting: Fitting) -> list[pa.Array]:
    """The fields, each as an array of its type, from the columns of a batch."""
    fitting.check_names(batch.schema.names, fields, "")
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return [_fit_field(columns, each, each.name, batch.num_rows, 0, fitting) for each in fields]


def _fit_field(
    columns: Mapping[str, pa.Array], field: NestedField, path: str, rows: int, parent_nulls: int, fitting: Fitting
) -> pa.Array:
    name = fitting.name_of(field)
    if name is not None and name in columns:
        fitted = _fit(columns[name], field.field_type, path, fitting)
    else:
        fitted = constant(fitting.instead(field, path), field.field_type, rows)
    return _without_nulls(fitted, path, parent_nulls, fitting) if field.required else fitted


def constant(value: object, kind: IcebergType, rows: int) -> pa.Array:
    """One value, over and over."""
    target = arrow_type(kind)
    if value is None:
        return pa.nulls(rows, target)
    plain: object = value.bytes if isinstance(value, uuid.UUID) else value
    return pa.repeat(pa.scalar(plain, target), rows)


def _fit(values: pa.Array, kind: IcebergType, path: str, fitting: Fitting) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), arrow_type(kind))
    if isinstance(kind, StructType) and pa.types.is_struct(values.type):
        return _fit_struct(values, kind, path, fitting)
    if isinstance(kind, ListType) and _is_list(values.type):
        return _fit_list(values, kind, path, fitting)
    if isinstance(kind, MapType) and pa.types.is_map(values.type):
        return _fit_map(values, kind, path, fitting)
    if isinstance(kind, PrimitiveType):
        return _fit_primitive(values, kind, path, fitting)
    raise fitting.unfit(path, kind, values.type, "")


def _fit_struct(values: pa.Array, kind: StructType, path: str, fitting: Fitting) -> pa.Array:
    names = [each.name for each in values.type]
    fitting.check_names(names, kind.fields, path)
    columns = dict(zip(names, values.flatten(), strict=True))  # children are null where their parent is
    children = [
        _fit_field(columns, each, f"{path}.{each.name}", len(values), values.null_count, fitting)
        for each in kind.fields
    ]
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(kind)), mask=values.is_null())


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _fit_list(values: pa.Array, kind: ListType, path: str, fitting: Fitting) -> pa.Array:
    lengths = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))), pa.int64())
    inner = f"{path}.element"
    elements = _fit(values.flatten(), kind.element_type, inner, fitting)
    if kind.element_required:
        elements = _without_nulls(elements, inner, 0, fitting)
    return pa.LargeListArray.from_arrays(offsets, elements, type=arrow_type(kind), mask=values.is_null())


def _fit_map(values: pa.Array, kind: MapType, path: str, fitting: Fitting) -> pa.Array:
    if values.offset or values.null_count:
        values = values.take(pa.array(np.arange(len(values))))  # a fresh copy, where nulls hold no entries
    offsets = values.offsets.to_numpy()
    start, entries = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys = _fit(values.keys.slice(start, entries), kind.key_type, f"{path}.key", fitting)
    items = _fit(values.items.slice(start, entries), kind.value_type, f"{path}.value", fitting)
    if kind.value_required:
        items = _without_nulls(items, f"{path}.value", 0, fitting)
    return pa.MapArray.from_arrays(
        pa.array(offsets - start, pa.int32()), keys, items, type=arrow_type(kind), mask=values.is_null()
    )


def _fit_primitive(values: pa.Array, kind: PrimitiveType, path: str, fitting: Fitting) -> pa.Array:
    target = arrow_type(kind)
    if values.type == target:
        return values
    if isinstance(kind, FixedType) and fitting.lenient:
        values = plain(values)
    if not _holds(kind, values.type, lenient=fitting.lenient):
        raise fitting.unfit(path, kind, values.type, "")
    if isinstance(kind, UUIDType):
        return pa.ExtensionArray.from_storage(target, values)
    try:
        return values.cast(target, safe=not (fitting.lenient and pa.types.is_timestamp(target)))
    except pa.ArrowInvalid as error:
        raise fitting.unfit(path, kind, values.type, str(error)) from error


def _holds(kind: PrimitiveType, found: pa.DataType, *, lenient: bool) -> bool:  # noqa: C901  (a table)
    """Whether values of the Arrow type can be values of the Iceberg type; a cast still checks each of them."""
    types = pa.types
    text = types.is_string(found) or types.is_large_string(found) or types.is_string_view(found)
    octets = types.is_binary(found) or types.is_large_binary(found) or types.is_binary_view(found)
    match kind:
        case BooleanType():
            return bool(types.is_boolean(found))
        case IntegerType():
            return bool(types.is_integer(found) and (found.bit_width < 32 or types.is_int32(found)))
        case LongType():
            return bool(types.is_integer(found) and not types.is_uint64(found))
        case FloatType():
            return bool(types.is_floating(found) and found.bit_width <= 32)
        case DoubleType():
            return bool(types.is_floating(found))
        case DecimalType():
            whole = kind.precision - kind.scale
            return bool(
                types.is_decimal(found) and found.scale <= kind.scale and found.precision - found.scale <= whole
            )
        case DateType():
            return bool(types.is_date(found))
        case TimeType():
            return bool(types.is_time(found))
        case TimestampType() | TimestampNanoType():
            return bool(
                (types.is_timestamp(found) and (lenient or found.tz is None)) or (lenient and types.is_date(found))
            )
        case TimestamptzType() | TimestamptzNanoType():
            return bool(types.is_timestamp(found) and (lenient or found.tz is not None))
        case StringType():
            return bool(text or (lenient and octets))
        case BinaryType():
            return bool(octets or types.is_fixed_size_binary(found) or (lenient and text))
        case FixedType() | UUIDType():
            width = 16 if isinstance(kind, UUIDType) else len(kind)
            return bool(types.is_fixed_size_binary(found) and found.byte_width == width)
        case _:
            return False


def _without_nulls(values: pa.Array, path: str, parent_nulls: int, fitting: Fitting) -> pa.Array:
    """A required field has nulls only where its parent is null; there Parquet wants to see some value."""
    if values.null_count > parent_nulls:
        raise fitting.null(path)
    return _filled(values) if values.null_count else values


def _filled(values: pa.Array) -> pa.Array:
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _filled(values.storage))
    if pa.types.is_struct(kind):
        # Where the struct is null its required children were filled before, and the others are null.
        children = [values.field(place) for place in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind))
    if pa.types.is_large_list(kind):
        return pa.LargeListArray.from_arrays(values.offsets, values.values, type=kind)
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(values.offsets, values.keys, values.items, type=kind)
    if pa.types.is_fixed_size_binary(kind):
        return values.fill_null(pa.scalar(bytes(kind.byte_width), kind))
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return values.fill_null(pa.scalar(b"").cast(kind))
    if pa.types.is_boolean(kind):
        return values.fill_null(False)  # noqa: FBT003
    return values.fill_null(pa.scalar(0, kind))


class _RowsOfUser:
    """Rows that somebody wants to have in the table: by name, and no looser than the table."""

    lenient = False

    def name_of(self, field: NestedField) -> str | None:
        return field.name

    def instead(self, field: NestedField, path: str) -> object:
        if field.write_default is None and field.required:
            raise TableUsageError(
                f"column {path} is required, and missing in the rows",
                hint="give it, or make the column optional",
                column=path,
            )
        return field.write_default

    def unfit(self, path: str, wanted: IcebergType, found: pa.DataType, why: str) -> HeadwaterError:
        return TableUsageError(
            f"column {path} is {wanted} in the table, and {found} in the rows" + (f": {why}" if why else ""),
            hint="convert it before, or change the type of the column",
            column=path,
            expected=str(wanted),
            actual=str(found),
        )

    def null(self, path: str) -> HeadwaterError:
        return TableUsageError(
            f"column {path} is required, and null in some of the rows",
            hint="fill it, or make the column optional",
            column=path,
        )

    def check_names(self, names: Sequence[str], fields: Sequence[NestedField], path: str) -> None:
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


# ---------------------------------------------------------------------------- columns by id


@dataclass(frozen=True)
class Leaf:
    """A primitive column, in the order that Parquet has them in. A repeated one is inside of a list or map."""

    field_id: int
    path: tuple[str, ...]
    kind: PrimitiveType
    repeated: bool

    @property
    def name(self) -> str:
        """How table properties call it."""
        return ".".join(self.path)


def leaves(fields: Iterable[NestedField], path: tuple[str, ...] = (), *, repeated: bool = False) -> Iterator[Leaf]:
    """The primitive columns of some fields."""
    for each in fields:
        here = (*path, each.name)
        match each.field_type:
            case StructType() as inner:
                yield from leaves(inner.fields, here, repeated=repeated)
            case ListType() as inner:
                yield from leaves((inner.element_field,), here, repeated=True)
            case MapType() as inner:
                yield from leaves((inner.key_field, inner.value_field), here, repeated=True)
            case PrimitiveType() as kind:
                yield Leaf(each.field_id, here, kind, repeated)


def leaf_of(schema: Schema, field_id: int) -> Leaf:
    """The primitive column with this id, which lies in no list and no map."""
    for leaf in leaves(schema.fields):
        if leaf.field_id == field_id and not leaf.repeated:
            return leaf
    raise UnsupportedTableError(
        f"field {field_id} is no plain column of the table", hint="only columns outside of lists and maps can be used"
    )


def check_types(schema: Schema) -> None:
    """Refuse types that cannot be read and written here."""
    for leaf in leaves(schema.fields):
        if isinstance(leaf.kind, GeometryType | GeographyType):
            raise _unsupported(leaf.name, leaf.kind)


def _unsupported(column: str, kind: IcebergType) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"column {column} has the type {kind}, which this version cannot read or write",
        hint="leave the column out, or use another engine for this table",
        column=column,
        type=str(kind),
    )


def _stored(fields: Iterable[NestedField], path: str = "") -> Iterator[NestedField]:
    """The fields that have a place in a file: those of the unknown type have none."""
    for each in fields:
        here = f"{path}.{each.name}" if path else each.name
        match each.field_type:
            case UnknownType():
                continue
            case StructType() as inner:
                kept = tuple(_stored(inner.fields, here))
                if not kept:
                    raise _unsupported(here, inner)
                yield each.model_copy(update={"field_type": StructType(*kept)})
            case ListType() | MapType() as inner:
                if any(isinstance(leaf.kind, UnknownType) for leaf in leaves((each,))):
                    raise _unsupported(here, inner)
                yield each
            case _:
                yield each


def plain(values: Any) -> Any:
    """The stored values of an extension type, on which Arrow can compute."""
    if not isinstance(values.type, pa.BaseExtensionType):
        return values
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([each.storage for each in values.chunks], values.type.storage_type)
    return values.storage


def _as_numbers(values: Any) -> Any:
    """Times as the integers that Iceberg keeps; everything else as it is."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    if pa.types.is_time64(values.type) or pa.types.is_timestamp(values.type):
        return values.cast(pa.int64())
    return plain(values)


def _column(table: pa.Table, leaf: Leaf) -> pa.ChunkedArray:
    column = table.column(leaf.path[0])
    return pc.struct_field(column, list(leaf.path[1:])) if len(leaf.path) > 1 else column


# ---------------------------------------------------------------------------- partitions and order


def _transformed(values: pa.ChunkedArray, kind: PrimitiveType, transform: Transform[Any, Any]) -> pa.ChunkedArray:
    if isinstance(transform, IdentityTransform):
        return _as_numbers(values)
    if isinstance(kind, TimestampNanoType | TimestamptzNanoType):
        values = _floored_to_micros(values)  # what the specification says of all transforms of nanoseconds
    if isinstance(transform, TruncateTransform) and isinstance(kind, BinaryType):
        return pc.binary_slice(values, 0, transform.width)
    if not isinstance(transform, BucketTransform | TruncateTransform | TimeTransform):
        raise UnsupportedTableError(
            f"the transform {transform!r} is not known to this version", hint="write with an engine that knows it"
        )
    return transform.pyarrow_transform(kind)(values)


def _floored_to_micros(values: pa.ChunkedArray) -> pa.ChunkedArray:
    nulls = values.is_null().to_numpy()
    nanos = values.cast(pa.int64()).fill_null(0).to_numpy()
    micros = pa.array(np.floor_divide(nanos, 1000), pa.int64(), mask=nulls)
    return pa.chunked_array([micros.cast(pa.timestamp("us", values.type.tz))])


def _split(table: pa.Table, metadata: TableMetadata) -> Iterator[tuple[Record, pa.Array | None]]:
    """The partitions of some rows: the partition record, and which rows; None means all of them."""
    spec, schema = metadata.spec(), metadata.schema()
    active = [place for place, each in enumerate(spec.fields) if not isinstance(each.transform, Void)]
    if not active:
        yield Record(*[None] * len(spec.fields)), None
        return
    keys, kinds = {}, {}
    for place in active:
        leaf = leaf_of(schema, spec.fields[place].source_id)
        keys[f"{place}"] = _transformed(_column(table, leaf), leaf.kind, spec.fields[place].transform)
        identity = isinstance(spec.fields[place].transform, IdentityTransform)
        kinds[place] = leaf.kind if identity else None
    rows = pa.array(np.arange(table.num_rows))
    grouped = pa.table({**keys, "rows": rows}).group_by(list(keys), use_threads=False).aggregate([("rows", "list")])
    members = grouped.column("rows_list")
    values = {place: grouped.column(f"{place}").to_pylist() for place in active}
    for group in range(grouped.num_rows):
        record: list[object] = [None] * len(spec.fields)
        for place in active:
            record[place] = _partition_value(values[place][group], kinds[place])
        yield Record(*record), members[group].values


def _partition_value(value: Any, kind: IcebergType | None) -> object:
    """As manifests give it back, which is an UUID for an UUID."""
    return uuid.UUID(bytes=value) if isinstance(kind, UUIDType) and value is not None else value


def _sorted(table: pa.Table, schema: Schema, order: SortOrder) -> pa.Table:
    """Stable. A NaN is larger than every other number; where nulls go is said for each column."""
    columns: dict[str, Any] = {}
    keys: list[tuple[str, str]] = []
    for place, each in enumerate(order.fields):
        if isinstance(each.transform, Void):
            continue
        leaf = leaf_of(schema, each.source_id)
        values = _transformed(_column(table, leaf), leaf.kind, each.transform)
        direction = "ascending" if each.direction == SortDirection.ASC else "descending"
        nulls_first = each.null_order == NullOrder.NULLS_FIRST
        columns[f"{place}-null"] = values.is_null().cast(pa.int8())
        keys.append((f"{place}-null", "descending" if nulls_first else "ascending"))
        if pa.types.is_floating(values.type):
            columns[f"{place}-nan"] = pc.is_nan(values).cast(pa.int8())
            keys.append((f"{place}-nan", direction))
        columns[f"{place}"] = values
        keys.append((f"{place}", direction))
    if not keys or table.num_rows < 2:
        return table
    return table.take(pc.sort_indices(pa.table(columns), sort_keys=keys))


# ---------------------------------------------------------------------------- metrics


def metrics_modes(columns: Sequence[Leaf], properties: Mapping[str, str]) -> dict[int, MetricsMode]:
    """What is measured of each column, as the table's properties say."""
    usual = _metrics_mode(METRICS_DEFAULT, properties.get(METRICS_DEFAULT, _BOUND_LENGTH))
    modes = {}
    for leaf in columns:
        own = properties.get(METRICS_COLUMN + leaf.name)
        mode = usual if own is None else _metrics_mode(METRICS_COLUMN + leaf.name, own)
        modes[leaf.field_id] = mode
    return modes


def _metrics_mode(name: str, value: str) -> MetricsMode:
    try:
        return match_metrics_mode(value)
    except ValueError as error:
        raise _bad_property(name, value, "none, counts, full, or truncate(n)") from error


def _bad_property(name: str, value: str, expected: str) -> TableUsageError:
    return TableUsageError(
        f"the table property {name} is {value!r}", hint=f"set it to {expected}", property=name, value=value
    )


def lower_bound(kind: PrimitiveType, value: Any, length: int | None) -> bytes:
    """A value that is not larger, in the bytes of a manifest."""
    if length is not None and isinstance(kind, StringType | BinaryType):
        value = value[:length]
    elif isinstance(kind, FloatType | DoubleType) and value == 0:
        value = -0.0
    return to_bytes(kind, value)


def upper_bound(kind: PrimitiveType, value: Any, length: int | None) -> bytes | None:
    """A value that is not smaller, in the bytes of a manifest; None where no short one is."""
    if length is not None and isinstance(kind, StringType | BinaryType) and len(value) > length:
        value = _next_text(value[:length]) if isinstance(value, str) else _next_octets(value[:length])
        if value is None:
            return None
    elif isinstance(kind, FloatType | DoubleType) and value == 0:
        value = 0.0
    return to_bytes(kind, value)


def _next_text(prefix: str) -> str | None:
    """The smallest text of at most this length that is behind all that begin with `prefix`."""
    for end in range(len(prefix), 0, -1):
        point = ord(prefix[end - 1]) + 1
        if 0xD800 <= point < 0xE000:
            point = 0xE000  # surrogates are no characters
        if point <= 0x10FFFF:
            return prefix[: end - 1] + chr(point)
    return None


def _next_octets(prefix: bytes) -> bytes | None:
    for end in range(len(prefix), 0, -1):
        if prefix[end - 1] < 0xFF:
            return prefix[: end - 1] + bytes((prefix[end - 1] + 1,))
    return None


def _measured(
    table: pa.Table, columns: Sequence[Leaf], modes: Mapping[int, MetricsMode], footer: pq.FileMetaData
) -> dict[str, dict[int, Any]]:
    """The metrics of one file, by the names of the fields of its manifest entry."""
    sizes: dict[int, int] = {}
    values: dict[int, int] = {}
    nulls: dict[int, int] = {}
    nans: dict[int, int] = {}
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    groups = [footer.row_group(each) for each in range(footer.num_row_groups)]
    for place, leaf in enumerate(columns):
        chunks = [group.column(place) for group in groups]
        sizes[leaf.field_id] = sum(each.total_compressed_size for each in chunks)
        mode = modes[leaf.field_id]
        if mode.type is MetricModeTypes.NONE:
            continue
        values[leaf.field_id] = sum(each.num_values for each in chunks)
        if leaf.repeated:
            if all(each.is_stats_set and each.statistics.has_null_count for each in chunks):
                nulls[leaf.field_id] = sum(each.statistics.null_count for each in chunks)
            continue
        column = _as_numbers(_column(table, leaf))
        nulls[leaf.field_id] = column.null_count
        if isinstance(leaf.kind, FloatType | DoubleType):
            is_nan = pc.is_nan(column)
            nans[leaf.field_id] = pc.sum(is_nan).as_py() or 0
            column = column.filter(pc.invert(is_nan)) if nans[leaf.field_id] else column
        if mode.type is MetricModeTypes.COUNTS or column.null_count == len(column):
            continue
        extremes = pc.min_max(column).as_py()
        lower[leaf.field_id] = lower_bound(leaf.kind, extremes["min"], mode.length)
        if (bound := upper_bound(leaf.kind, extremes["max"], mode.length)) is not None:
            upper[leaf.field_id] = bound
    return {
        "column_sizes": sizes,
        "value_counts": values,
        "null_value_counts": nulls,
        "nan_value_counts": nans,
        "lower_bounds": lower,
        "upper_bounds": upper,
    }


def _split_offsets(footer: pq.FileMetaData) -> list[int]:
    firsts = [footer.row_group(each).column(0) for each in range(footer.num_row_groups)]
    return sorted(
        min(each.dictionary_page_offset, each.data_page_offset) if each.has_dictionary_page else each.data_page_offset
        for each in firsts
    )


# ---------------------------------------------------------------------------- files


@dataclass(frozen=True)
class _Layout:
    """How the files of one table are to look."""

    metadata: TableMetadata
    fields: tuple[NestedField, ...]
    columns: tuple[Leaf, ...]
    modes: Mapping[int, MetricsMode]
    folder: str
    token: str
    target_bytes: int
    group_bytes: int

    @property
    def arrow(self) -> pa.Schema:
        """What is written, with its field ids."""
        return schema_to_pyarrow(Schema(*self.fields))

    def writer_options(self, rows_per_group: int) -> dict[str, Any]:
        """What the Parquet writer is told."""
        properties = self.metadata.properties
        codec = properties.get(COMPRESSION, "zstd").lower()
        options: dict[str, Any] = {
            "compression": "none" if codec == "uncompressed" else codec,
            "store_schema": False,
            "store_decimal_as_integer": True,
            "write_page_index": True,
        }
        if COMPRESSION_LEVEL in properties:
            options["compression_level"] = _number(properties, COMPRESSION_LEVEL, 0)
        blooms = {
            leaf.name: {"ndv": rows_per_group}
            for leaf in self.columns
            if properties.get(BLOOM_FILTER + leaf.name, "").lower() == "true" and not isinstance(leaf.kind, BooleanType)
        }
        return {**options, "bloom_filter_options": blooms} if blooms else options


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name)
    if text is None:
        return default
    if not text.strip().isdigit() or int(text) < 1:
        raise _bad_property(name, text, "a whole number above zero")
    return int(text)


def _layout(metadata: TableMetadata, lineage: Sequence[NestedField], randomness: Randomness) -> _Layout:
    schema, properties = metadata.schema(), metadata.properties
    fields = (*_stored(schema.fields), *lineage)
    if not fields:
        raise UnsupportedTableError(
            f"{metadata.location} has no column that a file could hold", hint="add one", path=metadata.location
        )
    columns = tuple(leaves(fields))
    folder = properties.get(DATA_PATH) or f"{metadata.location.rstrip('/')}/data"
    return _Layout(
        metadata,
        fields,
        columns,
        metrics_modes(columns, properties),
        folder.rstrip("/"),
        randomness.randbytes(16).hex(),
        _number(properties, TARGET_FILE_SIZE, 128 * _MEGABYTE),
        _number(properties, ROW_GROUP_SIZE, 128 * _MEGABYTE),
    )


def _encoded(table: pa.Table, layout: _Layout) -> Iterator[tuple[pa.Table, bytes, pq.FileMetaData]]:
    """The rows as one or more Parquet files, each about as large as wanted."""
    row_bytes = max(1, math.ceil(table.nbytes / table.num_rows))
    group_rows = max(1, min(_ROWS_PER_GROUP, layout.group_bytes // row_bytes, layout.target_bytes // row_bytes))
    options, schema = layout.writer_options(group_rows), layout.arrow
    start = 0
    while start < table.num_rows:
        buffer, end = pa.BufferOutputStream(), start
        footers: list[pq.FileMetaData] = []
        try:
            with pq.ParquetWriter(buffer, schema, metadata_collector=footers, **options) as writer:
                while end < table.num_rows and (end == start or buffer.tell() < layout.target_bytes):
                    writer.write_table(table.slice(end, group_rows), row_group_size=group_rows)
                    end = min(end + group_rows, table.num_rows)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise TableUsageError(
                f"the rows cannot be written as Parquet: {error}",
                hint=f"check the properties write.parquet.* of {layout.metadata.location}",
                path=layout.metadata.location,
            ) from error
        yield table.slice(start, end - start), buffer.getvalue().to_pybytes(), footers[0]
        start = end


def _partition_folder(record: Record, metadata: TableMetadata) -> str:
    """The folders of a partition, for people: nobody reads values from them, so long ones are cut."""
    if not metadata.spec().fields:
        return ""
    segments = metadata.spec().partition_to_path(record, metadata.schema()).split("/")
    return "".join(f"{_shortened(each)}/" for each in segments)


def _shortened(segment: str) -> str:
    if len(segment) <= _LONGEST_SEGMENT:
        return segment
    return f"{segment[: _LONGEST_SEGMENT - 17]}-{hashlib.sha256(segment.encode()).hexdigest()[:16]}"


def _store(
    rows: pa.Table, chosen: pa.Array | None, record: Record, number: int, layout: _Layout, files: FileSink
) -> list[TableFile]:
    """Write the rows of one partition."""
    metadata, order = layout.metadata, layout.metadata.sort_order()
    part = rows if chosen is None else rows.take(chosen)
    folder = f"{layout.folder}/{_partition_folder(record, metadata)}"
    written = []
    for place, (table, data, footer) in enumerate(_encoded(_sorted(part, metadata.schema(), order), layout)):
        location = f"{folder}{number:05}-{place:05}-{layout.token}.parquet"
        entry = TableFile.from_args(
            _table_format_version=3,
            content=DataFileContent.DATA,
            file_path=location,
            file_format=FileFormat.PARQUET,
            partition=record,
            record_count=table.num_rows,
            file_size_in_bytes=len(data),
            split_offsets=_split_offsets(footer),
            sort_order_id=order.order_id,
            **_measured(table, layout.columns, layout.modes, footer),
        )
        entry.spec_id = metadata.default_spec_id
        files.write([NewFile(location, data)])
        written.append(cast(TableFile, entry))
    return written


def write_rows(
    rows: Rows,
    *,
    metadata: TableMetadata,
    files: FileSink,
    randomness: Randomness,
    options: WriteOptions = WriteOptions(),  # noqa: B008  (frozen)
) -> tuple[TableFile, ...]:
    """Write rows into data files of the table as it is now, and store them; no row, no file.

    What was stored before an error is referenced by nobody.
    """
    schema = metadata.schema()
    check_types(schema)
    batches: Iterable[pa.RecordBatch] = rows.to_batches() or [_no_rows(rows)] if isinstance(rows, pa.Table) else rows
    layout: _Layout | None = None
    numbers = count()
    written: list[TableFile] = []
    pending: list[pa.RecordBatch] = []
    pending_bytes = 0
    for batch in batches:
        if layout is None:
            layout = _layout(metadata, _lineage_in(batch, metadata), randomness)
        fitted = _fitted(batch, layout, schema)
        if fitted.num_rows:
            pending.append(fitted)
            pending_bytes += fitted.nbytes
        if pending_bytes >= options.buffer_size_bytes:
            written += _flush(pending, layout, files, numbers, options)
            pending, pending_bytes = [], 0
    if layout is not None and pending:
        written += _flush(pending, layout, files, numbers, options)
    return tuple(written)


def _no_rows(rows: pa.Table) -> pa.RecordBatch:
    """An empty batch, so that the columns are checked even when there is no row."""
    return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in rows.schema], schema=rows.schema)


def _lineage_in(batch: pa.RecordBatch, metadata: TableMetadata) -> list[NestedField]:
    """Which columns of row lineage the rows carry; before v3 there is no such thing."""
    own = {each.name for each in metadata.schema().fields}
    if metadata.format_version < 3:
        return []
    return [each for each in _LINEAGE if each.name in batch.schema.names and each.name not in own]


def _fitted(batch: pa.RecordBatch, layout: _Layout, schema: Schema) -> pa.RecordBatch:
    lineage = [each for each in layout.fields if each in _LINEAGE]
    arrays = fit_columns(batch, (*schema.fields, *lineage), _RowsOfUser())
    named = dict(zip((each.name for each in (*schema.fields, *lineage)), arrays, strict=True))
    return pa.RecordBatch.from_arrays(
        [_pruned(named[each.name], each.field_type) for each in layout.fields], schema=_plain_schema(layout.fields)
    )


def _plain_schema(fields: Sequence[NestedField]) -> pa.Schema:
    return schema_to_pyarrow(Schema(*fields), include_field_ids=False)


def _pruned(values: pa.Array, kind: IcebergType) -> pa.Array:
    """Without the fields of the unknown type inside of it."""
    if not isinstance(kind, StructType) or values.type == arrow_type(kind):
        return values
    children = [_pruned(values.field(each.name), each.field_type) for each in kind.fields]
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(kind)), mask=values.is_null())


def _flush(
    batches: list[pa.RecordBatch], layout: _Layout, files: FileSink, numbers: Iterator[int], options: WriteOptions
) -> list[TableFile]:
    table = pa.Table.from_batches(batches).combine_chunks()
    parts = list(_split(table, layout.metadata))

    def job(record: Record, chosen: pa.Array | None, number: int) -> Callable[[], list[TableFile]]:
        return lambda: _store(table, chosen, record, number, layout, files)

    jobs = [job(record, chosen, next(numbers)) for record, chosen in parts]
    return [file for part in _in_parallel(jobs, options.threads) for file in part]


def _in_parallel(jobs: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """The results in order. After an error nothing new is begun."""
    if threads < 2 or len(jobs) < 2:
        return [job() for job in jobs]
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(job) for job in jobs]
        try:
            return [each.result() for each in futures]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


# ---------------------------------------------------------------------------- position deletes

_DELETE_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(DELETE_FILE_PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(DELETE_FILE_POSITION_ID)}),
    ]
)


def position_delete_file(location: str, positions: BitMap64, data_file: TableFile) -> tuple[TableFile, NewFile]:
    """A position delete file (v2) about one data file. The bounds of the path are whole: it is found by them."""
    path = data_file.file_path
    table = pa.table(
        [pa.repeat(path, len(positions)), pa.array(positions.to_array(), pa.int64())], schema=_DELETE_SCHEMA
    )
    buffer = pa.BufferOutputStream()
    footers: list[pq.FileMetaData] = []
    with pq.ParquetWriter(
        buffer, _DELETE_SCHEMA, compression="zstd", store_schema=False, metadata_collector=footers
    ) as writer:
        writer.write_table(table)
    data, groups = buffer.getvalue().to_pybytes(), range(footers[0].num_row_groups)
    ids = (DELETE_FILE_PATH_ID, DELETE_FILE_POSITION_ID)
    encoded = path.encode()
    entry = TableFile.from_args(
        _table_format_version=3,
        content=DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=data_file.partition,
        record_count=len(positions),
        file_size_in_bytes=len(data),
        column_sizes={
            field_id: sum(footers[0].row_group(each).column(place).total_compressed_size for each in groups)
            for place, field_id in enumerate(ids)
        },
        value_counts=dict.fromkeys(ids, len(positions)),
        null_value_counts=dict.fromkeys(ids, 0),
        lower_bounds=dict(zip(ids, (encoded, struct.pack("<q", positions.min())), strict=True)),
        upper_bounds=dict(zip(ids, (encoded, struct.pack("<q", positions.max())), strict=True)),
        split_offsets=_split_offsets(footers[0]),
        referenced_data_file=path,
    )
    entry.spec_id = data_file.spec_id
    return cast(TableFile, entry), NewFile(location, data)

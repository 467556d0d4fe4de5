"""Rows by partition, and in the sort order of the table."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, TimeTransform, Transform, TruncateTransform
from pyiceberg.transforms import VoidTransform as Void
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, IcebergType, PrimitiveType, TimestampNanoType, TimestamptzNanoType, UUIDType

from headwater.tables.arrow import as_numbers
from headwater.tables.leaves import column_of, leaf_of
from headwater.tables.model import UnsupportedTableError


def split_rows(table: pa.Table, metadata: TableMetadata) -> Iterator[tuple[Record, pa.Array | None]]:
    """The partitions of some rows: the partition record, and which rows; None means all of them."""
    spec, schema = metadata.spec(), metadata.schema()
    active = [place for place, each in enumerate(spec.fields) if not isinstance(each.transform, Void)]
    if not active:
        yield Record(*[None] * len(spec.fields)), None
        return
    keys, kinds = {}, {}
    for place in active:
        leaf = leaf_of(schema, spec.fields[place].source_id)
        keys[f"{place}"] = _transformed(column_of(table, leaf), leaf.kind, spec.fields[place].transform)
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


def sort_rows(table: pa.Table, schema: Schema, order: SortOrder) -> pa.Table:
    """Stable. A NaN is larger than every other number; where nulls go is said for each column."""
    columns: dict[str, Any] = {}
    keys: list[tuple[str, str]] = []
    for place, each in enumerate(order.fields):
        if isinstance(each.transform, Void):
            continue
        leaf = leaf_of(schema, each.source_id)
        values = _transformed(column_of(table, leaf), leaf.kind, each.transform)
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


def _transformed(values: pa.ChunkedArray, kind: PrimitiveType, transform: Transform[Any, Any]) -> pa.ChunkedArray:
    if isinstance(transform, IdentityTransform):
        return as_numbers(values)
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

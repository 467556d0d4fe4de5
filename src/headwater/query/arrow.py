"""Arrow on its way into DuckDB and out of it, where the two do not mean the same by a type."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def for_duckdb(rows: pa.Table) -> pa.Table:
    """`rows` in types that DuckDB takes without loss: it would cut zoned nanoseconds to microseconds."""
    for place, each in enumerate(rows.schema):
        kind = each.type
        if pa.types.is_timestamp(kind) and kind.unit == "ns" and kind.tz is not None:
            rows = rows.set_column(place, each.name, rows.column(place).cast(pa.timestamp("ns")))
    return rows


def with_uuids(schema: pa.Schema, uuids: Sequence[bool]) -> pa.Schema:
    """The schema of a result in which these columns are UUIDs, which DuckDB hands out as text."""
    for place, is_uuid in enumerate(uuids):
        if is_uuid:
            schema = schema.set(place, pa.field(schema.field(place).name, pa.uuid()))
    return schema


def convert(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in the schema that `with_uuids` made."""
    arrays = [
        uuids_of(column) if each.type == pa.uuid() and column.type != pa.uuid() else column
        for column, each in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def uuids_of(texts: pa.Array) -> pa.Array:
    """UUIDs from their text."""
    digits = pc.fill_null(pc.replace_substring(texts, "-", ""), "0" * 32)
    data = bytes.fromhex("".join(digits.to_pylist()))
    valid = pc.is_valid(texts)
    storage = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(texts), [None, pa.py_buffer(data)])
    return pa.ExtensionArray.from_storage(pa.uuid(), pc.if_else(valid, storage, pa.scalar(None, pa.binary(16))))

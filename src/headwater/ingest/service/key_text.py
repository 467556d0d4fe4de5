"""Keys as a person types them: one text for each key column, read by the column's type."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence

import pyarrow as pa

from headwater.ingest.apply.model import BadRequestError
from headwater.ingest.model import TableShape


def key_of(texts: Sequence[str], shape: TableShape) -> pa.RecordBatch:
    """One row of the key columns. Bytes are written in hex, moments with a zone as in 2026-01-31T12:00:00Z."""
    if len(texts) != len(shape.key):
        raise BadRequestError(
            f"the key of {shape.name} has {len(shape.key)} columns, and {len(texts)} texts were given",
            hint="give " + " ".join(name.upper() for name in shape.key),
            table=shape.name,
        )
    fields = [shape.schema.field(name) for name in shape.key]
    arrays = [_value(text, field) for text, field in zip(texts, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def checked_key(key: pa.RecordBatch | None, shape: TableShape) -> pa.RecordBatch:
    """The one row of key columns that was sent, if it is that."""
    if key is None or key.num_rows != 1:
        raise BadRequestError("one key is looked up at a time", hint="send one row of key columns", table=shape.name)
    for field in (shape.schema.field(name) for name in shape.key):
        sent = [each.type for each in key.schema if each.name == field.name]
        if sent != [field.type]:
            raise BadRequestError(
                f"the key of {shape.name} is not one column {field.name} of type {field.type}",
                hint="columns: " + ", ".join(shape.key),
                column=field.name,
            )
    return key.select(list(shape.key))


def _value(text: str, field: pa.Field) -> pa.Array:
    kind = field.type
    try:
        if isinstance(kind, pa.UuidType):
            return pa.array([uuid.UUID(text).bytes], kind.storage_type).cast(kind)
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
            return pa.array([bytes.fromhex(text)], kind)
        if pa.types.is_time(kind):
            return pa.array([dt.time.fromisoformat(text)], kind)
        return pa.array([text]).cast(kind)
    except (ValueError, pa.ArrowException) as error:
        raise BadRequestError(
            f"{text!r} is no {kind} for {field.name}",
            hint="bytes are written in hex, dates as in 2026-01-31, moments as in 2026-01-31T12:00:00Z",
            column=field.name,
        ) from error

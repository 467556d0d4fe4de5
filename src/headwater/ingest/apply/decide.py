"""What a request means, before anything is done: everything that can be refused is refused here."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.ingest.apply.model import (
    NO_ROWS,
    BadRequestError,
    Rows,
    StreamChange,
    TableUpdate,
    UpdateRequest,
    WrongNodeError,
)
from headwater.ingest.keys import NO_KEYS, Keys, encode, virtual_nodes
from headwater.ingest.model import MAXIMUM_TIMESTAMP, Position, Stream, TableShape

_TEXTS = frozenset({pa.string(), pa.large_string(), pa.string_view()})
_BYTES = frozenset({pa.binary(), pa.large_binary(), pa.binary_view()})


def changes(
    request: UpdateRequest, tables: Mapping[str, TableShape], virtual_node_count: int, owned: frozenset[int]
) -> tuple[StreamChange, ...]:
    """The changes of each stream, in the order of streams. Raises, and nothing was done."""
    if not 0 < request.position.timestamp <= MAXIMUM_TIMESTAMP:
        raise BadRequestError(
            f"{request.position.timestamp} is no timestamp of a request",
            hint=f"it is above 0, and at most {MAXIMUM_TIMESTAMP}",
            timestamp=request.position.timestamp,
        )
    seen: set[Stream] = set()
    found = []
    for update in request.updates:
        change = _change(update, request.position, tables, virtual_node_count, owned)
        if change.stream in seen:
            raise BadRequestError(
                f"{update.table} at virtual node {update.virtual_node} is in the request twice",
                hint="put its rows together",
            )
        seen.add(change.stream)
        found.append(change)
    return tuple(sorted(found, key=lambda each: each.stream))


def is_applied(position: Position, applied: Position | None) -> bool:
    """Whether a request was applied before: it is acknowledged without effect (I10)."""
    return applied is not None and position <= applied


def _change(
    update: TableUpdate,
    position: Position,
    tables: Mapping[str, TableShape],
    virtual_node_count: int,
    owned: frozenset[int],
) -> StreamChange:
    shape = tables.get(update.table)
    if shape is None:
        raise BadRequestError(f"table {update.table} is unknown", hint="the node takes " + ", ".join(sorted(tables)))
    if update.key_timestamp != position.timestamp:
        raise BadRequestError(
            f"keys of {update.table} say timestamp {update.key_timestamp}, the request {position.timestamp}",
            hint="all effects of one transaction carry its timestamp",
        )
    if not 0 <= update.virtual_node < virtual_node_count:
        raise BadRequestError(
            f"there is no virtual node {update.virtual_node}", hint=f"0 to {virtual_node_count - 1}, by the topology"
        )
    if update.virtual_node not in owned:
        raise WrongNodeError(
            f"virtual node {update.virtual_node} lives on another node",
            hint="send it to the node that the topology names",
            virtual_node=update.virtual_node,
        )
    deletes = _keys(update.deletes, shape)
    inserts = _rows(update.inserts, shape, "inserts")
    updates = _rows(update.updates, shape, "updates")
    if deletes.is_same(inserts.keys):
        deletes = NO_KEYS  # every row is replaced, as a feeder sends it: no key only ends
    for each in (deletes, inserts.keys, updates.keys):
        _refuse_strangers(each, update, virtual_node_count)
    return _collapsed(Stream(shape.id, update.virtual_node), shape, deletes, inserts, updates)


def _collapsed(stream: Stream, shape: TableShape, deletes: Keys, inserts: Rows, updates: Rows) -> StreamChange:
    """All of a request has one timestamp, so of each key only its last row can ever be seen."""
    inserted = _last_of_each(inserts)
    updated = _last_of_each(updates)
    if len(updated) and len(inserted) and updated.keys.is_in(inserted.keys).any():
        raise BadRequestError(
            f"a key of {shape.name} is both in updates and in inserts",
            hint="send a row that is replaced as its key in deletes and the row in inserts",
        )
    if len(updated) and len(deletes) and updated.keys.is_in(deletes).any():
        raise BadRequestError(
            f"a key of {shape.name} is both in updates and in deletes", hint="send deletes and inserts instead"
        )
    return StreamChange(stream, shape, _only_ended(deletes, inserted.keys), inserted, updated)


def _only_ended(deletes: Keys, inserted: Keys) -> Keys:
    """The keys that get no new row, each once."""
    positions = deletes.last_positions()
    if len(positions) and len(inserted):
        positions = positions[~deletes.is_in(inserted)[positions]]
    return deletes if len(positions) == len(deletes) else deletes.take(positions)


def _last_of_each(rows: Rows) -> Rows:
    positions = rows.keys.last_positions()
    if len(positions) == len(rows):
        return rows
    return Rows(rows.batch.take(pa.array(positions)), rows.keys.take(positions))


def _keys(batch: pa.RecordBatch | None, shape: TableShape) -> Keys:
    if batch is None:
        return NO_KEYS
    return encode(_fitted(batch, _key_schema(shape), shape, "deletes"), shape.key)


def _rows(batch: pa.RecordBatch | None, shape: TableShape, part: str) -> Rows:
    if batch is None:
        return NO_ROWS
    fitted = _fitted(batch, shape.schema, shape, part)
    return Rows(fitted, encode(fitted, shape.key))


def _key_schema(shape: TableShape) -> pa.Schema:
    return pa.schema([shape.schema.field(name) for name in shape.key])


def _fitted(batch: pa.RecordBatch, schema: pa.Schema, shape: TableShape, part: str) -> pa.RecordBatch:
    """The batch with exactly these columns, in their order; or a reason why not."""
    names = batch.schema.names
    if unknown := [name for name in names if name not in schema.names]:
        raise BadRequestError(f"{shape.name} has no column {unknown[0]} ({part})", hint=_columns(schema))
    if missing := [name for name in schema.names if name not in names]:
        raise BadRequestError(f"column {missing[0]} of {shape.name} is missing in {part}", hint=_columns(schema))
    if len(set(names)) != len(names):
        raise BadRequestError(f"a column of {shape.name} is in {part} twice", hint=_columns(schema))
    columns = []
    for field in schema:
        column = _widened(batch.column(field.name), field.type)
        if column.type != field.type:
            raise BadRequestError(
                f"column {field.name} of {shape.name} is {field.type}, and {part} bring {column.type}",
                hint="cast it before sending",
            )
        if not field.nullable and column.null_count:
            raise BadRequestError(
                f"column {field.name} of {shape.name} is null in row {_first_null(column)} of {part}",
                hint="it is part of the key" if field.name in shape.key else "it is required",
            )
        if pa.types.is_nested(field.type):
            _refuse_null_parts(column, field, shape, part)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _refuse_null_parts(column: pa.Array, field: pa.Field, shape: TableShape, part: str) -> None:
    """Arrow looks at required parts of nested values when it casts; who writes files does when it is too late."""
    try:
        column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise BadRequestError(
            f"a required part of column {field.name} of {shape.name} is null in {part}", hint=str(error)
        ) from error


def _widened(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Text is text and bytes are bytes, however Arrow lays them out: a lake's own layout is not what a writer has."""
    is_same = any(column.type in each and wanted in each for each in (_TEXTS, _BYTES))
    return column.cast(wanted) if is_same and column.type != wanted else column


def _first_null(column: pa.Array) -> int:
    return int(np.flatnonzero(pc.is_null(column).to_numpy(zero_copy_only=False))[0])


def _columns(schema: pa.Schema) -> str:
    return "columns: " + ", ".join(f"{each.name} {each.type}" for each in schema)


def _refuse_strangers(keys: Keys, update: TableUpdate, count: int) -> None:
    if not len(keys):
        return
    homes = virtual_nodes(keys.hashes(), count)
    if (wrong := np.flatnonzero(homes != update.virtual_node)).size:
        raise BadRequestError(
            f"row {wrong[0]} of {update.table} belongs to virtual node {homes[wrong[0]]}, not {update.virtual_node}",
            hint="keys are spread by the hash that docs/formats.md describes",
        )
